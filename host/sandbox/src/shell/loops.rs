//! `for`, `while`, `until` and `case`.

use super::evaluate::{Evaluator, Flow, Step};
use super::meter::{self, Stop};
use super::pattern::Pattern;
use super::plan::{Arm, ArmEnd, List, Word};
use super::stream::Io;

impl Evaluator {
    pub(crate) async fn each(
        &mut self,
        variable: &str,
        words: Option<&[Word]>,
        body: &List,
        io: &Io,
    ) -> Step {
        let values = match words {
            None => self.positional.clone(),
            Some(words) => match self.fields(words, io).await {
                Ok(values) => values,
                Err(interrupt) => return self.interrupted(interrupt, io),
            },
        };
        self.status = 0;
        for value in values {
            if !self.assign(variable, value, io)? {
                return Ok(Flow::Next);
            }
            if let Some(flow) = self.turn(body, io).await? {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// One turn of a loop; answers the flow when the loop ends with it.
    async fn turn(&mut self, body: &List, io: &Io) -> Result<Option<Flow>, Stop> {
        self.meter.charge(meter::STEP)?;
        self.loops += 1;
        let result = self.list(body, io).await;
        self.loops -= 1;
        Ok(match result? {
            Flow::Next | Flow::Continue(0 | 1) => None,
            Flow::Break(0 | 1) => Some(Flow::Next),
            Flow::Break(levels) => Some(Flow::Break(levels - 1)),
            Flow::Continue(levels) => Some(Flow::Continue(levels - 1)),
            flow => Some(flow),
        })
    }

    pub(crate) async fn repeat(
        &mut self,
        condition: &List,
        until: bool,
        body: &List,
        io: &Io,
    ) -> Step {
        let mut status = 0;
        loop {
            self.loops += 1;
            let result = self.condition_list(condition, io).await;
            self.loops -= 1;
            match result? {
                Flow::Next | Flow::Continue(0 | 1) => {}
                Flow::Break(0 | 1) => return Ok(Flow::Next),
                flow => return Ok(flow),
            }
            if (self.status == 0) == until {
                self.status = status;
                return Ok(Flow::Next);
            }
            if let Some(flow) = self.turn(body, io).await? {
                return Ok(flow);
            }
            status = self.status;
            self.pause().await;
        }
    }

    pub(crate) async fn count(
        &mut self,
        (start, condition, step): (Option<&Word>, Option<&Word>, Option<&Word>),
        body: &List,
        io: &Io,
    ) -> Step {
        if let Some(start) = start
            && let Err(interrupt) = self.number(start, io).await
        {
            return self.interrupted(interrupt, io);
        }
        self.status = 0;
        loop {
            if let Some(condition) = condition {
                match self.number(condition, io).await {
                    Ok(0) => return Ok(Flow::Next),
                    Ok(_) => {}
                    Err(interrupt) => return self.interrupted(interrupt, io),
                }
            }
            if let Some(flow) = self.turn(body, io).await? {
                return Ok(flow);
            }
            if let Some(step) = step
                && let Err(interrupt) = self.number(step, io).await
            {
                return self.interrupted(interrupt, io);
            }
            self.pause().await;
        }
    }

    pub(crate) async fn case(&mut self, word: &Word, arms: &[Arm], io: &Io) -> Step {
        let text = match self.text(word, io).await {
            Ok(text) => text,
            Err(interrupt) => return self.interrupted(interrupt, io),
        };
        self.status = 0;
        let mut falls = false;
        for arm in arms {
            if !falls && !self.arm_matches(arm, &text, io).await? {
                continue;
            }
            if let Some(body) = &arm.body {
                match self.list(body, io).await? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            match arm.end {
                ArmEnd::Leave => return Ok(Flow::Next),
                ArmEnd::FallThrough => falls = true,
                ArmEnd::TryNext => falls = false,
            }
        }
        Ok(Flow::Next)
    }

    async fn arm_matches(&mut self, arm: &Arm, text: &[u8], io: &Io) -> Result<bool, Stop> {
        for pattern in &arm.patterns {
            let pattern = match self.field(pattern, io).await {
                Ok(field) => Pattern::new(&field.pattern(), false),
                Err(interrupt) => {
                    self.interrupted(interrupt, io)?;
                    return Ok(false);
                }
            };
            self.meter.charge_each(pattern.cost(text), meter::BYTE)?;
            if pattern.matches(text) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
