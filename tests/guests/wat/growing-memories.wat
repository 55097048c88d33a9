;; Memories that grow in turn until one may not: limits must add them up.
(module
  ;;include agent.inc
  (memory $a 1)
  (memory $b 1)
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (loop $again
      (if (i32.eq (memory.grow $a (i32.const 16)) (i32.const -1)) (then (unreachable)))
      (if (i32.eq (memory.grow $b (i32.const 16)) (i32.const -1)) (then (unreachable)))
      (br $again))
    (unreachable)))
