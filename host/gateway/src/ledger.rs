//! What an episode has used and may still use.

use fulgurite_trace::Usage;

use crate::{BudgetKind, Budgets};

/// What is left of an episode's budgets; none means unlimited. What pending replies have reserved
/// is not left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// Completion tokens.
    pub tokens: Option<u64>,
    /// Model calls.
    pub turns: Option<u32>,
}

/// What an episode has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionUsage {
    /// Tokens that the model read, history included.
    pub prompt_tokens: u64,
    /// Those of them that were already in the policy's cache.
    pub cached_tokens: u64,
    /// Tokens that the model wrote in recorded replies.
    pub completion_tokens: u64,
    /// Recorded replies.
    pub turns: u32,
    /// Calls that failed or were given up on.
    pub failed: u32,
    /// Further attempts after transient failures.
    pub retries: u64,
}

/// Part of the budget that one call holds.
#[derive(Debug)]
#[must_use = "a reservation is settled exactly once"]
pub(crate) struct Reservation {
    /// The turn's number within the episode.
    pub(crate) index: u32,
    /// Completion tokens that the call may use.
    pub(crate) tokens: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    budgets: Limits,
    charged: u64,
    reserved: u64,
    started: u32,
    exhausted: bool,
    usage: SessionUsage,
}

#[derive(Debug, Default)]
struct Limits {
    tokens: Option<u64>,
    turns: Option<u32>,
}

impl Ledger {
    pub(crate) fn new(budgets: Budgets) -> Self {
        let budgets = Limits { tokens: budgets.tokens, turns: budgets.turns };
        Self { budgets, ..Self::default() }
    }

    /// Takes a turn and as many of the wished-for tokens as are left.
    pub(crate) fn reserve(&mut self, wish: u32) -> Result<Reservation, BudgetKind> {
        let remaining = self.remaining();
        if remaining.turns == Some(0) || self.started == u32::MAX {
            self.exhausted = true;
            return Err(BudgetKind::Turns);
        }
        let left = remaining.tokens.unwrap_or(u64::MAX);
        if left == 0 {
            // Pending replies may give some of theirs back; then the budget was not used up.
            self.exhausted |= self.reserved == 0;
            return Err(BudgetKind::Tokens);
        }
        let tokens = u32::try_from(left).unwrap_or(u32::MAX).min(wish);
        let index = self.started;
        self.started += 1;
        self.reserved = self.reserved.saturating_add(u64::from(tokens));
        Ok(Reservation { index, tokens })
    }

    /// The model has less room than was reserved.
    pub(crate) fn shrink(&mut self, reservation: &mut Reservation, tokens: u32) {
        let less = reservation.tokens.saturating_sub(tokens);
        reservation.tokens -= less;
        self.reserved = self.reserved.saturating_sub(u64::from(less));
    }

    /// A reply was recorded. Charged is what was written, also when the policy wrote more than it
    /// was allowed to.
    pub(crate) fn settle(&mut self, reservation: Reservation, usage: Usage, retries: u32) {
        self.release(reservation);
        self.charged = self.charged.saturating_add(usage.completion_tokens);
        let total = &mut self.usage;
        total.prompt_tokens = total.prompt_tokens.saturating_add(usage.prompt_tokens);
        total.cached_tokens = total.cached_tokens.saturating_add(usage.cached_tokens);
        total.completion_tokens = total.completion_tokens.saturating_add(usage.completion_tokens);
        total.turns += 1;
        total.retries += u64::from(retries);
    }

    /// No reply came: the turn is used, the tokens are not.
    pub(crate) fn fail(&mut self, reservation: Reservation, retries: u32) {
        self.release(reservation);
        self.usage.failed += 1;
        self.usage.retries += u64::from(retries);
    }

    /// The harness gave up on the reply: all that was reserved counts as written.
    pub(crate) fn give_up(&mut self, reservation: Reservation) {
        let tokens = u64::from(reservation.tokens);
        self.release(reservation);
        self.charged = self.charged.saturating_add(tokens);
        self.usage.failed += 1;
    }

    fn release(&mut self, reservation: Reservation) {
        self.reserved = self.reserved.saturating_sub(u64::from(reservation.tokens));
    }

    pub(crate) fn remaining(&self) -> Remaining {
        let taken = self.charged.saturating_add(self.reserved);
        Remaining {
            tokens: self.budgets.tokens.map(|tokens| tokens.saturating_sub(taken)),
            turns: self.budgets.turns.map(|turns| turns.saturating_sub(self.started)),
        }
    }

    /// Whether a call was refused for good.
    pub(crate) const fn exhausted(&self) -> bool {
        self.exhausted
    }

    pub(crate) const fn usage(&self) -> SessionUsage {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrote(completion_tokens: u64) -> Usage {
        Usage { prompt_tokens: 3, cached_tokens: 1, completion_tokens }
    }

    #[test]
    fn a_pending_reply_holds_its_share_and_gives_back_what_it_did_not_use() {
        let mut ledger = Ledger::new(Budgets { tokens: Some(10), turns: Some(4) });
        let first = ledger.reserve(8).unwrap();
        let second = ledger.reserve(8).unwrap();
        assert_eq!((first.tokens, second.tokens), (8, 2));
        assert_eq!(ledger.reserve(8).unwrap_err(), BudgetKind::Tokens);
        assert!(!ledger.exhausted(), "tokens may come back");
        ledger.settle(first, wrote(1), 0);
        ledger.fail(second, 2);
        assert_eq!(ledger.remaining(), Remaining { tokens: Some(9), turns: Some(2) });
        let third = ledger.reserve(9).unwrap();
        ledger.give_up(third);
        assert_eq!(ledger.reserve(1).unwrap_err(), BudgetKind::Tokens);
        assert!(ledger.exhausted());
        let usage = ledger.usage();
        assert_eq!((usage.turns, usage.failed, usage.retries), (1, 2, 2));
    }

    proptest! {
        /// However calls overlap and end, an obedient policy never writes more than the budget.
        #[test]
        fn the_budget_is_never_overdrawn(
            budget in 0_u64..200,
            turns in 0_u32..20,
            steps in prop::collection::vec((0_u8..5, 1_u32..64, 0.0_f64..=1.0), 0..60),
        ) {
            let mut ledger = Ledger::new(Budgets { tokens: Some(budget), turns: Some(turns) });
            let (mut pending, mut written, mut started) = (Vec::new(), 0_u64, 0_u32);
            for (action, wish, part) in steps {
                if action < 2 {
                    match ledger.reserve(wish) {
                        Ok(reservation) => {
                            prop_assert_eq!(reservation.index, started);
                            prop_assert!(reservation.tokens > 0 && reservation.tokens <= wish);
                            started += 1;
                            pending.push(reservation);
                        }
                        Err(BudgetKind::Turns) => prop_assert_eq!(started, turns),
                        Err(BudgetKind::Tokens) => {
                            prop_assert_eq!(ledger.remaining().tokens, Some(0));
                        }
                    }
                } else if let Some(reservation) = pending.pop() {
                    let tokens = reservation.tokens;
                    match action {
                        2 => {
                            let used = (f64::from(tokens) * part) as u64;
                            written += used;
                            ledger.settle(reservation, wrote(used), 0);
                        }
                        3 => ledger.fail(reservation, 0),
                        _ => {
                            written += u64::from(tokens);
                            ledger.give_up(reservation);
                        }
                    }
                }
                let reserved: u64 = pending.iter().map(|held| u64::from(held.tokens)).sum();
                prop_assert!(written + reserved <= budget);
                let left = ledger.remaining().tokens;
                prop_assert_eq!(left, Some(budget - written - reserved));
                prop_assert!(started <= turns);
            }
        }
    }
}
