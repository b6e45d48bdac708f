;; Proves calls through typed function references: call_ref in a loop over two functions of cost
;; 3 to 1, and return_call_ref into a third.
(module
  (type $step (func (param i64) (result i64)))
  (memory (export "memory") 1)
  (elem declare func $heavy $light $after)

  (func $burn (param $state i64) (param $i i32) (result i64)
    (loop $again
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 13))))
      (local.set $state (i64.xor (local.get $state) (i64.shr_u (local.get $state) (i64.const 7))))
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 17))))
      (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (local.get $state))

  (func $heavy (param $state i64) (result i64)
    (i64.add (call $burn (local.get $state) (i32.const 3000)) (i64.const 1)))
  (func $light (param $state i64) (result i64)
    (return_call_ref $step (call $burn (local.get $state) (i32.const 500)) (ref.func $after)))
  (func $after (param $state i64) (result i64)
    (i64.add (call $burn (local.get $state) (i32.const 500)) (i64.const 2)))

  (func $run (export "run") (param $rounds i32) (result i64)
    (local $state i64)
    (local $heavy (ref null $step))
    (local $light (ref null $step))
    (local.set $heavy (ref.func $heavy))
    (local.set $light (ref.func $light))
    (local.set $state (i64.const 1))
    (loop $again
      (local.set $state (call_ref $step (local.get $state) (local.get $heavy)))
      (local.set $state (call_ref $step (local.get $state) (local.get $light)))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (local.get $state))

  (func $main (export "_start") (drop (call $run (i32.const 90000)))))
