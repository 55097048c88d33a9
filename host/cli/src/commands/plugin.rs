//! `fulgurite plugin`: the registry.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use fulgurite_registry::{Description, Kind, Name, Pinned, Plugin, Registry, Scope};
use fulgurite_runtime::{
    audit::{self, AuditError},
    cache::{self, CacheLimits},
    componentize::componentize,
    limits::Role,
};
use fulgurite_trace::{Digest, RunStatus, Store};
use serde_json::{Value, json};

use crate::{
    args::{PluginCommand, PluginKind},
    exit,
    host::{Found, Host, registry},
    output::{Output, counted},
    place::Places,
    table,
};

pub(crate) async fn run(command: &PluginCommand, places: &Places, output: Output) -> Result<()> {
    let registry = registry(places);
    match command {
        PluginCommand::Add { file, name, kind, project } => {
            let scope = if *project { Scope::Project } else { Scope::User };
            add(file, name.as_deref(), *kind, scope, places, output).await
        }
        PluginCommand::List => list(&registry, output),
        PluginCommand::Show { name } => {
            let plugin = value(&registry.show(name)?);
            output.result(&plugin, fields)
        }
        PluginCommand::Pin { names } => {
            let names: Vec<Name> = if names.is_empty() {
                registry.list()?.into_iter().map(|plugin| plugin.name).collect()
            } else {
                names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?
            };
            registry.pin(&names)?;
            let done = json!({ "lock_file": registry.lock_path(), "pinned": names.len() });
            output.result(&done, |_| {
                let names = counted(names.len(), "name is", "names are");
                format!("{names} pinned in {}", registry.lock_path().display())
            })
        }
        PluginCommand::Unpin { name } => {
            let found = registry.unpin(&name.parse()?)?;
            output.result(&json!({ "unpinned": found }), |_| {
                if found {
                    format!("{name} is not pinned any more")
                } else {
                    format!("{name} was not pinned")
                }
            })
        }
        PluginCommand::Verify => verify(&registry, output),
        PluginCommand::Prune { compiled, days } => {
            let unused = Duration::from_secs(days.saturating_mul(24 * 3600));
            let limits = CacheLimits { bytes: compiled.0, unused };
            prune(&registry, limits, places, output)
        }
        PluginCommand::Remove { name } => {
            let name: Name = name.parse()?;
            let removed = registry.remove(&name)?;
            let done = json!({ "removed": name.as_str(), "scope": removed.scope.to_string() });
            output.result(&done, |_| format!("removed {name} ({})", removed.scope))
        }
    }
}

async fn add(
    file: &Path,
    name: Option<&str>,
    kind: Option<PluginKind>,
    scope: Scope,
    places: &Places,
    output: Output,
) -> Result<()> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name: Name = name.unwrap_or(&stem).parse()?;
    let bytes = std::fs::read(file)
        .with_context(|| format!("cannot read the component {}", file.display()))?;
    let bytes = component(bytes, kind)?;
    let host = Host::start(places, 1)?;
    let inspection = audit::inspect(&bytes)?;
    let found = Found {
        pin: fulgurite_episode::plan::PluginPin {
            name: name.to_string(),
            digest: inspection.digest,
            path: None,
        },
        bytes: bytes.into(),
    };
    // Loading it compiles it, so that the first run does not have to.
    let (is, metadata) = match inspection.role {
        Some(Role::Harness) => {
            let (_, says) = host.harness(&found).await?;
            (Kind::Harness, vec![("name", says.name), ("version", says.version)])
        }
        Some(Role::Reward) => {
            let (_, says) = host.reward(&found).await?;
            (Kind::Reward, vec![("name", says.name), ("version", says.version)])
        }
        Some(Role::Program) => {
            host.program(&found).await?;
            (Kind::Program, vec![])
        }
        None => bail!(exit::Plugin(format!(
            "{} is neither a harness, a reward nor a program\n  mend: `fulgurite inspect {}` shows \
             its exports",
            file.display(),
            file.display()
        ))),
    };
    if let Some(wanted) = kind.map(kind_of)
        && wanted != is
    {
        bail!(exit::Plugin(format!("{} is a {is}, not a {wanted}", file.display())));
    }
    let mut metadata: BTreeMap<String, String> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    metadata.extend(inspection.version.map(|version| ("contract".to_owned(), version)));
    let description = Description { kind: is, metadata };
    let added = host.registry.add(scope, &name, &found.bytes, description)?;
    if let Pinned::Elsewhere(digest) = added.plugin.pinned {
        output.remark(format_args!(
            "{name} is pinned to {} in this project; `fulgurite plugin pin {name}` moves the pin",
            digest.short()
        ));
    }
    output.result(&value(&added.plugin), |_| {
        let digest = added.plugin.digest.short();
        format!("added {name}: {is} {digest} ({})", added.plugin.scope)
    })
}

/// The bytes as a component: programs are often core modules for WASI 0.1.
fn component(bytes: Vec<u8>, kind: Option<PluginKind>) -> Result<Vec<u8>> {
    match (audit::inspect(&bytes), kind) {
        (Err(AuditError::CoreModule), Some(PluginKind::Program)) => Ok(componentize(&bytes)?),
        (Err(error), _) => Err(error.into()),
        (Ok(_), _) => Ok(bytes),
    }
}

fn kind_of(kind: PluginKind) -> Kind {
    match kind {
        PluginKind::Harness => Kind::Harness,
        PluginKind::Reward => Kind::Reward,
        PluginKind::Program => Kind::Program,
    }
}

fn value(plugin: &Plugin) -> Value {
    let pinned = match plugin.pinned {
        Pinned::No => Value::Null,
        Pinned::Here => json!(plugin.digest),
        Pinned::Elsewhere(digest) => json!(digest),
    };
    json!({
        "name": plugin.name.as_str(),
        "kind": plugin.kind.name(),
        "digest": plugin.digest,
        "size": plugin.size,
        "scope": plugin.scope.to_string(),
        "pinned": pinned,
        "shadowed": plugin.shadowed,
        "file": plugin.path,
        "says": plugin.metadata,
    })
}

fn fields(plugin: &Value) -> String {
    let rows = plugin.as_object().into_iter().flatten().map(|(name, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            value => value.to_string(),
        };
        [name.clone(), value]
    });
    table::pairs(rows)
}

fn list(registry: &Registry, output: Output) -> Result<()> {
    let plugins = registry.list()?;
    let values: Vec<_> = plugins.iter().map(value).collect();
    output.result(&values, |_| {
        let rows = plugins.iter().map(|plugin| {
            let pinned = match plugin.pinned {
                Pinned::No => String::new(),
                Pinned::Here => "pinned".to_owned(),
                Pinned::Elsewhere(digest) => format!("pinned to {}", digest.short()),
            };
            [
                plugin.name.to_string(),
                plugin.kind.to_string(),
                plugin.digest.short(),
                plugin.size.to_string(),
                plugin.scope.to_string(),
                pinned,
            ]
        });
        table::text(["name", "kind", "digest", "bytes", "scope", ""], rows)
    })
}

/// Frees space: components that were kept for runs which are finished, and compiled code.
fn prune(registry: &Registry, limits: CacheLimits, places: &Places, output: Output) -> Result<()> {
    let needed = needed(places)?;
    let gone = registry.prune(|digest| needed.contains(digest))?;
    let components = gone.len();
    let component_bytes: u64 = gone.iter().map(|(_, bytes)| bytes).sum();
    let compiled = cache::prune(&places.compiled(), limits)?;
    let done = json!({
        "components_removed": components,
        "components_removed_bytes": component_bytes,
        "compiled": compiled,
    });
    output.result(&done, |_| {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let components = counted(components, "component", "components");
        let removed = usize::try_from(compiled.removed).unwrap_or(usize::MAX);
        let files = counted(removed, "file", "files");
        format!(
            "removed {components} of finished runs ({}) and {files} of compiled code ({}); {} of \
             compiled code stay",
            mib(component_bytes),
            mib(compiled.removed_bytes),
            mib(compiled.kept_bytes)
        )
    })
}

/// Components of runs that `--resume` may take up again.
fn needed(places: &Places) -> Result<BTreeSet<Digest>> {
    if !places.store.try_exists()? {
        return Ok(BTreeSet::new());
    }
    let mut needed = BTreeSet::new();
    for run in Store::open_read_only(&places.store)?.runs()? {
        if run.status == RunStatus::Finished {
            continue;
        }
        // The plan of a run of another version may have another form: every digest in it counts.
        digests(&run.record.plan, &mut needed);
    }
    Ok(needed)
}

fn digests(value: &Value, all: &mut BTreeSet<Digest>) {
    match value {
        Value::String(text) => all.extend(text.parse::<Digest>().ok()),
        Value::Array(values) => values.iter().for_each(|value| digests(value, all)),
        Value::Object(fields) => fields.values().for_each(|value| digests(value, all)),
        _ => {}
    }
}

fn verify(registry: &Registry, output: Output) -> Result<()> {
    let problems: Vec<_> = registry.verify()?.problems.iter().map(ToString::to_string).collect();
    output.result(&json!({ "problems": problems }), |_| {
        if problems.is_empty() {
            "every stored file is what its digest says".to_owned()
        } else {
            problems.join("\n")
        }
    })?;
    if problems.is_empty() {
        Ok(())
    } else {
        bail!(exit::Plugin(counted(problems.len(), "problem", "problems") + " in the registry"))
    }
}
