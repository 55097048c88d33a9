//! What becomes of an episode that did not simply complete.
//!
//! Who is to blame is said in one place, [`FailureKind::cause`]; here stands what training makes
//! of it:
//!
//! | cause | treatment |
//! |---|---|
//! | none (`completed`) | graded |
//! | the policy or its harness | graded, at most the floor |
//! | the host or an upstream | retried, then dropped |
//! | an alarm (a reward failed, a harness broken by itself) | dropped, for the owner to see |
//! | the owner (cancelled) | run again |
//!
//! Every drop is counted by kind. Nothing here turns into a reward of zero.

use fulgurite_trace::{FailureKind, episode::Cause};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It is trained on with the reward it got.
    Grade,
    /// It is trained on with the reward it got, but at most the floor, so that looping or
    /// crashing never beats an honest failure.
    GradeWithFloor,
    /// It runs once more.
    Retry,
    /// It is left out, and counted.
    Drop,
    /// It is left out, counted, and shown to the owner of the run.
    Alarm,
}

/// The treatment of attempt `attempt` (0 is the first) when up to `retries` more are allowed.
/// `spoke` says whether the model said anything.
pub const fn treatment(kind: FailureKind, spoke: bool, attempt: u32, retries: u32) -> Treatment {
    match (kind, kind.cause(spoke)) {
        (FailureKind::Completed, _) => Treatment::Grade,
        (_, Cause::Policy) => Treatment::GradeWithFloor,
        (_, Cause::Infrastructure) if attempt < retries => Treatment::Retry,
        (_, Cause::Infrastructure) => Treatment::Drop,
        (_, Cause::Alarm) => Treatment::Alarm,
        (_, Cause::Owner) => Treatment::Retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_documented_one() {
        for kind in FailureKind::ALL {
            let last = treatment(kind, true, 2, 2);
            let first = treatment(kind, true, 0, 2);
            match kind {
                FailureKind::Completed => assert_eq!(last, Treatment::Grade),
                FailureKind::PolicyError | FailureKind::SandboxError => {
                    assert_eq!((first, last), (Treatment::Retry, Treatment::Drop));
                }
                FailureKind::RewardError => assert_eq!(first, Treatment::Alarm),
                FailureKind::Cancelled => assert_eq!(last, Treatment::Retry),
                _ => assert_eq!((first, last), (Treatment::GradeWithFloor, last), "{kind}"),
            }
        }
        let broken_by_itself = treatment(FailureKind::Trap, false, 0, 2);
        assert_eq!(broken_by_itself, Treatment::Alarm);
    }
}
