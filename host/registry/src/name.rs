//! Names of plugins.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::RegistryError;

const LONGEST: usize = 64;

/// The name of a plugin: 1 to 64 lower-case letters, digits, `-` and `_`, beginning with a
/// letter or digit. So it can be told from a path, is no path itself, and looks the same to
/// everybody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name that a file would have: what stands before its extension, made valid.
    pub fn of_file(path: &std::path::Path) -> Option<Self> {
        mend(&path.file_stem()?.to_string_lossy())
    }
}

fn problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.len() > LONGEST {
        return Some("it has more than 64 characters");
    }
    let valid = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '_');
    if !text.chars().all(valid) {
        return Some("only lower-case letters, digits, `-` and `_` are allowed");
    }
    if text.starts_with(['-', '_']) {
        return Some("it must begin with a letter or digit");
    }
    None
}

fn mend(text: &str) -> Option<Name> {
    let text: String = text
        .trim_end_matches(".wasm")
        .chars()
        .take(LONGEST)
        .map(|letter| match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9' | '_') => letter,
            _ => '-',
        })
        .collect();
    let text = text.trim_matches(['-', '_']).to_owned();
    problem(&text).is_none().then_some(Name(text))
}

impl FromStr for Name {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match problem(text) {
            None => Ok(Self(text.to_owned())),
            Some(reason) => Err(RegistryError::InvalidName {
                name: text.chars().take(LONGEST).flat_map(char::escape_default).collect(),
                reason,
                suggestion: mend(text).map(|name| name.0),
            }),
        }
    }
}

impl TryFrom<String> for Name {
    type Error = RegistryError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// Up to three names that somebody may have meant, the likeliest first.
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a Name>) -> Vec<String> {
    let text: String = text.chars().take(LONGEST).collect();
    let mut alike: Vec<(f64, &Name)> = names
        .into_iter()
        .map(|name| {
            let contained = name.0.contains(&text) || text.contains(&name.0);
            let likeness = strsim::jaro_winkler(&text, &name.0);
            (if contained { likeness.max(0.9) } else { likeness }, name)
        })
        .filter(|(likeness, _)| *likeness >= 0.75)
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    alike.dedup_by(|one, other| one.1 == other.1);
    alike.into_iter().take(3).map(|(_, name)| name.0.clone()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_no_paths_and_mistakes_are_mended() {
        for good in ["coder", "tests-pass", "a", "0_1", &"x".repeat(64)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for (bad, better) in [
            ("My Agent", Some("my-agent")),
            ("../../etc/passwd", Some("etc-passwd")),
            ("coder.wasm", Some("coder")),
            ("-x", Some("x")),
            ("", None),
            ("\u{202e}\u{1b}[31m", Some("31m")),
        ] {
            let Err(RegistryError::InvalidName { name, suggestion, .. }) = bad.parse::<Name>()
            else {
                panic!("{bad}")
            };
            assert_eq!(suggestion.as_deref(), better, "{bad}");
            assert!(!name.contains('\u{1b}'));
        }
        assert!("x".repeat(65).parse::<Name>().is_err());
    }

    #[test]
    fn the_nearest_names_come_first_and_strangers_do_not_come() {
        let names: Vec<Name> =
            ["coder", "code-review", "solve"].map(|name| name.parse().unwrap()).into();
        assert_eq!(nearest("codr", &names).first().unwrap(), "coder");
        assert_eq!(nearest("review", &names), ["code-review"]);
        assert!(nearest("zzzz", &names).is_empty());
    }

    proptest! {
        #[test]
        fn a_suggestion_is_a_name(text in any::<String>()) {
            if let Some(name) = mend(&text) {
                prop_assert!(name.as_str().parse::<Name>().is_ok());
            }
        }
    }
}
