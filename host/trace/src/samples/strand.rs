//! The ids of a segment, and which of them continue which.

use std::collections::HashMap;

use crate::{SampledTokens, Turn};

use super::{SampleSettings, Skipped, Stretch, is_trained, version_ranges};

/// Ids that only grew, with what of them the policy sampled.
#[derive(Debug)]
pub(super) struct Strand {
    pub(super) conversation: u32,
    pub(super) segment: u32,
    /// Index of the first turn and of the last one.
    first_turn: u32,
    last_turn: u32,
    /// What wrote it: only ids of the same model are one history.
    pub(super) model: (String, String),
    pub(super) ids: Vec<u32>,
    /// How many of the ids stand before the first response.
    pub(super) prompt: usize,
    /// Relative to the end of the prompt.
    pub(super) stretches: Vec<Stretch>,
    /// The tokens of the stretches, one after another.
    pub(super) trained: Vec<Trained>,
    /// A turn without tokens ended what is known of the segment.
    broken: bool,
}

/// What is known of a trained token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trained {
    pub(super) log_probability: Option<f32>,
    /// Present where the sampling distribution was cut.
    pub(super) untruncated: Option<f32>,
    pub(super) temperature: f32,
}

/// One strand for each segment, by first turn. `turns` are sorted by index.
pub(super) fn strands(
    turns: &[&Turn],
    settings: &SampleSettings,
    skipped: &mut Skipped,
) -> Vec<Strand> {
    let mut strands: Vec<Strand> = Vec::new();
    let mut places = HashMap::new();
    for turn in turns {
        let segment = (turn.conversation, turn.segment);
        let place = *places.entry(segment).or_insert_with(|| {
            strands.push(Strand::new(turn));
            strands.len().saturating_sub(1)
        });
        if let Some(strand) = strands.get_mut(place) {
            strand.append(turn, settings, skipped);
        }
    }
    strands.retain(|strand| !strand.ids.is_empty());
    strands
}

impl Strand {
    fn new(turn: &Turn) -> Self {
        Self {
            conversation: turn.conversation,
            segment: turn.segment,
            first_turn: turn.index,
            last_turn: turn.index,
            model: (turn.model_role.clone(), turn.policy.clone()),
            ids: Vec::new(),
            prompt: 0,
            stretches: Vec::new(),
            trained: Vec::new(),
            broken: false,
        }
    }

    fn append(&mut self, turn: &Turn, settings: &SampleSettings, skipped: &mut Skipped) {
        let tokens = match &turn.tokens {
            Some(tokens) if !self.broken => tokens,
            _ => {
                self.broken = true;
                if is_trained(turn, settings) {
                    skipped.turns_without_tokens = skipped.turns_without_tokens.saturating_add(1);
                }
                return;
            }
        };
        let fresh = self.ids.is_empty();
        self.last_turn = turn.index;
        self.ids.extend_from_slice(&tokens.context);
        if fresh {
            self.prompt = self.ids.len();
        }
        if is_trained(turn, settings) && !tokens.response.is_empty() {
            match version_ranges(tokens) {
                Some(ranges) => self.train(turn, tokens, &ranges),
                None => skipped.broken_turns = skipped.broken_turns.saturating_add(1),
            }
        }
        self.ids.extend_from_slice(&tokens.response);
    }

    /// Notes the response, which is about to be appended, as trained.
    fn train(&mut self, turn: &Turn, tokens: &SampledTokens, ranges: &[(usize, usize, u64)]) {
        let offset = self.ids.len().saturating_sub(self.prompt);
        // Nothing predicts the first token of all.
        let first = usize::from(self.ids.is_empty());
        let known = |values: &[f32], index: usize| {
            let fits = values.len() == tokens.response.len();
            values.get(index).copied().filter(|value| fits && value.is_finite())
        };
        // Of a cut distribution both are needed. A policy that gives one gives none.
        let cut = !turn.truncation.is_none() && turn.temperature > 0.0;
        let half_known = cut && tokens.untruncated.len() != tokens.response.len();
        for (start, end, version) in ranges {
            let start = (*start).max(first);
            if start >= *end {
                continue;
            }
            self.stretches.push(Stretch {
                start: offset.saturating_add(start),
                end: offset.saturating_add(*end),
                turn: turn.index,
                version: *version,
            });
            self.trained.extend((start..*end).map(|index| Trained {
                log_probability: known(&tokens.log_probabilities, index).filter(|_| !half_known),
                untruncated: known(&tokens.untruncated, index),
                temperature: turn.temperature,
            }));
        }
    }

    /// Appends a strand whose first prompt extends all ids of this one.
    fn extend(&mut self, next: Self) {
        // Relative to the end of this one's prompt.
        let offset = next.prompt.saturating_sub(self.prompt);
        self.stretches.extend(next.stretches.iter().map(|stretch| Stretch {
            start: stretch.start.saturating_add(offset),
            end: stretch.end.saturating_add(offset),
            ..*stretch
        }));
        self.trained.extend(next.trained);
        self.ids = next.ids;
        self.last_turn = next.last_turn;
    }
}

/// Joins strands: each is appended to the longest one that its first prompt extends wholly and
/// that came before it; the earliest of equals. A strand is continued at most once.
pub(super) fn chain(strands: Vec<Strand>) -> Vec<Strand> {
    let mut rows: Vec<Strand> = Vec::new();
    // Ends of rows by hash, so that long histories are compared only where they match.
    let mut ends: HashMap<u64, Vec<usize>> = HashMap::new();
    for strand in strands {
        let row = longest(&strand, &rows, &ends);
        let place = row.unwrap_or(rows.len());
        match rows.get_mut(place) {
            Some(row) => {
                if let Some(places) = ends.get_mut(&hash(&row.ids)) {
                    places.retain(|other| *other != place);
                }
                row.extend(strand);
            }
            None => rows.push(strand),
        }
        if let Some(row) = rows.get(place) {
            ends.entry(hash(&row.ids)).or_default().push(place);
        }
    }
    rows
}

fn longest(strand: &Strand, rows: &[Strand], ends: &HashMap<u64, Vec<usize>>) -> Option<usize> {
    let prompt = strand.ids.get(..strand.prompt)?;
    let mut best = None;
    let mut hash = BASIS;
    for (index, id) in prompt.iter().enumerate() {
        hash = step(hash, *id);
        for place in ends.get(&hash).into_iter().flatten() {
            let Some(row) = rows.get(*place) else { continue };
            // Rows are listed by their first turn, so the first that fits is the earliest.
            if row.ids.len() == index.saturating_add(1)
                && row.last_turn < strand.first_turn
                && row.model == strand.model
                && prompt.starts_with(&row.ids)
                && best.is_none_or(|(length, known)| length < row.ids.len() || *place < known)
            {
                best = Some((row.ids.len(), *place));
            }
        }
    }
    best.map(|(_, place)| place)
}

/// FNV-1a over whole ids. A collision costs a comparison, never a wrong row.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

const fn step(hash: u64, id: u32) -> u64 {
    (hash ^ id as u64).wrapping_mul(0x100_0000_01b3)
}

fn hash(ids: &[u32]) -> u64 {
    ids.iter().fold(BASIS, |hash, id| step(hash, *id))
}
