//! A harness with one tool.

use fulgurite_sdk::harness::*;

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

#[derive(Deserialize, JsonSchema)]
struct Bash {
    /// The line to run.
    command: String,
}

impl Tool for Bash {
    const NAME: &'static str = "bash";
    const DESCRIPTION: &'static str = "Runs a shell line in the workspace.";
}

struct Minimal;

impl Harness for Minimal {
    type Config = Config;

    fn describe() -> Description {
        Description::new("minimal", env!("CARGO_PKG_VERSION"))
            .prompt("system", "Solve the task with the tool `bash`. When done, say so.")
            .tool::<Bash>()
            .wants(Capability::Exec)
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        let system = episode.prompts.get("system");
        let mut conversation = Conversation::with("policy").system(system).tool::<Bash>().open()?;
        let mut reply = conversation.send(&episode.task.input)?;
        for _ in 1..episode.config.max_turns {
            let mut results = Vec::new();
            for call in reply.tool_calls() {
                results.push(match call.parse::<Bash>() {
                    Ok(bash) => call.answer(exec::run(&bash.command)?.transcript(8_000)),
                    Err(problem) => call.fail(problem),
                });
            }
            if results.is_empty() {
                return Ok(Outcome::submitted(reply.text()));
            }
            reply = conversation.send(results)?;
        }
        Ok(Outcome::gave_up(reply.text()))
    }
}

fulgurite_sdk::export_harness!(Minimal);
