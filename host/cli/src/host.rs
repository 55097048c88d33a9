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

use crate::{exit, output::Output, place::Places};

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
        let mut settings = Settings::new(places.compiled(), compiler);
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

    /// Keeps what a new run uses: files go to the project's store, so that `--resume` finds them
    /// when they have been built anew, and names that the project's lock file does not pin yet
    /// are added to it. A project without a lock file gets none.
    pub(crate) fn keep<'a>(
        &self,
        files: impl Iterator<Item = &'a Found>,
        used: impl Iterator<Item = &'a PluginPin>,
        output: Output,
    ) -> Result<()> {
        for found in files.filter(|found| found.pin.path.is_some()) {
            if let Err(error) = self.registry.keep(&found.bytes) {
                // The run itself does not need it.
                output.remark(format_args!(
                    "`{}` cannot be kept, so the run can only be resumed while its file stays as \
                     it is: {error}",
                    found.pin.name
                ));
            }
        }
        if !self.registry.lock_path().exists() {
            return Ok(());
        }
        let mut named = Vec::new();
        for pin in used.filter(|pin| pin.path.is_none()) {
            if let Ok(plugin) = self.registry.show(&pin.name)
                && plugin.digest != pin.digest
            {
                output.remark(format_args!(
                    "`{name}` is used as fulgurite.lock pins it ({}); registered is {} (`fulgurite \
                     plugin pin {name}` moves the pin)",
                    pin.digest.short(),
                    plugin.digest.short(),
                    name = plugin.name,
                ));
            }
            named.push(self.registry.resolve(&pin.name, None)?);
        }
        self.registry.pin_resolved(&named)?;
        Ok(())
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
        // What a run used is in the store, also when it was a file that has been built anew since;
        // runs of older versions kept no files.
        let resolved = match (self.registry.component(&pin.digest), &pin.path) {
            (Some(stored), _) => stored,
            (None, Some(path)) => self.registry.resolve(&path.to_string_lossy(), None)?,
            (None, None) => bail!(exit::Plugin(gone())),
        };
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
