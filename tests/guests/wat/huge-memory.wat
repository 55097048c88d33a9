;; A second memory that asks for 4 GiB before its first instruction.
(module
  ;;include agent.inc
  (memory $huge 65536)
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 160)))
