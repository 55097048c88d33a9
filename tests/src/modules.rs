//! Components of the texts in `tests/guests/wat`, which no compiler of a usual language makes.

use std::{fmt::Write as _, fs, path::Path};

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A guest of `tests/guests/wat`, by name, as a component of the world `harness`.
pub fn wat_guest(repository: &Path, name: &str) -> Vec<u8> {
    let text = read(repository, &format!("{name}.wat"))
        .replace(";;include agent.inc", &read(repository, "agent.inc"))
        .replace("MEMORIES", &"(memory 1)\n".repeat(50))
        .replace("TABLES", &"(table 1 funcref)\n".repeat(90));
    encode(repository, &text)
}

fn read(repository: &Path, name: &str) -> String {
    let path = repository.join("tests/guests/wat").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A component that is small and slow to compile: `functions` functions, each of `depth` nested
/// blocks with a jump table over all of them.
pub fn compile_bomb(repository: &Path, functions: u32, depth: u32) -> Vec<u8> {
    let mut body = "block ".repeat(depth as usize) + "local.get 0 br_table";
    (0..depth).for_each(|target| body.push_str(&format!(" {target}")));
    // After each block something that the compiler has to look at.
    body.push_str(
        &"\nend local.get 1 local.get 2 i64.add local.get 3 local.get 4 i64.rotl i64.mul local.set 1"
            .repeat(depth as usize),
    );
    let mut text = format!("(module\n{}\n", read(repository, "agent.inc"));
    for index in 0..functions {
        let _ = writeln!(text, "(func $f{index} (param i32) (local i64 i64 i64 i64) {body})");
    }
    text.push_str(
        "(func (export \"fulgurite:plugin/agent@0.1.0#describe\") (result i32) (i32.const 64))
         (func (export \"fulgurite:plugin/agent@0.1.0#run\")
           (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 160)))",
    );
    encode(repository, &text)
}

/// A core module's text as a component of the world `harness`.
fn encode(repository: &Path, text: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).expect("a module");
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(repository.join("wit")).expect("the contract");
    let world = resolve.select_world(&[package], Some("harness")).expect("the world");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("room for metadata");
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).expect("a module");
    encoder.encode().expect("a component")
}
