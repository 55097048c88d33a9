;; Answers with a metadata list that lies inside its memory: 16 MiB of entries that all point at
;; the same text of one page, 128 GiB when copied out.
(module
  ;;include agent.inc
  (func (export "fulgurite:plugin/agent@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "fulgurite:plugin/agent@0.1.0#run")
    (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
    (local $at i32)
    (drop (memory.grow (i32.const 256)))
    (memory.fill (i32.const 65536) (i32.const 120) (i32.const 65536))
    (local.set $at (i32.const 131072))
    (loop $next
      (i32.store (local.get $at) (i32.const 65536))
      (i32.store offset=4 (local.get $at) (i32.const 65536))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 16908288))))
    (i32.store (i32.const 176) (i32.const 131072))
    (i32.store (i32.const 180) (i32.const 1048576))
    (i32.const 160)))
