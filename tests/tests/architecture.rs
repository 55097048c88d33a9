//! The rooms' arrows, held against what the manifests say.

use std::{collections::BTreeSet, process::Command};

/// Which room may name which. Everything may name `trace`.
const ALLOWED: [(&str, &[&str]); 11] = [
    (
        "fulgurite",
        &[
            "episode", "gateway", "model", "policy", "registry", "runtime", "sandbox", "trace",
            "train",
        ],
    ),
    ("fulgurite-episode", &["gateway", "policy", "registry", "runtime", "sandbox", "trace"]),
    ("fulgurite-gateway", &["policy", "trace"]),
    ("fulgurite-model", &[]),
    ("fulgurite-policy", &["model", "trace"]),
    ("fulgurite-registry", &["trace"]),
    ("fulgurite-runtime", &["trace"]),
    ("fulgurite-sandbox", &["trace"]),
    ("fulgurite-trace", &[]),
    ("fulgurite-train", &["model", "policy", "trace"]),
    ("xtask", &[]),
];

/// Crates that one room alone may name.
const OWNED: [(&str, &str); 5] = [
    ("axum", "fulgurite-gateway"),
    ("rusqlite", "fulgurite-trace"),
    ("wasmtime", "fulgurite-runtime"),
    ("candle-core", "fulgurite-model"),
    ("brush-parser", "fulgurite-sandbox"),
];

fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Names that a package depends on, for its tests too.
fn dependencies(package: &serde_json::Value) -> BTreeSet<&str> {
    package["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dependency| dependency["name"].as_str().unwrap())
        .collect()
}

#[test]
fn arrows_between_rooms_point_one_way() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if name == "fulgurite-tests" {
            continue;
        }
        let (_, allowed) = ALLOWED
            .iter()
            .find(|(room, _)| *room == name)
            .unwrap_or_else(|| panic!("`{name}` has no place in the architecture"));
        for dependency in dependencies(&package) {
            if let Some(room) = dependency.strip_prefix("fulgurite-") {
                assert!(allowed.contains(&room), "`{name}` must not depend on `{dependency}`");
            }
            assert_ne!(dependency, "fulgurite", "`{name}` must not depend on the binary");
        }
    }
}

#[test]
fn heavy_crates_are_named_by_one_room() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        for dependency in dependencies(&package) {
            for (owned, owner) in OWNED {
                assert!(
                    dependency != owned || name == owner,
                    "`{name}` names `{owned}`, which belongs to `{owner}`"
                );
            }
        }
    }
}
