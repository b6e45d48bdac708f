//! Small guests, written by hand, that show what the guest gets from outside.

/// Copies standard input to standard output, after a line "ready".
pub(crate) const CAT: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 0) "\40\00\00\00\00\10\00\00")
    (data (i32.const 32) "\30\00\00\00\06\00\00\00")
    (data (i32.const 48) "ready\n")
    (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const 32) (i32.const 1) (i32.const 24)))
        (i32.store (i32.const 16) (i32.const 64))
        (loop $again
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 20)))
            (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))
            (br_if $again (i32.load (i32.const 20))))))"#;

/// Prints its arguments, each with a NUL after it.
pub(crate) fn print_arguments() -> String {
    print_strings("args")
}

/// Prints its environment, each variable with a NUL after it.
pub(crate) fn print_environment() -> String {
    print_strings("environ")
}

fn print_strings(what: &str) -> String {
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "{what}_sizes_get" (func $sizes (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "{what}_get" (func $get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 2)
    (func (export "_start")
        (drop (call $sizes (i32.const 0) (i32.const 20)))
        (drop (call $get (i32.const 1024) (i32.const 65536)))
        (i32.store (i32.const 16) (i32.const 65536))
        (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))))"#
    )
}

/// Prints the name of its first folder, copies the file `in` there to `out`, and exits with 50 if it has no folder,
/// 51 if it cannot open `in`, 52 if it cannot make `out`.
pub(crate) const FOLDER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $name (param i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (data (i32.const 100) "inout")
    (func (export "_start")
        (if (call $prestat (i32.const 3) (i32.const 0)) (then (call $exit (i32.const 50))))
        (drop (call $name (i32.const 3) (i32.const 200) (i32.load (i32.const 4))))
        (i32.store (i32.const 16) (i32.const 200))
        (i32.store (i32.const 20) (i32.load (i32.const 4)))
        (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24)))
        (if (call $open (i32.const 3) (i32.const 0) (i32.const 100) (i32.const 2) (i32.const 0)
                (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 32))
            (then (call $exit (i32.const 51))))
        (if (call $open (i32.const 3) (i32.const 0) (i32.const 102) (i32.const 3) (i32.const 1)
                (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 36))
            (then (call $exit (i32.const 52))))
        (i32.store (i32.const 16) (i32.const 1024))
        (i32.store (i32.const 20) (i32.const 1024))
        (drop (call $read (i32.load (i32.const 32)) (i32.const 16) (i32.const 1) (i32.const 20)))
        (drop (call $write (i32.load (i32.const 36)) (i32.const 16) (i32.const 1) (i32.const 24)))))"#;

/// Sleeps ten times for 50 ms. Exits with 10 if a sleep fails, 11 if its event reports an error, 12 if there is not one
/// event, 13 if it was too short.
pub(crate) const SLEEP: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func $sleep_once
        (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 200)))
        (if (call $poll (i32.const 0) (i32.const 104) (i32.const 1) (i32.const 160))
            (then (call $exit (i32.const 10))))
        (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 208)))
        (if (i32.load16_u (i32.const 112)) (then (call $exit (i32.const 11))))
        (if (i32.ne (i32.load (i32.const 160)) (i32.const 1)) (then (call $exit (i32.const 12))))
        (if (i64.lt_u (i64.sub (i64.load (i32.const 208)) (i64.load (i32.const 200))) (i64.const 50000000))
            (then (call $exit (i32.const 13)))))
    (func (export "_start")
        (local $left i32)
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 50000000))
        (local.set $left (i32.const 10))
        (loop $again
            (call $sleep_once)
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

/// A guest with a function of that name that works for about 0.2 s. The name is as in the text format, escapes and all.
pub(crate) fn with_function_named(name: &str) -> String {
    format!(
        r#"(module
    (func $work (@name "{name}") (param $rounds i32) (result i32)
        (loop $again
            (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
        (local.get $rounds))
    (func (export "_start") (drop (call $work (i32.const 300000000)))))"#
    )
}
