//! What work costs, and how a command is stopped.
//!
//! One unit of fuel stands for about one nanosecond of work, the same scale that WebAssembly
//! programs are charged in, so that one number bounds a command whatever it is made of. The
//! charges are fixed and never follow the host's clock: the same command stops at the same point
//! everywhere.

use crate::lane::LaneError;

/// Starting any command, built-in or not.
pub(crate) const COMMAND: u64 = 20_000;
/// Handling one byte once.
pub(crate) const BYTE: u64 = 1;
/// Handling one line, field or match.
pub(crate) const LINE: u64 = 100;
/// Looking at one entry of the file tree.
pub(crate) const ENTRY: u64 = 1_000;
/// One turn of a loop, one expanded word, one parsed token.
pub(crate) const STEP: u64 = 500;
/// Compiling a regular expression, for each unit of its weight.
pub(crate) const REGEX_COMPILE: u64 = 2_000;

/// Why a command ends before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its fuel is used up.
    Timeout,
    /// It went over a bound of memory; says which.
    Memory(String),
    /// The lane itself failed.
    Lane(LaneError),
}

/// The fuel of one command.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    left: u64,
    used: u64,
}

impl Meter {
    pub(crate) fn new(fuel: u64) -> Self {
        Self { left: fuel, used: 0 }
    }

    /// Takes `fuel`, or takes what is left and stops the command.
    pub(crate) fn charge(&mut self, fuel: u64) -> Result<(), Stop> {
        let taken = fuel.min(self.left);
        self.left -= taken;
        self.used = self.used.saturating_add(taken);
        if taken < fuel { Err(Stop::Timeout) } else { Ok(()) }
    }

    /// Charges for `count` things of `cost` each.
    pub(crate) fn charge_each(&mut self, count: usize, cost: u64) -> Result<(), Stop> {
        self.charge((count as u64).saturating_mul(cost))
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Leaves at most `fuel`; answers what was held back, for [`Meter::widen`].
    pub(crate) fn narrow(&mut self, fuel: u64) -> u64 {
        let held = self.left.saturating_sub(fuel);
        self.left -= held;
        held
    }

    /// Gives back what [`Meter::narrow`] held back.
    pub(crate) fn widen(&mut self, held: u64) {
        self.left = self.left.saturating_add(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_beyond_the_rest_takes_the_rest_and_stops() {
        let mut meter = Meter::new(10);
        assert_eq!(meter.charge(7), Ok(()));
        assert_eq!(meter.charge(7), Err(Stop::Timeout));
        assert_eq!((meter.left(), meter.used()), (0, 10));
    }

    #[test]
    fn narrowing_holds_fuel_back_and_widening_returns_it() {
        let mut meter = Meter::new(100);
        let held = meter.narrow(30);
        assert_eq!(meter.charge(31), Err(Stop::Timeout));
        meter.widen(held);
        assert_eq!((meter.left(), meter.used()), (70, 30));
    }
}
