//! The model that is trained: opened, given adapters, taken up from a checkpoint, written.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use fulgurite_model::Model;
use fulgurite_policy::{
    HubModel, HubOptions, LocalModel, LocalPolicy, PolicySpec, Weights, open_model,
};
use fulgurite_train::{
    checkpoint::Checkpoint,
    learner::LearnerError,
    model::{Gate, ModelLearner, Reference},
};

use super::config::TrainConfig;
use crate::{
    exit,
    policy::{self, LocalOptions},
};

/// The model as policy and as learner. Both share the weights: nothing is copied between an
/// update and the next token.
pub(super) struct Trainee {
    pub(super) policy: Arc<LocalPolicy>,
    pub(super) learner: ModelLearner<PolicyGate>,
}

/// Updates wait for the engine's step, and the engine for updates.
#[derive(Debug)]
pub(super) struct PolicyGate(Arc<LocalPolicy>);

impl Gate for PolicyGate {
    fn update(
        &mut self,
        version: u64,
        change: &mut dyn FnMut() -> Result<(), LearnerError>,
    ) -> Result<(), LearnerError> {
        let (now, changed) = self.0.update(|_| change())?;
        changed?;
        if now != version {
            return Err(format!("the policy is at version {now}, and not at {version}").into());
        }
        Ok(())
    }
}

impl Trainee {
    /// Opens what the configuration names, at a checkpoint if there is one. Takes seconds for
    /// large models.
    pub(super) fn open(config: &TrainConfig, checkpoint: Option<&Checkpoint>) -> Result<Self> {
        let spec = spec(config)?;
        if matches!(spec, PolicySpec::Gguf(_)) && (config.lora.is_none() || config.merge) {
            bail!(exit::Usage(format!(
                "`{}` cannot be trained as a whole, nor an adapter merged into it: weights cannot be \
                 written back to a file of its kind\n  mend: train an adapter alone (`[lora]` \
                 without `merge`), or name the same model as `folder:` or `hf:`",
                config.policy
            )));
        }
        let options: LocalOptions = policy::read(&config.policy_options)?;
        if options.adapter.is_some() {
            bail!(exit::Usage(
                "`policy_options.adapter` is for runs; training would leave it out\n  mend: remove it"
                    .to_owned()
            ));
        }
        if options.device.is_some() {
            bail!(exit::Usage(
                "`policy_options.device` is for runs; training computes on the CPU\n  mend: remove it"
                    .to_owned()
            ));
        }
        let (thinking, engine) = (options.thinking, options.engine());
        let mut local = load(&spec, config)?.with_thinking(thinking);
        let reference = match (&config.algorithm.kl, &config.lora) {
            (None, _) => None,
            (Some(_), Some(_)) => Some(Reference::Base),
            // Loaded once more: what is trained is changed in place.
            (Some(_), None) => Some(Reference::Frozen(Box::new(load(&spec, config)?.model))),
        };
        match (&config.lora, checkpoint) {
            (Some(lora), None) => local.model.add_lora(lora)?,
            (Some(lora), Some(checkpoint)) => {
                local.model.load_peft(&checkpoint.folder)?;
                if local.model.lora().is_none_or(|was| !is_same(was, lora)) {
                    bail!(exit::Usage(
                        "`[lora]` has changed since the training began\n  mend: restore it, or \
                         train into another folder"
                            .to_owned()
                    ));
                }
            }
            (None, Some(checkpoint)) => local.model = taken_up(&local.model, checkpoint)?,
            (None, None) => {}
        }
        local.version = checkpoint.map_or(0, |checkpoint| checkpoint.state.version);
        let model = local.model.clone();
        let policy = Arc::new(
            LocalPolicy::new(local, engine).map_err(|error| exit::Policy(error.to_string()))?,
        );
        let gate = PolicyGate(Arc::clone(&policy));
        let learner = ModelLearner::new(model, reference, gate)
            .map_err(|error| exit::Policy(error.to_string()))?
            .with_base(base(&spec));
        Ok(Self { policy, learner })
    }
}

/// How PEFT finds what an adapter stands beside.
fn base(spec: &PolicySpec) -> String {
    match spec {
        PolicySpec::Hub(model) => model.repository(),
        PolicySpec::Folder(path) | PolicySpec::Gguf(path) | PolicySpec::Tiny(path) => {
            path.display().to_string()
        }
        other => other.to_string(),
    }
}

fn is_same(one: &fulgurite_model::LoraConfig, other: &fulgurite_model::LoraConfig) -> bool {
    let sorted = |targets: &[String]| {
        let mut targets = targets.to_vec();
        targets.sort_unstable();
        targets
    };
    one.rank == other.rank
        && (one.alpha - other.alpha).abs() < f32::EPSILON
        && sorted(&one.targets) == sorted(&other.targets)
}

fn spec(config: &TrainConfig) -> Result<PolicySpec> {
    let spec = config.policy.parse();
    Ok(spec.map_err(|error: fulgurite_policy::SpecError| exit::Usage(error.to_string()))?)
}

fn load(spec: &PolicySpec, config: &TrainConfig) -> Result<LocalModel> {
    let model =
        open_model(spec, Weights::Plain, None).map_err(|error| exit::Policy(error.to_string()))?;
    let model = model.with_context(|| {
        exit::Usage(format!(
            "`{}` cannot be trained\n  mend: name a model on this machine: folder:, hf:, tiny: or \
             gguf:",
            config.policy
        ))
    })?;
    Ok(model)
}

/// The model of a checkpoint, which must be of the same shape.
fn taken_up(model: &Model, checkpoint: &Checkpoint) -> Result<Model> {
    let saved = Model::open_folder(&checkpoint.folder)?;
    if saved.config() != model.config() {
        bail!(exit::Usage(format!(
            "the policy has another shape than the checkpoint {}\n  mend: restore its \
             description, or train into another folder",
            checkpoint.folder.display()
        )));
    }
    Ok(saved)
}

/// What was written at the end, and how a run names it.
pub(super) struct Exported {
    pub(super) folder: PathBuf,
    /// Flags of `fulgurite run`.
    pub(super) flags: String,
}

/// Files of a model's folder that are no weights.
const COMPANIONS: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// Writes what was trained where runs can use it: an adapter, or a whole model with its tokenizer.
/// `model` is what the training ended with; merging adapters changes it.
pub(super) fn export(config: &TrainConfig, checkpoint: &Path, model: &Model) -> Result<Exported> {
    let spec = spec(config)?;
    if config.lora.is_none() {
        return whole(config, &spec, |folder| {
            let files = ["config.json", "model.safetensors"];
            files.iter().try_for_each(|file| copy(&checkpoint.join(file), &folder.join(file)))
        });
    }
    let folder = config.output.join("adapter");
    put(&folder, |folder| {
        let files = ["adapter_model.safetensors", "adapter_config.json"];
        files.iter().try_for_each(|file| copy(&checkpoint.join(file), &folder.join(file)))
    })?;
    if config.merge {
        let mut merged = model.clone();
        merged.merge_lora().context("the adapter could not be merged")?;
        return whole(config, &spec, |folder| Ok(merged.save(folder)?));
    }
    let flags = format!("--policy {spec} --policy-option adapter={}", folder.display());
    Ok(Exported { folder, flags })
}

/// Writes a model of which `fill` writes description and weights.
fn whole(
    config: &TrainConfig,
    spec: &PolicySpec,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<Exported> {
    let companions = match spec {
        PolicySpec::Folder(source) => Some(source.clone()),
        PolicySpec::Hub(model) => Some(fetched(model)?),
        _ => None,
    };
    let folder = config.output.join("model");
    put(&folder, |folder| {
        fill(folder)?;
        companions.map_or(Ok(()), |source| accompany(&source, folder))
    })?;
    let flags = match spec {
        PolicySpec::Tiny(description) => {
            let path = config.output.join("model.toml");
            describe(description, &path)?;
            format!("--policy tiny:{}", path.display())
        }
        _ => format!("--policy folder:{}", folder.display()),
    };
    Ok(Exported { folder, flags })
}

fn fetched(model: &HubModel) -> Result<PathBuf> {
    Ok(model.fetch(&HubOptions::from_environment())?)
}

/// The description of a tiny model, now with the weights that were trained.
fn describe(description: &Path, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(description)
        .with_context(|| format!("cannot read {}", description.display()))?;
    let mut table: toml::Table = toml::from_str(&text)?;
    table.remove("seed");
    table.insert("weights".to_owned(), "model".into());
    std::fs::write(path, toml::to_string(&table)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Puts beside trained weights what else belongs to the model that they came from. Its own
/// description stays, which may name tokens that end a reply; only the weights are stored in
/// another way now.
fn accompany(source: &Path, folder: &Path) -> Result<()> {
    let (from, to) = (source.join("config.json"), folder.join("config.json"));
    let place = || format!("cannot copy {} to {}", from.display(), to.display());
    let text = std::fs::read_to_string(&from).with_context(place)?;
    let mut description: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).with_context(place)?;
    description.remove("quantization_config");
    description.remove("dtype");
    description.insert("torch_dtype".to_owned(), "float32".into());
    let text = serde_json::to_string_pretty(&description).with_context(place)?;
    std::fs::write(&to, text).with_context(place)?;
    for file in COMPANIONS {
        let from = source.join(file);
        if from.is_file() {
            copy(&from, &folder.join(file))?;
        }
    }
    Ok(())
}

/// Fills a folder that then stands in place of an earlier one: whole, or not at all.
fn put(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let place = || format!("cannot make the folder {}", folder.display());
    let above = folder.parent().unwrap_or(Path::new("."));
    let beside =
        tempfile::Builder::new().prefix(".export").tempdir_in(above).with_context(place)?;
    let coming = beside.path().join("whole");
    std::fs::create_dir(&coming).with_context(place)?;
    fill(&coming)?;
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(place)?;
    }
    std::fs::rename(&coming, folder).with_context(place)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
