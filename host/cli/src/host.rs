//! The host's rooms, set up once a command: runtime, registry, and what they load.

use std::{num::NonZeroU32, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{Programs, plan::PluginPin};
use fulgurite_registry::{Kind, Registry, Source};
use fulgurite_runtime::{
    Harness, LaneProgram, LoadError, Reward, Runtime, Settings,
    compile::{CompileError, Compiler},
    harness::AgentDescription,
    reward::ScorerDescription,
};

use crate::{exit, place::Places};

/// The runtime and the registry.
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    pub(crate) registry: Registry,
}

/// A component's bytes and how it is called.
pub(crate) struct Found {
    pub(crate) pin: PluginPin,
    pub(crate) bytes: Arc<[u8]>,
}

impl Host {
    /// For so many harnesses and rewards alive at once.
    pub(crate) fn start(places: &Places, alive: u32) -> Result<Self> {
        let mut compiler = Compiler::this_program().context("this program cannot be found")?;
        if let Some(most) = compile_time()? {
            compiler = compiler.within(most);
        }
        let mut settings = Settings::new(places.cache.join("compiled"), compiler);
        settings.plugins = NonZeroU32::new(alive).unwrap_or(NonZeroU32::MIN);
        let runtime = Runtime::new(settings).context("the runtime cannot be set up")?;
        Ok(Self { runtime, registry: registry(places) })
    }

    /// The component of a registered name, or of a file.
    pub(crate) fn find(&self, name_or_file: &str, kind: Kind) -> Result<Found> {
        find(&self.registry, name_or_file, Some(kind))
    }

    /// Loads a harness and asks what it is.
    pub(crate) async fn harness(&self, found: &Found) -> Result<(Harness, AgentDescription)> {
        let place = || format!("the harness `{}` ({})", found.pin.name, found.pin.digest.short());
        let harness = self.runtime.harness(Arc::clone(&found.bytes)).await;
        let harness = harness.map_err(with_remedy).with_context(place)?;
        let description = harness.describe().await.with_context(place)?;
        Ok((harness, description))
    }

    /// Loads a reward and asks what it is.
    pub(crate) async fn reward(&self, found: &Found) -> Result<(Reward, ScorerDescription)> {
        let place = || format!("the reward `{}` ({})", found.pin.name, found.pin.digest.short());
        let reward = self.runtime.reward(Arc::clone(&found.bytes)).await;
        let reward = reward.map_err(with_remedy).with_context(place)?;
        let description = reward.describe().await.with_context(place)?;
        Ok((reward, description))
    }

    /// Loads a program of the wasm lane.
    pub(crate) async fn program(&self, found: &Found) -> Result<LaneProgram> {
        let place = || format!("the program `{}` ({})", found.pin.name, found.pin.digest.short());
        let program = self.runtime.program(Arc::clone(&found.bytes)).await;
        program.map_err(with_remedy).with_context(place)
    }

    /// Loads every registered program, or exactly those of a plan.
    pub(crate) async fn programs(
        &self,
        pinned: Option<&[PluginPin]>,
    ) -> Result<(Vec<PluginPin>, Programs)> {
        let found: Vec<Found> = match pinned {
            Some(pins) => pins.iter().map(|pin| self.pinned(pin)).collect::<Result<_>>()?,
            None => {
                let known = self.registry.list()?.into_iter();
                known
                    .filter(|plugin| plugin.kind == Kind::Program && !plugin.shadowed)
                    .map(|plugin| find(&self.registry, plugin.name.as_str(), Some(Kind::Program)))
                    .collect::<Result<_>>()?
            }
        };
        let mut programs = Vec::new();
        for found in &found {
            let program = self.program(found).await?;
            // Agents call it by either name.
            if found.pin.name == "python" {
                programs.push(("python3".to_owned(), program.clone()));
            }
            programs.push((found.pin.name.clone(), program));
        }
        let pins = found.into_iter().map(|found| found.pin).collect();
        Ok((pins, Programs::new(programs)))
    }

    /// The component of a pin, whatever its name points to by now.
    pub(crate) fn pinned(&self, pin: &PluginPin) -> Result<Found> {
        let gone = || {
            format!(
                "the component `{}` ({}) of the run is not there any more\n  mend: add that \
                 version again, or start a new run",
                pin.name,
                pin.digest.short()
            )
        };
        let path = match &pin.path {
            Some(path) => path.to_string_lossy().into_owned(),
            None => {
                let known = self.registry.list()?;
                let stored = known.into_iter().find(|plugin| plugin.digest == pin.digest);
                stored.with_context(gone)?.path.to_string_lossy().into_owned()
            }
        };
        let resolved = self.registry.resolve(&path, None)?;
        if resolved.digest != pin.digest {
            bail!(exit::Plugin(gone()));
        }
        Ok(Found { pin: pin.clone(), bytes: resolved.read()?.into() })
    }
}

/// The environment variable that says how long a component may be compiled.
const COMPILE_TIME: &str = "FULGURITE_COMPILE_TIME";

fn compile_time() -> Result<Option<Duration>> {
    let Some(text) = std::env::var_os(COMPILE_TIME) else { return Ok(None) };
    let time = humantime::parse_duration(&text.to_string_lossy()).ok();
    match time.filter(|time| !time.is_zero()) {
        Some(time) => Ok(Some(time)),
        None => bail!(exit::Usage(format!(
            "{COMPILE_TIME} is `{}`\n  mend: give a duration such as 90s or 10m",
            text.to_string_lossy().escape_debug()
        ))),
    }
}

/// How to mend what the runtime cannot know the remedy of.
fn with_remedy(error: LoadError) -> anyhow::Error {
    match error {
        LoadError::Compile(CompileError::Time(_)) => anyhow::Error::new(error).context(format!(
            "the component was not compiled in time\n  mend: if it is to be trusted and only \
             large, give it longer: {COMPILE_TIME}=20m"
        )),
        error => error.into(),
    }
}

/// The registry of the user and the project.
pub(crate) fn registry(places: &Places) -> Registry {
    Registry::new(&places.home, &places.project)
}

/// The component of a registered name, or of a file.
pub(crate) fn find(registry: &Registry, name_or_file: &str, kind: Option<Kind>) -> Result<Found> {
    let resolved = registry.resolve(name_or_file, kind)?;
    let bytes = resolved.read()?.into();
    let (name, path) = match resolved.source {
        Source::File => {
            let file = Path::new(&resolved.name).file_stem().unwrap_or_default();
            let path = resolved.path.canonicalize().unwrap_or(resolved.path);
            (file.to_string_lossy().into_owned(), Some(path))
        }
        Source::Registered(_) | Source::Pinned(_) => (resolved.name, None),
    };
    Ok(Found { pin: PluginPin { name, digest: resolved.digest, path }, bytes })
}
