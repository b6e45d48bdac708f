;; Proves stacks of what came to WebAssembly after its first version: exceptions that are thrown through several frames, caught, and
;; thrown on; a memory of 64 bits beside another; vectors. Each calls the host at the bottom of its stack.
(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory $near (export "memory") 1)
  (memory $far i64 1)
  (tag $low (param i64))
  (tag $other)

  (func $rest (drop (call $yield)))

  ;; Throws from the bottom of `depth` frames, which are all gone when it is caught.
  (func $thrower (param $depth i32) (param $state i64)
    (if (i32.eqz (local.get $depth))
      (then
        (call $rest)
        (throw $low (i64.mul (local.get $state) (i64.const 6364136223846793005)))))
    (call $thrower (i32.sub (local.get $depth) (i32.const 1)) (local.get $state))
    (call $rest))

  ;; In the middle: what it catches it throws on, and what it does not know goes by.
  (func $passes_on (param $depth i32) (param $state i64)
    (block $caught (result exnref)
      (try_table (catch_all_ref $caught)
        (block $unknown
          (try_table (catch $other $unknown)
            (call $thrower (local.get $depth) (local.get $state)))))
      unreachable)
    (call $rest)
    throw_ref)

  (func $catches (param $depth i32) (param $state i64) (result i64)
    (block $caught (result i64)
      (try_table (catch $low $caught)
        (call $passes_on (local.get $depth) (local.get $state)))
      unreachable)
    (call $rest))

  ;; Writes a page of the memory of 64 bits, copies it to the other, and has the first grow now and then.
  (func $copies (param $state i64) (result i64)
    (local $at i64)
    (loop $more
      (i64.store $far (local.get $at) (local.tee $state (i64.add (local.get $state) (local.get $at))))
      (br_if $more (i64.lt_u (local.tee $at (i64.add (local.get $at) (i64.const 8))) (i64.const 65536))))
    (memory.copy $near $far (i32.const 0) (i64.const 0) (i32.const 65536))
    (if (i64.eqz (i64.and (local.get $state) (i64.const 4095)))
      (then (drop (memory.grow $far (i64.const 1)))))
    (call $rest)
    (i64.load $near (i32.const 65528)))

  ;; Adds up the page, two numbers at a time.
  (func $adds (result i64)
    (local $at i32) (local $sum v128)
    (loop $more
      (local.set $sum (i64x2.add (local.get $sum) (v128.load $near (local.get $at))))
      (br_if $more (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 16))) (i32.const 65536))))
    (call $rest)
    (i64.xor (i64x2.extract_lane 0 (local.get $sum)) (i64x2.extract_lane 1 (local.get $sum))))

  (func $run (export "run") (param $rounds i32) (result i64)
    (local $state i64)
    (local.set $state (i64.const 1))
    (loop $again
      (local.set $state (call $catches (i32.and (local.get $rounds) (i32.const 7)) (local.get $state)))
      (local.set $state (i64.add (call $copies (local.get $state)) (call $adds)))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (local.get $state))

  (func $main (export "_start") (drop (call $run (i32.const 20000)))))
