//! A reward that does what its configuration says, however bad: `{"do": "nan"}`.
//!
//! | `do` | deed |
//! |---|---|
//! | `fixed` | scores `value` |
//! | `grading` | does what the task's grading data says, which is a configuration too |
//! | `nan`, `infinite` | scores something that is not finite |
//! | `length` | scores the length of the answer |
//! | `error` | fails |
//! | `panic` | panics |
//! | `loop` | computes for ever |
//! | `grow-memory` | takes memory for ever |
//! | `read-all` | reads every turn, change and changed file; notes the counts |
//! | `describe` | notes everything that it sees of task and ending |
//! | `run` | runs `line` in a sandbox over the changed tree; scores its success, notes the output |
//! | `sandboxes` | opens `count` sandboxes and keeps them; notes how many and the error |
//! | `put-hostile` | lays files down at bad paths; scores 1 when each was refused |
//! | `connected` | two Python programs talk; scores whether they understood each other |
//! | `huge-notes` | notes `count` texts of `value` bytes |
//! | `bad-turns` | values for turns that do not exist |

use fulgurite_sdk::reward::*;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// The deed.
    #[serde(rename = "do")]
    deed: String,
    /// A score or a size.
    value: f64,
    /// How often.
    count: u64,
    /// A shell line.
    line: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { deed: "fixed".to_string(), value: 1.0, count: 1, line: String::new() }
    }
}

struct ProbeReward;

impl Reward for ProbeReward {
    type Config = Config;

    fn describe() -> Description {
        Description::new("probe-reward", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, mut config: Config) -> Result<Score, Failure> {
        if config.deed == "grading" {
            config = episode.grading()?;
        }
        match config.deed.as_str() {
            "fixed" => Ok(Score::new(config.value)),
            "nan" => Ok(Score::new(f64::NAN)),
            "infinite" => Ok(Score::new(f64::INFINITY).component("part", f64::NEG_INFINITY)),
            "length" => Ok(Score::new(episode.ending().answer.len() as f64)),
            "error" => Err("asked to fail".into()),
            "panic" => panic!("asked to panic"),
            "loop" => loop {
                std::hint::black_box(episode.turn_count());
            },
            "grow-memory" => grow_memory(),
            "read-all" => read_all(episode),
            "describe" => Ok(describe(episode)),
            "run" => {
                let output = Sandbox::open(Base::Changed)?.run(Command::line(config.line))?;
                Ok(Score::from(output.success()).note("output", output.transcript(4_000)))
            }
            "sandboxes" => Ok(sandboxes(config.count)),
            "put-hostile" => put_hostile(),
            "connected" => connected(),
            "huge-notes" => {
                let text = "n".repeat(config.value as usize);
                Ok((0..config.count).fold(Score::new(0.0), |score, index| {
                    score.note(&format!("note-{index}"), text.as_str())
                }))
            }
            "bad-turns" => Ok(Score::new(0.0).turn(u32::MAX, 1.0).turn(0, f64::NAN)),
            other => Err(format!("nothing to do called `{other}`").into()),
        }
    }
}

fn grow_memory() -> ! {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    loop {
        kept.push(vec![1; 1 << 20]);
        std::hint::black_box(&kept);
    }
}

fn read_all(episode: &Episode) -> Result<Score, Failure> {
    let turns = episode.turns().count();
    let mut changes = 0usize;
    let mut bytes = 0usize;
    for entry in episode.changes() {
        changes += 1;
        if matches!(
            entry.change,
            Change::Added(EntryKind::File) | Change::Modified(EntryKind::File)
        ) {
            bytes += episode.read_file(&entry.path, 1 << 30)?.len();
        }
    }
    Ok(Score::new(1.0)
        .component("turns", turns as f64)
        .component("changes", changes as f64)
        .component("bytes", bytes as f64))
}

fn describe(episode: &Episode) -> Score {
    let (task, ending) = (episode.task(), episode.ending());
    Score::new(0.0)
        .note("task", json!([task.id, task.input, task.metadata, task.grading]).to_string())
        .note(
            "ending",
            json!([
                ending.kind,
                ending.status.map(|status| format!("{status:?}")),
                ending.answer,
                ending.metadata
            ])
            .to_string(),
        )
}

fn sandboxes(count: u64) -> Score {
    let mut kept = Vec::new();
    for _ in 0..count {
        match Sandbox::open(Base::Empty) {
            Ok(sandbox) => kept.push(sandbox),
            Err(error) => {
                return Score::new(kept.len() as f64).note("error", format!("{error:?}"));
            }
        }
    }
    Score::new(kept.len() as f64)
}

fn put_hostile() -> Result<Score, Failure> {
    let sandbox = Sandbox::open(Base::Changed)?;
    let paths = ["../out", "/etc/out", "a/../../out", "", ".", "..", "a/\0b"];
    let taken: Vec<&str> =
        paths.into_iter().filter(|path| sandbox.put_file(path, b"out").is_ok()).collect();
    Ok(Score::from(taken.is_empty()).note("taken", json!(taken).to_string()))
}

fn connected() -> Result<Score, Failure> {
    const ASK: &str = "print(20, flush=True)\nimport sys\nsys.exit(input() != '40')";
    const TELL: &str = "print(2 * int(input()), flush=True)";
    let (left, right) = (Sandbox::open(Base::Empty)?, Sandbox::open(Base::Empty)?);
    let (asked, told) = run_connected(
        (&left, Command::argv(["python", "-I", "-c", ASK])),
        (&right, Command::argv(["python", "-I", "-c", TELL])),
    )?;
    Ok(Score::from(asked.success() && told.success())
        .note("left", asked.transcript(2_000))
        .note("right", told.transcript(2_000)))
}

fulgurite_sdk::export_reward!(ProbeReward);
