//! The model on a tiny random checkpoint, against what transformers computes with it
//! (`golden/make_llama.py`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::path::{Path, PathBuf};

use fulgurite_model::{Batch, KvSlots, Model, Precision, Row, Weights};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn model() -> Model {
    Model::open_gguf(&golden("tiny-llama.gguf"), Weights::Stored).unwrap()
}

/// The ids whose logits are known.
fn ids() -> Vec<u32> {
    let text = std::fs::read(golden("tiny-llama.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&text).unwrap();
    serde_json::from_value(golden["ids"].clone()).unwrap()
}

/// The logits of each position.
fn expected_logits() -> Vec<Vec<f32>> {
    let bytes = std::fs::read(golden("tiny-llama.logits")).unwrap();
    let numbers: Vec<f32> =
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    numbers.chunks(numbers.len() / ids().len()).map(<[f32]>::to_vec).collect()
}

/// Runs ids through the model in parts of these sizes, the last part taking the rest.
fn logits(model: &Model, ids: &[u32], parts: &[usize]) -> Vec<Vec<f32>> {
    let mut slots = KvSlots::new(model.config(), 1, 64).unwrap();
    let mut rows = Vec::new();
    let mut rest = ids;
    for size in parts.iter().copied().chain([usize::MAX]) {
        let (part, behind) = rest.split_at(size.min(rest.len()));
        if !part.is_empty() {
            let hidden = model.forward(&Batch::following(&slots, 0, part), &mut slots).unwrap();
            let part = model.logits(&hidden).unwrap();
            rows.extend(part.to_vec2::<f32>().unwrap());
        }
        rest = behind;
    }
    rows
}

fn difference(left: &[Vec<f32>], right: &[Vec<f32>]) -> f32 {
    assert_eq!(left.len(), right.len());
    let pairs = left.iter().flatten().zip(right.iter().flatten());
    pairs.map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

#[test]
fn all_logits_are_those_of_transformers() {
    let logits = logits(&model(), &ids(), &[]);
    let difference = difference(&logits, &expected_logits());
    assert!(difference <= 2e-5, "{difference}");
}

#[test]
fn however_a_sequence_is_cut_the_logits_are_the_same() {
    let model = model();
    let ids = ids();
    for parts in [vec![1; 39], vec![7, 1, 1, 20], vec![39], vec![32, 3]] {
        let difference = difference(&logits(&model, &ids, &parts), &expected_logits());
        assert!(difference <= 2e-5, "{parts:?}: {difference}");
    }
}

/// The logits of a batch's rows.
fn run(model: &Model, slots: &mut KvSlots, batch: &Batch) -> Vec<Vec<f32>> {
    let hidden = model.forward(batch, slots).unwrap();
    model.logits(&hidden).unwrap().to_vec2().unwrap()
}

#[test]
fn slots_are_rewound_and_copied() {
    let (model, ids, expected) = (model(), ids(), expected_logits());
    let mut slots = KvSlots::new(model.config(), 3, 64).unwrap();
    let batch = Batch::following(&slots, 1, &ids[..20]);
    run(&model, &mut slots, &batch);
    slots.copy_prefix(1, 2, 12).unwrap();
    let batch = Batch::following(&slots, 1, &[5, 6, 7]);
    run(&model, &mut slots, &batch);
    slots.truncate(1, 20);
    assert_eq!([0, 1, 2].map(|slot| slots.length(slot)), [0, 20, 12]);
    // Both go on in one batch, from where they are.
    let mut batch = Batch::default();
    batch.push(&slots, 2, &ids[12..]);
    batch.push(&slots, 1, &ids[20..]);
    let rows = run(&model, &mut slots, &batch);
    let cut = ids.len() - 12;
    assert!(difference(&rows[..cut], &expected[12..]) <= 2e-5);
    assert!(difference(&rows[cut..], &expected[20..]) <= 2e-5);
    assert_eq!(slots.bytes(), 3 * 64 * model.config().state_bytes_per_token());
    assert!(slots.copy_prefix(0, 1, 1).is_err(), "slot 0 holds nothing");
    assert!(slots.copy_prefix(1, 9, 1).is_err());
}

#[test]
fn rows_of_many_slots_do_not_disturb_each_other() {
    let (mut model, ids, expected) = (model(), ids(), expected_logits());
    model.set_precision(Precision::BatchInvariant);
    let alone = logits(&model, &ids, &[]);
    let mut slots = KvSlots::new(model.config(), 5, 40).unwrap();
    let mut known = vec![Vec::new(); 5];
    // Each slot takes another number of tokens a step, some none.
    for step in 0.. {
        let mut batch = Batch::default();
        for slot in 0..5u32 {
            let at = slots.length(slot);
            let take = ((slot as usize + step) % 4 * 3).min(ids.len() - at);
            if take > 0 {
                batch.push(&slots, slot, &ids[at..at + take]);
            }
        }
        if batch.is_empty() {
            break;
        }
        let rows = run(&model, &mut slots, &batch);
        for (row, logits) in batch.rows.iter().zip(rows) {
            known[row.slot as usize].push(logits);
        }
    }
    for rows in known {
        assert!(difference(&rows, &expected) <= 2e-5);
        assert!(rows == alone, "not bit by bit the same");
    }
}

#[test]
fn batches_that_fit_nothing_are_errors() {
    let model = model();
    let mut slots = KvSlots::new(model.config(), 2, 8).unwrap();
    let row = |slot, position| Row { slot, position };
    for (tokens, rows) in [
        (vec![], vec![]),
        (vec![1], vec![]),
        (vec![1, 99_999], vec![row(0, 0), row(0, 1)]),
        (vec![1], vec![row(0, 1)]),
        (vec![1], vec![row(2, 0)]),
        (vec![1, 2], vec![row(0, 0), row(0, 2)]),
        (vec![1, 2, 3], vec![row(0, 0), row(1, 0), row(0, 1)]),
        (vec![1; 9], (0..9).map(|position| row(1, position)).collect()),
    ] {
        let bad = Batch { tokens, rows };
        assert!(model.forward(&bad, &mut slots).is_err(), "{bad:?}");
        assert_eq!((slots.length(0), slots.length(1)), (0, 0));
    }
    let good = Batch::following(&slots, 1, &[1; 8]);
    model.forward(&good, &mut slots).unwrap();
    assert!(KvSlots::new(model.config(), usize::MAX, 8).is_err());
}
