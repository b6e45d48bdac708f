//! What cannot be run: wlprof says so itself, with codes of its own. The guest writes nothing under either.

use super::{Case, Ends, compare, compare_all};
use Ends::Apart;

#[test]
fn what_needs_another_host() {
    let main = r#"(func (export "_start"))"#;
    let guests = [
        ("a function", r#"(import "env" "log" (func))"#),
        ("a table", r#"(import "env" "table" (table 1 funcref))"#),
        ("threads", r#"(import "wasi" "thread-spawn" (func (param i32) (result i32)))"#),
        ("a shared memory", r#"(import "env" "memory" (memory 1 1 shared))"#),
        ("no such function of WASI", r#"(import "wasi_snapshot_preview1" "fd_frobnicate" (func (param i32)))"#),
        ("another type", r#"(import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32)))"#),
        ("another kind", r#"(import "wasi_snapshot_preview1" "fd_close" (global i32))"#),
    ];
    let guests = guests.map(|(name, import)| (name, format!("(module {import} {main})")));
    compare_all(&guests.each_ref().map(|(name, guest)| (*name, Case { guest, ..Case::default() }, Apart(1, 126))));
}

#[test]
fn what_is_no_guest() {
    let files: [(&str, &[u8]); 6] = [
        ("nothing", b""),
        ("other text", b"fn main() {}\n"),
        ("malformed text", b"(module (fnuc))"),
        ("cut short", b"\0asm\x01\0\0\0\x01"),
        ("not valid", b"(module (func (export \"_start\") i32.const 1))"),
        (
            "an `_initialize` with parameters",
            b"(module (func (export \"_initialize\") (param i32)) (func (export \"_start\")))",
        ),
    ];
    for (name, content) in files {
        let compared = compare(&|place| drop(place.file("guest", content)), "guest", &Case::default(), Apart(1, 126));
        compared.unwrap_or_else(|difference| panic!("{name}: {difference}"));
    }
    compare(&|_| (), "nothing.wasm", &Case::default(), Apart(1, 127)).unwrap();
}
