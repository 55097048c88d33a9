//! `solve`: one question, one answer.
//!
//! Asks the policy once and answers with the code of the reply: the first block fenced as the
//! configured language, else the first fenced block, else the whole text. A reply that was cut
//! off is taken as far as it goes.

use fulgurite_sdk::harness::*;

const SYSTEM: &str = "You write correct, complete code. Answer with one fenced code block that \
holds everything that is needed: imports, helpers and the whole function. Write nothing else.";

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Language of the code block to take.
    language: String,
    /// Tokens of the reply at most; the run's setting otherwise.
    max_tokens: Option<u32>,
    /// Sampling temperature; the run's setting otherwise.
    temperature: Option<f32>,
}

impl Default for Config {
    fn default() -> Self {
        Self { language: "python".to_string(), max_tokens: None, temperature: None }
    }
}

struct Solve;

impl Harness for Solve {
    type Config = Config;

    fn describe() -> Description {
        Description::new("solve", env!("CARGO_PKG_VERSION"))
            .prompt("system", SYSTEM)
            .prompt("task", "{input}")
    }

    fn run(episode: Episode<Config>) -> Result<Outcome, Failure> {
        let Config { language, max_tokens, temperature } = episode.config;
        let options = Options { max_tokens, temperature, ..Options::default() };
        let question = episode.prompts.fill("task", &[("input", &episode.task.input)]);
        let reply = Conversation::with("policy")
            .agent("solve")
            .system(episode.prompts.get("system"))
            .open()
            .and_then(|mut conversation| conversation.send_with(question, &options));
        match reply {
            Ok(reply) => Ok(Outcome::submitted(code_of(&reply.text(), &language))),
            Err(error @ (LlmError::Budget(_) | LlmError::ContextLength)) => {
                Ok(Outcome::gave_up("").note("reason", error.explain()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The code of a reply.
fn code_of(text: &str, language: &str) -> String {
    let mut blocks = fenced_blocks(text);
    let position = blocks.iter().position(|block| is_named(&block.language, language)).unwrap_or(0);
    if position < blocks.len() { blocks.swap_remove(position).body } else { text.to_string() }
}

fn is_named(tag: &str, language: &str) -> bool {
    tag.eq_ignore_ascii_case(language)
        || (language.eq_ignore_ascii_case("python") && matches!(tag, "py" | "python3"))
}

fulgurite_sdk::export_harness!(Solve);

#[cfg(test)]
mod tests {
    use super::code_of;

    #[test]
    fn the_named_block_wins_over_an_earlier_one() {
        let text = "```sh\nls\n```\n```python\nx = 1\n```\n```python\nx = 2\n```";
        assert_eq!(code_of(text, "python"), "x = 1\n");
        assert_eq!(code_of(text, "rust"), "ls\n");
    }

    #[test]
    fn text_without_a_block_is_the_answer() {
        assert_eq!(code_of("    return 1", "python"), "    return 1");
        assert_eq!(code_of("", "python"), "");
    }

    #[test]
    fn a_reply_that_was_cut_off_is_taken_as_far_as_it_goes() {
        assert_eq!(code_of("Sure:\n```py\ndef f():", "python"), "def f():");
    }
}
