//! What making, using, hashing and sealing trees costs. Run with `--release` for figures that
//! mean something.

use std::{
    collections::BTreeMap,
    hint::black_box,
    io::{self, Write},
    sync::Arc,
    time::Instant,
};

use fulgurite_sandbox::{Lower, Quota, Tree};
use fulgurite_trace::file::{FileError, FileTree};

/// Runs `work` so many times and reports the mean.
fn measure(
    what: &str,
    times: u32,
    mut work: impl FnMut(u32) -> Result<(), FileError>,
) -> io::Result<()> {
    let start = Instant::now();
    for number in 0..times {
        work(number).map_err(io::Error::other)?;
    }
    let mean = start.elapsed() / times;
    writeln!(io::stdout(), "{what:<55} {:>12.2} µs", mean.as_nanos() as f64 / 1000.0)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() -> io::Result<()> {
    let files: BTreeMap<String, Vec<u8>> = (0..5000)
        .map(|number| (format!("{}/{}/{number}.py", number % 10, number % 100), vec![7; 4000]))
        .collect();
    let lower = Lower::from_files(&files).map_err(io::Error::other)?;
    let quota = Quota::default();
    let new = || Tree::new(Arc::clone(&lower), quota);

    measure("make and drop a tree over 5,000 files", 1_000_000, |_| {
        black_box(new());
        Ok(())
    })?;
    let before = resident_kib();
    let trees: Vec<Tree> = (0..10_000).map(|_| new()).collect();
    let after = resident_kib();
    let each = after.saturating_sub(before) as f64 * 1024.0 / 10_000.0;
    writeln!(
        io::stdout(),
        "{:<55} {each:>12.0} bytes",
        "resident for one of 10,000 untouched trees"
    )?;
    for tree in &trees {
        tree.write_file("1/1/1.py", b"changed").map_err(io::Error::other)?;
    }
    let each = resident_kib().saturating_sub(after) as f64 * 1024.0 / 10_000.0;
    writeln!(io::stdout(), "{:<55} {each:>12.0} bytes", "more when each has changed a file")?;
    drop(trees);

    measure("make a tree, write one small file, seal", 20_000, |_| {
        let tree = new();
        tree.write_file("answer", b"42")?;
        black_box(tree.seal()?);
        Ok(())
    })?;
    let tree = new();
    measure("digest, nothing changed", 1_000_000, |_| {
        tree.digest().map(|digest| {
            black_box(digest);
        })
    })?;
    measure("write a small file, digest", 20_000, |number| {
        tree.write_file("1/1/1.py", &number.to_le_bytes())?;
        tree.digest().map(|digest| {
            black_box(digest);
        })
    })?;
    measure("snapshot", 1_000_000, |_| {
        black_box(tree.snapshot());
        Ok(())
    })?;
    let root = tree.root().map_err(io::Error::other)?;
    measure("stat three folders down", 1_000_000, |_| {
        tree.stat_at(root, "1/1/1.py", true).map(|stat| {
            black_box(stat);
        })
    })?;
    measure("append 100 bytes", 1_000_000, |_| tree.append_file("log", &[7; 100]))?;
    measure("make and remove a file", 200_000, |_| {
        tree.write_file("new", b"")?;
        tree.remove_file("new")
    })
}
