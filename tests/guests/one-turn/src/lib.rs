//! The smallest useful harness: asks once, answers with the reply.

use fulgurite_sdk::harness::*;

struct OneTurn;

impl Harness for OneTurn {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("one-turn", env!("CARGO_PKG_VERSION"))
    }

    fn run(episode: Episode<NoConfig>) -> Result<Outcome, Failure> {
        let reply = Conversation::with("policy").open()?.send(episode.task.input)?;
        Ok(Outcome::submitted(reply.text()))
    }
}

fulgurite_sdk::export_harness!(OneTurn);
