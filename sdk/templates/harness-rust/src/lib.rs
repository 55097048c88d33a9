//! {{name}}: an agent that works with the shell.
//!
//! The model writes shell lines as fenced blocks; each is run in the task's workspace. A reply
//! without a block is the answer.

use fulgurite_sdk::harness::*;

const SYSTEM: &str = "You work in a folder through its shell. To run a line, write
```bash
ls
```
and wait for the result. When you know the answer, write it and nothing else.";

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Replies before it gives up.
    max_turns: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_turns: 10 }
    }
}

struct Agent;

impl Harness for Agent {
    type Config = Config;

    fn describe() -> Description {
        Description::new("{{name}}", env!("CARGO_PKG_VERSION"))
            .prompt("system", SYSTEM)
            .wants(Capability::Exec)
            .wants(Capability::Workspace)
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        let system = episode.prompts.get("system");
        let mut conversation = Conversation::with("policy").system(system).open()?;
        let mut reply = conversation.send(&episode.task.input)?;
        for _ in 1..episode.config.max_turns {
            let blocks = fenced_blocks(&reply.text());
            if blocks.is_empty() {
                return Ok(Outcome::submitted(reply.text().trim()));
            }
            let mut results = Vec::new();
            for block in blocks {
                results.push(exec::run(&block.body)?.transcript(4_000));
            }
            reply = conversation.send(results.join("\n"))?;
        }
        Ok(Outcome::gave_up(reply.text()))
    }
}

fulgurite_sdk::export_harness!(Agent);
