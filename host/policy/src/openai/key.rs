//! The key of an upstream server, kept out of everything that is printed.

use std::fmt;

/// A key. Its `Debug` form does not show it, and it has no `Display` form.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

/// The variables looked at where none is configured, the first that is set counts.
const VARIABLES: [&str; 2] = ["FULGURITE_API_KEY", "OPENAI_API_KEY"];

/// A key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The configured variable is not set.
    #[error("the environment variable {0} is to hold the policy's key, but it is not set")]
    Missing(String),
    /// The variable holds something no header can carry.
    #[error("the environment variable {0} holds characters that no key can have (a line end?)")]
    Malformed(String),
}

impl ApiKey {
    /// The key in this variable, or, where none is named, in `FULGURITE_API_KEY` or
    /// `OPENAI_API_KEY`. `None` where neither is set: local servers need no key.
    pub fn from_environment(variable: Option<&str>) -> Result<Option<Self>, KeyError> {
        Self::look_up(variable, |name| std::env::var_os(name))
    }

    fn look_up(
        variable: Option<&str>,
        read: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Option<Self>, KeyError> {
        let names: &[&str] = variable.as_slice();
        let names = if names.is_empty() { &VARIABLES } else { names };
        for name in names {
            let Some(value) = read(name).filter(|value| !value.is_empty()) else { continue };
            let malformed = || KeyError::Malformed((*name).to_owned());
            let value = value.into_string().map_err(|_| malformed())?;
            return Self::new(value).map(Some).ok_or_else(malformed);
        }
        match variable {
            Some(name) => Err(KeyError::Missing(name.to_owned())),
            None => Ok(None),
        }
    }

    /// A key, if a header can carry it.
    pub fn new(key: impl Into<String>) -> Option<Self> {
        let key = key.into();
        let fits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(Self(key))
    }

    /// Whether a header's value carries this key. Takes the same time whatever it differs in.
    pub fn is_bearer(&self, header: &[u8]) -> bool {
        let expected = self.bearer();
        let difference = expected
            .bytes()
            .zip(header.iter().copied().chain(std::iter::repeat(0)))
            .fold(0, |difference, (one, other)| difference | (one ^ other));
        difference == 0 && expected.len() == header.len()
    }

    /// The header's value.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The text without the key, should a server have echoed it.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([hidden])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment<'a>(
        variables: &'a [(&'a str, &'a str)],
    ) -> impl Fn(&str) -> Option<std::ffi::OsString> + 'a {
        |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    #[test]
    fn the_configured_variable_counts_alone() {
        let both = [("FULGURITE_API_KEY", "f"), ("OPENAI_API_KEY", "o"), ("MINE", "m")];
        let look = |variable| ApiKey::look_up(variable, environment(&both)).unwrap();
        assert_eq!(look(Some("MINE")), ApiKey::new("m"));
        assert_eq!(look(None), ApiKey::new("f"));
        let open = ApiKey::look_up(None, environment(&both[1..])).unwrap();
        assert_eq!(open, ApiKey::new("o"));
        assert_eq!(ApiKey::look_up(None, environment(&[("FULGURITE_API_KEY", "")])), Ok(None));
        let missing = ApiKey::look_up(Some("OTHER"), environment(&both)).unwrap_err();
        assert!(missing.to_string().contains("OTHER"));
    }

    #[test]
    fn a_key_is_never_shown() {
        let error = ApiKey::look_up(None, environment(&[("OPENAI_API_KEY", "sk-1\n")]));
        assert!(!error.unwrap_err().to_string().contains("sk-1"));
        let key = ApiKey::new("sk-1").unwrap();
        assert!(!format!("{key:?}").contains("sk-1"));
        assert_eq!(key.redact("bad key sk-1!"), "bad key [key]!");
    }
}
