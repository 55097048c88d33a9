//! From a trace to training rows.
//!
//! What the policy sampled is trained; everything else of the token history is context. From
//! that one rule follows what the traps of multi-turn training ask for:
//! - a reply cut off by its length holds no end token, so none is trained;
//! - the end token that the policy chose is part of its response, so it is trained;
//! - what the chat template puts between a response and the next one (its own end token after a
//!   cut-off reply, role headers, results of tools) stands in [`SampledTokens::context`] and is
//!   never trained;
//! - the tokens of a stop string were sampled and stay, although the text was trimmed.
//!
//! **Rows.** The turns of one segment are one strand of ids, since a segment's history only
//! grows. A strand whose first prompt extends all ids of another is appended to it, for the
//! arithmetic is the same and the shared part is computed once: a branch at the last turn, say.
//! Any other strand (a branch further up, a restart, a history that the template rendered anew)
//! is a row of its own. The first prompt of a strand is context even where it spells what the
//! policy said earlier, so that no sampled token is ever trained twice.
//!
//! **Limits.** A row whose prompt is too long is dropped and counted; a response that is too long
//! is cut. Neither changes which strands form a row.

mod strand;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::{Entry, EntryBody, EpisodeRef, FinishReason, SampledTokens, Turn, VersionSpan};

use self::strand::{Strand, Trained};

/// Consecutive tokens of a response that one turn sampled with one version of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// First token, as an index into [`Sample::response`].
    pub start: usize,
    /// One past the last token.
    pub end: usize,
    /// The turn, by its index within the episode: what values of single turns refer to.
    pub turn: u32,
    /// The policy version that sampled it.
    pub version: u64,
}

impl Stretch {
    /// Number of tokens.
    pub const fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds no token.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A training row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The episode whose reward this is trained with.
    pub episode: EpisodeRef,
    /// The conversation in which the row begins.
    pub conversation: u32,
    /// The segment in which the row begins.
    pub segment: u32,
    /// Ids up to the first response.
    pub prompt: Vec<u32>,
    /// All ids after it: what was sampled and what stood in between.
    pub response: Vec<u32>,
    /// What of the response is trained: ascending, disjoint, never empty.
    pub stretches: Vec<Stretch>,
    /// Log-probability of each trained token, stretch after stretch, under the distribution that
    /// was sampled from; none when any of them is not known.
    pub log_probabilities: Option<Vec<f32>>,
    /// The same under softmax(logits / temperature) without any cut; present exactly when the
    /// distribution was cut (top-k, top-p, min-p) for some trained token.
    pub untruncated: Option<Vec<f32>>,
    /// The sampling temperature of every trained token.
    pub temperature: f32,
    /// Whether the response was longer than the limit.
    pub cut: bool,
}

impl Sample {
    /// Number of trained tokens.
    pub fn trained(&self) -> usize {
        self.stretches.iter().map(Stretch::len).sum()
    }

    /// Tokens of prompt and response.
    pub fn length(&self) -> usize {
        self.prompt.len().saturating_add(self.response.len())
    }

    /// For each token of the response whether it is trained.
    pub fn mask(&self) -> Vec<bool> {
        let mut mask = vec![false; self.response.len()];
        for stretch in &self.stretches {
            mask.iter_mut().take(stretch.end).skip(stretch.start).for_each(|trained| {
                *trained = true;
            });
        }
        mask
    }

    /// Each trained token: its index in the response and the stretch it belongs to.
    pub fn targets(&self) -> impl Iterator<Item = (usize, &Stretch)> {
        self.stretches
            .iter()
            .flat_map(|stretch| (stretch.start..stretch.end).map(move |index| (index, stretch)))
    }

    /// The lowest and the highest version that sampled a trained token.
    pub fn versions(&self) -> Option<(u64, u64)> {
        let versions = || self.stretches.iter().map(|stretch| stretch.version);
        versions().min().zip(versions().max())
    }

    /// Whether the parts fit each other; what does not, otherwise. [`samples`] only makes rows
    /// that do, but rows may also come from files.
    pub fn check(&self) -> Result<(), String> {
        let mut last = 0;
        for stretch in &self.stretches {
            if stretch.start < last || stretch.is_empty() || stretch.end > self.response.len() {
                return Err(format!(
                    "tokens {}..{} are to be trained, which overlaps others, is empty or leaves \
                     the response of {} tokens",
                    stretch.start,
                    stretch.end,
                    self.response.len()
                ));
            }
            last = stretch.end;
        }
        let trained = self.trained();
        if trained == 0 {
            return Err("no token is to be trained".to_owned());
        }
        let first = self.stretches.first().map(|stretch| stretch.start);
        if self.prompt.is_empty() && first == Some(0) {
            return Err("the first token is to be trained, but nothing predicts it".to_owned());
        }
        for values in [&self.log_probabilities, &self.untruncated].into_iter().flatten() {
            if values.len() != trained {
                return Err(format!("{} log-probabilities for {trained} tokens", values.len()));
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(format!("a log-probability is {value}"));
            }
        }
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(format!("the temperature is {}", self.temperature));
        }
        Ok(())
    }
}

/// How rows are built.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleSettings {
    /// Only turns of this model role are trained; all when there is none.
    #[serde(default)]
    pub model_role: Option<String>,
    /// Rows with a longer first prompt are dropped.
    #[serde(default)]
    pub max_prompt: Option<usize>,
    /// Longer responses are cut.
    #[serde(default)]
    pub max_response: Option<usize>,
}

/// What was not made into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Skipped {
    /// Rows with a prompt beyond the limit.
    pub long_prompts: u32,
    /// Rows without anything to train.
    pub untrained_rows: u32,
    /// Sampled tokens beyond the limit of the response.
    pub cut_tokens: u64,
    /// Turns whose tokens are not known, or that follow such a turn in its segment.
    pub turns_without_tokens: u32,
    /// Turns whose recorded versions contradict the response. Their tokens are context.
    pub broken_turns: u32,
}

/// The rows of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpisodeSamples {
    /// The episode.
    pub episode: EpisodeRef,
    /// Its rows, by the first turn in them.
    pub samples: Vec<Sample>,
    /// What is missing in them.
    pub skipped: Skipped,
    /// Tokens that the trained model role sampled, in all turns whose tokens are known.
    pub sampled_tokens: u64,
    /// Whether a reply of the trained model role was cut off by its length limit.
    pub stopped_by_length: bool,
}

impl EpisodeSamples {
    /// Trained tokens of all rows.
    pub fn trained(&self) -> usize {
        self.samples.iter().map(Sample::trained).sum()
    }
}

/// The rows of one attempt of an episode.
pub fn samples(
    episode: EpisodeRef,
    entries: &[Entry],
    settings: &SampleSettings,
) -> EpisodeSamples {
    let mut turns: Vec<&Turn> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            EntryBody::Turn(turn) => Some(&**turn),
            _ => None,
        })
        .collect();
    // Replies that were waited for together may stand in either order.
    turns.sort_by_key(|turn| turn.index);
    let mut built = EpisodeSamples {
        episode,
        samples: Vec::new(),
        skipped: Skipped::default(),
        sampled_tokens: 0,
        stopped_by_length: false,
    };
    for turn in turns.iter().filter(|turn| is_trained(turn, settings)) {
        let sampled = turn.tokens.as_ref().map_or(0, |tokens| tokens.response.len());
        built.sampled_tokens =
            built.sampled_tokens.saturating_add(u64::try_from(sampled).unwrap_or(u64::MAX));
        built.stopped_by_length |= turn.finish == FinishReason::Length;
    }
    let strands = strand::strands(&turns, settings, &mut built.skipped);
    for row in strand::chain(strands) {
        if settings.model_role.as_ref().is_none_or(|role| *role == row.model.0) {
            cut_and_split(row, settings, &mut built);
        }
    }
    built
}

/// The attempts that count: of each episode the last one.
pub fn last_attempts<T>(attempts: Vec<T>, episode: impl Fn(&T) -> EpisodeRef) -> Vec<T> {
    let mut attempts = attempts;
    attempts.sort_by_key(|attempt| {
        let EpisodeRef { task, sample, attempt } = episode(attempt);
        (task, sample, std::cmp::Reverse(attempt))
    });
    attempts.dedup_by_key(|attempt| {
        let EpisodeRef { task, sample, .. } = episode(attempt);
        (task, sample)
    });
    attempts
}

fn is_trained(turn: &Turn, settings: &SampleSettings) -> bool {
    settings.model_role.as_ref().is_none_or(|role| *role == turn.model_role)
}

/// Holds a row against the limits and hands out its samples: one, or one for each temperature,
/// since a row is scored at a single one.
fn cut_and_split(row: Strand, settings: &SampleSettings, built: &mut EpisodeSamples) {
    if settings.max_prompt.is_some_and(|most| row.prompt > most) {
        built.skipped.long_prompts = built.skipped.long_prompts.saturating_add(1);
        return;
    }
    let length = row.ids.len().saturating_sub(row.prompt);
    let kept = settings.max_response.map_or(length, |most| most.min(length));
    let mut stretches = Vec::with_capacity(row.stretches.len());
    let mut trained = row.trained;
    let mut keep = 0;
    for stretch in row.stretches {
        let end = stretch.end.min(kept);
        let lost = stretch.end.saturating_sub(end.max(stretch.start));
        let lost = u64::try_from(lost).unwrap_or(u64::MAX);
        built.skipped.cut_tokens = built.skipped.cut_tokens.saturating_add(lost);
        let stretch = Stretch { end, ..stretch };
        if !stretch.is_empty() {
            keep += stretch.len();
            stretches.push(stretch);
        }
    }
    trained.truncate(keep);
    if trained.is_empty() {
        built.skipped.untrained_rows = built.skipped.untrained_rows.saturating_add(1);
        return;
    }
    let (prompt, response) = row.ids.split_at_checked(row.prompt).unwrap_or((&row.ids, &[]));
    let response = response.get(..kept).unwrap_or(response);
    let mut temperatures: Vec<f32> = Vec::new();
    for token in &trained {
        if !temperatures.iter().any(|known| known.to_bits() == token.temperature.to_bits()) {
            temperatures.push(token.temperature);
        }
    }
    for temperature in temperatures {
        let is_of = |other: f32| other.to_bits() == temperature.to_bits();
        let mut rest = trained.iter();
        let mut own: Vec<&Trained> = Vec::new();
        let stretches = stretches
            .iter()
            .filter(|stretch| {
                // A stretch is of one turn and therefore of one temperature.
                let tokens: Vec<_> = rest.by_ref().take(stretch.len()).collect();
                let is_own = tokens.first().is_some_and(|token| is_of(token.temperature));
                if is_own {
                    own.extend(tokens);
                }
                is_own
            })
            .copied()
            .collect();
        let log_probabilities = own.iter().map(|token| token.log_probability).collect();
        let was_cut = own.iter().any(|token| token.untruncated.is_some());
        let untruncated = was_cut.then(|| {
            let whole = own.iter().map(|token| token.untruncated.or(token.log_probability));
            whole.collect::<Option<Vec<f32>>>()
        });
        built.samples.push(Sample {
            episode: built.episode,
            conversation: row.conversation,
            segment: row.segment,
            prompt: prompt.to_vec(),
            response: response.to_vec(),
            stretches,
            log_probabilities,
            untruncated: untruncated.flatten(),
            temperature,
            cut: kept < length,
        });
    }
}

/// The versions of a response as ranges; none when they contradict it.
fn version_ranges(tokens: &SampledTokens) -> Option<Vec<(usize, usize, u64)>> {
    let length = tokens.response.len();
    let spans = &tokens.versions;
    let start = |span: &VersionSpan| usize::try_from(span.start).ok();
    if spans.first().map(|span| span.start) != Some(0) {
        return None;
    }
    let ends = spans.iter().skip(1).map(start).chain([Some(length)]);
    spans
        .iter()
        .zip(ends)
        .map(|(span, end)| {
            let (start, end) = (start(span)?, end?);
            (start < end && end <= length).then_some((start, end, span.version))
        })
        .collect()
}
