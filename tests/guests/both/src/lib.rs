//! Exports an agent and a scorer: a harness that would like to score itself. Run as a harness it
//! says that it deserves everything; its scorer must never be called.

struct Both;

mod agent {
    use super::Both;
    use fulgurite_sdk::harness::*;

    impl Harness for Both {
        type Config = NoConfig;

        fn describe() -> Description {
            Description::new("both", env!("CARGO_PKG_VERSION"))
        }

        fn run(_: Episode<NoConfig>) -> Result<Outcome, Failure> {
            trace::metric("score", 1.0);
            trace::event("score", &[("total", "1.0")]);
            Ok(Outcome::submitted("").note("score", "1.0").note("total", "1.0"))
        }
    }

    fulgurite_sdk::export_harness!(Both);
}

mod scorer {
    use super::Both;
    use fulgurite_sdk::reward::*;

    impl Reward for Both {
        type Config = NoConfig;

        fn describe() -> Description {
            Description::new("both", env!("CARGO_PKG_VERSION"))
        }

        fn score(_: &Episode, _: NoConfig) -> Result<Score, Failure> {
            Ok(Score::from(true))
        }
    }

    fulgurite_sdk::export_reward!(Both);
}
