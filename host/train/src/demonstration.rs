//! Rows of what is to be imitated, from token ids rather than from a trace.

use fulgurite_trace::{EpisodeRef, EpisodeSamples, Sample, Stretch, samples::Skipped};

/// A stretch of a demonstration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// What the policy reads: prompts, template glue, results of tools.
    Context(Vec<u32>),
    /// What the policy is to say, its end token included.
    Said(Vec<u32>),
}

/// One row of a demonstration; what does not fit, otherwise. `task` names it in reports.
pub fn demonstration(task: u32, pieces: &[Piece]) -> Result<EpisodeSamples, String> {
    let first = pieces.iter().position(|piece| matches!(piece, Piece::Said(_)));
    let (before, after) = pieces.split_at(first.unwrap_or(pieces.len()));
    let ids = |piece: &Piece| match piece {
        Piece::Context(ids) | Piece::Said(ids) => ids.clone(),
    };
    let mut response = Vec::new();
    let mut stretches = Vec::new();
    for (piece, turn) in after.iter().zip(0..) {
        let start = response.len();
        response.extend(ids(piece));
        let stretch = Stretch { start, end: response.len(), turn, version: 0 };
        if matches!(piece, Piece::Said(_)) && !stretch.is_empty() {
            stretches.push(stretch);
        }
    }
    let sample = Sample {
        episode: EpisodeRef::first(task, 0),
        conversation: 0,
        segment: 0,
        prompt: before.iter().flat_map(ids).collect(),
        response,
        stretches,
        log_probabilities: None,
        untruncated: None,
        temperature: 1.0,
        cut: false,
    };
    sample.check()?;
    Ok(EpisodeSamples {
        episode: sample.episode,
        sampled_tokens: u64::try_from(sample.trained()).unwrap_or(u64::MAX),
        samples: vec![sample],
        skipped: Skipped::default(),
        stopped_by_length: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_trained_and_nothing_else() {
        let pieces = [
            Piece::Context(vec![1, 2]),
            Piece::Said(vec![3, 4]),
            Piece::Context(vec![5]),
            Piece::Said(vec![6]),
        ];
        let row = &demonstration(9, &pieces).unwrap().samples[0];
        assert_eq!(row.prompt, [1, 2]);
        assert_eq!(row.response, [3, 4, 5, 6]);
        assert_eq!(row.mask(), [true, true, false, true]);
        assert_eq!(row.episode.task, 9);
    }

    #[test]
    fn nothing_said_or_nothing_before_it_is_refused() {
        assert!(demonstration(0, &[Piece::Context(vec![1])]).is_err());
        assert!(demonstration(0, &[Piece::Said(vec![1])]).is_err());
        assert!(demonstration(0, &[]).is_err());
    }
}
