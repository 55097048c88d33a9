//! The commands that exist without any program.

/// Names of all commands.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ["echo"].into_iter()
}
