//! The limits of an episode, as people write them.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// Every limit of a run. Each is per episode unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EpisodeLimits {
    /// Fuel of the harness (about one unit a WebAssembly instruction).
    #[serde(with = "count")]
    pub fuel: u64,
    /// Fuel of each reward.
    #[serde(with = "count")]
    pub reward_fuel: u64,
    /// Fuel of each command; also the measure of built-in commands.
    #[serde(with = "count")]
    pub command_fuel: u64,
    /// Memory of the harness, and of each reward, in bytes.
    #[serde(with = "bytes")]
    pub memory: u64,
    /// Memory of each program that a command runs, in bytes.
    #[serde(with = "bytes")]
    pub command_memory: u64,
    /// Time of the episode's virtual clock.
    #[serde(with = "time")]
    pub time: Duration,
    /// Real time that an episode may compute for; it stands still while the episode waits for
    /// the policy or in a queue. A backstop: fuel decides first.
    #[serde(with = "time")]
    pub wall: Duration,
    /// Completion tokens.
    #[serde(with = "count")]
    pub tokens: u64,
    /// Model calls.
    #[serde(with = "count")]
    pub turns: u64,
    /// Commands.
    #[serde(with = "count")]
    pub commands: u64,
    /// Kept bytes of each output stream of a command.
    #[serde(with = "bytes")]
    pub output: u64,
    /// Bytes of the workspace.
    #[serde(with = "bytes")]
    pub workspace_bytes: u64,
    /// Files, folders and links of the workspace.
    #[serde(with = "count")]
    pub workspace_files: u64,
    /// Open files of the workspace.
    #[serde(with = "count")]
    pub open_files: u64,
}

impl Default for EpisodeLimits {
    fn default() -> Self {
        Self {
            fuel: 10_000_000_000,
            reward_fuel: 10_000_000_000,
            command_fuel: 50_000_000_000,
            memory: 256 << 20,
            command_memory: 512 << 20,
            time: Duration::from_secs(3600),
            wall: Duration::from_secs(600),
            tokens: 32_768,
            turns: 64,
            commands: 256,
            output: 64 << 10,
            workspace_bytes: 256 << 20,
            workspace_files: 20_000,
            open_files: 256,
        }
    }
}

/// A `NAME=VALUE` that is not a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{text}` is not right: {reason}")]
pub struct LimitError {
    text: String,
    reason: String,
}

impl EpisodeLimits {
    /// Sets one limit from `NAME=VALUE`, as on the command line.
    pub fn set(&mut self, text: &str) -> Result<(), LimitError> {
        let bad = |reason: String| LimitError { text: text.to_owned(), reason };
        let (name, value) = text.split_once('=').ok_or_else(|| bad("write NAME=VALUE".into()))?;
        let name = name.replace('-', "_");
        // Through serde, so that names and values are read in one place.
        let current = serde_json::to_value(*self).map_err(|error| bad(error.to_string()))?;
        let serde_json::Value::Object(mut fields) = current else {
            return Err(bad("limits are not an object".into()));
        };
        let known: Vec<_> = fields.keys().cloned().collect();
        let Some(field) = fields.get_mut(&name) else {
            return Err(bad(format!("the limits are {}", known.join(", "))));
        };
        *field = value.into();
        *self = serde_json::from_value(fields.into()).map_err(|error| bad(error.to_string()))?;
        Ok(())
    }

    /// Every limit with its value as text, for tables and plans.
    pub fn named(&self) -> BTreeMap<String, String> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(fields)) => fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
                .collect(),
            _ => BTreeMap::new(),
        }
    }
}

/// A number or text with a factor, never zero.
fn parse(text: &str, factors: &[(&str, u64)]) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let factor = factors.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (Some((_, factor)), Ok(number)) = (factor, digits.trim().parse::<u64>()) else {
        let units: Vec<_> =
            factors.iter().map(|(name, _)| *name).filter(|n| !n.is_empty()).collect();
        return Err(format!(
            "`{text}` is not a whole number, optionally with {}",
            units.join(", ")
        ));
    };
    match number.checked_mul(*factor) {
        Some(0) => Err("0 would stop every episode at once".to_owned()),
        Some(value) => Ok(value),
        None => Err(format!("`{text}` is too large")),
    }
}

/// A number of bytes as people write it in a configuration: a number, or text with a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "0" => Ok(Self(0)),
            text => parse(text, &BYTES).map(Self),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match NumberOrText::deserialize(from)? {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

const COUNTS: [(&str, u64); 4] = [("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
const BYTES: [(&str, u64); 7] = [
    ("", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    fn parse(self, factors: &[(&str, u64)]) -> Result<u64, String> {
        match self {
            Self::Number(number) => parse(&number.to_string(), factors),
            Self::Text(text) => parse(&text, factors),
        }
    }
}

/// The shortest text that parses back to `value`.
fn shown(value: u64, factors: &[(&str, u64)]) -> String {
    factors
        .iter()
        .take(4)
        .rev()
        .find(|(_, factor)| value.is_multiple_of(*factor))
        .map_or_else(|| value.to_string(), |(name, factor)| format!("{}{name}", value / factor))
}

macro_rules! scaled {
    ($module:ident, $factors:ident) => {
        mod $module {
            use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

            use super::{NumberOrText, shown, $factors};

            pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&shown(*value, &$factors))
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
                NumberOrText::deserialize(from)?.parse(&$factors).map_err(D::Error::custom)
            }
        }
    };
}

scaled!(count, COUNTS);
scaled!(bytes, BYTES);

mod time {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        match humantime::parse_duration(&text) {
            Ok(Duration::ZERO) => Err(D::Error::custom("0 would stop every episode at once")),
            Ok(value) => Ok(value),
            Err(error) => Err(D::Error::custom(format!(
                "`{text}` is not a duration like 90s or 10m: {error}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name_with_units() {
        let mut limits = EpisodeLimits::default();
        for text in ["fuel=2G", "memory=64M", "time=90s", "turns=7", "workspace-bytes=1KiB"] {
            limits.set(text).unwrap();
        }
        assert_eq!(limits.fuel, 2_000_000_000);
        assert_eq!(limits.memory, 64 << 20);
        assert_eq!(limits.time, Duration::from_secs(90));
        assert_eq!(limits.turns, 7);
        assert_eq!(limits.workspace_bytes, 1024);
        assert_eq!(limits.named().get("memory").map(String::as_str), Some("64M"));
    }

    #[test]
    fn bytes_may_be_none() {
        for (text, bytes) in [("0", 0), ("16M", 16 << 20), ("7", 7)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(serde_json::from_str::<Bytes>("1024").unwrap(), Bytes(1024));
        assert!("much".parse::<Bytes>().unwrap_err().contains("not a whole number"));
    }

    #[test]
    fn a_wrong_limit_says_what_is_wrong() {
        for (text, reason) in [
            ("turns", "write NAME=VALUE"),
            ("truns=1", "the limits are "),
            ("turns=0", "0 would stop"),
            ("turns=many", "not a whole number"),
            ("time=soon", "not a duration"),
            ("fuel=99999999999G", "too large"),
        ] {
            let error = EpisodeLimits::default().set(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn limits_survive_serialisation() {
        let mut limits = EpisodeLimits::default();
        limits.set("fuel=123456789").unwrap();
        let text = serde_json::to_string(&limits).unwrap();
        assert_eq!(serde_json::from_str::<EpisodeLimits>(&text).unwrap(), limits);
    }
}
