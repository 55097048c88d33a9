//! Rows and tokens of a step, laid out for scoring and for the loss.

use fulgurite_trace::Sample;

use fulgurite_model::{Packed, Target, TokenScore};

use crate::{group::Chosen, learner::LearnerError, pack::pack};

/// A row with what is known of its trained tokens. All vectors have one value for each of them.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) sample: Sample,
    /// Its episode, as a number within the step.
    pub(crate) episode: usize,
    /// Whether its tokens are in the loss.
    pub(crate) trained: bool,
    /// Log-probabilities before the step.
    pub(crate) old: Vec<f64>,
    pub(crate) reference: Option<Vec<f64>>,
    pub(crate) correction: Vec<f64>,
    pub(crate) advantage: Vec<f64>,
}

/// The rows of the chosen episodes; episodes are numbered in their order.
pub(crate) fn rows(groups: &[Vec<Chosen>]) -> Vec<Row> {
    groups
        .iter()
        .flatten()
        .enumerate()
        .flat_map(|(episode, chosen)| {
            chosen.samples.samples.iter().map(move |sample| Row {
                sample: sample.clone(),
                episode,
                trained: !chosen.masked,
                old: Vec::new(),
                reference: None,
                correction: vec![1.0; sample.trained()],
                advantage: Vec::new(),
            })
        })
        .collect()
}

/// Rows that are computed together, by their place among all rows.
#[derive(Debug, Clone)]
pub(crate) struct Pack {
    pub(crate) rows: Vec<usize>,
    pub(crate) packed: Packed,
}

/// Packs the rows for which `wanted` holds: each pack has one temperature and at most `budget`
/// tokens, unless a single row has more. `temperature` overrides that of the rows.
pub(crate) fn packs(
    rows: &[Row],
    budget: usize,
    temperature: Option<f32>,
    wanted: impl Fn(&Row) -> bool,
) -> Vec<Pack> {
    let of = |row: &Row| temperature.unwrap_or(row.sample.temperature);
    let mut temperatures: Vec<f32> = Vec::new();
    for row in rows.iter().filter(|row| wanted(row)) {
        if !temperatures.iter().any(|known| known.to_bits() == of(row).to_bits()) {
            temperatures.push(of(row));
        }
    }
    let mut packs = Vec::new();
    for temperature in temperatures {
        let own: Vec<(usize, &Row)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| wanted(row) && of(row).to_bits() == temperature.to_bits())
            .collect();
        let lengths: Vec<usize> = own.iter().map(|(_, row)| length(&row.sample)).collect();
        for places in pack(&lengths, budget) {
            let chosen: Vec<_> = places.iter().filter_map(|place| own.get(*place)).collect();
            let packed = packed(chosen.iter().map(|(_, row)| &row.sample), temperature);
            packs.push(Pack { rows: chosen.iter().map(|(at, _)| *at).collect(), packed });
        }
    }
    packs
}

/// Tokens of a row up to its last trained one: what stands behind it changes nothing.
fn length(sample: &Sample) -> usize {
    let end = sample.stretches.last().map_or(0, |stretch| stretch.end);
    sample.prompt.len().saturating_add(end)
}

fn packed<'a>(samples: impl Iterator<Item = &'a Sample>, temperature: f32) -> Packed {
    let mut sequences = Vec::new();
    let mut targets = Vec::new();
    for sample in samples {
        let sequence = u32::try_from(sequences.len()).unwrap_or(u32::MAX);
        let prompt = sample.prompt.len();
        targets.extend(sample.targets().map(|(at, _)| Target {
            sequence,
            position: u32::try_from(prompt.saturating_add(at)).unwrap_or(u32::MAX),
        }));
        let ids = sample.prompt.iter().chain(&sample.response).copied();
        sequences.push(ids.take(length(sample)).collect());
    }
    Packed { sequences, targets, temperature }
}

/// Scores of all targets of some packs, sorted by row.
pub(crate) fn score_rows(
    rows: &[Row],
    packs: &[Pack],
    score: impl Fn(&Packed) -> Result<Vec<TokenScore>, LearnerError>,
) -> Result<Vec<Option<Vec<f64>>>, LearnerError> {
    let mut all: Vec<Option<Vec<f64>>> = vec![None; rows.len()];
    for pack in packs {
        let scores = score(&pack.packed)?;
        if scores.len() != pack.packed.targets.len() {
            return Err(format!(
                "the model gave {} scores for {} targets",
                scores.len(),
                pack.packed.targets.len()
            )
            .into());
        }
        let mut scores = scores.into_iter().map(|score| f64::from(score.log_probability));
        for at in &pack.rows {
            let trained = rows.get(*at).map_or(0, |row| row.sample.trained());
            if let Some(place) = all.get_mut(*at) {
                *place = Some(scores.by_ref().take(trained).collect());
            }
        }
    }
    Ok(all)
}
