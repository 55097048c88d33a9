//! `detective`: an agent that searches the files of a case and names the culprit.
//!
//! It shows the usual loop: ask, run what the model wants run, hand back the result, until the
//! model accuses someone.

use fulgurite_sdk::harness::*;

const SYSTEM: &str = "You are a detective. The files of the case are in the current folder. To \
look around, write one shell line in a block:
```bash
ls
```
When you know who did it, write a last line `Culprit: NAME`.";

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Replies before the case is closed unsolved.
    max_turns: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_turns: 8 }
    }
}

struct Detective;

impl Harness for Detective {
    type Config = Config;

    fn describe() -> Description {
        Description::new("detective", env!("CARGO_PKG_VERSION"))
            .prompt("system", SYSTEM)
            .wants(Capability::Exec)
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        let system = episode.prompts.get("system");
        let mut conversation = Conversation::with("policy").system(system).open()?;
        let mut reply = conversation.send(&episode.task.input)?;
        for _ in 1..episode.config.max_turns {
            if let Some(name) = accused(&reply.text()) {
                return Ok(Outcome::submitted(name));
            }
            let next = match fenced_blocks(&reply.text()).first() {
                Some(block) => exec::run(&block.body)?.transcript(4_000),
                None => "Write a bash block, or `Culprit: NAME`.".to_string(),
            };
            reply = conversation.send(next)?;
        }
        match accused(&reply.text()) {
            Some(name) => Ok(Outcome::submitted(name)),
            None => Ok(Outcome::gave_up("")),
        }
    }
}

/// Whom the text accuses.
fn accused(text: &str) -> Option<String> {
    let line = text.lines().rfind(|line| line.trim_start().starts_with("Culprit:"))?;
    Some(line.split_once(':')?.1.trim().trim_end_matches('.').to_string())
}

fulgurite_sdk::export_harness!(Detective);

#[cfg(test)]
mod tests {
    use super::accused;

    #[test]
    fn the_last_accusation_counts() {
        assert_eq!(accused("Culprit: A\nNo!\nCulprit: Bob.\n").as_deref(), Some("Bob"));
        assert_eq!(accused("I suspect Bob."), None);
    }
}
