//! Deeds against limits, and with clocks, random and standard streams.
//!
//! | `do` | deed |
//! |---|---|
//! | `loop` | computes for ever |
//! | `loop-in-host` | calls a cheap host function for ever |
//! | `loop-through-memory` | writes all over its memory for ever |
//! | `grow-memory` | takes memory, and writes to it, for ever |
//! | `recurse` | recurses for ever |
//! | `stdout`, `stderr` | writes `size` bytes |
//! | `events` | records `count` events of `size` bytes each |
//! | `metrics` | records `count` metrics, one of them not a number |
//! | `conversations` | opens `count` conversations and keeps them; answers how many |
//! | `sleep` | sleeps `size` ms, `count` times; answers the milliseconds that passed |
//! | `sleep-forever` | sleeps longer than any limit |
//! | `clock` | reads the clocks twice; answers whether time went back |
//! | `random` | answers what the hash seeds and `HashMap` order are |
//! | `environment` | answers arguments and environment |
//! | `stdin` | answers what standard input holds |
//! | `panic` | panics |
//! | `exit` | leaves by `process::exit` |
//! | `huge-answer` | answers `size` bytes |
//! | `odd-answer` | answers control characters, escapes and bidi marks |
//! | `bad-utf8` | hands the host a string that is not UTF-8 |
//! | `bad-pointer` | hands the host a string that is not in memory |
//! | `budget` | answers what is left |

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime};

use fulgurite_sdk::harness::*;
use serde_json::json;

use crate::Config;

type Ended = Result<Outcome, Failure>;

pub(crate) fn run(episode: &Episode<Config>) -> Option<Ended> {
    let config = &episode.config;
    Some(match config.deed.as_str() {
        "loop" => spin(),
        "loop-in-host" => loop {
            black_box(budget::left());
        },
        "loop-through-memory" => through_memory(),
        "grow-memory" => grow_memory(),
        "recurse" => Ok(Outcome::gave_up(recurse(1).to_string())),
        "stdout" => written(std::io::stdout(), config.size),
        "stderr" => written(std::io::stderr(), config.size),
        "events" => events(config),
        "metrics" => metrics(config),
        "conversations" => conversations(config),
        "sleep" => sleep(config),
        "sleep-forever" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        "clock" => clock(),
        "random" => random(),
        "environment" => environment(),
        "stdin" => {
            let mut text = Vec::new();
            let read = std::io::stdin().read_to_end(&mut text).map_err(|error| error.to_string());
            Ok(Outcome::submitted(json!({"read": read, "text": text}).to_string()))
        }
        "panic" => panic!("asked to panic"),
        "exit" => std::process::exit(config.size as i32),
        "huge-answer" => Ok(Outcome::submitted("x".repeat(config.size as usize))),
        "odd-answer" => Ok(Outcome::submitted(
            "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}reversed\u{0}\u{7f}\r\n",
        )),
        "bad-utf8" => raw::metric(&[0xff, 0xfe, 0xc0, 0x80]),
        "bad-pointer" => raw::metric_at(usize::MAX - 8, 64),
        "budget" => {
            let left = budget::left();
            let answer = json!({
                "tokens": left.tokens,
                "turns": left.turns,
                "commands": left.commands,
                "time_ms": left.time_ms,
                "fuel": left.fuel,
            });
            Ok(Outcome::submitted(answer.to_string()))
        }
        _ => return None,
    })
}

pub(crate) fn spin() -> ! {
    let mut count = 0u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}

fn through_memory() -> ! {
    let mut bytes = vec![0u8; 4 << 20];
    let mut index = 0usize;
    loop {
        if let Some(byte) = bytes.get_mut(index) {
            *byte = byte.wrapping_add(1);
        }
        index = (index + 4096) % (4 << 20);
        black_box(&bytes);
    }
}

fn grow_memory() -> ! {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    loop {
        kept.push(vec![kept.len() as u8 | 1; 1 << 20]);
        black_box(&kept);
    }
}

#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(depth + 1) + frame.iter().sum::<u64>()
}

fn written(mut stream: impl Write, size: u64) -> Ended {
    let chunk = [b'y'; 64 * 1024];
    let mut left = size;
    while left > 0 {
        let count = left.min(chunk.len() as u64) as usize;
        let piece = chunk.get(..count).unwrap_or_default();
        if let Err(error) = stream.write_all(piece) {
            return Ok(Outcome::gave_up(format!("{left} bytes left: {error}")));
        }
        left -= count as u64;
    }
    Ok(Outcome::submitted("written"))
}

fn events(config: &Config) -> Ended {
    let text = "e".repeat(config.size as usize);
    for _ in 0..config.count {
        trace::event("noise", &[("text", &text)]);
    }
    Ok(Outcome::submitted("recorded"))
}

fn metrics(config: &Config) -> Ended {
    trace::metric("not a number", f64::NAN);
    trace::metric("endless", f64::INFINITY);
    for index in 0..config.count {
        trace::metric("noise", index as f64);
    }
    Ok(Outcome::submitted("recorded"))
}

fn conversations(config: &Config) -> Ended {
    let mut kept = Vec::new();
    for _ in 0..config.count {
        match Conversation::with("policy").open() {
            Ok(conversation) => kept.push(conversation),
            Err(error) => {
                let answer = json!({"done": kept.len(), "error": error.explain()});
                return Ok(Outcome::gave_up(answer.to_string()));
            }
        }
    }
    Ok(Outcome::submitted(json!({"done": kept.len(), "error": null}).to_string()))
}

fn sleep(config: &Config) -> Ended {
    let start = Instant::now();
    for _ in 0..config.count {
        std::thread::sleep(Duration::from_millis(config.size));
    }
    Ok(Outcome::submitted(start.elapsed().as_millis().to_string()))
}

fn clock() -> Ended {
    let (first, wall) = (Instant::now(), SystemTime::now());
    let back = Instant::now() < first || SystemTime::now() < wall;
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Outcome::submitted(json!({"back": back, "wall_ms": since.as_millis() as u64}).to_string()))
}

fn random() -> Ended {
    let map: HashMap<u32, u32> = (0..32).map(|key| (key, key)).collect();
    let order: Vec<u32> = map.into_keys().collect();
    Ok(Outcome::submitted(json!(order).to_string()))
}

fn environment() -> Ended {
    let arguments: Vec<String> = std::env::args().collect();
    let variables: Vec<(String, String)> = std::env::vars().collect();
    let directory = std::env::current_dir().map(|path| path.display().to_string()).ok();
    let answer = json!({"arguments": arguments, "variables": variables, "directory": directory});
    Ok(Outcome::submitted(answer.to_string()))
}

/// The host function below the typed one: what a guest in another language could pass.
mod raw {
    use super::Ended;
    use fulgurite_sdk::harness::Outcome;

    #[cfg(target_family = "wasm")]
    #[link(wasm_import_module = "fulgurite:plugin/trace@0.1.0")]
    unsafe extern "C" {
        #[link_name = "metric"]
        fn host_metric(name: *const u8, length: usize, value: f64);
    }

    #[cfg(not(target_family = "wasm"))]
    unsafe fn host_metric(_: *const u8, _: usize, _: f64) {}

    pub(super) fn metric(name: &[u8]) -> Ended {
        // SAFETY: the host only reads the bytes, which outlive the call.
        unsafe { host_metric(name.as_ptr(), name.len(), 1.0) };
        Ok(Outcome::submitted("the host took it"))
    }

    pub(super) fn metric_at(address: usize, length: usize) -> Ended {
        // SAFETY: the address is never read by this program; the host checks it or traps.
        unsafe { host_metric(address as *const u8, length, 1.0) };
        Ok(Outcome::submitted("the host took it"))
    }
}
