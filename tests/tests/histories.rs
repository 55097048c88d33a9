//! How token histories grow: with a chat template that rewrites the past, `faithful` begins a new
//! segment where it does, and `append-only` keeps one segment, which is one row to train on.

use std::{fs, path::Path};

use fulgurite_tests::{Project, component, root, run_of};
use fulgurite_trace::{SampleSettings, Store, samples::samples};
use serde_json::{Map, Value, json};

/// Replies of each conversation.
const TURNS: usize = 4;

/// Leaves out every reply but the last one.
const FORGETFUL: &str = "{% for message in messages %}\
{% if message.role != 'assistant' or loop.index0 + 2 >= messages | length %}\
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\
{% endif %}{% endfor %}{{ '<|im_start|>assistant\\n' }}";

/// Width of the model, of its layer too.
const WIDTH: usize = 8;
const VOCABULARY: usize = 512;

/// A model that always says `a`, in Hugging Face's layout, with the forgetful template. Its layer
/// adds nothing to the embeddings, which are all alike; `a` alone goes with them.
fn model(folder: &Path) {
    fs::create_dir(folder).unwrap();
    let tokenizer = root().join("host/policy/tests/golden/tokenizers/qwen");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(tokenizer.join(name), folder.join(name)).unwrap();
    }
    let words: Value =
        serde_json::from_slice(&fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
    let letter = words["model"]["vocab"]["a"].as_u64().unwrap() as usize;
    fs::write(folder.join("chat_template.jinja"), FORGETFUL).unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDTH,
        "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": VOCABULARY,
        "max_position_embeddings": 1024,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();

    let mut head = vec![0.0; VOCABULARY * WIDTH];
    head[letter * WIDTH..(letter + 1) * WIDTH].fill(1.0);
    let mut tensors = vec![
        ("model.embed_tokens".to_owned(), vec![VOCABULARY, WIDTH], vec![1.0; VOCABULARY * WIDTH]),
        ("model.norm".to_owned(), vec![WIDTH], vec![1.0; WIDTH]),
        ("lm_head".to_owned(), vec![VOCABULARY, WIDTH], head),
    ];
    for norm in ["input_layernorm", "post_attention_layernorm"] {
        tensors.push((format!("model.layers.0.{norm}"), vec![WIDTH], vec![1.0; WIDTH]));
    }
    let attention = ["q", "k", "v", "o"].map(|part| format!("self_attn.{part}"));
    let others = ["gate", "up", "down"].map(|part| format!("mlp.{part}"));
    for part in attention.iter().chain(&others) {
        let name = format!("model.layers.0.{part}_proj");
        tensors.push((name, vec![WIDTH, WIDTH], vec![0.0; WIDTH * WIDTH]));
    }
    fs::write(folder.join("model.safetensors"), safetensors(&tensors)).unwrap();
}

/// The bytes of a safetensors file: the length of its header, the header, the numbers.
fn safetensors(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut numbers) = (Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let from = numbers.len();
        numbers.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let place =
            json!({ "dtype": "F32", "shape": shape, "data_offsets": [from, numbers.len()] });
        header.insert(format!("{name}.weight"), place);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &numbers].concat()
}

/// A run of two conversations with this history; the segment and its origin of every turn, for
/// each conversation, and how many rows to train on it gives.
fn ran(history: &str) -> Vec<(Vec<(u64, Value)>, usize)> {
    let project = Project::new();
    model(&project.path("forgetful"));
    let deed = json!({ "do": "turns", "count": TURNS, "text": "go on" }).to_string();
    let more = ["--history", history, "--temperature", "0", "--max-tokens", "8"];
    let run = run_of(
        component("probe"),
        component("exact-match"),
        project.plain_tasks(2),
        "folder:forgetful",
    );
    let (report, code) = project.run(run.with(&["--harness-config", &deed]).with(&more));
    assert_eq!((report["scored"].as_u64(), code), (Some(2), 0), "{report}");
    let shown = project.json(&["trace", "show", "last"], 0);
    assert_eq!(shown["plan"]["history"], history, "{shown}");

    let store = Store::open_read_only(project.path(".fulgurite/traces.sqlite")).unwrap();
    let run = store.runs().unwrap().pop().unwrap().record.id;
    let episodes = store.episodes(&run).unwrap();
    let conversations = episodes.iter().map(|episode| {
        let trace = project.episode("last", &episode.episode.task.to_string());
        let turns = trace.records("turn");
        assert!(turns.iter().all(|turn| turn["reply"]["parts"][0]["text"] == "aaaaaaaa"));
        let segments = turns
            .iter()
            .map(|turn| (turn["segment"].as_u64().unwrap(), turn["origin"].clone()))
            .collect();
        let entries = store.entries(&run, episode.episode).unwrap();
        let built = samples(episode.episode, &entries, &SampleSettings::default());
        let trained: usize = built.samples.iter().map(|row| row.trained()).sum();
        assert_eq!(trained, 8 * TURNS, "what was sampled is trained, and once");
        (segments, built.samples.len())
    });
    conversations.collect()
}

#[test]
fn append_only_keeps_one_segment_and_gives_one_row() {
    let opened = json!("opened");
    for (segments, rows) in ran("append-only") {
        assert_eq!(segments, vec![(0_u64, opened.clone()); TURNS]);
        assert_eq!(rows, 1);
    }
}

#[test]
fn faithful_begins_a_segment_where_the_template_rewrites_the_past() {
    let (opened, rendered) = (json!("opened"), json!("rendered"));
    for (segments, rows) in ran("faithful") {
        // The template forgets the first reply when it writes the third prompt.
        let expected = [(0_u64, &opened), (0, &opened), (1, &rendered), (2, &rendered)];
        assert_eq!(segments, expected.map(|(segment, origin)| (segment, origin.clone())));
        assert_eq!(rows, 3);
    }
}
