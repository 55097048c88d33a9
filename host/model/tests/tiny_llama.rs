//! The model on a tiny random checkpoint, against what transformers computes with it
//! (`golden/make_llama.py`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::path::{Path, PathBuf};

use fulgurite_model::{Batch, KvState, Llama, Weights};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn model() -> Llama {
    Llama::open(&golden("tiny-llama.gguf"), Weights::Stored).unwrap()
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
fn logits(model: &Llama, ids: &[u32], parts: &[usize]) -> Vec<Vec<f32>> {
    let mut state = KvState::new(model.config(), 1).unwrap();
    let mut rows = Vec::new();
    let mut rest = ids;
    for size in parts.iter().copied().chain([usize::MAX]) {
        let (part, behind) = rest.split_at(size.min(rest.len()));
        if !part.is_empty() {
            let hidden = model.forward(&Batch::following(&state, part), &mut state).unwrap();
            let part = model.logits(&hidden).unwrap().squeeze(0).unwrap();
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

#[test]
fn states_are_rewound_and_copied() {
    let model = model();
    let ids = ids();
    let run = |state: &mut KvState, ids: &[u32]| {
        let hidden = model.forward(&Batch::following(state, ids), state).unwrap();
        model.logits(&hidden).unwrap().squeeze(0).unwrap().to_vec2::<f32>().unwrap()
    };
    let mut state = KvState::new(model.config(), 1).unwrap();
    run(&mut state, &ids[..20]);
    let mut fork = state.fork(12).unwrap();
    run(&mut state, &[5, 6, 7]);
    state.truncate(20);
    let tail = run(&mut state, &ids[20..]);
    assert!(difference(&tail, &expected_logits()[20..]) <= 2e-5);
    assert_eq!(fork.len(), 12);
    let tail = run(&mut fork, &ids[12..]);
    assert!(difference(&tail, &expected_logits()[12..]) <= 2e-5);
    assert!(state.bytes() > 0 && fork.bytes() <= state.bytes());
}

#[test]
fn sequences_side_by_side_with_padding_do_not_disturb_each_other() {
    // The second sequence is 10 tokens shorter: its first 10 slots are padding that none sees.
    let model = model();
    let ids = ids();
    let (long, short, padding) = (&ids[..30], &ids[..20], 10);
    let mut state = KvState::new(model.config(), 2).unwrap();
    let padded: Vec<u32> = std::iter::repeat_n(0, padding).chain(short.iter().copied()).collect();
    let batch = Batch {
        tokens: [long, &padded].concat(),
        positions: (0..30).chain((0..30).map(|slot: u32| slot.saturating_sub(10))).collect(),
        visible: (0..30)
            .map(|slot| 0..slot + 1)
            .chain(
                (0..30).map(|slot| if slot < padding { slot..slot + 1 } else { padding..slot + 1 }),
            )
            .collect(),
    };
    let hidden = model.forward(&batch, &mut state).unwrap();
    let logits = model.logits(&hidden).unwrap().to_vec3::<f32>().unwrap();
    let expected = expected_logits();
    assert!(difference(&logits[0], &expected[..30]) <= 2e-5);
    assert!(difference(&logits[1][padding..], &expected[..20]) <= 2e-5);
}

#[test]
fn batches_that_fit_nothing_are_errors() {
    let model = model();
    let mut state = KvState::new(model.config(), 1).unwrap();
    let good = Batch::following(&state, &[1, 2]);
    for bad in [
        Batch { tokens: vec![], positions: vec![], visible: vec![] },
        Batch { positions: vec![0], ..good.clone() },
        Batch { visible: good.visible[..1].to_vec(), ..good.clone() },
        Batch { visible: vec![0..1, 0..99_999], ..good.clone() },
        Batch { visible: vec![0..1, 1..1], ..good.clone() },
        Batch { tokens: vec![1, 99_999], ..good.clone() },
    ] {
        assert!(model.forward(&bad, &mut state).is_err(), "{bad:?}");
        assert_eq!(state.len(), 0);
    }
    model.forward(&good, &mut state).unwrap();
}
