//! The seed of every call, from what names it and nothing else.

use fulgurite_trace::{Digest, EpisodeRef};

/// Equal runs give equal seeds. The attempt takes no part: a retried episode is the same episode.
pub(crate) fn call_seed(run: u64, task: &str, episode: EpisodeRef, turn: u32) -> u64 {
    let text = format!("fulgurite call seed\0{run}\0{task}\0{}\0{turn}", episode.sample);
    let digest = Digest::of(text);
    digest.as_bytes().iter().take(8).fold(0, |seed, byte| (seed << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_follows_run_task_sample_and_turn_but_not_attempt_or_position() {
        let episode = |task, sample, attempt| EpisodeRef { task, sample, attempt };
        let seed = call_seed(1, "a", episode(0, 0, 0), 0);
        assert_eq!(seed, call_seed(1, "a", episode(7, 0, 3), 0));
        for other in [
            call_seed(2, "a", episode(0, 0, 0), 0),
            call_seed(1, "b", episode(0, 0, 0), 0),
            call_seed(1, "a", episode(0, 1, 0), 0),
            call_seed(1, "a", episode(0, 0, 0), 1),
        ] {
            assert_ne!(seed, other);
        }
    }
}
