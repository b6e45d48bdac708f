;; Starts Ruby, which is published as a reactor for JavaScript hosts, and has it load /main.rb. The exit code is 0 unless that raised.
(module
  (import "ruby" "memory" (memory 0))
  (import "ruby" "cabi_realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
  (import "ruby" "ruby-init: func(args: list<string>) -> ()" (func $init (param i32 i32)))
  (import "ruby" "rb-eval-string-protect: func(str: string) -> tuple<handle<rb-abi-value>, s32>"
    (func $eval (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (export "memory" (memory 0))
  (data $arguments "ruby.wasm\00-EUTF-8\00-e_=0\00")
  (data $code "load '/main.rb'; $stdout.flush\00")

  (func $allocated (param $size i32) (result i32)
    (call $realloc (i32.const 0) (i32.const 0) (i32.const 4) (local.get $size)))

  (func $main (export "_start")
    (local $text i32) (local $list i32)
    (local.set $text (call $allocated (i32.const 24)))
    (memory.init $arguments (local.get $text) (i32.const 0) (i32.const 24))
    ;; A list of three strings: where each begins and how long it is.
    (local.set $list (call $allocated (i32.const 24)))
    (i32.store (local.get $list) (local.get $text))
    (i32.store offset=4 (local.get $list) (i32.const 10))
    (i32.store offset=8 (local.get $list) (i32.add (local.get $text) (i32.const 10)))
    (i32.store offset=12 (local.get $list) (i32.const 8))
    (i32.store offset=16 (local.get $list) (i32.add (local.get $text) (i32.const 18)))
    (i32.store offset=20 (local.get $list) (i32.const 6))
    (call $init (local.get $list) (i32.const 3))
    (local.set $text (call $allocated (i32.const 31)))
    (memory.init $code (local.get $text) (i32.const 0) (i32.const 31))
    (call $exit (i32.load offset=4 (call $eval (local.get $text) (i32.const 31))))))
