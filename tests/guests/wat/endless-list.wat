;; Answers with a metadata list of 268 million entries that lies outside its memory.
(module
  ;;include agent.inc
  (data (i32.const 176) "\00\00\00\00\ff\ff\ff\0f")
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 160)))
