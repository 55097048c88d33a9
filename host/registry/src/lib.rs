//! Plugins: content-addressed store, names, lock file.
