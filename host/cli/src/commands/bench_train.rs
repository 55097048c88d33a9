//! `fulgurite bench train`: how fast a model learns on this machine, and in how much memory.
//!
//! A step is a whole one, as a run makes it: forward, loss, backward, the norm of the gradients,
//! clipping, AdamW. Rows are packed as in a run. A step with adapters is measured before the one
//! of all weights, because the most memory that a process ever had cannot be measured twice:
//! `peak_mib_lora` holds nothing of the full step, and `peak_mib` is the larger of both, which is
//! the full step's. `--only` measures one of them in a process of its own.

use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use fulgurite_model::{LoraConfig, Model};
use fulgurite_trace::EpisodeSamples;
use fulgurite_train::{
    TrainSettings, Trainer,
    demonstration::{Piece, demonstration},
    model::{Alone, ModelLearner},
    schedule::Schedule,
    step::Examples,
};
use serde::Serialize;

use super::{bench::memory_mib, bench_model};
use crate::{
    args::{BenchTrain, TrainedPart},
    exit,
    output::Output,
};

/// Steps before those that count: the first pays for pages, buffers and the optimizer's moments.
const UNMEASURED: u32 = 1;

/// Measured by `fulgurite bench train`.
#[derive(Debug, Serialize)]
struct Figures {
    /// What was measured.
    model: String,
    /// Its parameters.
    parameters: usize,
    /// Threads of the kernels.
    threads: usize,
    /// Tokens of a row, and rows of a step.
    length: usize,
    rows: usize,
    /// Steps of which the middle one counts.
    steps: u32,
    /// Width of the adapters, which every matrix of the layers has.
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_rank: Option<usize>,
    /// Numbers that the adapters train.
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_parameters: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_tokens_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_step_ms: Option<f64>,
    /// The most memory that the process had until the last step with adapters, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_mib_lora: Option<f64>,
    /// By how much the process grew from the first measured step to the last one, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_mib_lora: Option<f64>,
    /// The same of steps that train all weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    train_tokens_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    train_step_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_mib: Option<f64>,
}

pub(crate) fn run(asked: &BenchTrain, output: Output) -> Result<()> {
    bench_model::threads(asked.model.threads)?;
    let local = bench_model::open(&asked.model.model)?;
    let (name, model) = (local.name, local.model);
    let (length, rows) = (asked.length.get(), asked.rows.get());
    if length < 2 || length > model.config().context {
        bail!(exit::Usage(format!(
            "rows of {length} tokens do not fit `{name}`\n  mend: pass a --length from 2 to {}",
            model.config().context
        )))
    }
    let episodes = episodes(rows, length, model.config().vocabulary)?;
    let measure = |model: Model| measure(model, &episodes, length * rows, asked.steps.get());
    let parameters = model.config().parameters();
    let (mut lora, mut lora_parameters) = (None, None);
    if asked.only != Some(TrainedPart::Full) {
        output.remark(format_args!("measuring {name}: steps with adapters …"));
        let mut adapted = model.clone();
        let (rank, targets) = (asked.rank.get(), LoraConfig::all_targets());
        adapted.add_lora(&LoraConfig { rank, alpha: 2.0 * rank as f32, targets, seed: 1 })?;
        lora_parameters = Some(adapted.trainable_numbers());
        lora = Some(measure(adapted)?);
    }
    let mut full = None;
    if asked.only != Some(TrainedPart::Lora) {
        output.remark(format_args!("measuring {name}: steps of all weights …"));
        full = Some(measure(model)?);
    }
    let figures = Figures {
        model: name,
        parameters,
        threads: rayon::current_num_threads(),
        length,
        rows,
        steps: asked.steps.get(),
        lora_rank: lora.is_some().then_some(asked.rank.get()),
        lora_parameters,
        lora_tokens_per_s: lora.as_ref().map(|lora| lora.tokens_per_s),
        lora_step_ms: lora.as_ref().map(|lora| lora.step_ms),
        peak_mib_lora: lora.as_ref().map(|lora| lora.peak_mib),
        growth_mib_lora: lora.as_ref().map(|lora| lora.growth_mib),
        train_tokens_per_s: full.as_ref().map(|full| full.tokens_per_s),
        train_step_ms: full.as_ref().map(|full| full.step_ms),
        peak_mib: full.as_ref().map(|full| full.peak_mib),
        growth_mib: full.as_ref().map(|full| full.growth_mib),
    };
    output.result(&figures, super::bench::flat)
}

/// Rows of a prompt of one token, and the rest to be said.
fn episodes(rows: usize, length: usize, vocabulary: usize) -> Result<Vec<EpisodeSamples>> {
    let vocabulary = u32::try_from(vocabulary)?.max(1);
    let token = |at: usize| (at as u32).wrapping_mul(7919).wrapping_add(13) % vocabulary;
    (0..rows)
        .map(|row| {
            let ids = (row..row + length).map(token);
            let (context, said) = (ids.clone().take(1).collect(), ids.skip(1).collect());
            demonstration(u32::try_from(row)?, &[Piece::Context(context), Piece::Said(said)])
                .map_err(|misfit| anyhow!("a measured row is none: {misfit}"))
        })
        .collect()
}

struct Steps {
    tokens_per_s: f64,
    step_ms: f64,
    peak_mib: f64,
    growth_mib: f64,
}

fn measure(model: Model, episodes: &[EpisodeSamples], tokens: usize, steps: u32) -> Result<Steps> {
    let mut learner = ModelLearner::new(model, None, Alone).map_err(|error| anyhow!("{error}"))?;
    let settings = TrainSettings::new(Schedule::constant(1e-5));
    let inspection = tempfile::tempdir().context("no temporary folder can be made")?;
    let mut trainer = Trainer::new(settings, 0, inspection.path().to_owned())?;
    let (mut seconds, mut resident) = (Vec::new(), None);
    for step in 0..UNMEASURED + steps {
        let examples = Examples { episodes: episodes.to_vec(), ..Examples::default() };
        let began = Instant::now();
        let report = trainer.imitate(&mut learner, examples, None)?;
        let took = began.elapsed().as_secs_f64();
        if report.updates == 0 {
            bail!("a step did not change the model")
        }
        if step >= UNMEASURED {
            seconds.push(took);
            if resident.is_none() {
                resident = Some(memory_mib("VmRSS")?);
            }
        }
    }
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.get(seconds.len() / 2).copied().context("no step was measured")?;
    let now = memory_mib("VmRSS")?;
    Ok(Steps {
        tokens_per_s: tokens as f64 / middle,
        step_ms: middle * 1e3,
        peak_mib: memory_mib("VmHWM")?,
        growth_mib: now - resident.unwrap_or(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_row_has_the_length_that_was_asked_for() {
        let rows = episodes(3, 40, 17).unwrap();
        assert_eq!(rows.len(), 3);
        for row in &rows {
            assert_eq!(row.samples[0].prompt.len() + row.samples[0].response.len(), 40);
            assert_eq!(row.samples[0].trained(), 39);
        }
    }
}
