;; Answers bytes that are not UTF-8.
(module
  ;;include agent.inc
  (data (i32.const 22) "\ff\fe\c0\80")
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 160)))
