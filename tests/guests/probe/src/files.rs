//! Deeds with files and commands.
//!
//! | `do` | deed |
//! |---|---|
//! | `write` | writes `files`, then answers `text` |
//! | `read` | answers the contents of `path`, or the error |
//! | `list` | answers the sorted names in `path` |
//! | `exec` | runs `lines`; answers status, output and error of each as JSON |
//! | `escape` | tries ways out of the workspace; answers those that worked, `[]` if none |
//! | `links` | makes links that leave the workspace and reads and writes through them; as `escape` |
//! | `fill` | appends to one file until it fails; answers the bytes written and the error |
//! | `read-again` | reads the same MiB for ever; answers how often and the error, if there is one |
//! | `many-files` | makes `count` files; answers how many were made and the error |
//! | `many-folders` | nests folders until it fails; answers the depth and the error |
//! | `open-files` | opens `count` handles and keeps them; answers how many and the error |
//! | `names` | makes files with odd names; answers what the folder then holds |

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use fulgurite_sdk::harness::*;
use serde_json::json;

use crate::Config;

type Ended = Result<Outcome, Failure>;

pub(crate) fn run(episode: &Episode<Config>) -> Option<Ended> {
    let config = &episode.config;
    Some(match config.deed.as_str() {
        "write" => write(config),
        "read" => Ok(Outcome::submitted(match fs::read(&config.path) {
            Ok(contents) => String::from_utf8_lossy(&contents).into_owned(),
            Err(error) => format!("error: {error}"),
        })),
        "list" => list(&config.path).map(|names| Outcome::submitted(json!(names).to_string())),
        "exec" => commands(config),
        "escape" => Ok(found(escapes())),
        "links" => Ok(found(links())),
        "fill" => Ok(fill()),
        "read-again" => Ok(read_again()),
        "many-files" => Ok(many_files(config.count)),
        "many-folders" => Ok(many_folders()),
        "open-files" => Ok(open_files(config.count)),
        "names" => names(),
        _ => return None,
    })
}

fn write(config: &Config) -> Ended {
    for (path, contents) in &config.files {
        if let Some(parent) = Path::new(path).parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, contents)?;
    }
    Ok(Outcome::submitted(config.text.clone()))
}

fn list(path: &str) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn commands(config: &Config) -> Ended {
    let mut results = Vec::new();
    for line in &config.lines {
        results.push(match exec::run(line) {
            Ok(output) => json!({
                "status": output.status,
                "stdout": output.stdout_text(),
                "stderr": output.stderr_text(),
            }),
            Err(error) => json!({"error": error.explain()}),
        });
    }
    Ok(Outcome::submitted(json!(results).to_string()))
}

fn found(ways: Vec<String>) -> Outcome {
    let answer = json!(ways).to_string();
    if ways.is_empty() { Outcome::gave_up(answer) } else { Outcome::submitted(answer) }
}

/// Paths outside the workspace that a guest could read, list or write.
fn escapes() -> Vec<String> {
    const PATHS: [&str; 12] = [
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/mem",
        "../etc/passwd",
        "../../../../../../etc/passwd",
        "/workspace/../etc/passwd",
        "/workspace/../../etc/passwd",
        "/workspace/./../workspace/../etc/passwd",
        "/workspace//..//etc/passwd",
        "/workspace/a/../../etc/passwd",
        "/etc",
        "/home",
    ];
    let mut ways = Vec::new();
    for path in PATHS {
        if fs::read(path).is_ok() {
            ways.push(format!("read {path}"));
        }
        if fs::read_dir(path).is_ok() {
            ways.push(format!("list {path}"));
        }
        if fs::metadata(path).is_ok() {
            ways.push(format!("stat {path}"));
        }
    }
    // The workspace may be the root as well: what then shows up in it has not left it.
    let inside = |name: &str| fs::metadata(format!("/workspace/{name}")).is_ok();
    for path in ["/tmp/escaped", "/escaped", "../escaped", "/workspace/../escaped"] {
        if fs::write(path, "escaped").is_ok() && !inside("escaped") {
            ways.push(format!("write {path}"));
        }
        if fs::create_dir(format!("{path}-folder")).is_ok() && !inside("escaped-folder") {
            ways.push(format!("mkdir {path}-folder"));
        }
    }
    let _ = fs::write("/workspace/inside", "inside");
    for path in ["/tmp/moved", "../moved", "/workspace/../moved"] {
        if fs::rename("/workspace/inside", path).is_ok() && !inside("moved") {
            ways.push(format!("rename to {path}"));
        }
        if fs::hard_link("/workspace/inside", path).is_ok() && !inside("moved") {
            ways.push(format!("link to {path}"));
        }
    }
    ways
}

/// Links that leave the workspace, and what works through them.
fn links() -> Vec<String> {
    let mut ways = Vec::new();
    let targets = ["/etc/passwd", "../../../../etc/passwd", "/", "..", "/workspace/../etc"];
    for (index, target) in targets.iter().enumerate() {
        let link = format!("/workspace/link-{index}");
        // Making the link may be refused or allowed; following it must never leave the tree.
        if symlink(target, &link).is_err() {
            continue;
        }
        if fs::read(&link).is_ok() {
            ways.push(format!("read through a link to {target}"));
        }
        if fs::read(format!("{link}/etc/passwd")).is_ok()
            || fs::read(format!("{link}/passwd")).is_ok()
        {
            ways.push(format!("read below a link to {target}"));
        }
        if fs::write(format!("{link}/escaped"), "escaped").is_ok() {
            ways.push(format!("write below a link to {target}"));
        }
    }
    // Loops must end in an error, not in a hang.
    let _ = symlink("loop-b", "/workspace/loop-a");
    let _ = symlink("loop-a", "/workspace/loop-b");
    if fs::read("/workspace/loop-a").is_ok() {
        ways.push("read through a loop".to_string());
    }
    ways
}

/// The standard library's way to make a link is not stable for WASI; the C library's is.
#[cfg(target_family = "wasm")]
fn symlink(target: &str, link: &str) -> std::io::Result<()> {
    use std::ffi::{CString, c_char, c_int};

    unsafe extern "C" {
        #[link_name = "symlink"]
        fn libc_symlink(target: *const c_char, link: *const c_char) -> c_int;
    }

    let (target, link) = (CString::new(target)?, CString::new(link)?);
    // SAFETY: both are strings that end with a zero byte and outlive the call.
    match unsafe { libc_symlink(target.as_ptr(), link.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(not(target_family = "wasm"))]
fn symlink(_: &str, _: &str) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn report(done: u64, error: Option<std::io::Error>) -> Outcome {
    let error = error.map(|error| error.to_string());
    Outcome::gave_up(json!({"done": done, "error": error}).to_string())
}

fn fill() -> Outcome {
    let chunk = vec![b'x'; 64 * 1024];
    let mut written = 0u64;
    let mut file = match fs::File::create("/workspace/full") {
        Ok(file) => file,
        Err(error) => return report(0, Some(error)),
    };
    loop {
        match file.write(&chunk) {
            Ok(0) => return report(written, None),
            Ok(count) => written += count as u64,
            Err(error) => return report(written, Some(error)),
        }
    }
}

fn read_again() -> Outcome {
    let mut bytes = vec![b'x'; 1 << 20];
    let made = fs::write("/workspace/again", &bytes);
    let mut file = match made.and_then(|()| fs::File::open("/workspace/again")) {
        Ok(file) => file,
        Err(error) => return report(0, Some(error)),
    };
    let mut count = 0;
    loop {
        if let Err(error) = file.seek(SeekFrom::Start(0)).and_then(|_| file.read(&mut bytes)) {
            return report(count, Some(error));
        }
        count += 1;
    }
}

fn many_files(count: u64) -> Outcome {
    for index in 0..count {
        if let Err(error) = fs::write(format!("/workspace/file-{index}"), "") {
            return report(index, Some(error));
        }
    }
    report(count, None)
}

fn many_folders() -> Outcome {
    let mut path = "/workspace".to_string();
    for depth in 0..1_000_000 {
        path.push_str("/d");
        if let Err(error) = fs::create_dir(&path) {
            return report(depth, Some(error));
        }
    }
    report(1_000_000, None)
}

fn open_files(count: u64) -> Outcome {
    let mut kept = Vec::new();
    if let Err(error) = fs::write("/workspace/opened", "") {
        return report(0, Some(error));
    }
    for index in 0..count {
        match fs::File::open("/workspace/opened") {
            Ok(file) => kept.push(file),
            Err(error) => return report(index, Some(error)),
        }
    }
    report(kept.len() as u64, None)
}

fn names() -> Ended {
    let long = "n".repeat(100_000);
    let odd = [
        "new\nline",
        "esc\u{1b}[31mred",
        "bidi\u{202e}txt",
        "nul\0byte",
        "..",
        ".",
        "",
        "a\\b",
        "trailing ",
        "\u{fffd}",
        long.as_str(),
    ];
    let mut refused = Vec::new();
    for name in odd {
        if let Err(error) = fs::write(format!("/workspace/{name}"), "odd") {
            refused.push(json!([name.chars().take(20).collect::<String>(), error.to_string()]));
        }
    }
    let kept = list("/workspace")?;
    Ok(Outcome::submitted(json!({"kept": kept, "refused": refused}).to_string()))
}
