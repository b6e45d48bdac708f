;; Components that call each other: `main` calls `middle`, which calls `inner`, each with a string that an adapter copies from one memory
;; to the other. A command, so that it can be run.
(component
  (component $inner
    (core module $inner
      (memory (export "memory") 2)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
      (func $hash (param $p i32) (param $n i32) (result i32) (local $h i32)
        (loop $l
          (local.set $h (i32.add (i32.mul (local.get $h) (i32.const 31)) (i32.load8_u (local.get $p))))
          (local.set $p (i32.add (local.get $p) (i32.const 1)))
          (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (local.get $h))
      (func $work (export "work") (param $p i32) (param $n i32) (result i32)
        (call $hash (local.get $p) (local.get $n)))
      (func (export "post") (param i32)))
    (core instance $i (instantiate $inner))
    (func (export "work") (param "s" string) (result u32)
      (canon lift (core func $i "work") (memory (core memory $i "memory")) (realloc (core func $i "realloc"))
        (post-return (core func $i "post")))))
  (component $middle
    (import "work" (func $work (param "s" string) (result u32)))
    (core module $libc
      (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 2048)))
    (core instance $libc (instantiate $libc))
    (core func $work-lowered (canon lower (func $work) (memory (core memory $libc "memory"))))
    (core module $middle
      (import "inner" "work" (func $work (param i32 i32) (result i32)))
      (func $forward (export "forward") (param $p i32) (param $n i32) (result i32)
        (i32.add (call $work (local.get $p) (local.get $n)) (i32.const 1))))
    (core instance $i (instantiate $middle (with "inner" (instance (export "work" (func $work-lowered))))))
    (func (export "work") (param "s" string) (result u32)
      (canon lift (core func $i "forward") (memory (core memory $libc "memory")) (realloc (core func $libc "realloc")))))
  (component $main
    (import "work" (func $work (param "s" string) (result u32)))
    (core module $libc
      (memory (export "memory") 1)
      (data (i32.const 64) "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. 0123456789"))
    (core instance $libc (instantiate $libc))
    (core func $work-lowered (canon lower (func $work) (memory (core memory $libc "memory"))))
    (core module $main
      (import "middle" "work" (func $work (param i32 i32) (result i32)))
      (func $recurse (param $d i32) (result i32)
        (if (result i32) (local.get $d)
          (then (i32.add (call $recurse (i32.sub (local.get $d) (i32.const 1))) (i32.const 1)))
          (else (call $work (i32.const 64) (i32.const 100)))))
      ;; 0: `ok`, which `wasi:cli/run` gives.
      (func $run (export "run") (result i32) (local $n i32)
        (local.set $n (i32.const 1000000))
        (loop $l
          (drop (call $recurse (i32.const 5)))
          (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.const 0)))
    (core instance $i (instantiate $main (with "middle" (instance (export "work" (func $work-lowered))))))
    (func (export "run") (result (result)) (canon lift (core func $i "run"))))
  (instance $inner (instantiate $inner))
  (instance $middle (instantiate $middle (with "work" (func $inner "work"))))
  (instance $main (instantiate $main (with "work" (func $middle "work"))))
  (instance $run (export "run" (func $main "run")))
  (export "wasi:cli/run@0.2.0" (instance $run)))
