//! `terminal`: one wish, one line of shell.
//!
//! The model is asked once. Its answer is the line that it would type: the first line of the first
//! fenced block, else the first line that is not empty. Nothing is run here; the reward does that,
//! in a workspace of its own.

use fulgurite_sdk::harness::*;

const SYSTEM: &str = "Answer with one shell command.";

struct Terminal;

impl Harness for Terminal {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("terminal", env!("CARGO_PKG_VERSION")).prompt("system", SYSTEM)
    }

    fn run(episode: Episode<NoConfig>) -> Result<Outcome, Failure> {
        let mut conversation = Conversation::with("policy")
            .agent("terminal")
            .system(episode.prompts.get("system"))
            .open()?;
        let reply = conversation.send(episode.task.input)?;
        Ok(Outcome::submitted(line_of(&reply.text())))
    }
}

/// The line that a reply would have typed; empty when it says nothing.
fn line_of(text: &str) -> String {
    let blocks = fenced_blocks(text);
    let said = blocks.first().map_or(text, |block| block.body.as_str());
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let quoted = line.strip_prefix('`').and_then(|line| line.strip_suffix('`'));
    quoted.filter(|line| !line.contains('`')).unwrap_or(line).to_string()
}

fulgurite_sdk::export_harness!(Terminal);

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn a_line_is_taken_out_of_what_surrounds_it() {
        assert_eq!(line_of("\n ls *.txt \nThis lists"), "ls *.txt");
        assert_eq!(line_of("Use:\n```bash\n$ wc -l a.txt\nls\n```\n"), "wc -l a.txt");
        assert_eq!(line_of("`rm a.txt`"), "rm a.txt");
        assert_eq!(line_of("`date` and `ls`"), "`date` and `ls`");
        assert_eq!(line_of("  \n"), "");
    }
}
