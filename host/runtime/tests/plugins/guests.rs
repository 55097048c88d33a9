//! Small plugins, written by hand: a core module in text with the contract's ABI, encoded as a
//! component. What a test needs stands in its own text; the rest is here.

use std::sync::Arc;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The imports that the helpers of [`HARNESS`] use.
pub(crate) const LLM: &str = r#"
  (import "fulgurite:plugin/llm@0.1.0" "[static]conversation.open"
    (func $open (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "fulgurite:plugin/llm@0.1.0" "[method]conversation.send"
    (func $send (param i32 i32 i32 i32 i32 i32 f32 i32 i32 i32 i32 i32)))
"#;

/// Opens a conversation in the role `policy`; its result lies at 3072, the handle at 3076.
/// `$ask` sends one message and submits the reply's first text, or fails with the text `llm`.
pub(crate) const ASK: &str = r#"
  (data (i32.const 64) "policyhello llm")
  (func $converse
    (call $open (i32.const 64) (i32.const 6) (i32.const 0) (i32.const 0)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3072)))
  (func $ask (result i32)
    (local $part i32)
    (call $converse)
    (if (i32.load8_u (i32.const 3072)) (then (return (call $fail (i32.const 76) (i32.const 3)))))
    ;; message { role: user, parts: [text("hello")], metadata: [] } at 3200, its part at 3232
    (i32.store8 (i32.const 3200) (i32.const 1))
    (i32.store (i32.const 3204) (i32.const 3232))
    (i32.store (i32.const 3208) (i32.const 1))
    (i32.store (i32.const 3236) (i32.const 70))
    (i32.store (i32.const 3240) (i32.const 5))
    (call $send (i32.load (i32.const 3076)) (i32.const 3200) (i32.const 1)
      (i32.const 0) (i32.const 0) (i32.const 0) (f32.const 0)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 3104))
    (if (i32.load8_u (i32.const 3104)) (then (return (call $fail (i32.const 76) (i32.const 3)))))
    (local.set $part (i32.load (i32.const 3116)))
    (call $submit (i32.load offset=4 (local.get $part)) (i32.load offset=8 (local.get $part))))
"#;

const MEMORY: &str = r#"
  (memory (export "memory") 2)
  (global $heap (mut i32) (i32.const 65536))
  (func $allocate (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and
      (i32.add (global.get $heap) (i32.sub (local.get 2) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get 2))))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (loop $more
      (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
        (then
          (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
          (br $more))))
    (local.get $at))
  (data (i32.const 16) "guest1.0{}")
"#;

const HARNESS: &str = r#"
  (func $submit (param i32 i32) (result i32)
    (i32.store8 (i32.const 2048) (i32.const 0))
    (i32.store8 (i32.const 2052) (i32.const 0))
    (i32.store (i32.const 2056) (local.get 0))
    (i32.store (i32.const 2060) (local.get 1))
    (i32.store (i32.const 2064) (i32.const 0))
    (i32.store (i32.const 2068) (i32.const 0))
    (i32.const 2048))
  (func $fail (param i32 i32) (result i32)
    (i32.store8 (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (local.get 0))
    (i32.store (i32.const 2056) (local.get 1))
    (i32.store (i32.const 2060) (i32.const 0))
    (i32.store (i32.const 2064) (i32.const 0))
    (i32.const 2048))
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32)
    (call $describing)
    (i32.store (i32.const 1024) (i32.const 16)) (i32.store (i32.const 1028) (i32.const 5))
    (i32.store (i32.const 1032) (i32.const 21)) (i32.store (i32.const 1036) (i32.const 3))
    (i32.store (i32.const 1040) (i32.const 24)) (i32.store (i32.const 1044) (i32.const 2))
    (i32.const 1024))
  (func $run (export "fulgurite:plugin/agent@0.1.0#run")
    (param $id i32) (param $id-length i32) (param $input i32) (param $input-length i32)
    (param $has-workspace i32) (param i32 i32) (param $config i32) (param $config-length i32)
    (result i32)
    (call $body (local.get $input) (local.get $input-length)))
"#;

const REWARD: &str = r#"
  (func (export "fulgurite:plugin/scorer@0.1.0#describe") (result i32)
    (i32.store (i32.const 1024) (i32.const 16)) (i32.store (i32.const 1028) (i32.const 5))
    (i32.store (i32.const 1032) (i32.const 21)) (i32.store (i32.const 1036) (i32.const 3))
    (i32.store (i32.const 1040) (i32.const 24)) (i32.store (i32.const 1044) (i32.const 2))
    (i32.const 1024))
  (func $total (param f64) (result i32)
    (i32.store8 (i32.const 2048) (i32.const 0))
    (f64.store (i32.const 2056) (local.get 0))
    (i64.store (i32.const 2064) (i64.const 0))
    (i64.store (i32.const 2072) (i64.const 0))
    (i64.store (i32.const 2080) (i64.const 0))
    (i32.const 2048))
  (func (export "fulgurite:plugin/scorer@0.1.0#score") (param i32 i32) (result i32)
    (call $body))
"#;

/// A harness. `definitions` has to define `$body (param $input i32 i32) (result i32)`, which
/// answers what `$submit`, `$fail` or `$ask` answer.
pub(crate) fn harness(imports: &str, definitions: &str) -> Arc<[u8]> {
    let text = format!("(module {imports} {MEMORY} {HARNESS} (func $describing) {definitions})");
    encode("harness", &text)
}

/// The same with the body of `$describing`, which runs at the beginning of `describe`.
pub(crate) fn harness_describing(imports: &str, describing: &str, definitions: &str) -> Arc<[u8]> {
    let describing = format!("(func $describing {describing})");
    let text = format!("(module {imports} {MEMORY} {HARNESS} {describing} {definitions})");
    encode("harness", &text)
}

/// A harness whose body is one expression.
pub(crate) fn doing(expression: &str) -> Arc<[u8]> {
    harness("", &format!("(func $body (param i32 i32) (result i32) {expression})"))
}

/// A harness that asks the policy once and submits what it says.
pub(crate) fn asking() -> Arc<[u8]> {
    let body = "(func $body (param i32 i32) (result i32) (call $ask))";
    harness(LLM, &format!("{ASK} {body}"))
}

/// A reward. `definitions` has to define `$body (result i32)`, which answers what `$total` does.
pub(crate) fn reward(imports: &str, definitions: &str) -> Arc<[u8]> {
    encode("reward", &format!("(module {imports} {MEMORY} {REWARD} {definitions})"))
}

fn encode(world: &str, text: &str) -> Arc<[u8]> {
    let mut module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut resolve = Resolve::default();
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit");
    let (package, _) = resolve.push_path(wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).unwrap();
    encoder.encode().unwrap().into()
}
