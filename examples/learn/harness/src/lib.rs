//! `apprentice`: reads what is wanted, writes a program, and hands it in.
//!
//! The model has two tools, one letter each: `r` reads the file `spec`, `w` writes what follows it
//! to the file `program`, which ends the episode. Nothing can be written before the spec was read.

use fulgurite_sdk::harness::*;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Replies before the episode ends without a program.
    max_turns: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_turns: 3 }
    }
}

struct Apprentice;

impl Harness for Apprentice {
    type Config = Config;

    fn describe() -> Description {
        Description::new("apprentice", env!("CARGO_PKG_VERSION")).wants(Capability::Exec)
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        let mut conversation = Conversation::with("policy").open()?;
        let mut next = episode.task.input;
        let mut has_read = false;
        for _ in 0..episode.config.max_turns {
            let reply = conversation.send(&next)?.text();
            next = match action(&reply) {
                Action::Read => {
                    has_read = true;
                    exec::run("cat spec")?.stdout_text().trim().to_string()
                }
                Action::Write(program) if has_read => {
                    let write = format!("printf '%s' '{program}' > program");
                    if !exec::run(&write)?.success() {
                        return Err(Failure::new("the program could not be written"));
                    }
                    return Ok(Outcome::submitted(program));
                }
                Action::Write(_) => "read first".to_string(),
                Action::Unknown => "no".to_string(),
            };
        }
        Ok(Outcome::gave_up(""))
    }
}

#[derive(Debug, PartialEq)]
enum Action {
    Read,
    Write(String),
    Unknown,
}

/// What a reply asks for. Only the machine's operators ever reach the shell.
fn action(reply: &str) -> Action {
    let mut letters = reply.trim().chars();
    match letters.next() {
        Some('r') => Action::Read,
        Some('w') => Action::Write(letters.filter(|c| "+-*^/".contains(*c)).take(8).collect()),
        _ => Action::Unknown,
    }
}

fulgurite_sdk::export_harness!(Apprentice);

#[cfg(test)]
mod tests {
    use super::{Action, action};

    #[test]
    fn the_first_letter_decides_and_only_operators_are_written() {
        assert_eq!(action(" read"), Action::Read);
        assert_eq!(action("w+'; *"), Action::Write("+*".to_string()));
        assert_eq!(action(""), Action::Unknown);
        assert_eq!(action("xw+"), Action::Unknown);
    }
}
