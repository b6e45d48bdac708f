;; A command of WASI 0.3 that works and waits in turns. Its waits suspend it: its stack is on no thread meanwhile.
(component
  (import "wasi:clocks/monotonic-clock@0.3.0" (instance $clock
    (export "wait-for" (func async (param "how-long" u64)))))
  (core func $wait_for (canon lower (func $clock "wait-for")))
  (core module $program
    (import "clock" "wait-for" (func $wait_for (param i64)))
    (func $work (param $rounds i32) (result i32)
      (local $value i32)
      (loop $more
        (local.set $value (i32.add (i32.mul (local.get $value) (i32.const 31)) (local.get $rounds)))
        (br_if $more (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
      (local.get $value))
    (func $rest (call $wait_for (i64.const 10_000_000)))
    (func $turn (param $times i32) (result i32)
      (local $value i32)
      (loop $again
        (local.set $value (i32.xor (local.get $value) (call $work (i32.const 20_000_000))))
        (call $rest)
        (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))
      (local.get $value))
    (func $run (export "run") (result i32)
      (i32.eq (call $turn (i32.const 20)) (i32.const 1))))
  (core instance $running (instantiate $program
    (with "clock" (instance (export "wait-for" (func $wait_for))))))
  (func $run async (result (result)) (canon lift (core func $running "run")))
  (instance $commands (export "run" (func $run)))
  (export "wasi:cli/run@0.3.0" (instance $commands)))
