;; Tables that grow in turn until one may not: their elements count as memory too.
(module
  ;;include agent.inc
  (table $a 1 funcref)
  (table $b 1 funcref)
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (loop $again
      (if (i32.eq (table.grow $a (ref.null func) (i32.const 65536)) (i32.const -1)) (then (unreachable)))
      (if (i32.eq (table.grow $b (ref.null func) (i32.const 65536)) (i32.const -1)) (then (unreachable)))
      (br $again))
    (unreachable)))
