//! Evaluates `[[ … ]]`.

use super::arithmetic;
use super::evaluate::{Evaluator, Pending};
use super::expand::Interrupt;
use super::meter;
use super::pattern::Pattern;
use super::plan::Condition;
use super::stream::Io;
use crate::commands::{regular, test};

impl Evaluator {
    pub(crate) fn condition<'a>(
        &'a mut self,
        condition: &'a Condition,
        io: &'a Io,
    ) -> Pending<'a, Result<bool, Interrupt>> {
        Box::pin(async move {
            self.meter.charge(meter::STEP)?;
            match condition {
                Condition::And(left, right) => {
                    Ok(self.condition(left, io).await? && self.condition(right, io).await?)
                }
                Condition::Or(left, right) => {
                    Ok(self.condition(left, io).await? || self.condition(right, io).await?)
                }
                Condition::Not(inner) => Ok(!self.condition(inner, io).await?),
                Condition::Unary('v', word) => {
                    let name = self.text(word, io).await?;
                    Ok(self.variables.get(&String::from_utf8_lossy(&name)).is_some())
                }
                Condition::Unary(letter, word) => {
                    let text = self.text(word, io).await?;
                    self.meter.charge(meter::ENTRY)?;
                    Ok(test::unary(*letter, &text, &self.files).unwrap_or(false))
                }
                Condition::Binary(name, left, right) => {
                    let left = self.text(left, io).await?;
                    let right = self.text(right, io).await?;
                    self.meter.charge(meter::ENTRY)?;
                    if test::is_numeric(name) {
                        let left = arithmetic::evaluate(&left, &mut self.variables)?;
                        let right = arithmetic::evaluate(&right, &mut self.variables)?;
                        return Ok(test::compare_numbers(name, left, right).unwrap_or(false));
                    }
                    Ok(test::compare(name, &left, &right, &self.files).unwrap_or(false))
                }
                Condition::Pattern { text, pattern, equal } => {
                    let text = self.text(text, io).await?;
                    let pattern = Pattern::new(&self.field(pattern, io).await?.pattern(), false);
                    self.meter.charge_each(pattern.cost(&text), meter::BYTE)?;
                    Ok(pattern.matches(&text) == *equal)
                }
                Condition::Regex { text, pattern } => {
                    let text = self.text(text, io).await?;
                    let pattern = self.field(pattern, io).await?.regex();
                    let options =
                        regular::Options { extended: true, ..regular::Options::default() };
                    let regex = regular::Regular::new(&pattern, options, &mut self.meter)?
                        .map_err(|message| Interrupt::Fail {
                            message: format!("[[ =~ ]]: {message}"),
                            status: 2,
                        })?;
                    Ok(regex.is_match(&text, &mut self.meter)?)
                }
            }
        })
    }
}
