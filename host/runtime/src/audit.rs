//! What a component is and what it wants, read from its bytes before anything of it runs.
//!
//! Every import gets a [`Verdict`]:
//! - *granted*: it is linked to the host of this crate;
//! - *stubbed*: it is linked because language runtimes always import it; each call fails with an
//!   error code and is recorded;
//! - *refused*: there is no such thing here; the component is not loaded.
//!
//! [`inspect`] reads names only: it is quick even for large components, and proves nothing about
//! the code inside. Compilation validates everything.

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

use crate::{limits::Role, wasi};

/// The version of the contract that is served. Within its minor version every patch is.
pub const CONTRACT: &str = "0.1.0";

/// Bytes of the largest component that is looked at. Python components have 20 to 40 MB.
pub const MOST_BYTES: u64 = 128 << 20;

/// Imports and exports of the largest component that is looked at.
const MOST_NAMES: usize = 1_000;

/// Bytes of the longest name.
const MOST_NAME: usize = 200;

/// Whether an import is there for a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Linked.
    Granted,
    /// Linked to refusals.
    Stubbed,
    /// Not linked: the component does not load.
    Refused,
}

/// One import with what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Its name as in the component: hostile text, escape before showing.
    pub name: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// Why, and for refused ones what would help.
    pub why: String,
}

/// What a component is, with names hostile text: escape before showing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    /// Of the component's bytes.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// What it can be used as; none when it exports nothing that is used here.
    pub role: Option<Role>,
    /// The version of the contract or of `wasi:cli` behind the export that makes the role.
    pub version: Option<String>,
    /// All exports, in order.
    pub exports: Vec<String>,
    /// All imports, in order.
    pub imports: Vec<Import>,
}

/// The bytes are no component, or one that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Too large to look at.
    #[error("the component has {size} bytes; {MOST_BYTES} are allowed")]
    TooLarge {
        /// Its bytes.
        size: u64,
    },
    /// Something else.
    #[error(
        "this is not WebAssembly: it does not begin with `\\0asm`; give a component (`.wasm`), \
         not its source or text form"
    )]
    NotWasm,
    /// The level below.
    #[error(
        "this is a core module, not a component; compile for `wasm32-wasip2` (`fulgurite build` \
         does), or wrap it with `wasm-tools component new`"
    )]
    CoreModule,
    /// Broken.
    #[error("the component is corrupt: {0}; build or copy it again")]
    Corrupt(String),
    /// Not what it was used as.
    #[error("this is {found}, not {wanted}: a {} exports `{}`", role_name(*.role), role_export(*.role))]
    WrongRole {
        /// What it was used as.
        role: Role,
        /// The same in words.
        wanted: &'static str,
        /// What it is, in words.
        found: String,
    },
    /// Of a contract that is not served.
    #[error(
        "the component exports `{export}`; this version of Fulgurite serves contract {CONTRACT} \
         and its patches; build the plugin against that version of the SDK"
    )]
    WrongVersion {
        /// The export.
        export: String,
    },
    /// It needs what is not there.
    #[error("the component imports what is not granted: {}", list(.0))]
    Refused(Vec<Import>),
}

/// Reads what the bytes are and want.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, AuditError> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > MOST_BYTES {
        return Err(AuditError::TooLarge { size });
    }
    if Parser::is_core_wasm(bytes) {
        return Err(AuditError::CoreModule);
    }
    if !Parser::is_component(bytes) {
        return Err(if bytes.starts_with(b"\0asm") {
            AuditError::Corrupt("it is of an unknown version of WebAssembly".to_owned())
        } else {
            AuditError::NotWasm
        });
    }
    let (imports, exports) = names(bytes)?;
    let (role, version) = role_of(&exports);
    let imports = imports.into_iter().map(|name| judge(name, role)).collect();
    Ok(Inspection { digest: Digest::of(bytes), size, role, version, exports, imports })
}

impl Inspection {
    /// Whether it can be used as `role`, with every import there.
    pub fn check(&self, role: Role) -> Result<(), AuditError> {
        if self.role != Some(role) {
            return Err(AuditError::WrongRole {
                role,
                wanted: role_words(role),
                found: self.role.map_or_else(
                    || "a component that exports neither".to_owned(),
                    |found| role_words(found).to_owned(),
                ),
            });
        }
        if let Some(export) = self.exports.iter().find(|export| is_unserved(export)) {
            return Err(AuditError::WrongVersion { export: export.clone() });
        }
        let refused: Vec<_> = self
            .imports
            .iter()
            .filter(|import| import.verdict == Verdict::Refused)
            .cloned()
            .collect();
        if refused.is_empty() { Ok(()) } else { Err(AuditError::Refused(refused)) }
    }

    /// The world, in the words of the contract.
    pub fn world(&self) -> &'static str {
        self.role.map_or("unknown", role_name)
    }
}

fn names(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), AuditError> {
    let corrupt = |error: wasmparser::BinaryReaderError| AuditError::Corrupt(error.to_string());
    let mut depth = 0_usize;
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(corrupt)? {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    keep(&mut imports, import.map_err(corrupt)?.name.name)?;
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    keep(&mut exports, export.map_err(corrupt)?.name.name)?;
                }
            }
            _ => {}
        }
    }
    Ok((imports, exports))
}

fn keep(names: &mut Vec<String>, name: &str) -> Result<(), AuditError> {
    if names.len() >= MOST_NAMES || name.len() > MOST_NAME {
        return Err(AuditError::Corrupt(format!(
            "it has more than {MOST_NAMES} imports or exports, or names of more than \
             {MOST_NAME} bytes"
        )));
    }
    names.push(name.to_owned());
    Ok(())
}

/// An interface name taken apart: `wasi:io/poll@0.2.0`.
struct Interface<'a> {
    package: &'a str,
    name: &'a str,
    version: Option<&'a str>,
}

fn parse(name: &str) -> Option<Interface<'_>> {
    let (path, version) = match name.split_once('@') {
        Some((path, version)) => (path, Some(version)),
        None => (name, None),
    };
    let (package, name) = path.split_once('/')?;
    package.contains(':').then_some(Interface { package, name, version })
}

fn same_minor(version: Option<&str>, minor: &str) -> bool {
    version
        .and_then(|version| version.strip_prefix(minor))
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

const PLUGIN: &str = "fulgurite:plugin";
const PLUGIN_MINOR: &str = "0.1";
const WASI_MINOR: &str = "0.2";

fn role_of(exports: &[String]) -> (Option<Role>, Option<String>) {
    let parsed: Vec<_> = exports.iter().filter_map(|export| parse(export)).collect();
    let find = |package: &str, name: &str| {
        parsed
            .iter()
            .find(|interface| interface.package == package && interface.name == name)
            .map(|interface| interface.version.map(str::to_owned))
    };
    for (role, package, name) in [
        (Role::Harness, PLUGIN, "agent"),
        (Role::Reward, PLUGIN, "scorer"),
        (Role::Program, "wasi:cli", "run"),
    ] {
        if let Some(version) = find(package, name) {
            return (Some(role), version);
        }
    }
    (None, None)
}

fn is_unserved(export: &str) -> bool {
    parse(export).is_some_and(|interface| match interface.package {
        PLUGIN => !same_minor(interface.version, PLUGIN_MINOR),
        "wasi:cli" => !same_minor(interface.version, WASI_MINOR),
        _ => false,
    })
}

/// What the interfaces of WASI that are linked lead to.
const WASI_WHY: [(&str, &str); 5] = [
    ("wasi:io", "streams and waiting, inside the sandbox"),
    ("wasi:clocks", "a virtual clock"),
    ("wasi:random", "seeded numbers"),
    ("wasi:cli", "an environment of its own and captured streams"),
    ("wasi:filesystem", "the workspace and nothing else"),
];

fn judge(name: String, role: Option<Role>) -> Import {
    let (verdict, why) = verdict(&name, role);
    Import { name, verdict, why }
}

fn verdict(name: &str, role: Option<Role>) -> (Verdict, String) {
    let refused = |why: &str| (Verdict::Refused, why.to_owned());
    let granted = |why: &str| (Verdict::Granted, why.to_owned());
    let Some(interface) = parse(name) else {
        return refused("not an interface; plugins import interfaces of the contract and of WASI");
    };
    if interface.package == PLUGIN {
        if !same_minor(interface.version, PLUGIN_MINOR) {
            return (
                Verdict::Refused,
                format!("contract {CONTRACT} and its patches are served; build against it"),
            );
        }
        return plugin_verdict(interface.name, role);
    }
    if interface.package.starts_with("wasi:") && !same_minor(interface.version, WASI_MINOR) {
        return refused("only WASI 0.2 is served; compile for `wasm32-wasip2`");
    }
    let path = format!("{}/{}", interface.package, interface.name);
    if wasi::GRANTED.contains(&path.as_str()) {
        let why = WASI_WHY.iter().find(|(package, _)| *package == interface.package);
        return granted(why.map_or("a part of WASI", |(_, why)| why));
    }
    if wasi::STUBBED.contains(&path.as_str()) {
        let why = "language runtimes always import it; every call is denied and recorded";
        return (Verdict::Stubbed, why.to_owned());
    }
    match interface.package {
        "wasi:http" => refused(
            "no setting grants the network; a harness reaches the model through \
             `fulgurite:plugin/llm` (with componentize-js, disable its feature `http`)",
        ),
        _ => refused("unknown here, and no setting grants it; build without it"),
    }
}

fn plugin_verdict(name: &str, role: Option<Role>) -> (Verdict, String) {
    let granted = |why: &str| (Verdict::Granted, why.to_owned());
    let refused = |why: &str| (Verdict::Refused, why.to_owned());
    match (name, role) {
        ("types" | "commands", _) => granted("words without behaviour"),
        ("llm", Some(Role::Harness)) => granted("the run's policy, through the gateway"),
        ("exec", Some(Role::Harness)) => granted("commands in the episode's workspace"),
        ("trace", Some(Role::Harness)) => granted("notes for the trace"),
        ("budget", Some(Role::Harness)) => granted("what is left of the episode's limits"),
        ("episode", Some(Role::Reward)) => granted("the finished episode, read only"),
        ("grader", Some(Role::Reward)) => granted("sandboxes to grade in"),
        ("llm", Some(Role::Reward)) => {
            refused("rewards have no model in this version (the world `reward-judge` is reserved)")
        }
        ("episode" | "grader", Some(Role::Harness)) => {
            refused("only rewards see grading; no setting grants it to a harness")
        }
        ("llm" | "exec" | "trace" | "budget", _) => {
            refused("only for components that export `fulgurite:plugin/agent`")
        }
        ("episode" | "grader", _) => {
            refused("only for components that export `fulgurite:plugin/scorer`")
        }
        _ => refused("the contract has no such interface"),
    }
}

const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Harness => "harness",
        Role::Reward => "reward",
        Role::Program => "program",
    }
}

const fn role_words(role: Role) -> &'static str {
    match role {
        Role::Harness => "a harness",
        Role::Reward => "a reward",
        Role::Program => "a program (a WASI command)",
    }
}

const fn role_export(role: Role) -> &'static str {
    match role {
        Role::Harness => "fulgurite:plugin/agent@0.1.0",
        Role::Reward => "fulgurite:plugin/scorer@0.1.0",
        Role::Program => "wasi:cli/run@0.2.0",
    }
}

fn list(imports: &[Import]) -> String {
    let lines: Vec<_> =
        imports.iter().map(|import| format!("`{}` ({})", import.name, import.why)).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(text: &str) -> Vec<u8> {
        wat::parse_str(text).unwrap()
    }

    fn verdict_of(name: &str, role: Role) -> Verdict {
        verdict(name, Some(role)).0
    }

    #[test]
    fn a_harness_with_its_imports_passes() {
        let bytes = component(
            r#"(component
                (import "fulgurite:plugin/llm@0.1.0" (instance))
                (import "wasi:io/poll@0.2.6" (instance))
                (import "wasi:sockets/tcp@0.2.0" (instance))
                (instance $agent)
                (export "fulgurite:plugin/agent@0.1.3" (instance $agent)))"#,
        );
        let inspection = inspect(&bytes).unwrap();
        assert_eq!(inspection.role, Some(Role::Harness));
        assert_eq!(inspection.version.as_deref(), Some("0.1.3"));
        let verdicts: Vec<_> = inspection.imports.iter().map(|import| import.verdict).collect();
        assert_eq!(verdicts, [Verdict::Granted, Verdict::Granted, Verdict::Stubbed]);
        inspection.check(Role::Harness).unwrap();
        let error = inspection.check(Role::Reward).unwrap_err().to_string();
        assert!(error.contains("this is a harness, not a reward"), "{error}");
    }

    #[test]
    fn imports_of_nested_components_are_not_taken_for_the_outer_ones() {
        let bytes = component(
            r#"(component
                (component (import "wasi:http/outgoing-handler@0.2.0" (instance)))
                (instance $run)
                (export "wasi:cli/run@0.2.0" (instance $run)))"#,
        );
        let inspection = inspect(&bytes).unwrap();
        assert_eq!(inspection.role, Some(Role::Program));
        assert!(inspection.imports.is_empty());
    }

    #[test]
    fn a_harness_is_refused_grading_and_the_network_by_name() {
        let bytes = component(
            r#"(component
                (import "fulgurite:plugin/grader@0.1.0" (instance))
                (import "wasi:http/outgoing-handler@0.2.0" (instance))
                (instance $agent)
                (export "fulgurite:plugin/agent@0.1.0" (instance $agent)))"#,
        );
        let error = inspect(&bytes).unwrap().check(Role::Harness).unwrap_err().to_string();
        assert!(error.contains("fulgurite:plugin/grader@0.1.0"), "{error}");
        assert!(error.contains("wasi:http/outgoing-handler@0.2.0"), "{error}");
        assert!(error.contains("no setting grants"), "{error}");
    }

    #[test]
    fn other_versions_of_the_contract_are_refused() {
        let bytes = component(
            r#"(component (instance $agent)
                (export "fulgurite:plugin/agent@0.2.0" (instance $agent)))"#,
        );
        let error = inspect(&bytes).unwrap().check(Role::Harness).unwrap_err();
        assert!(matches!(error, AuditError::WrongVersion { .. }), "{error}");
        for name in ["fulgurite:plugin/llm@0.2.0", "fulgurite:plugin/llm", "wasi:io/poll@0.3.0"] {
            assert_eq!(verdict_of(name, Role::Harness), Verdict::Refused, "{name}");
        }
        assert_eq!(verdict_of("wasi:io/poll@0.2.", Role::Harness), Verdict::Refused);
        assert_eq!(verdict_of("fulgurite:plugin/llm@0.10.0", Role::Harness), Verdict::Refused);
    }

    #[test]
    fn what_is_no_component_is_said_to_be_what_it_is() {
        assert_eq!(inspect(b"(module)"), Err(AuditError::NotWasm));
        assert_eq!(inspect(b""), Err(AuditError::NotWasm));
        assert_eq!(inspect(&component("(module)")), Err(AuditError::CoreModule));
        let mut bytes = component("(component (import \"a:b/c@0.2.0\" (instance)))");
        bytes.truncate(bytes.len() - 3);
        assert!(matches!(inspect(&bytes), Err(AuditError::Corrupt(_))));
        assert!(matches!(inspect(b"\0asm\x07\0\x09\0"), Err(AuditError::Corrupt(_))));
    }

    #[test]
    fn no_prefix_of_a_component_panics() {
        let bytes = component(
            r#"(component (import "wasi:io/poll@0.2.0" (instance)) (core module (func)))"#,
        );
        for end in 0..bytes.len() {
            let _ = inspect(&bytes[..end]);
        }
    }
}
