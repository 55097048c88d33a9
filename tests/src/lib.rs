//! End-to-end tests over the built binary and real components.
