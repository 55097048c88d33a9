//! Low-rank adapters: small matrices beside frozen ones.

use std::{collections::BTreeSet, path::PathBuf};

use candle_core::{Device, Result, Tensor, bail};
use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use serde::{Deserialize, Serialize};

use crate::{
    Model, ModelError,
    kernels::product::{Output, View, product},
    linear::{Linear, Matrices, Part},
    numbers::{change, numbers},
};

/// What adapters a model gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Width of the adapters.
    pub rank: usize,
    /// They count `alpha / rank`.
    pub alpha: f32,
    /// Which matrices get one, by the last part of their names.
    #[serde(default = "LoraConfig::all_targets")]
    pub targets: Vec<String>,
    /// What the first matrices start from; the second ones start at zero.
    #[serde(default)]
    pub seed: u64,
}

/// All matrices inside layers.
const TARGETS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

impl LoraConfig {
    /// All matrices inside layers.
    pub fn all_targets() -> Vec<String> {
        TARGETS.map(str::to_owned).to_vec()
    }

    /// How much adapters count.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }

    /// What keeps this from being applied, if anything.
    pub fn check(&self) -> std::result::Result<(), String> {
        if self.rank == 0 || self.rank > 4096 {
            return Err(format!("the rank of the adapters is {}", self.rank));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return Err(format!("the alpha of the adapters is {}", self.alpha));
        }
        if self.targets.is_empty() {
            return Err("the adapters have no targets".to_owned());
        }
        match self.targets.iter().find(|target| !TARGETS.contains(&target.as_str())) {
            Some(target) => {
                Err(format!("adapters for {target:?} are not known; known are {TARGETS:?}"))
            }
            None => Ok(()),
        }
    }
}

/// output += scale · (input · aᵀ) · bᵀ, for one part of a [`Linear`].
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    /// Which parameter `a` is; `b` is the next.
    pub(crate) id: usize,
    pub(crate) part: usize,
    pub(crate) rank: usize,
    pub(crate) scale: f32,
    /// (rank, in).
    pub(crate) a: Tensor,
    pub(crate) a_name: String,
    /// (out, rank).
    pub(crate) b: Tensor,
    pub(crate) b_name: String,
}

/// PEFT's name for an adapter's matrix.
fn adapter_name(name: &str, matrix: &str) -> String {
    let stem = name.strip_suffix(".weight").unwrap_or(name);
    format!("base_model.model.{stem}.{matrix}.weight")
}

fn is_target(part: &Part, targets: &BTreeSet<&str>) -> bool {
    part.name
        .strip_suffix(".weight")
        .and_then(|name| name.rsplit('.').next())
        .is_some_and(|last| targets.contains(last))
}

impl Model {
    /// Gives the model new adapters; all other parameters are frozen from then on. The model
    /// computes what it did before, until the adapters are trained.
    pub fn add_lora(&mut self, config: &LoraConfig) -> std::result::Result<(), ModelError> {
        let fail = |reason: String| ModelError { path: PathBuf::from("(adapters)"), reason };
        config.check().map_err(fail)?;
        if self.lora().is_some() {
            return Err(fail("the model has adapters already; merge them first".to_owned()));
        }
        self.make_adapters(config).map_err(|error| fail(error.to_string()))
    }

    fn make_adapters(&mut self, config: &LoraConfig) -> Result<()> {
        let targets: BTreeSet<&str> = config.targets.iter().map(String::as_str).collect();
        let mut random = ChaCha8Rng::seed_from_u64(config.seed);
        let mut next = self.first_free_parameter();
        for linear in self.linears_mut() {
            let (parts, input) = (linear.parts.clone(), linear.input);
            for (number, part) in parts.iter().enumerate() {
                if !is_target(part, &targets) {
                    continue;
                }
                linear.plain()?;
                let (rank, bound) = (config.rank, 1.0 / (input as f32).sqrt());
                let a = (0..rank * input).map(|_| random.random_range(-bound..bound)).collect();
                linear.adapters.push(Adapter {
                    id: next,
                    part: number,
                    rank,
                    scale: config.scale(),
                    a: Tensor::from_vec::<_, f32>(a, (rank, input), &Device::Cpu)?,
                    a_name: adapter_name(&part.name, "lora_A"),
                    b: Tensor::from_vec(
                        vec![0f32; part.outputs * rank],
                        (part.outputs, rank),
                        &Device::Cpu,
                    )?,
                    b_name: adapter_name(&part.name, "lora_B"),
                });
                next += 2;
            }
        }
        self.set_lora(Some(config.clone()), next)
    }

    /// Adds the adapters to the matrices beside them, which are trainable again, and removes
    /// them.
    pub fn merge_lora(&mut self) -> Result<()> {
        for linear in self.linears_mut() {
            for adapter in std::mem::take(&mut linear.adapters) {
                merge(linear, &adapter)?;
            }
        }
        self.set_lora(None, 0)
    }
}

fn merge(linear: &Linear, adapter: &Adapter) -> Result<()> {
    let (Matrices::Plain(matrix), Some(part)) = (&linear.matrices, linear.parts.get(adapter.part))
    else {
        bail!("adapters belong to plain matrices")
    };
    let (a, b) = (numbers(&adapter.a)?, numbers(&adapter.b)?);
    let input = linear.input;
    let done = change(matrix, |all| {
        let rows = all.get_mut(part.start * input..(part.start + part.outputs) * input)?;
        product(
            View::new(&b, part.outputs, adapter.rank),
            View::new(&a, adapter.rank, input),
            adapter.scale,
            Output { numbers: rows, stride: input, add: true },
        )
        .then_some(())
    })?;
    if done.is_none() {
        bail!("the adapter of `{}` does not fit it", part.name)
    }
    Ok(())
}
