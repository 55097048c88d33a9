;; Fifty memories that grow in turn until one may not: limits must add them up.
(module
  ;;include agent.inc
  MEMORIES
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (loop $again
      GROW
      (br $again))
    (unreachable)))
