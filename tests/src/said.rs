//! What a program said.

use std::{
    io::Write as _,
    process::Output,
    time::{Duration, Instant},
};

/// What it wrote to standard output; bytes that are no UTF-8 are replaced.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it wrote to standard error; bytes that are no UTF-8 are replaced.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless each of the words is in the text.
#[track_caller]
pub fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// Waits until something is so; fails when it takes two minutes.
#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tells that a part of the proof is missing on this machine, and why.
pub fn not_tried(why: &str) {
    // Straight to the stream: what the macros print is shown of tests that fail only.
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {why}");
}
