//! Reading and writing checkpoints, adapters and GGUF files.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{
    DType, Device,
    quantized::{GgmlDType, QTensor, gguf_file},
    safetensors,
};
use fulgurite_model::{LoraConfig, Model, Packed, Target, Tensor, TokenScore, Weights};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn scores(model: &Model) -> Vec<TokenScore> {
    let ids = [3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 9, 7];
    let targets = (1..12).map(|position| Target { sequence: 0, position }).collect();
    model.score(&Packed { sequences: vec![ids.to_vec()], targets, temperature: 1.0 }).unwrap()
}

fn close(left: &[TokenScore], right: &[TokenScore]) -> bool {
    let pairs = left.iter().zip(right);
    let mut differences = pairs.map(|(l, r)| (l.log_probability - r.log_probability).abs());
    left.len() == right.len() && differences.all(|difference| difference < 1e-5)
}

/// A copy of a fixture's checkpoint that may be damaged.
fn copied(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "expected.safetensors" {
            fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
    }
    folder
}

fn tensors(folder: &Path) -> HashMap<String, Tensor> {
    safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap()
}

fn write(folder: &Path, tensors: &HashMap<String, Tensor>) {
    safetensors::save(tensors, folder.join("model.safetensors")).unwrap();
}

fn error(folder: &Path) -> String {
    Model::open_folder(folder).unwrap_err().to_string()
}

#[test]
fn what_is_saved_is_what_was_loaded() {
    for name in ["llama", "llama3", "qwen3"] {
        let model = Model::open_folder(&fixture(name)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        model.save(folder.path()).unwrap();
        let again = Model::open_folder(folder.path()).unwrap();
        assert_eq!(again.config(), model.config());
        assert_eq!(scores(&again), scores(&model), "{name}: bit by bit");
        assert_eq!(tensors(folder.path()).len(), model.trainable().count());
        assert_eq!(model.trainable_numbers(), model.config().parameters());
    }
}

#[test]
fn sixteen_bits_are_widened() {
    let folder = copied("qwen3");
    let exact = scores(&Model::open_folder(folder.path()).unwrap());
    for kind in [DType::BF16, DType::F16] {
        let narrow = |(name, tensor): (String, Tensor)| (name, tensor.to_dtype(kind).unwrap());
        write(folder.path(), &tensors(&fixture("qwen3")).into_iter().map(narrow).collect());
        let model = Model::open_folder(folder.path()).unwrap();
        let rounded = scores(&model);
        assert!(rounded != exact);
        let worst = rounded.iter().zip(&exact).map(|(l, r)| l.log_probability - r.log_probability);
        assert!(worst.fold(0f32, |worst, one| worst.max(one.abs())) < 0.2);
    }
}

#[test]
fn damaged_checkpoints_say_what_is_wrong() {
    let folder = copied("llama");
    let path = folder.path();
    let good = tensors(path);
    let norm = "model.layers.1.input_layernorm.weight";

    let mut bad = good.clone();
    bad.remove(norm);
    write(path, &bad);
    assert!(error(path).contains(&format!("`{norm}` is missing")));

    let mut bad = good.clone();
    bad.insert("model.layers.7.extra.weight".to_owned(), good[norm].clone());
    write(path, &bad);
    assert!(error(path).contains("`model.layers.7.extra.weight` is no part"));

    let mut bad = good.clone();
    bad.insert(norm.to_owned(), good["model.embed_tokens.weight"].clone());
    write(path, &bad);
    let text = error(path);
    assert!(text.contains(norm) && text.contains("[50, 16], not [16]"), "{text}");

    let mut bad = good.clone();
    bad.insert(norm.to_owned(), (good[norm].clone() * f64::NAN).unwrap());
    write(path, &bad);
    assert!(error(path).contains("NaN"));

    let mut bad = good.clone();
    bad.insert(norm.to_owned(), good[norm].to_dtype(DType::F64).unwrap());
    write(path, &bad);
    assert!(error(path).contains("F64"));

    // A copy of the embeddings as head is no surprise where both are one.
    let mut copy = good.clone();
    copy.insert("lm_head.weight".to_owned(), good["model.embed_tokens.weight"].clone());
    write(path, &copy);
    Model::open_folder(path).unwrap();

    let file = path.join("model.safetensors");
    write(path, &good);
    let bytes = fs::read(&file).unwrap();
    for length in [0, 7, 100, bytes.len() - 1] {
        fs::write(&file, &bytes[..length]).unwrap();
        assert!(error(path).contains("model.safetensors"));
    }
    fs::write(&file, [&u64::MAX.to_le_bytes()[..], &bytes[8..]].concat()).unwrap();
    assert!(error(path).contains("header"));
    fs::remove_file(&file).unwrap();
    assert!(error(path).contains("cannot be opened"));

    let config = path.join("config.json");
    let value: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    let mut other = value.clone();
    other["model_type"] = json!("mamba");
    fs::write(&config, other.to_string()).unwrap();
    assert!(error(path).contains("mamba"));
    fs::write(&config, "{").unwrap();
    assert!(error(path).contains("config.json"));
}

#[test]
fn an_index_leads_to_files_beside_it_only() {
    let folder = copied("llama3");
    let path = folder.path().join("model.safetensors.index.json");
    let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    Model::open_folder(folder.path()).unwrap();
    for bad in ["../model-00001-of-00002.safetensors", "/etc/passwd", "", "..", "config.json"] {
        let mut other = value.clone();
        other["weight_map"]["lm_head.weight"] = json!(bad);
        fs::write(&path, other.to_string()).unwrap();
        assert!(error(folder.path()).contains("lm_head.weight"), "{bad}");
    }
    let mut other = value.clone();
    other["weight_map"].as_object_mut().unwrap().remove("lm_head.weight");
    fs::write(&path, other.to_string()).unwrap();
    assert!(error(folder.path()).contains("`lm_head.weight` is missing"));
    fs::write(&path, "{}").unwrap();
    assert!(error(folder.path()).contains("weight_map"));
}

#[test]
fn adapters_are_written_and_read_as_peft_does() {
    let mut model = Model::open_folder(&fixture("qwen3")).unwrap();
    let plain = scores(&model);
    let targets = vec!["q_proj".to_owned(), "up_proj".to_owned()];
    let config = LoraConfig { rank: 2, alpha: 4.0, targets, seed: 1 };
    model.add_lora(&config).unwrap();
    assert!(model.add_lora(&config).is_err(), "twice");
    assert_eq!(scores(&model), plain, "new adapters change nothing");
    let names: Vec<String> = model.trainable().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names.len(), 2 * 2 * 2);
    for name in names.iter().filter(|name| name.contains("lora_B")) {
        let (_, tensor) = model.trainable().find(|(known, _)| known == name).unwrap();
        let values: Vec<f32> = (0..tensor.elem_count()).map(|at| at as f32 * 0.01).collect();
        model.write_parameter(name, &values).unwrap();
    }
    let adapted = scores(&model);
    assert!(!close(&adapted, &plain));
    let folder = tempfile::tempdir().unwrap();
    assert!(model.save(folder.path()).is_err(), "adapters would be lost");
    model.save_peft(folder.path(), "some/base").unwrap();
    let file = folder.path().join("adapter_model.safetensors");
    let stored = safetensors::load(&file, &Device::Cpu).unwrap();
    let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    assert_eq!(stored[name].dims(), [2, 16]);

    let mut fresh = Model::open_folder(&fixture("qwen3")).unwrap();
    fresh.load_peft(folder.path()).unwrap();
    assert_eq!(scores(&fresh), adapted, "bit by bit");
    assert_eq!(fresh.lora().unwrap().rank, 2);
    model.merge_lora().unwrap();
    assert!(close(&scores(&model), &adapted));
    assert_eq!(scores(&fresh), adapted, "other models keep their weights");

    let path = folder.path().join("adapter_config.json");
    let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, bad) in [
        ("peft_type", json!("IA3")),
        ("use_dora", json!(true)),
        ("r", json!(0)),
        ("r", json!(3)),
        ("target_modules", json!(["embed_tokens"])),
        ("target_modules", json!(["q_proj"])),
        ("target_modules", json!(["q_proj", "up_proj", "v_proj"])),
    ] {
        let mut other = value.clone();
        other[key] = bad.clone();
        fs::write(&path, other.to_string()).unwrap();
        let mut fresh = Model::open_folder(&fixture("qwen3")).unwrap();
        assert!(fresh.load_peft(folder.path()).is_err(), "{key} {bad}");
    }
}

/// Rows of heads in the order that GGUF has for llama: pairs that turn together stand together.
fn neighbours(tensor: &Tensor, head: usize) -> Tensor {
    let (rows, _) = tensor.dims2().unwrap();
    let order: Vec<u32> = (0..rows / head)
        .flat_map(|number| {
            (0..head / 2)
                .flat_map(move |pair| [pair, pair + head / 2].map(|row| number * head + row))
        })
        .map(|row| row as u32)
        .collect();
    let order = Tensor::from_vec(order, rows, &Device::Cpu).unwrap();
    tensor.index_select(&order, 0).unwrap()
}

/// A fixture's checkpoint as GGUF.
fn as_gguf(name: &str, to: &Path) {
    let model = Model::open_folder(&fixture(name)).unwrap();
    let config = model.config().clone();
    let mut entries = Vec::new();
    for (full, tensor) in model.trainable() {
        let own = full
            .replace("model.layers.", "blk.")
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace("lm_head", "output")
            .replace("input_layernorm", "attn_norm")
            .replace("post_attention_layernorm", "ffn_norm")
            .replace("self_attn.q_norm", "attn_q_norm")
            .replace("self_attn.k_norm", "attn_k_norm")
            .replace("self_attn.o_proj", "attn_output")
            .replace("self_attn.q_proj", "attn_q")
            .replace("self_attn.k_proj", "attn_k")
            .replace("self_attn.v_proj", "attn_v")
            .replace("mlp.gate_proj", "ffn_gate")
            .replace("mlp.up_proj", "ffn_up")
            .replace("mlp.down_proj", "ffn_down");
        // Not `copy`, which on the CPU keeps the whole storage that a view is a part of.
        let turned = name != "qwen3" && (own.contains("attn_q.") || own.contains("attn_k."));
        let tensor = if turned {
            neighbours(tensor, config.head)
        } else {
            tensor.force_contiguous().unwrap()
        };
        entries.push((own, QTensor::quantize(&tensor, GgmlDType::F32).unwrap()));
    }
    let architecture = if name == "qwen3" { "qwen3" } else { "llama" };
    let key = |key: &str| format!("{architecture}.{key}");
    let number = |value: usize| gguf_file::Value::U32(value as u32);
    let text = |value: &str| gguf_file::Value::String(value.to_owned());
    let tokens = (0..config.vocabulary).map(|id| text(&format!("t{id}"))).collect();
    let values = [
        ("general.architecture".to_owned(), text(architecture)),
        (key("embedding_length"), number(config.hidden)),
        (key("feed_forward_length"), number(config.feed_forward)),
        (key("block_count"), number(config.layers)),
        (key("attention.head_count"), number(config.heads)),
        (key("attention.head_count_kv"), number(config.key_value_heads)),
        (key("attention.key_length"), number(config.head)),
        (key("attention.layer_norm_rms_epsilon"), gguf_file::Value::F32(config.epsilon)),
        (key("rope.freq_base"), gguf_file::Value::F32(config.rope.base)),
        (key("context_length"), number(config.context)),
        ("tokenizer.ggml.tokens".to_owned(), gguf_file::Value::Array(tokens)),
    ];
    let values: Vec<(&str, &gguf_file::Value)> =
        values.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let entries: Vec<(&str, &QTensor)> =
        entries.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = fs::File::create(to).unwrap();
    gguf_file::write(&mut file, &values, &entries).unwrap();
}

#[test]
fn gguf_files_of_both_families_hold_the_same_models() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "qwen3"] {
        let exact = scores(&Model::open_folder(&fixture(name)).unwrap());
        let path = folder.path().join(format!("{name}.gguf"));
        as_gguf(name, &path);
        for form in [Weights::Stored, Weights::Plain] {
            let model = Model::open_gguf(&path, form).unwrap();
            assert!(close(&scores(&model), &exact), "{name}, {form:?}");
        }
        // Plain weights are those of the checkpoint, and are saved as one.
        let model = Model::open_gguf(&path, Weights::Plain).unwrap();
        let saved = tempfile::tempdir().unwrap();
        model.save(saved.path()).unwrap();
        assert_eq!(scores(&Model::open_folder(saved.path()).unwrap()), exact, "bit by bit");
    }
}
