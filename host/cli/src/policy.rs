//! From what a run says of its policy to the policy itself.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use fulgurite_policy::{
    ApiKey, EngineOptions, Interrupted, NumberType, OpenAiOptions, OpenContext, Oracle, Placement,
    Policy, PolicyError, PolicySpec,
};
use fulgurite_trace::Task;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::exit;

/// `policy_options` of the configuration, for models that are run on this machine.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LocalOptions {
    /// Calls in all until a reply counts as failed; the gateway's, see [`calls`].
    #[serde(rename = "calls")]
    _calls: Option<NonZeroU32>,
    /// Tokens of history and reply together.
    context_length: Option<NonZeroU32>,
    /// Sequences that are held at once.
    slots: Option<NonZeroUsize>,
    /// MiB for their keys and values.
    key_value_mib: Option<NonZeroUsize>,
    /// Tokens of prompts that one step reads.
    prefill: Option<NonZeroUsize>,
    /// Calls that wait inside the engine.
    queue: Option<NonZeroUsize>,
    /// Keep and share sequences.
    prefix_cache: Option<bool>,
    /// What else is in the batch changes no bit.
    batch_invariant: Option<bool>,
    /// What becomes of replies that an update of the weights interrupts.
    interrupted: Option<InterruptedOption>,
    /// Whether the model is to think, for chat templates that have a switch for it.
    pub(crate) thinking: Option<bool>,
    /// A folder with an adapter in PEFT's layout.
    pub(crate) adapter: Option<PathBuf>,
    /// Where the model is computed.
    pub(crate) device: Option<Device>,
    /// In which form weights, keys and values are held on a graphics card.
    numbers: Option<NumberOption>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum InterruptedOption {
    Continue,
    Resample,
}

/// `cpu`, `cuda` or `cuda:NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Device(Placement);

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = match text.split_once(':') {
            Some(("cuda", number)) => number.parse().ok(),
            None if text == "cuda" => Some(0),
            None if text == "cpu" => return Ok(Self(Placement::Cpu)),
            _ => None,
        };
        let placement = number.map(Placement::Cuda);
        Ok(Self(placement.ok_or(format!("`{text}` is no device; known are cpu, cuda, cuda:1, …"))?))
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NumberOption {
    F32,
    Bf16,
}

impl LocalOptions {
    /// Where the model is computed, and how its weights are held there.
    pub(crate) fn placement(&self) -> (Placement, NumberType) {
        let numbers = match self.numbers {
            None | Some(NumberOption::F32) => NumberType::F32,
            Some(NumberOption::Bf16) => NumberType::Bf16,
        };
        (self.device.map_or(Placement::Cpu, |device| device.0), numbers)
    }

    /// How the engine is to work.
    pub(crate) fn engine(self) -> EngineOptions {
        let default = EngineOptions::default();
        let mib = |mib: NonZeroUsize| mib.get().saturating_mul(1 << 20);
        EngineOptions {
            context_length: self.context_length.map(NonZeroU32::get),
            slots: self.slots.map_or(default.slots, NonZeroUsize::get),
            key_value_bytes: self.key_value_mib.map_or(default.key_value_bytes, mib),
            prefill: self.prefill.map_or(default.prefill, NonZeroUsize::get),
            queue: self.queue.map_or(default.queue, NonZeroUsize::get),
            prefix_cache: self.prefix_cache.unwrap_or(default.prefix_cache),
            batch_invariant: self.batch_invariant.unwrap_or(default.batch_invariant),
            interrupted: match self.interrupted {
                None => default.interrupted,
                Some(InterruptedOption::Continue) => Interrupted::Continue,
                Some(InterruptedOption::Resample) => Interrupted::Resample,
            },
        }
    }
}

/// `policy_options` of the configuration, for `openai:` policies.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OpenAiFields {
    /// Name of the environment variable that holds the key.
    key_variable: Option<String>,
    /// Ask the server for token ids and log-probabilities.
    token_ids: bool,
    /// Send the model's earlier thinking back.
    send_thinking: bool,
    /// Whether the server takes tool definitions.
    native_tools: Option<bool>,
    /// Tokens of history and reply together.
    context_length: Option<u32>,
    /// Calls in all until a reply counts as failed; see [`calls`].
    calls: Option<NonZeroU32>,
    /// Fields added to every request.
    extra: Map<String, Value>,
}

/// `policy_options` of policies that know none of their own.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NoFields {
    /// Calls in all until a reply counts as failed; the gateway's, see [`calls`].
    #[serde(rename = "calls")]
    _calls: Option<NonZeroU32>,
}

/// Opens the policy and sees that it can be asked. Reads its files on a blocking thread: a model
/// takes seconds.
pub(crate) async fn open(
    text: &str,
    options: &Map<String, Value>,
    tasks: &[Arc<Task>],
) -> Result<Arc<dyn Policy>> {
    let spec: PolicySpec = text
        .parse()
        .map_err(|error: fulgurite_policy::SpecError| exit::Usage(error.to_string()))?;
    let mut context = OpenContext::default();
    match spec {
        PolicySpec::Oracle => {
            read::<NoFields>(options)?;
            context.oracle = Some(Oracle::new(tasks.iter().map(AsRef::as_ref)));
        }
        PolicySpec::OpenAi { .. } => context.openai = openai(read(options)?)?,
        PolicySpec::Gguf(_) | PolicySpec::Folder(_) | PolicySpec::Hub(_) | PolicySpec::Tiny(_) => {
            let options = read::<LocalOptions>(options)?;
            context.thinking = options.thinking;
            context.adapter.clone_from(&options.adapter);
            context.placement = options.placement();
            context.engine = options.engine();
        }
        _ => {
            read::<NoFields>(options)?;
        }
    }
    let opened = tokio::task::spawn_blocking(move || fulgurite_policy::open(&spec, context)).await;
    let policy = opened
        .context("the policy could not be opened")?
        .map_err(|error| exit::Policy(error.to_string()))?;
    match policy.check().await {
        Ok(()) => Ok(policy),
        Err(error @ PolicyError::Unauthorized(_)) => Err(exit::Policy(format!(
            "{error}\n  mend: set OPENAI_API_KEY, or the variable that `policy_options.key_variable` \
             names, to a key of that server"
        ))
        .into()),
        Err(error) => Err(exit::Policy(format!(
            "{error}\n  mend: start the server, or correct the address in `{text}`"
        ))
        .into()),
    }
}

/// Calls in all until a reply counts as failed, where the options say so.
pub(crate) fn calls(options: &Map<String, Value>) -> Option<NonZeroU32> {
    options.get("calls").and_then(|value| serde_json::from_value(value.clone()).ok())
}

/// `policy_options`, as the kind of policy has them.
pub(crate) fn read<T: DeserializeOwned>(options: &Map<String, Value>) -> Result<T, exit::Usage> {
    serde_json::from_value(Value::Object(options.clone()))
        .map_err(|error| exit::Usage(format!("`policy_options`: {error}")))
}

fn openai(options: OpenAiFields) -> Result<OpenAiOptions> {
    let OpenAiFields {
        key_variable,
        token_ids,
        send_thinking,
        native_tools,
        context_length,
        calls: _,
        extra,
    } = options;
    let key = ApiKey::from_environment(key_variable.as_deref())
        .map_err(|error| exit::Policy(error.to_string()))?;
    let default = OpenAiOptions::default();
    Ok(OpenAiOptions {
        key,
        token_ids,
        send_thinking,
        native_tools: native_tools.unwrap_or(default.native_tools),
        context_length,
        extra,
        ..default
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_is_read_or_refused() {
        let placed = |device: &str| {
            let options = json!({ "device": device, "numbers": "bf16" });
            read::<LocalOptions>(options.as_object().unwrap()).map(|options| options.placement())
        };
        assert_eq!(placed("cpu").unwrap().0, Placement::Cpu);
        assert_eq!(placed("cuda").unwrap(), (Placement::Cuda(0), NumberType::Bf16));
        assert_eq!(placed("cuda:2").unwrap().0, Placement::Cuda(2));
        for wrong in ["cuda:", "cuda:x", "gpu", "cpu:0"] {
            let error = placed(wrong).unwrap_err().to_string();
            assert!(error.contains("known are"), "{wrong}: {error}");
        }
    }
}
