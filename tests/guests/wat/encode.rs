// Makes components of the texts in this folder. A test crate of the host takes this file in with
// `#[path]`; it needs the crates `wat`, `wit-component` and `wit-parser`.

use std::fmt::Write as _;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A guest of `tests/guests/wat`, by name, as a component of the world `harness`.
pub fn wat_guest(repository: &Path, name: &str) -> Vec<u8> {
    let folder = repository.join("tests/guests/wat");
    let text = std::fs::read_to_string(folder.join(format!("{name}.wat"))).unwrap();
    let shared = std::fs::read_to_string(folder.join("agent.inc")).unwrap();
    let text = text
        .replace(";;include agent.inc", &shared)
        .replace("MEMORIES", &"(memory 1)\n".repeat(50))
        .replace("TABLES", &"(table 1 funcref)\n".repeat(90));
    encode(repository, &text)
}

/// A module of the given size that is small as text of a compiler and slow to compile: `functions`
/// functions, each of `depth` nested blocks with a jump table over all of them.
pub fn compile_bomb(repository: &Path, functions: u32, depth: u32) -> Vec<u8> {
    let shared =
        std::fs::read_to_string(repository.join("tests/guests/wat/agent.inc")).unwrap();
    let targets: String = (0..depth).map(|target| format!("{target} ")).collect();
    let mut text = format!("(module\n{shared}\n");
    for index in 0..functions {
        writeln!(text, "(func $f{index} (param i32) (local i64 i64 i64 i64)").unwrap();
        text.push_str(&"(block ".repeat(depth as usize));
        writeln!(text, "(br_table {targets}(local.get 0))").unwrap();
        for _ in 0..depth {
            text.push_str(
                ")(local.set 1 (i64.mul (i64.add (local.get 1) (local.get 2)) \
                 (i64.rotl (local.get 3) (local.get 4))))\n",
            );
        }
        text.push_str(")\n");
    }
    text.push_str(
        "(func (export \"fulgurite:plugin/agent@0.1.0#describe\") (result i32) (i32.const 64))
         (func (export \"fulgurite:plugin/agent@0.1.0#run\")
           (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 160)))",
    );
    encode(repository, &text)
}

/// A core module's text as a component of the world `harness`.
pub fn encode(repository: &Path, text: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap();
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(repository.join("wit")).unwrap();
    let world = resolve.select_world(&[package], Some("harness")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}
