;; Proves that stacks stay right through tail calls: frames replaced by return_call, by a
;; return_call with a different size of stack arguments, and by return_call_indirect. Work is in
;; $burn, called from each; a tail-called function's caller must be $loop, never the replaced one.
(module
  (type $step (func (param i64) (result i64)))
  (memory (export "memory") 1)
  (table funcref (elem $indirect_a $indirect_b))

  (func $burn (param $state i64) (result i64)
    (local $i i32)
    (local.set $i (i32.const 1000))
    (loop $again
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 13))))
      (local.set $state (i64.xor (local.get $state) (i64.shr_u (local.get $state) (i64.const 7))))
      (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 17))))
      (br_if $again (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
    (local.get $state))

  ;; Same signature all the way down.
  (func $plain (param $state i64) (result i64)
    (return_call $plain_end (call $burn (local.get $state))))
  (func $plain_end (param $state i64) (result i64)
    (i64.add (call $burn (local.get $state)) (i64.const 1)))

  ;; Few arguments, then enough that most go on the stack, then few again.
  (func $few (param $state i64) (result i64)
    (return_call $many (local.get $state)
      (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5) (i64.const 6)
      (i64.const 7) (i64.const 8) (i64.const 9) (i64.const 10) (i64.const 11) (i64.const 12)))
  (func $many (param $state i64)
    (param i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (param $last i64) (result i64)
    (return_call $few_end (i64.add (call $burn (local.get $state)) (local.get $last))))
  (func $few_end (param $state i64) (result i64)
    (i64.add (call $burn (local.get $state)) (i64.const 2)))

  ;; Through the table.
  (func $indirect_a (param $state i64) (result i64)
    (return_call_indirect (type $step) (call $burn (local.get $state)) (i32.const 1)))
  (func $indirect_b (param $state i64) (result i64)
    (i64.add (call $burn (local.get $state)) (i64.const 3)))

  (func $loop (export "run") (param $rounds i32) (result i64)
    (local $state i64)
    (local.set $state (i64.const 1))
    (block $done
      (loop $again
        (br_if $done (i32.eqz (local.get $rounds)))
        (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
        (local.set $state (call $plain (local.get $state)))
        (local.set $state (call $few (local.get $state)))
        (local.set $state (call $indirect_a (local.get $state)))
        (br $again)))
    (local.get $state))

  (func $start (export "_start")
    (drop (call $loop (i32.const 60000)))))
