//! A batch that stopped the training, as files: `batch.json` (what happened, settings, rows) and
//! `tokens.safetensors` (numbers of each row's trained tokens).

use std::{fs, io, path::Path};

use serde_json::json;

use crate::{batch::Row, settings::TrainSettings, tensors};

/// Saves the rows of a step.
pub(crate) fn save(
    folder: &Path,
    step: u64,
    problem: &str,
    settings: &TrainSettings,
    rows: &[Row],
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let samples: Vec<_> = rows.iter().map(|row| &row.sample).collect();
    let batch = json!({ "step": step, "problem": problem, "settings": settings, "rows": samples });
    fs::write(folder.join("batch.json"), serde_json::to_vec(&batch)?)?;
    let mut vectors: Vec<(String, Vec<f32>)> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let reference = row.reference.as_deref().unwrap_or_default();
        for (name, values) in [
            ("old", row.old.as_slice()),
            ("reference", reference),
            ("advantage", &row.advantage),
            ("correction", &row.correction),
        ] {
            vectors.push((format!("row.{index}.{name}"), narrow(values)));
        }
    }
    let vectors = vectors.iter().map(|(name, values)| (name.clone(), values.as_slice()));
    tensors::write(&folder.join("tokens.safetensors"), vectors)
}

#[allow(clippy::cast_possible_truncation)]
fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}
