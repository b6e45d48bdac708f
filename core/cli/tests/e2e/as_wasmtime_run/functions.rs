//! Which functions are called, with what, and what becomes of their results and of how they end.

use super::{Case, Ends, compare_all, speaking};
use Ends::{Apart, Both};

#[test]
fn what_is_called() {
    let say = r#"(export "_start" (func $say_main))"#;
    let guests = [
        ("a command", say.to_owned()),
        ("nothing", String::new()),
        ("a default export", r#"(export "" (func $say_default))"#.to_owned()),
        ("a default export and a command", format!(r#"{say} (export "" (func $say_default))"#)),
        ("a reactor", r#"(export "_initialize" (func $say_init))"#.to_owned()),
        ("a reactor that is a command, too", format!(r#"{say} (export "_initialize" (func $say_init))"#)),
        ("a start function alone", "(start $say_start)".to_owned()),
        ("all of them", format!(r#"{say} (start $say_start) (export "_initialize" (func $say_init))"#)),
        ("a `_start` that is no function", r#"(global (export "_start") i32 (i32.const 0))"#.to_owned()),
        ("an `_initialize` that is no function", format!(r#"{say} (memory (export "_initialize") 1)"#)),
        ("other names", r#"(export "main" (func $say_main)) (export "start" (func $say_start))"#.to_owned()),
        ("standard error", r#"(func (export "_start") call $complain call $say_main call $complain)"#.to_owned()),
    ];
    let guests = guests.map(|(name, functions)| (name, speaking(&functions)));
    compare_all(&guests.each_ref().map(|(name, guest)| (*name, Case { guest, ..Case::default() }, Both(0))));
}

#[test]
fn what_is_invoked() {
    let guest = &speaking(
        r#"(export "_initialize" (func $say_init)) (export "_start" (func $say_main)) (start $say_start)
        (func (export "complain") call $complain)
        (func (export "exits") (call $exit (i32.const 9)))
        (func (export "traps") call $say_main unreachable)"#,
    );
    let case = |options| Case { guest, options, ..Case::default() };
    compare_all(&[
        ("a function", case(&["--invoke", "complain"]), Both(0)),
        ("one that exits", case(&["--invoke=exits"]), Both(9)),
        ("one that traps", case(&["--invoke=traps"]), Both(134)),
        ("the main function", case(&["--invoke=_start"]), Both(0)),
        ("the one that is called anyway", case(&["--invoke=_initialize"]), Both(0)),
        ("one that is not there", Case { guest: "(module)", options: &["--invoke=h"], arguments: &[] }, Apart(1, 126)),
    ]);
}

#[test]
fn arguments_of_functions() {
    let guest = r#"(module
        (func (export "i32") (param i32) (result i32) local.get 0)
        (func (export "i64") (param i64) (result i64) local.get 0)
        (func (export "f32") (param f32) (result f32) local.get 0)
        (func (export "f64") (param f64) (result f64) local.get 0)
        (func (export "v128") (param v128))
        (func (export "externref") (param externref))
        (func (export "") (param i32 i64) (result i64 i32) local.get 1 local.get 0))"#;
    let accepted: [(&[&str], &[&str]); 17] = [
        (&["--invoke=i32"], &["-7"]),
        (&["--invoke=i32"], &["+7"]),
        (&["--invoke=i32"], &["0x7fffffff"]),
        (&["--invoke=i32"], &["0X10"]),
        (&["--invoke=i32"], &["0x-10"]),
        (&["--invoke=i32"], &["7", "and", "more"]),
        (&["--invoke=i64"], &["-9223372036854775808"]),
        (&["--invoke=i64"], &["0xff"]),
        (&["--invoke=f32"], &["0.1"]),
        (&["--invoke=f32"], &["1e39"]),
        (&["--invoke=f32"], &["-0"]),
        (&["--invoke=f64"], &["1e300"]),
        (&["--invoke=f64"], &["-inf"]),
        (&["--invoke=f64"], &["nan"]),
        (&["--invoke=f64"], &["1e-7"]),
        (&[], &["5", "6"]),
        (&[], &["0x5", "-6", "7"]),
    ];
    let refused: [(&[&str], &[&str]); 12] = [
        (&["--invoke=i32"], &[]),
        (&["--invoke=i32"], &[""]),
        (&["--invoke=i32"], &["seven"]),
        (&["--invoke=i32"], &["1.5"]),
        (&["--invoke=i32"], &["2147483648"]),
        (&["--invoke=i32"], &["0xffffffff"]),
        (&["--invoke=i32"], &["-0x7"]),
        (&["--invoke=i64"], &["18446744073709551615"]),
        (&["--invoke=f64"], &["0x1p3"]),
        (&["--invoke=v128"], &["1"]),
        (&["--invoke=externref"], &["1"]),
        (&[], &["5"]),
    ];
    let cases = |list: &[(&'static [&'static str], &'static [&'static str])], ends| {
        let case = move |(options, arguments)| ("arguments", Case { guest, options, arguments }, ends);
        list.iter().copied().map(case).collect::<Vec<_>>()
    };
    compare_all(&cases(&accepted, Both(0)));
    compare_all(&cases(&refused, Apart(1, 126)));
}

#[test]
fn results_of_functions() {
    let guest = r#"(module
        (type $function (func)) (type $structure (struct (field i32)))
        (func $function (type $function)) (elem declare func $function)
        (tag $tag)
        (func (export "none"))
        (func (export "several") (result i32 i64 f32 f64)
            (i32.const -1) (i64.const -2) (f32.const 0.1) (f64.const 1e21))
        (func (export "v128") (result v128) (v128.const i32x4 1 2 3 0xffffffff))
        (func (export "nan") (result f32 f64) (f32.const -nan) (f64.const nan:0x4))
        (func (export "null references") (result externref funcref anyref exnref)
            (ref.null extern) (ref.null func) (ref.null any) (ref.null exn))
        (func (export "references") (result funcref anyref (ref i31) (ref $structure) externref)
            (ref.func $function) (ref.i31 (i32.const 5)) (ref.i31 (i32.const 6)) (struct.new $structure (i32.const 7))
            (extern.convert_any (ref.i31 (i32.const 8))))
        (func (export "exception") (result exnref)
            (block $caught (result exnref) (try_table (catch_all_ref $caught) (throw $tag)) unreachable))
        (func (export "_start") (result i32) (i32.const 42)))"#;
    let options: [&[&str]; 8] = [
        &[],
        &["--invoke=none"],
        &["--invoke=several"],
        &["--invoke=v128"],
        &["--invoke=nan"],
        &["--invoke", "null references"],
        &["--invoke=references"],
        &["--invoke=exception"],
    ];
    compare_all(&options.map(|options| ("results", Case { guest, options, ..Case::default() }, Both(0))));
}

#[test]
fn ends() {
    let exit = |code: i64| format!(r#"(func (export "_start") call $say_main (call $exit (i32.const {code})))"#);
    let main = |body: &str| format!(r#"(func (export "_start") (local $i i32) call $say_main call $complain {body})"#);
    let guests = [
        ("exit 0", exit(0), 0),
        ("exit 1", exit(1), 1),
        ("exit 125", exit(125), 125),
        ("exit 126", exit(126), 1),
        ("exit 134", exit(134), 1),
        ("exit 255", exit(255), 1),
        ("exit 256", exit(256), 1),
        ("exit -1", exit(-1), 1),
        ("unreachable", main("unreachable"), 134),
        ("division by zero", main("(drop (i32.div_u (i32.const 1) (local.get $i)))"), 134),
        (
            "integer overflow",
            main("(drop (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $i) (i32.const 1))))"),
            134,
        ),
        ("no integer", main("(drop (i32.trunc_f32_s (f32.const nan)))"), 134),
        ("memory", main("(drop (i32.load (i32.const -4)))"), 134),
        ("memory.fill", main("(memory.fill (i32.const 65535) (i32.const 1) (i32.const 2))"), 134),
        ("null function", main("(call_indirect (i32.const 0))") + "(table 1 funcref)", 134),
        ("no such function", main("(call_indirect (i32.const 1))") + "(table 1 funcref)", 134),
        (
            "function of another type",
            main("(drop (call_indirect (result i32) (i32.const 0)))") + "(table funcref (elem $say_main))",
            134,
        ),
        ("null reference", main("(drop (ref.as_non_null (ref.null func)))"), 134),
        ("null structure", main("(drop (struct.get $s 0 (ref.null $s)))") + "(type $s (struct (field i32)))", 134),
        ("cast", main("(drop (ref.cast (ref i31) (ref.null any)))"), 134),
        ("unaligned atomic", main("(drop (i32.atomic.load (i32.const 1)))"), 134),
        ("endless recursion", r#"(func $again (export "_start") call $again)"#.to_owned(), 134),
        ("uncaught exception", main("(throw $tag)") + "(tag $tag)", 1),
        ("trap in the start function", "(start $boom) (func $boom call $say_start unreachable)".to_owned(), 134),
        ("exit in the start function", "(start $out) (func $out (call $exit (i32.const 4)))".to_owned(), 4),
        ("exception in the start function", "(start $out) (tag $tag) (func $out (throw $tag))".to_owned(), 1),
        ("data beyond the memory", r#"(data (i32.const 65535) "xy")"#.to_owned(), 134),
        ("elements beyond the table", "(table 1 funcref) (elem (i32.const 1) $say_main)".to_owned(), 134),
        (
            "trap in `_initialize`",
            r#"(func (export "_initialize") call $say_init unreachable)"#.to_owned() + &exit(0),
            134,
        ),
        (
            "exit in `_initialize`",
            r#"(func (export "_initialize") (call $exit (i32.const 6)))"#.to_owned() + &exit(0),
            6,
        ),
    ];
    let guests = guests.map(|(name, functions, code)| (name, speaking(&functions), code));
    compare_all(&guests.each_ref().map(|(name, guest, code)| (*name, Case { guest, ..Case::default() }, Both(*code))));
}
