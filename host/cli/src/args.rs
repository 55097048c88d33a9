//! The command line, as clap structs only.

mod train;

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use fulgurite_episode::limits::Bytes;

pub(crate) use self::train::Train;

const EXIT_CODES: &str = "\
Exit codes:
  0  done (a run: every episode was recorded, whatever its score)
  1  something failed; the message says what, why and how to mend it
  2  wrong usage: flags, configuration file, task file
  3  a plugin is not acceptable: wrong world, refused import, broken file, changed digest
  4  the policy cannot be used: unreachable, refused key, missing model
  5  the run ended, but episodes were dropped or a reward raised an alarm
  130  interrupted; what had run is recorded

With --json the last line on standard error is
  {\"error\": {\"headline\", \"causes\": [], \"hint\", \"exit_code\"}}

Environment:
  FULGURITE_HOME          where plugins are kept
  FULGURITE_ARTIFACTS     where set-up keeps the files it fetches
  FULGURITE_COMPILE_TIME  longest time to compile one component [default: 5m]
  FULGURITE_API_KEY       the key of `openai:` policies
  OPENAI_API_KEY          the same, where the other is not set
  RUST_LOG                how much is logged, e.g. info";

/// Runs AI agents' real harnesses in a WebAssembly sandbox, records every token and scores the
/// episodes.
#[derive(Debug, Parser)]
#[command(name = "fulgurite", version = crate::machine::VERSION, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Results as JSON on standard output, an error as one line of JSON on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress, no remarks, and no table at the end of a run
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
    /// Where plugins are kept [env: FULGURITE_HOME] [default: fulgurite in the user's data folder]
    // Not clap's own `env`: it would show the flag in every usage line while the variable is set.
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) home: Option<PathBuf>,
    /// The trace store [default: .fulgurite/traces.sqlite in the project's folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run episodes of a harness on tasks and score them
    #[command(after_help = "\
Examples:
  fulgurite run --harness coder --reward tests-pass --tasks tasks.jsonl --policy oracle
  fulgurite run --harness ./my.wasm --reward exact-match --reward length-penalty:0.1 \\
      --tasks tasks.jsonl --policy openai:http://127.0.0.1:8000/v1#qwen3 -n 4 --limit turns=20
  fulgurite run                       # everything from fulgurite.toml
  fulgurite run --resume 20261130-151700-3f9a")]
    Run(Box<Run>),
    /// Train the policy on episodes of a harness, from one file
    #[command(after_help = "\
Examples:
  fulgurite train train.toml
  fulgurite train train.toml --resume     # goes on after the last checkpoint

The file is described in host/cli/TRAINING.md. In its `output` folder: checkpoints, metrics.jsonl,
TensorBoard's event files, and at the end the model or adapter.")]
    Train(Train),
    /// Score a recorded run again with other rewards, beside its own scores
    #[command(after_help = "\
Example:
  fulgurite grade last --reward exact-match --reward ./my-reward.wasm:0.5

Only the rewards run, on the recorded turns and the kept files. `fulgurite trace show RUN` lists
the gradings of a run.")]
    Grade(Grade),
    /// Start a harness or reward of your own from a template
    #[command(
        after_help = "Examples:\n  fulgurite new harness my-agent --lang rust\n  fulgurite new reward my-reward --lang python"
    )]
    New(New),
    /// Make a component of a plugin in Rust, Python or JavaScript (runs its author's build code)
    #[command(after_help = "Example:\n  fulgurite build my-agent --output my-agent.wasm")]
    Build(Build),
    /// Show what a component is: world, imports, configuration
    #[command(after_help = "Example:\n  fulgurite inspect my-agent.wasm")]
    Inspect(Inspect),
    /// Look after rewards
    #[command(subcommand)]
    Reward(RewardCommand),
    /// The registry of plugins
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Task files
    #[command(subcommand)]
    Tasks(TasksCommand),
    /// Look at what was recorded
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Set two runs side by side: what got better, what got worse, and how sure that is
    #[command(after_help = "Example:\n  fulgurite compare 20261130-151700-3f9a last")]
    Compare(Compare),
    /// Serve a policy as OpenAI chat completions
    #[command(after_help = "\
Examples:
  fulgurite serve --policy gguf:model.gguf
  fulgurite serve --policy gguf:model.gguf --listen 0.0.0.0:8080 --api-key-env SERVE_KEY")]
    Serve(Serve),
    /// Measure this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Check what is installed, missing or too small
    Doctor,
    /// Print a completion script
    #[command(
        after_help = "Example:\n  fulgurite completions bash > ~/.local/share/bash-completion/completions/fulgurite"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Configuration file [default: fulgurite.toml if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The harness: a registered name or a .wasm file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) harness: Option<String>,
    /// The harness's configuration, a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) harness_config: Option<String>,
    /// A reward, with its weight (default 1); may be repeated
    #[arg(long = "reward", value_name = "NAME|FILE[:WEIGHT]")]
    pub(crate) rewards: Vec<String>,
    /// A reward's configuration, a JSON object; may be repeated
    #[arg(long = "reward-config", value_name = "NAME=JSON")]
    pub(crate) reward_configs: Vec<String>,
    /// The task file, JSON Lines
    #[arg(long, value_name = "FILE")]
    pub(crate) tasks: Option<PathBuf>,
    /// Leave broken rows of the task file out instead of stopping
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// openai:URL#model, gguf:PATH, folder:PATH, hf:org/name, tiny:CONFIG.toml, script:FILE,
    /// oracle or empty
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: Option<String>,
    /// An option of the policy, e.g. adapter=FOLDER, slots=32; may be repeated
    #[arg(long = "policy-option", value_name = "NAME=VALUE")]
    pub(crate) policy_options: Vec<String>,
    /// Episodes per task
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) samples: Option<u32>,
    /// Episodes alive at once
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Sampling temperature
    #[arg(long, value_name = "X")]
    pub(crate) temperature: Option<f32>,
    /// Sample from this many of the likeliest tokens only
    #[arg(long, value_name = "N")]
    pub(crate) top_k: Option<NonZeroU32>,
    /// Sample from the fewest likeliest tokens with this much of the mass only
    #[arg(long, value_name = "X")]
    pub(crate) top_p: Option<f32>,
    /// Sample from tokens at least this share as likely as the likeliest only
    #[arg(long, value_name = "X")]
    pub(crate) min_p: Option<f32>,
    /// Longest reply in tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u32>,
    /// How token history follows the chat template
    #[arg(long, value_enum)]
    pub(crate) history: Option<History>,
    /// A limit, e.g. turns=20, tokens=8192, fuel=10G, memory=256M, time=10m; may be repeated
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub(crate) limits: Vec<String>,
    /// Most bytes of an episode's changed files that are kept in the trace store, e.g. 16M; 0: none
    #[arg(long, value_name = "BYTES")]
    pub(crate) keep_files: Option<Bytes>,
    /// Do what is missing of a run, with the run's own plan
    #[arg(long, value_name = "RUN", conflicts_with_all = [
        "config", "harness", "harness_config", "rewards", "reward_configs", "tasks", "policy", "policy_options", "samples", "seed", "limits",
        "temperature", "top_k", "top_p", "min_p", "max_tokens", "history", "skip_bad", "keep_files",
    ])]
    pub(crate) resume: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Grade {
    /// The run, or `last`
    pub(crate) run: String,
    /// A reward, with its weight (default 1); may be repeated
    #[arg(long = "reward", value_name = "NAME|FILE[:WEIGHT]", required = true)]
    pub(crate) rewards: Vec<String>,
    /// A reward's configuration, a JSON object; may be repeated
    #[arg(long = "reward-config", value_name = "NAME=JSON")]
    pub(crate) reward_configs: Vec<String>,
    /// Episodes graded at once [default: the run's]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// What is served: gguf:PATH, folder:PATH, hf:org/name, tiny:CONFIG.toml, openai:URL#MODEL,
    /// script:FILE or empty
    #[arg(long, value_name = "SPEC")]
    pub(crate) policy: String,
    /// An option of the policy; may be repeated
    #[arg(long = "policy-option", value_name = "NAME=VALUE")]
    pub(crate) policy_options: Vec<String>,
    /// Where to listen; addresses that others can reach need a key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The environment variable that holds the key which clients must send
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// The model's name for clients [default: the policy's]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Longest reply in tokens
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) max_tokens: u32,
}

#[derive(Debug, Args)]
pub(crate) struct BenchModel {
    /// A model (gguf:, folder:, hf: or tiny:), or a shape with random weights: tiny, 27m or 135m
    #[arg(long, value_name = "SPEC|SHAPE", default_value = "27m")]
    pub(crate) model: String,
    /// Threads of the kernels [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPolicy {
    #[command(flatten)]
    pub(crate) model: BenchModel,
    /// Tokens of each measured reply
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) tokens: u32,
}

#[derive(Debug, Args)]
pub(crate) struct BenchTrain {
    #[command(flatten)]
    pub(crate) model: BenchModel,
    /// Tokens of each row
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) length: NonZeroUsize,
    /// Rows of a step
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) rows: NonZeroUsize,
    /// Measured steps, of which the middle one counts; one more comes before them
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) steps: NonZeroU32,
    /// Width of the adapters
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) rank: NonZeroUsize,
    /// Measure one of the two, in a process of its own
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) only: Option<TrainedPart>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrainedPart {
    /// Adapters beside frozen weights
    Lora,
    /// All weights
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum History {
    /// The chat template decides; a new segment starts where it rewrites the past
    Faithful,
    /// The history only grows: one conversation, one sample
    AppendOnly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PluginKind {
    Harness,
    Reward,
    /// A WASI command for the wasm lane, e.g. an interpreter
    Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NewKind {
    Harness,
    Reward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Rust,
    /// CPython in the component, by componentize-py
    Python,
    /// SpiderMonkey in the component, by componentize-js
    Js,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// What to start
    #[arg(value_enum)]
    pub(crate) kind: NewKind,
    /// Its name, also the folder's
    pub(crate) name: String,
    /// The language
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) lang: Language,
}

#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The plugin's folder (with its Cargo.toml, pyproject.toml or package.json)
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Where the component goes [default: NAME.wasm in that folder]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// A .wasm file or a registered name
    pub(crate) plugin: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RewardCommand {
    /// Try a reward on right, empty, wrong and cheating answers to your tasks
    #[command(after_help = "Example:\n  fulgurite reward check tests-pass --tasks tasks.jsonl")]
    Check(RewardCheck),
}

#[derive(Debug, Args)]
pub(crate) struct RewardCheck {
    /// The reward: a registered name or a .wasm file
    pub(crate) reward: String,
    /// The task file
    #[arg(long, value_name = "FILE")]
    pub(crate) tasks: PathBuf,
    /// The reward's configuration, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) config: String,
    /// The harness whose reference replies are used
    #[arg(long, value_name = "NAME", default_value = "solve")]
    pub(crate) harness: String,
    /// Tasks to try, from the start of the file
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Put a component into the registry
    #[command(after_help = "Example:\n  fulgurite plugin add my-agent.wasm")]
    Add {
        /// The .wasm file
        file: PathBuf,
        /// Its name [default: the file's]
        #[arg(long)]
        name: Option<String>,
        /// What it is [default: read from the component]
        #[arg(long, value_enum)]
        kind: Option<PluginKind>,
        /// Register it for this project only
        #[arg(long)]
        project: bool,
    },
    /// List what is registered
    List,
    /// Show one plugin
    Show {
        /// Its name
        name: String,
    },
    /// Pin names to what they point to now, in the project's fulgurite.lock
    Pin {
        /// The names [default: every registered one]
        names: Vec<String>,
    },
    /// Forget the pin of a name
    Unpin {
        /// The name
        name: String,
    },
    /// Check every stored file, and the project's lock file, for changes
    Verify,
    /// Free space: components kept for runs that are finished, and compiled code not used lately
    #[command(after_help = "\
Compiled code is pruned by itself when it takes more than 4 GiB; what is missing is compiled again
when it is needed.")]
    Prune {
        /// Most bytes of compiled code that stay, e.g. 1G; 0: none
        #[arg(long, value_name = "BYTES", default_value = "4G")]
        compiled: Bytes,
        /// Days after which unused compiled code goes
        #[arg(long, value_name = "DAYS", default_value_t = 90)]
        days: u64,
    },
    /// Take a name out of the registry
    Remove {
        /// The name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TasksCommand {
    /// Turn a published data set into a task file
    #[command(
        after_help = "Example:\n  fulgurite tasks import human-eval --limit 20 --output tasks.jsonl"
    )]
    Import {
        /// The data set
        #[arg(value_enum)]
        dataset: ImportedDataset,
        /// Its file [default: as fetched by set-up]
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// At most so many tasks, from the start
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Where the task file goes
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Read a task file and say what is wrong with it
    Check {
        /// The task file
        file: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportedDataset {
    HumanEval,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// List runs, or the episodes of one
    List {
        /// The run, or `last`
        run: Option<String>,
    },
    /// Show an episode as a readable transcript, or what a run was made with
    #[command(after_help = "\
Examples:
  fulgurite trace show last                # commit, machine, plugins, plan
  fulgurite trace show last 0
  fulgurite trace show 20261130-151700-3f9a 12.3")]
    Show {
        /// The run, or `last`
        run: String,
        /// TASK or TASK.SAMPLE, as `trace list RUN` shows them
        episode: Option<String>,
        /// Show what the changed files of the episode's workspace held at its end
        #[arg(long, requires = "episode")]
        files: bool,
    },
    /// Write a run as JSON Lines in the canonical form
    Export {
        /// The run, or `last`
        run: String,
        /// Where to [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the changed files of every episode's workspace into this new folder instead
        #[arg(long, value_name = "FOLDER", conflicts_with = "output")]
        files: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The first run, or `last`
    pub(crate) before: String,
    /// The second run, or `last`
    pub(crate) after: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Episodes a second, instantiation, memory with many alive
    Episodes {
        /// Episodes in each measured run
        #[arg(long, default_value_t = 10_000)]
        episodes: u32,
        /// Episodes alive at once in the density measurement
        #[arg(long, default_value_t = 10_000)]
        alive: u32,
        /// A harness in Python to measure as well, with one turn: a registered name or a .wasm file
        #[arg(long, value_name = "NAME|FILE")]
        python: Option<String>,
    },
    /// Tokens a second, exactness of log-probabilities, memory
    #[command(after_help = "\
Examples:
  fulgurite bench policy --model 135m
  fulgurite bench policy --model gguf:model.gguf --json")]
    Policy(BenchPolicy),
    /// Tokens a second and memory of whole training steps: all weights, and adapters alone
    #[command(after_help = "\
Examples:
  fulgurite bench train --model 135m --rows 1 --length 2048 --only lora
  fulgurite bench train --model 27m --threads 1 --json")]
    Train(BenchTrain),
    /// Durable turns a second, latency of one, bytes on disk
    Store {
        /// Turns to write
        #[arg(long, default_value_t = 100_000)]
        turns: u32,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_run_reads_as_documented() {
        let line = "fulgurite run --harness coder --reward a --reward b:0.5 --tasks t -n 4 --limit turns=3";
        let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
        let Command::Run(run) = arguments.command else { panic!("not a run") };
        assert_eq!(run.rewards, ["a", "b:0.5"]);
        assert_eq!(run.samples, Some(4));
        assert_eq!(run.limits, ["turns=3"]);
    }

    #[test]
    fn a_resumed_run_takes_its_plan_from_the_store() {
        let line = "fulgurite run --resume x --policy oracle";
        assert!(Arguments::try_parse_from(line.split(' ')).is_err());
    }
}
