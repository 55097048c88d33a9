//! The life of an episode: queue, run, seal, grade, record.
