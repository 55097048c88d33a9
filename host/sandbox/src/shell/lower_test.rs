//! Lowers `[[ … ]]`.

use brush_parser::ast::{BinaryPredicate, ExtendedTestExpr, Word as RawWord};

use super::plan::{Condition, Refusal, Word};
use super::syntax::Syntax;
use super::word::{Place, cut};

/// A condition, with its words cut.
pub(crate) fn condition(test: &ExtendedTestExpr, syntax: &Syntax) -> Result<Condition, Refusal> {
    let inner = syntax.deeper()?;
    let word =
        |raw: &RawWord| -> Result<Word, Refusal> { cut(raw.value.as_bytes(), Place::Word, &inner) };
    Ok(match test {
        ExtendedTestExpr::And(left, right) => {
            Condition::And(Box::new(condition(left, &inner)?), Box::new(condition(right, &inner)?))
        }
        ExtendedTestExpr::Or(left, right) => {
            Condition::Or(Box::new(condition(left, &inner)?), Box::new(condition(right, &inner)?))
        }
        ExtendedTestExpr::Not(test) => Condition::Not(Box::new(condition(test, &inner)?)),
        ExtendedTestExpr::Parenthesized(test) => condition(test, &inner)?,
        ExtendedTestExpr::UnaryTest(predicate, operand) => {
            let name = predicate.to_string();
            match name.strip_prefix('-').and_then(|name| name.chars().next()) {
                Some(
                    letter @ ('e' | 'f' | 'd' | 'h' | 's' | 'r' | 'w' | 'x' | 'z' | 'n' | 'v'),
                ) => Condition::Unary(letter, word(operand)?),
                _ => return Err(Refusal::unsupported(format!("[[ {name} ]]"))),
            }
        }
        ExtendedTestExpr::BinaryTest(predicate, left, right) => {
            let (left, right) = (word(left)?, word(right)?);
            let name = match predicate {
                BinaryPredicate::StringExactlyMatchesPattern
                | BinaryPredicate::StringExactlyMatchesString => {
                    return Ok(Condition::Pattern { text: left, pattern: right, equal: true });
                }
                BinaryPredicate::StringDoesNotExactlyMatchPattern
                | BinaryPredicate::StringDoesNotExactlyMatchString => {
                    return Ok(Condition::Pattern { text: left, pattern: right, equal: false });
                }
                BinaryPredicate::StringMatchesRegex | BinaryPredicate::StringContainsSubstring => {
                    return Ok(Condition::Regex { text: left, pattern: right });
                }
                BinaryPredicate::FilesReferToSameDeviceAndInodeNumbers => "-ef",
                BinaryPredicate::LeftFileIsNewerOrExistsWhenRightDoesNot => "-nt",
                BinaryPredicate::LeftFileIsOlderOrDoesNotExistWhenRightDoes => "-ot",
                BinaryPredicate::LeftSortsBeforeRight => "<",
                BinaryPredicate::LeftSortsAfterRight => ">",
                BinaryPredicate::ArithmeticEqualTo => "-eq",
                BinaryPredicate::ArithmeticNotEqualTo => "-ne",
                BinaryPredicate::ArithmeticLessThan => "-lt",
                BinaryPredicate::ArithmeticLessThanOrEqualTo => "-le",
                BinaryPredicate::ArithmeticGreaterThan => "-gt",
                BinaryPredicate::ArithmeticGreaterThanOrEqualTo => "-ge",
            };
            Condition::Binary(name, left, right)
        }
    })
}
