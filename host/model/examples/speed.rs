//! Tokens per second of sampling and training, for comparison with `speed.py` beside this.
//!
//! ```text
//! RAYON_NUM_THREADS=1 cargo run --release -p fulgurite-model --example speed -- 27m
//! python host/model/examples/speed.py 27m 1
//! ```
//!
//! Shapes: `27m` (hidden 512, 8 layers, feed-forward 1344, vocabulary 4096: 27.0 million
//! parameters) and `135m` (SmolLM2's). Sampling: prompts of 64 tokens, then 64 steps of one token
//! a sequence. Training: 8 sequences of 256 tokens, forward, backward and AdamW; `lora` trains
//! adapters (rank 16) on one sample of 2,048 tokens instead.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "an example prints, and ends at the first error"
)]

use std::time::Instant;

use fulgurite_model::{
    Architecture, Batch, Gradients, KvSlots, LoraConfig, Model, ModelConfig, Packed, Precision,
    Rope, Target, TokenGradient,
};
use rayon::prelude::*;

fn shape(name: &str) -> ModelConfig {
    let small = name == "27m";
    ModelConfig {
        architecture: Architecture::Llama,
        vocabulary: if small { 4096 } else { 49_152 },
        hidden: if small { 512 } else { 576 },
        feed_forward: if small { 1344 } else { 1536 },
        layers: if small { 8 } else { 30 },
        heads: if small { 8 } else { 9 },
        key_value_heads: if small { 8 } else { 3 },
        head: 64,
        epsilon: 1e-5,
        rope: Rope { base: 100_000.0, scaling: None, interleaved: false },
        context: 8192,
        tied: true,
    }
}

fn ids(count: usize, vocabulary: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * 7919 + 13) % vocabulary) as u32).collect()
}

/// Tokens per second of `size` sequences side by side, without their prompts.
fn sampling(model: &Model, size: usize) -> f64 {
    const STEPS: usize = 64;
    let mut slots = KvSlots::new(model.config(), size, 256).unwrap();
    let mut batch = Batch::default();
    for slot in 0..size {
        batch.push(&slots, slot as u32, &ids(64, model.config().vocabulary));
    }
    model.forward(&batch, &mut slots).unwrap();
    let mut next = vec![1u32; size];
    let start = Instant::now();
    for _ in 0..STEPS {
        let mut batch = Batch::default();
        for (slot, token) in next.iter().enumerate() {
            batch.push(&slots, slot as u32, &[*token]);
        }
        let hidden = model.forward(&batch, &mut slots).unwrap();
        let logits = model.logits(&hidden).unwrap();
        next = logits.argmax(1).unwrap().to_vec1().unwrap();
    }
    (STEPS * size) as f64 / start.elapsed().as_secs_f64()
}

/// Moments of one parameter.
struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

/// Tokens per second of whole steps.
fn training(model: &Model, sequences: usize, length: usize, steps: usize) -> f64 {
    let vocabulary = model.config().vocabulary;
    let packed = Packed {
        sequences: (0..sequences).map(|n| ids(length + n, vocabulary)[n..].to_vec()).collect(),
        targets: (0..sequences as u32)
            .flat_map(|sequence| {
                (1..length as u32).map(move |position| Target { sequence, position })
            })
            .collect(),
        temperature: 1.0,
    };
    let mut gradients = Gradients::new(model).unwrap();
    let mut moments: Vec<Moments> = model
        .trainable()
        .map(|(_, tensor)| tensor.elem_count())
        .map(|count| Moments { first: vec![0.0; count], second: vec![0.0; count] })
        .collect();
    let mut times = Vec::new();
    for step in 1..=steps {
        let start = Instant::now();
        gradients.clear().unwrap();
        model
            .backward(&packed, &mut gradients, |scores| {
                let slope = -1.0 / scores.len() as f32;
                let one = TokenGradient { log_probability: slope, entropy: 0.0 };
                Ok::<_, ()>(vec![one; scores.len()])
            })
            .unwrap();
        let mut of = moments.iter_mut();
        model
            .update(&gradients, |_, values, gradient| {
                adam(step as i32, values, gradient, of.next().unwrap());
            })
            .unwrap();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    (sequences * length) as f64 / times[times.len() / 2]
}

fn adam(step: i32, values: &mut [f32], gradient: &[f32], moments: &mut Moments) {
    let (decay, rate) = ((0.9f32, 0.999f32), 1e-4f32);
    let scale = (1.0 - decay.1.powi(step)).sqrt() / (1.0 - decay.0.powi(step));
    let block = 1 << 16;
    let moments = moments.first.par_chunks_mut(block).zip(moments.second.par_chunks_mut(block));
    let values = values.par_chunks_mut(block).zip(gradient.par_chunks(block));
    values.zip(moments).for_each(|((values, gradient), (first, second))| {
        let moments = first.iter_mut().zip(second);
        for ((value, gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
            *first = decay.0 * *first + (1.0 - decay.0) * gradient;
            *second = decay.1 * *second + (1.0 - decay.1) * gradient * gradient;
            *value -= rate * (scale * *first / (second.sqrt() + 1e-8) + 0.01 * *value);
        }
    });
}

/// The most memory that the process has used, in MiB.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0)
        / 1024
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("27m", String::as_str);
    let config = shape(name);
    let mut model = Model::random(&config, 1).unwrap();
    println!(
        "{name}: {} parameters, {} threads",
        config.parameters(),
        rayon::current_num_threads()
    );
    if arguments.iter().any(|argument| argument == "lora") {
        let targets = LoraConfig::all_targets();
        model.add_lora(&LoraConfig { rank: 16, alpha: 32.0, targets, seed: 1 }).unwrap();
        println!("lora_train_tokens_per_s {:.1}", training(&model, 1, 2048, 3));
        println!("peak_mib {}", peak());
        return;
    }
    let reports = if arguments.iter().any(|argument| argument == "invariant") {
        vec![Precision::BatchInvariant]
    } else {
        vec![Precision::Usual]
    };
    for precision in reports {
        model.set_precision(precision);
        println!("{precision:?}");
        for size in [1, 8] {
            println!("sample_tokens_per_s batch {size}: {:.1}", sampling(&model, size));
        }
        println!("train_tokens_per_s {:.1}", training(&model, 8, 256, 3));
    }
    println!("peak_mib {}", peak());
}
