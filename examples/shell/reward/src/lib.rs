//! `same-effect`: runs the answered line and a reference line, each in a fresh copy of the task's
//! workspace, and compares what they print and what they leave behind.
//!
//! 1 for an effect that is the same, whatever the line looks like. A near miss earns up to a quarter:
//! the harmonic mean of how much of the wanted effect is there and how much of the effect is
//! wanted, a fourth of it. A line that fails, or changes and prints nothing, earns nothing.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_sdk::reward::*;

/// Bytes of a file that are compared; tasks have small files.
const FILE_BYTES: u32 = 64 * 1024;

#[derive(Deserialize)]
struct Grading {
    /// Lines that do what is asked for. Their effects may differ in form (`wc -l a` prints the
    /// name, `wc -l < a` does not): any of them counts.
    lines: Vec<String>,
}

struct SameEffect;

impl Reward for SameEffect {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("same-effect", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, _: NoConfig) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        let Some(effect) = effect_of(&episode.ending().answer)? else {
            return Ok(Score::new(0.0).component("right", 0.0).component("runs", 0.0));
        };
        let mut best: f64 = 0.0;
        for line in &grading.lines {
            let wanted = effect_of(line)?
                .ok_or_else(|| Failure::new(format!("the reference line `{line}` fails")))?;
            let total = if effect == wanted { 1.0 } else { 0.25 * effect.likeness(&wanted) };
            best = best.max(total);
        }
        let right = f64::from(u8::from(best == 1.0));
        Ok(Score::new(best).component("right", right).component("runs", 1.0))
    }
}

/// What a line does: what it prints, and what is in the workspace afterwards.
#[derive(Debug, Clone, Default, PartialEq)]
struct Effect {
    printed: String,
    /// Every path with its contents; folders have none.
    tree: BTreeMap<String, Option<Vec<u8>>>,
    /// The same of the untouched workspace.
    before: BTreeMap<String, Option<Vec<u8>>>,
}

impl Effect {
    /// Printed lines, and paths that appeared, changed or went.
    fn parts(&self) -> BTreeSet<String> {
        let printed = self.printed.lines().map(|line| format!("prints {line}"));
        let made = self.tree.iter().filter(|(path, now)| self.before.get(*path) != Some(now));
        let gone = self.before.keys().filter(|path| !self.tree.contains_key(*path));
        printed
            .chain(made.map(|(path, _)| format!("makes {path}")))
            .chain(gone.map(|path| format!("removes {path}")))
            .collect()
    }

    /// From 0 (nothing in common) to 1: F1 of the parts.
    fn likeness(&self, wanted: &Self) -> f64 {
        let (have, want) = (self.parts(), wanted.parts());
        let common = have.intersection(&want).count();
        if common == 0 { 0.0 } else { 2.0 * common as f64 / (have.len() + want.len()) as f64 }
    }
}

/// The effect of a line in a fresh copy of the workspace; nothing when it fails.
fn effect_of(line: &str) -> Result<Option<Effect>, Failure> {
    if line.is_empty() {
        return Ok(None);
    }
    let sandbox = Sandbox::open(Base::Pristine)?;
    let before = tree(&sandbox)?;
    let output = sandbox.run(Command::line(line).timeout_ms(1000))?;
    if !output.success() {
        return Ok(None);
    }
    let printed = output.stdout_text().trim_end().to_string();
    Ok(Some(Effect { printed, tree: tree(&sandbox)?, before }))
}

/// All paths of a sandbox, and what the files hold.
fn tree(sandbox: &Sandbox) -> Result<BTreeMap<String, Option<Vec<u8>>>, Failure> {
    let mut tree = BTreeMap::new();
    for (kind, is_file) in [("f", true), ("d", false)] {
        let found = sandbox.run(Command::line(format!("find . -mindepth 1 -type {kind}")))?;
        for path in found.stdout_text().lines().map(|path| path.trim_start_matches("./")) {
            let contents = is_file.then(|| sandbox.read_file(path, FILE_BYTES)).transpose()?;
            tree.insert(path.to_string(), contents);
        }
    }
    Ok(tree)
}

fulgurite_sdk::export_reward!(SameEffect);

#[cfg(test)]
mod tests {
    use super::*;

    /// The effect in a workspace with the file `a`.
    fn effect(printed: &str, paths: &[&str]) -> Effect {
        let tree = |paths: &[&str]| {
            paths.iter().map(|path| ((*path).to_string(), Some(Vec::new()))).collect()
        };
        Effect { printed: printed.to_string(), tree: tree(paths), before: tree(&["a"]) }
    }

    #[test]
    fn a_near_miss_is_told_from_a_far_one() {
        let wanted = effect("1\n2", &["a"]);
        assert_eq!(effect("1\n2", &["a"]).likeness(&wanted), 1.0);
        assert_eq!(effect("1\n2\n3\n4", &["a"]).likeness(&wanted), 2.0 / 3.0);
        assert_eq!(effect("", &["a", "b"]).likeness(&wanted), 0.0);
        assert_eq!(effect("", &["a"]).likeness(&wanted), 0.0);
    }

    #[test]
    fn what_went_is_a_part_of_the_effect() {
        let moved = effect("", &["b"]);
        assert_eq!(moved.parts().len(), 2);
        assert_eq!(effect("", &["a", "b"]).likeness(&moved), 2.0 / 3.0);
    }
}
