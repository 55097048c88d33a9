//! Components in wasmtime: compile and cache, audit, limits, one store an episode.
