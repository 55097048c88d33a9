//! The arguments of `fulgurite run` that nearly every test gives.

use std::ffi::{OsStr, OsString};

/// The arguments of a run, without `run` itself.
#[derive(Debug, Clone)]
pub struct Run(Vec<OsString>);

/// A run of this harness with this reward over this task file and with this policy. Harness and
/// reward are names or files.
pub fn run_of(
    harness: impl AsRef<OsStr>,
    reward: impl AsRef<OsStr>,
    tasks: impl AsRef<OsStr>,
    policy: impl AsRef<OsStr>,
) -> Run {
    let mut arguments = Vec::new();
    let mut flag = |name: &str, value: &OsStr| arguments.extend([name.into(), value.to_owned()]);
    flag("--harness", harness.as_ref());
    flag("--reward", reward.as_ref());
    flag("--tasks", tasks.as_ref());
    flag("--policy", policy.as_ref());
    Run(arguments)
}

impl Run {
    /// The same with more arguments.
    pub fn with<S: AsRef<OsStr>>(mut self, more: &[S]) -> Self {
        self.0.extend(more.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }
}

impl IntoIterator for Run {
    type Item = OsString;
    type IntoIter = std::vec::IntoIter<OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
