//! `$(( ))`: the kept parser's grammar behind guards, 64-bit wrapping integers.

use brush_parser::ast::{
    ArithmeticExpr, ArithmeticTarget, BinaryOperator, UnaryAssignmentOperator, UnaryOperator,
};

use super::meter::Stop;
use super::variables::{Readonly, Variables};

/// Longest expression.
const BYTES: usize = 512;
/// Deepest parentheses.
const DEPTH: usize = 32;
/// Most operators: each makes the tree deeper by one.
const OPERATORS: usize = 128;
/// Variables whose values are expressions, within each other.
const REFERENCES: usize = 4;

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It makes no sense; the message says why.
    Message(String),
    /// The command has to stop.
    Stop(Stop),
}

fn fail<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Message(message.into()))
}

/// The value of `text`; assignments in it change `variables`.
pub(crate) fn evaluate(text: &[u8], variables: &mut Variables) -> Result<i64, Failure> {
    evaluate_at(text, variables, 0)
}

fn evaluate_at(text: &[u8], variables: &mut Variables, depth: usize) -> Result<i64, Failure> {
    let Ok(text) = std::str::from_utf8(text) else {
        return fail("an arithmetic expression that is not UTF-8");
    };
    let text = text.trim();
    if text.is_empty() {
        return Ok(0);
    }
    if let Ok(number) = text.parse::<i64>()
        && !text.trim_start_matches('-').starts_with('0')
    {
        return Ok(number);
    }
    guard(text)?;
    let shown = text.escape_default();
    let expression = brush_parser::arithmetic::parse(text)
        .map_err(|_| Failure::Message(format!("{shown}: syntax error in arithmetic expression")))?;
    Evaluation { variables, depth }.value(&expression)
}

/// The grammar backtracks over indices and recurses over parentheses and operators.
fn guard(text: &str) -> Result<(), Failure> {
    if text.len() > BYTES {
        return fail(format!("an arithmetic expression longer than {BYTES} bytes"));
    }
    if text.contains('[') {
        return fail("arrays are not supported");
    }
    let (mut open, mut deepest) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' => open += 1,
            b')' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    let operators = text.bytes().filter(|byte| b"+-*/%<>=!&|^~?:,".contains(byte)).count();
    if deepest > DEPTH || operators > OPERATORS {
        return fail("an arithmetic expression nested too deep");
    }
    Ok(())
}

struct Evaluation<'a> {
    variables: &'a mut Variables,
    depth: usize,
}

impl Evaluation<'_> {
    fn value(&mut self, expression: &ArithmeticExpr) -> Result<i64, Failure> {
        match expression {
            ArithmeticExpr::Literal(number) => Ok(*number),
            ArithmeticExpr::Reference(target) => self.read(target),
            ArithmeticExpr::UnaryOp(operator, operand) => {
                let value = self.value(operand)?;
                Ok(match operator {
                    UnaryOperator::UnaryPlus => value,
                    UnaryOperator::UnaryMinus => value.wrapping_neg(),
                    UnaryOperator::BitwiseNot => !value,
                    UnaryOperator::LogicalNot => i64::from(value == 0),
                })
            }
            ArithmeticExpr::BinaryOp(BinaryOperator::LogicalAnd, left, right) => {
                Ok(i64::from(self.value(left)? != 0 && self.value(right)? != 0))
            }
            ArithmeticExpr::BinaryOp(BinaryOperator::LogicalOr, left, right) => {
                Ok(i64::from(self.value(left)? != 0 || self.value(right)? != 0))
            }
            ArithmeticExpr::BinaryOp(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                combine(operator, left, right)
            }
            ArithmeticExpr::Conditional(condition, yes, no) => {
                if self.value(condition)? != 0 {
                    self.value(yes)
                } else {
                    self.value(no)
                }
            }
            ArithmeticExpr::Assignment(target, value) => {
                let value = self.value(value)?;
                self.write(target, value)
            }
            ArithmeticExpr::BinaryAssignment(operator, target, value) => {
                let value = self.value(value)?;
                let value = combine(operator, self.read(target)?, value)?;
                self.write(target, value)
            }
            ArithmeticExpr::UnaryAssignment(operator, target) => {
                let before = self.read(target)?;
                let (step, answers_before) = match operator {
                    UnaryAssignmentOperator::PrefixIncrement => (1, false),
                    UnaryAssignmentOperator::PrefixDecrement => (-1, false),
                    UnaryAssignmentOperator::PostfixIncrement => (1, true),
                    UnaryAssignmentOperator::PostfixDecrement => (-1, true),
                };
                let after = self.write(target, before.wrapping_add(step))?;
                Ok(if answers_before { before } else { after })
            }
        }
    }

    fn read(&mut self, target: &ArithmeticTarget) -> Result<i64, Failure> {
        let name = name(target)?;
        let Some(value) = self.variables.get(name) else { return Ok(0) };
        if self.depth >= REFERENCES {
            return fail(format!("{name}: expression recursion level exceeded"));
        }
        let value = value.to_vec();
        evaluate_at(&value, self.variables, self.depth + 1)
    }

    fn write(&mut self, target: &ArithmeticTarget, value: i64) -> Result<i64, Failure> {
        let name = name(target)?;
        match self.variables.set(name, value.to_string().into_bytes()) {
            Ok(Ok(())) => Ok(value),
            Ok(Err(Readonly)) => fail(format!("{name}: readonly variable")),
            Err(stop) => Err(Failure::Stop(stop)),
        }
    }
}

fn name(target: &ArithmeticTarget) -> Result<&str, Failure> {
    match target {
        ArithmeticTarget::Variable(name) => Ok(name),
        ArithmeticTarget::ArrayElement(..) => fail("arrays are not supported"),
    }
}

fn combine(operator: &BinaryOperator, left: i64, right: i64) -> Result<i64, Failure> {
    Ok(match operator {
        BinaryOperator::Power => {
            if right < 0 {
                return fail("exponent less than 0");
            }
            power(left, right)
        }
        BinaryOperator::Multiply => left.wrapping_mul(right),
        BinaryOperator::Divide if right == 0 => return fail("division by 0"),
        BinaryOperator::Modulo if right == 0 => return fail("division by 0"),
        BinaryOperator::Divide => left.wrapping_div(right),
        BinaryOperator::Modulo => left.wrapping_rem(right),
        BinaryOperator::Comma => right,
        BinaryOperator::Add => left.wrapping_add(right),
        BinaryOperator::Subtract => left.wrapping_sub(right),
        BinaryOperator::ShiftLeft => left.wrapping_shl((right & 63) as u32),
        BinaryOperator::ShiftRight => left.wrapping_shr((right & 63) as u32),
        BinaryOperator::LessThan => i64::from(left < right),
        BinaryOperator::LessThanOrEqualTo => i64::from(left <= right),
        BinaryOperator::GreaterThan => i64::from(left > right),
        BinaryOperator::GreaterThanOrEqualTo => i64::from(left >= right),
        BinaryOperator::Equals => i64::from(left == right),
        BinaryOperator::NotEquals => i64::from(left != right),
        BinaryOperator::BitwiseAnd => left & right,
        BinaryOperator::BitwiseXor => left ^ right,
        BinaryOperator::BitwiseOr => left | right,
        BinaryOperator::LogicalAnd => i64::from(left != 0 && right != 0),
        BinaryOperator::LogicalOr => i64::from(left != 0 || right != 0),
    })
}

fn power(mut base: i64, mut exponent: i64) -> i64 {
    let mut result = 1_i64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<i64, Failure> {
        let mut variables = Variables::new(10_000);
        variables.set("x", b"7".to_vec()).unwrap().unwrap();
        variables.set("y", b"x + 1".to_vec()).unwrap().unwrap();
        variables.set("loop", b"loop".to_vec()).unwrap().unwrap();
        evaluate(text.as_bytes(), &mut variables)
    }

    #[test]
    fn expressions_have_the_values_bash_gives_them() {
        for (text, expected) in [
            ("", 0),
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("2 ** 10", 1024),
            ("7 / 2", 3),
            ("-7 % 3", -1),
            ("x > 3 ? 10 : 20", 10),
            ("y * 2", 16),
            ("x++ + x", 15),
            ("0x10 + 010", 24),
            ("!0 && 1", 1),
            ("1 << 4 | 1", 17),
            ("unset + 1", 1),
            ("x = 5, x + 1", 6),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_and_endless_references_are_messages() {
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        let minus = "- ".repeat(1500) + "1";
        for text in ["1 / 0", "1 % 0", "1 +", "a[1]", "loop", "2 ** -1", &deep, &minus] {
            assert!(matches!(value(text), Err(Failure::Message(_))), "{text}");
        }
    }
}
