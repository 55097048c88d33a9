//! `fulgurite.lock`: the digests that a project uses.
//!
//! ```toml
//! version = 1
//!
//! [[plugin]]
//! name = "coder"
//! kind = "harness"
//! digest = "sha256:…"
//! ```
//!
//! Made to be committed: sorted by name, without paths, times or anything of the machine.

use std::{collections::BTreeMap, path::Path};

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize};

use crate::{Kind, Name, RegistryError, disk, store::parse_versioned};

const VERSION: u32 = 1;
const HEADER: &str = "\
# The exact plugins of this project. Written by fulgurite; commit it, do not edit it.
";

/// What a name is pinned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// What it can be used as.
    pub kind: Kind,
    /// Of the component's bytes.
    pub digest: Digest,
}

/// The pins of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockFile {
    /// By name.
    pub pins: BTreeMap<Name, Pin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    #[serde(default)]
    plugin: Vec<WrittenPin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPin {
    name: Name,
    kind: Kind,
    digest: Digest,
}

impl LockFile {
    /// Reads the file; none is the same as an empty one.
    pub fn load(path: &Path) -> Result<Self, RegistryError> {
        match disk::read_text(path)? {
            Some(text) => Self::parse(path, &text),
            None => Ok(Self::default()),
        }
    }

    /// Reads text; the path is for errors.
    pub fn parse(path: &Path, text: &str) -> Result<Self, RegistryError> {
        let written: Written = parse_versioned(path, text, "version", VERSION)?;
        let mut pins = BTreeMap::new();
        for WrittenPin { name, kind, digest } in written.plugin {
            if pins.insert(name.clone(), Pin { kind, digest }).is_some() {
                let reason = format!("it pins `{name}` twice (two merged versions?)");
                return Err(RegistryError::Damaged { path: path.to_owned(), reason });
            }
        }
        Ok(Self { pins })
    }

    /// The file's text. Equal pins give equal text.
    pub fn render(&self) -> String {
        let mut text = format!("{HEADER}version = {VERSION}\n");
        for (name, Pin { kind, digest }) in &self.pins {
            // None of the three can hold what TOML would have to escape.
            text.push_str(&format!(
                "\n[[plugin]]\nname = \"{name}\"\nkind = \"{kind}\"\ndigest = \"{digest}\"\n"
            ));
        }
        text
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), RegistryError> {
        disk::write(path, self.render().as_bytes(), false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pins() -> impl Strategy<Value = BTreeMap<Name, Pin>> {
        let kind = prop_oneof![Just(Kind::Harness), Just(Kind::Reward), Just(Kind::Program)];
        let pin = (kind, any::<[u8; 32]>())
            .prop_map(|(kind, bytes)| Pin { kind, digest: Digest::from_bytes(bytes) });
        let name = "[a-z0-9][a-z0-9_-]{0,63}".prop_map(|name| name.parse::<Name>().unwrap());
        prop::collection::btree_map(name, pin, 0..12)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(pins in pins()) {
            let lock = LockFile { pins };
            let text = lock.render();
            let again = LockFile::parse(Path::new("fulgurite.lock"), &text).unwrap();
            prop_assert_eq!(&again, &lock);
            prop_assert_eq!(again.render(), text);
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), pins in pins(), cut in 0_usize..400) {
            let path = Path::new("fulgurite.lock");
            let _ = LockFile::parse(path, &text);
            let mut damaged = LockFile { pins }.render();
            damaged.truncate(cut.min(damaged.len()));
            let _ = LockFile::parse(path, &(damaged + &text));
        }
    }

    #[test]
    fn damage_is_named() {
        let error = |text: &str| {
            LockFile::parse(Path::new("fulgurite.lock"), text).unwrap_err().to_string()
        };
        assert!(error("version = 2\nnew = 1").contains("format 2"));
        assert!(error("").contains("no valid `version`"));
        assert!(error("version = 1\nplugins = []").contains("plugins"));
        assert!(error("version = 1\n<<<<<<< HEAD").contains("damaged"));
        let pin = "[[plugin]]\nname = \"a\"\nkind = \"reward\"\ndigest = \"00\"\n";
        assert!(error(&format!("version = 1\n{pin}")).contains("64 hexadecimal digits"));
        let pin = pin.replace("\"00\"", &format!("\"{}\"", "0".repeat(64)));
        assert!(error(&format!("version = 1\n{pin}{pin}")).contains("pins `a` twice"));
    }
}
