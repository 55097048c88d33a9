//! `fulgurite inspect`: what a component is, before anything of it runs, and what it says of
//! itself in a store where nothing answers.

use anyhow::{Result, bail};
use fulgurite_runtime::{
    audit::{self, Inspection, Verdict},
    limits::Role,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    args::Inspect,
    exit,
    host::{Host, find, registry},
    output::Output,
    place::Places,
    table,
};

#[derive(Serialize)]
struct Report {
    name: String,
    #[serde(flatten)]
    inspection: Inspection,
    /// What it answers when asked, with its configuration's schema as JSON.
    description: Option<Value>,
}

pub(crate) async fn run(inspect: &Inspect, places: &Places, output: Output) -> Result<()> {
    let found = find(&registry(places), &inspect.plugin, None)?;
    let inspection = audit::inspect(&found.bytes)?;
    let refused: Vec<_> = inspection
        .imports
        .iter()
        .filter(|import| import.verdict == Verdict::Refused)
        .map(|import| import.name.clone())
        .collect();
    let role = inspection.role;
    // What is refused is shown too, so nothing is loaded before.
    let description = if refused.is_empty() {
        let host = Host::start(places, 1)?;
        match role {
            Some(Role::Harness) => Some(serde_json::to_value(host.harness(&found).await?.1)?),
            Some(Role::Reward) => Some(serde_json::to_value(host.reward(&found).await?.1)?),
            _ => None,
        }
    } else {
        None
    };
    let description = description.map(with_schema);
    let report = Report { name: found.pin.name, inspection, description };
    output.result(&report, text)?;
    if !refused.is_empty() {
        bail!(exit::Plugin(format!(
            "it imports what is not granted: {}\n  mend: build it without what needs these; the \
             table says what each is for",
            refused.join(", ")
        )));
    }
    if role.is_none() {
        bail!(exit::Plugin(
            "it is neither a harness, a reward nor a program: it exports none of the interfaces \
             they do\n  mend: build it against the SDK (`fulgurite new harness|reward NAME` starts \
             one), or for WASI 0.2 as a command"
                .to_owned()
        ));
    }
    Ok(())
}

/// The schema as JSON instead of text, where it is JSON.
fn with_schema(mut description: Value) -> Value {
    if let Some(schema) = description.get_mut("config_schema")
        && let Some(parsed) = schema.as_str().and_then(|text| serde_json::from_str(text).ok())
    {
        *schema = parsed;
    }
    description
}

fn text(report: &Report) -> String {
    let Report { name, inspection, description } = report;
    let role = match inspection.role {
        Some(Role::Harness) => "harness",
        Some(Role::Reward) => "reward",
        Some(Role::Program) => "program of the wasm lane",
        None => "nothing that is used here",
    };
    let mut rows = vec![
        ["name".to_owned(), name.clone()],
        ["world".to_owned(), role.to_owned()],
        ["version".to_owned(), inspection.version.clone().unwrap_or_default()],
        ["digest".to_owned(), inspection.digest.to_string()],
        ["size".to_owned(), format!("{} bytes", inspection.size)],
        ["exports".to_owned(), inspection.exports.join("\n")],
    ];
    if let Some(Value::Object(fields)) = description {
        for (field, value) in fields {
            let value = match value {
                Value::String(text) => text.clone(),
                value if field == "config_schema" => {
                    serde_json::to_string_pretty(value).unwrap_or_default()
                }
                value => value.to_string(),
            };
            rows.push([format!("says: {field}"), value]);
        }
    }
    let imports = inspection.imports.iter().map(|import| {
        let verdict = match import.verdict {
            Verdict::Granted => "granted",
            Verdict::Stubbed => "stubbed",
            Verdict::Refused => "REFUSED",
        };
        [import.name.clone(), verdict.to_owned(), import.why.clone()]
    });
    let about = table::pairs(rows);
    format!("{about}\n{}", table::text(["import", "verdict", "why"], imports))
}
