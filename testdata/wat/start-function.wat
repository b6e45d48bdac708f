;; Proves that instantiation is profiled: about 0.5 s of work in the module's start function,
;; before any export can be called, and as much again in _start.
(module
  (global $result (mut i64) (i64.const 1))
  (memory (export "memory") 1)

  (func $burn (param $rounds i32)
    (local $state i64)
    (local.set $state (global.get $result))
    (loop $again
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 13))))
      (local.set $state (i64.xor (local.get $state) (i64.shr_u (local.get $state) (i64.const 7))))
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 17))))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (global.set $result (local.get $state)))

  (func $work_at_start (call $burn (i32.const 170000000)))
  (start $work_at_start)

  (func $work_in_run (export "run") (result i64)
    (call $burn (i32.const 170000000))
    (global.get $result))
  (func $main (export "_start") (drop (call $work_in_run))))
