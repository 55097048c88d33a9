//! `exact-match`: 1 when the outcome's answer is the expected one, else 0.
//!
//! Grading data: `{"answer": "..."}`, or a list of answers of which one must match. An episode
//! that ended without an outcome scores 0, whatever is expected.

use fulgurite_sdk::reward::*;

#[derive(Deserialize)]
struct Grading {
    answer: Expected,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Expected {
    One(String),
    Any(Vec<String>),
}

/// Which part of the answer is compared.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// All of it.
    Whole,
    /// Its last line that is not blank.
    LastLine,
    /// The last number in it.
    LastNumber,
}

#[derive(Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Which part of the answer is compared.
    part: Part,
    /// Leave out white space at both ends.
    trim: bool,
    /// Take every run of white space for one space.
    collapse_whitespace: bool,
    /// Take upper and lower case for the same.
    ignore_case: bool,
    /// Leave out ASCII punctuation.
    ignore_punctuation: bool,
    /// Where both sides are numbers, compare them as numbers that may differ by this much.
    tolerance: Option<f64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            part: Part::Whole,
            trim: true,
            collapse_whitespace: false,
            ignore_case: false,
            ignore_punctuation: false,
            tolerance: None,
        }
    }
}

struct ExactMatch;

impl Reward for ExactMatch {
    type Config = Config;

    fn describe() -> Description {
        Description::new("exact-match", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, config: Config) -> Result<Score, Failure> {
        let expected = match episode.grading::<Grading>()?.answer {
            Expected::One(answer) => vec![answer],
            Expected::Any(answers) => answers,
        };
        let ending = episode.ending();
        if ending.status.is_none() {
            return Ok(Score::from(false).note("reason", "the episode has no outcome"));
        }
        Ok(expected.iter().any(|expected| matches(&config, &ending.answer, expected)).into())
    }
}

fn matches(config: &Config, answer: &str, expected: &str) -> bool {
    let answer = match config.part {
        Part::Whole => answer.to_string(),
        Part::LastLine => {
            answer.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_string()
        }
        Part::LastNumber => match last_number(answer) {
            Some(number) => number,
            None => return false,
        },
    };
    if let Some(tolerance) = config.tolerance
        && let (Some(answer), Some(expected)) = (number(&answer), number(expected))
    {
        return (answer - expected).abs() <= tolerance;
    }
    normalise(config, &answer) == normalise(config, expected)
}

fn normalise(config: &Config, text: &str) -> String {
    let mut text = text.to_string();
    if config.ignore_punctuation {
        text.retain(|character| !character.is_ascii_punctuation());
    }
    if config.ignore_case {
        text = text.to_lowercase();
    }
    if config.collapse_whitespace {
        let ends = (text.starts_with(char::is_whitespace), text.ends_with(char::is_whitespace));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        text = match ends {
            _ if words.is_empty() || config.trim => words,
            (before, after) => {
                let space = |there| if there { " " } else { "" };
                format!("{}{words}{}", space(before), space(after))
            }
        };
    }
    if config.trim { text.trim().to_string() } else { text }
}

/// A finite number, with or without commas between its thousands.
fn number(text: &str) -> Option<f64> {
    text.trim().replace(',', "").parse::<f64>().ok().filter(|number| number.is_finite())
}

fn last_number(text: &str) -> Option<String> {
    text.split(|character: char| !(character.is_ascii_digit() || ".,-+".contains(character)))
        .map(|word| word.trim_end_matches(['.', ',', '-', '+']).trim_start_matches(','))
        .rfind(|word| number(word).is_some())
        .map(|word| word.replace(',', ""))
}

fulgurite_sdk::export_reward!(ExactMatch);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_strict_apart_from_the_ends() {
        let config = Config::default();
        assert!(matches(&config, " 42\n", "42"));
        assert!(!matches(&config, "42.0", "42"));
        assert!(!matches(&config, "Paris", "paris"));
        assert!(!matches(&config, "the answer is 42", "42"));
    }

    #[test]
    fn options_loosen_it() {
        let config = Config {
            ignore_case: true,
            ignore_punctuation: true,
            collapse_whitespace: true,
            ..Config::default()
        };
        assert!(matches(&config, "Hello,\n  World!", "hello world"));
        let config = Config { tolerance: Some(1e-6), ..Config::default() };
        assert!(matches(&config, "1,000.0", "1000"));
        assert!(!matches(&config, "nan", "1000"));
    }

    #[test]
    fn parts_are_taken_out_of_the_answer() {
        let config = Config { part: Part::LastNumber, ..Config::default() };
        assert!(matches(&config, "First 3, so it is 1,234.", "1234"));
        assert!(matches(&config, "so x = -7", "-7"));
        assert!(!matches(&config, "none", ""));
        let config = Config { part: Part::LastLine, ..Config::default() };
        assert!(matches(&config, "thinking\nyes\n\n", "yes"));
    }

    #[test]
    fn an_infinite_tolerance_of_nothing_is_no_match() {
        let config = Config { tolerance: Some(0.5), ..Config::default() };
        assert!(!matches(&config, "inf", "3"));
        assert!(!matches(&config, "", "3"));
    }
}
