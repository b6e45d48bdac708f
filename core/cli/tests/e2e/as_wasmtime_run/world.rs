//! What the guest is given: arguments, environment, folders, standard input, both versions of WASI, and the proposals that
//! the engine knows.

use super::{Case, Ends, compare, compare_all};
use crate::guest::Place;
use crate::world;
use Ends::{Apart, Both};

#[test]
fn arguments() {
    let guest = &world::print_arguments();
    let lists: [&[&str]; 7] = [
        &[],
        &["one", "two"],
        &["--invoke", "x", "-o", "y"],
        &["", "ü", " "],
        &["--", "x"],
        &["x", "--"],
        &["-q", "--sampler=off"],
    ];
    compare_all(&lists.map(|arguments| ("arguments", Case { guest, arguments, ..Case::default() }, Both(0))));
}

#[test]
fn the_guests_name() {
    let guest = &world::print_arguments();
    for name in ["guest.wat", "./guest.wat", "sub/guest", "sub/../sub/guest"] {
        let prepare = |place: &Place| {
            std::fs::create_dir(place.path("sub")).unwrap();
            place.file("guest.wat", guest);
            place.file("sub/guest", wat::parse_str(guest).unwrap());
        };
        compare(&prepare, name, &Case::default(), Both(0)).unwrap();
    }
}

#[test]
fn the_environment() {
    let guest = &world::print_environment();
    let options: [&[&str]; 6] = [
        &[],
        &["--env", "A=1"],
        &["--env=A=1=2", "--env", "B="],
        &["--env", "PASSED_ON", "--env", "NOT_SET"],
        &["--env", "A=1", "--env", "A=2"],
        &["--env", "="],
    ];
    compare_all(&options.map(|options| ("environment", Case { guest, options, ..Case::default() }, Both(0))));
}

#[test]
fn folders() {
    let guest = world::FOLDER;
    let case = |options| Case { guest, options, ..Case::default() };
    compare_all(&[
        ("none", case(&[]), Both(50)),
        ("its own name", case(&["--dir", "data"]), Both(0)),
        ("another name", case(&["--dir", "data::/in/guest"]), Both(0)),
        ("no name", case(&["--dir=data::"]), Both(0)),
        ("two names", case(&["--dir=data::a::b"]), Both(0)),
        ("the first of two", case(&["--dir=data::one", "--dir=.::two"]), Both(0)),
        ("nothing to open in it", case(&["--dir", "."]), Both(51)),
        ("no such folder", case(&["--dir", "nothing"]), Apart(1, 125)),
        ("a file", case(&["--dir", "data/in"]), Apart(1, 125)),
    ]);
}

#[test]
fn standard_input() {
    compare_all(&[("copied", Case { guest: world::CAT, ..Case::default() }, Both(0))]);
}

/// The drafts of WASI that compilers used until 2020.
#[test]
fn wasi_unstable() {
    let guests = [world::print_arguments(), world::print_environment(), world::CAT.to_owned()]
        .map(|guest| guest.replace("wasi_snapshot_preview1", "wasi_unstable"));
    let exits = r#"(module (import "wasi_unstable" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const 77))))"#;
    for guest in &guests {
        compare_all(&[("drafts", Case { guest, arguments: &["one"], options: &["--env", "A=1"] }, Both(0))]);
    }
    compare_all(&[("exit", Case { guest: exits, ..Case::default() }, Both(77))]);
}

/// Each proposal at work; those that the engine does not have unless told, which the command line of wlprof cannot, fail.
#[test]
fn proposals() {
    let guests = [
        (
            "multiple memories",
            r#"(module (memory 1) (memory $b 1) (func (export "_start") (i32.store $b (i32.const 0) (i32.const 1))))"#,
            0,
        ),
        (
            "64-bit memory",
            r#"(module (memory i64 1) (func (export "_start") (i32.store (i64.const 0) (i32.const 1))))"#,
            0,
        ),
        (
            "extended constants",
            r#"(module (global i32 (i32.add (i32.const 1) (i32.const 2))) (func (export "_start")))"#,
            0,
        ),
        (
            "relaxed SIMD",
            r#"(module (func (export "") (result v128) (i8x16.relaxed_swizzle (v128.const i64x2 1 2) (v128.const i64x2 3 4))))"#,
            0,
        ),
        ("tail calls", r#"(module (func $f (export "_start") (return_call $g)) (func $g))"#, 0),
        (
            "typed references",
            r#"(module (type $t (func)) (func $f) (elem declare func $f) (func (export "_start") (call_ref $t (ref.func $f))))"#,
            0,
        ),
        (
            "garbage collection",
            r#"(module (type $a (array (mut i8))) (func (export "") (result i32) (array.len (array.new $a (i32.const 0) (i32.const 12)))))"#,
            0,
        ),
        (
            "atomics",
            r#"(module (memory 1) (func (export "") (result i32) (i32.atomic.rmw.add (i32.const 0) (i32.const 3))))"#,
            0,
        ),
        ("page sizes", r#"(module (memory 1 (pagesize 1)) (func (export "_start")))"#, 1),
        (
            "wide arithmetic",
            r#"(module (func (export "") (result i64 i64) (i64.mul_wide_u (i64.const -1) (i64.const 9))))"#,
            1,
        ),
        ("shared memory", r#"(module (memory 1 1 shared) (func (export "_start")))"#, 1),
    ];
    compare_all(&guests.map(|(name, guest, code)| {
        let ends = if code == 0 { Both(0) } else { Apart(code, 126) };
        (name, Case { guest, ..Case::default() }, ends)
    }));
}
