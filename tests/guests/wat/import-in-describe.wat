;; Uses an import where none may be used.
(module
  (import "fulgurite:plugin/trace@0.1.0" "metric" (func $metric (param i32 i32 f64)))
  ;;include agent.inc
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32)
    (call $metric (i32.const 16) (i32.const 3) (f64.const 1))
    (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 160)))
