;; Computes for ever while it is instantiated, before anybody calls it.
(module
  ;;include agent.inc
  (func $spin (loop $again (br $again)))
  (start $spin)
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.const 160)))
