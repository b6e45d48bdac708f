//! `--memory` and guests that are made to mislead it: what Wasmtime refuses is refused, allocators may be left by exceptions and traps, and
//! functions may have an allocator's names by chance.

use crate::guest::{Place, Ran};
use crate::heap_profile::heap;
use wasmtime::component::Component;
use wasmtime::{Engine, Instance, Module, Store};
use wlprof::heap::Rate;
use wlprof::recording::{HeapPart, Recording};
use wlprof::{Attach, Profiler};

/// An allocator, and what its module may not use: it has one memory, two functions, and neither a table nor a global.
fn with_allocator(more: &str) -> String {
    format!(
        r#"(module $guest {more} (memory (export "memory") 1)
            (func $malloc (export "malloc") (param i32) (result i32) (i32.const 64))
            (func $free (export "free") (param i32)))"#
    )
}

/// What no module may have that has nothing else of its kind. Much of it would be there once the module is rewritten.
const INVALID: [&str; 18] = [
    r#"(func (export "_start") (global.set 0 (i64.const -5)))"#,
    r#"(func (export "_start") (global.set 1 (i32.const 0)))"#,
    r#"(func (export "_start") (i32.store8 1 (i32.const 5) (i32.const 7)))"#,
    r#"(type $told (func (param i64 i32 i32 i32))) (func (export "_start")
        (call_indirect 0 (type $told) (i64.const 1) (i32.const 77) (i32.const 3) (i32.const 0) (i32.const 0)))"#,
    r#"(func (export "_start") (drop (table.get 0 (i32.const 0))))"#,
    r#"(func (export "_start") (table.set 0 (i32.const 0) (ref.null func)))"#,
    r#"(func (export "_start") (drop (call 3 (i32.const 1))))"#,
    r#"(func (export "_start") (drop (call 4 (i32.const 1))))"#,
    r#"(func (export "_start") (type 2))"#,
    r#"(func (export "_start") (call_indirect 0 (type 3) (i32.const 1) (i32.const 0)))"#,
    r#"(export "countdown" (global 0))"#,
    r#"(export "table" (table 0))"#,
    r#"(export "filter" (memory 1))"#,
    r#"(elem (table 0) (i32.const 0) func 0)"#,
    r#"(data (memory 1) (i32.const 0) "x")"#,
    r#"(start 3)"#,
    r#"(func (export "_start") (drop (i64.const 1)) (drop))"#,
    r#"(func (export "_start") (result i32) (i64.const 1))"#,
];

/// As a component with nothing else in it.
fn in_component(module: &str) -> String {
    format!("(component (core {} (core instance (instantiate $guest)))", &module[1..])
}

/// Components that use what their module has only once it is rewritten.
fn invalid_components() -> Vec<String> {
    let of = |more: &str| {
        let instance = "(core instance $i (instantiate $guest))";
        format!("(component (core {} {instance} {more})", &with_allocator("")[1..])
    };
    vec![
        of(r#"(alias core export $i "wlprof:heap/table" (core table $t))"#),
        of(r#"(alias core export $i "wlprof:heap/countdown" (core global $g))"#),
        of(r#"(core module $b (import "a" "wlprof:heap/filter" (memory 1)))
            (core instance (instantiate $b (with "a" (instance $i))))"#),
    ]
}

fn said(Ran { code, stdout, stderr, .. }: Ran) -> (Option<i32>, String, String) {
    (code, stdout, stderr)
}

#[test]
fn what_wasmtime_refuses_is_refused_in_the_same_words() {
    let place = Place::new();
    let main = place.file("main.wat", with_allocator(r#"(import "other" "malloc" (func (param i32) (result i32)))"#));
    let main = main.to_str().unwrap();
    let check = |words: &[&str], what: &str| {
        let run = |options: &[&str]| said(place.run(options.iter().chain(words).copied()));
        let alone = run(&["-q", "--sampler=off"]);
        assert!(alone.0 == Some(126) && alone.2.contains("Wasmtime cannot compile it"), "{what}: {alone:?}");
        for rate in ["--memory-rate=1", "--memory-rate=512KiB"] {
            assert_eq!(run(&["-q", "--sampler=off", "--memory", rate]), alone, "{what}");
        }
    };
    for invalid in INVALID {
        let text = with_allocator(invalid);
        place.file("guest.wat", &text);
        check(&["guest.wat"], &text);
        check(&["--preload", "other=guest.wat", main], &text);
        place.file("component.wat", in_component(&text));
        check(&["--invoke=f()", "component.wat"], &text);
    }
    for text in invalid_components() {
        place.file("component.wat", &text);
        check(&["--invoke=f()", "component.wat"], &text);
    }
}

/// Two profilers of an engine: one of them of heaps.
fn profilers(engine: &Engine) -> [Profiler; 2] {
    let of_heaps = Profiler::builder().heap(Rate::bytes(1)).paused().start(engine).unwrap();
    [Profiler::builder().paused().start(engine).unwrap(), of_heaps]
}

fn engine() -> Engine {
    let mut config = wasmtime::Config::new();
    wlprof::configure(&mut config);
    Engine::new(&config).unwrap()
}

#[test]
fn what_an_engine_refuses_a_profiler_does_not_load() {
    let engine = engine();
    let both = profilers(&engine);
    let words = |result: Result<(), wasmtime::Error>| result.map_err(|error| format!("{error:#}"));
    for invalid in INVALID {
        let text = with_allocator(invalid);
        let [plain, of_heaps] = [&both[0], &both[1]].map(|by| words(by.load("x", text.as_bytes()).map(drop)));
        assert!(plain.is_err() && plain == of_heaps, "{text}: {plain:?} {of_heaps:?}");
        let text = in_component(&text);
        let [plain, of_heaps] = [&both[0], &both[1]].map(|by| words(by.load_component("x", text.as_bytes()).map(drop)));
        assert!(plain.is_err() && plain == of_heaps, "{text}: {plain:?} {of_heaps:?}");
    }
    for text in invalid_components() {
        assert!(Component::new(&engine, &text).is_err(), "{text}");
        let [plain, of_heaps] = [&both[0], &both[1]].map(|by| words(by.load_component("x", text.as_bytes()).map(drop)));
        assert!(plain.is_err() && plain == of_heaps, "{text}: {plain:?} {of_heaps:?}");
    }
    // A session has something to show once a store is attached.
    let module = both[1].load("x", with_allocator("").as_bytes()).unwrap();
    let mut store = Store::new(&engine, ());
    let attached = both[1].attach(&mut store, Attach::named("guest")).unwrap();
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    instance.get_typed_func::<i32, i32>(&mut store, "malloc").unwrap().call(&mut store, 5).unwrap();
    let snapshot = both[1].snapshot().unwrap();
    let notes = &snapshot.recording().meta.notes;
    assert!(!notes.iter().any(|note| note.contains("is not profiled")), "none of what is not loaded: {notes:?}");
    assert_eq!(heap(snapshot.recording()).total(HeapPart::Allocated).bytes, 5.0);
}

/// Of all kinds of things that indices are for, few.
const CHANGED: &str = r#"(module (memory (export "memory") 1) (global $next (mut i32) (i32.const 16)) (table 2 funcref)
    (type $allocates (func (param i32) (result i32))) (elem (i32.const 0) $malloc)
    (func $malloc (export "malloc") (type $allocates) (global.get $next) (global.set $next (i32.const 9)))
    (func $calloc (export "calloc") (param i32 i32) (result i32)
        (call_indirect (type $allocates) (local.get 0) (i32.const 0)))
    (func $realloc (export "realloc") (param i32 i32) (result i32) (call $malloc (local.get 1)))
    (func $free (export "free") (param i32) (i32.store8 (local.get 0) (i32.const 0)))
    (data (i32.const 0) "x"))"#;

#[test]
fn a_module_with_any_byte_changed_is_taken_or_refused_as_it_is_without() {
    let engine = engine();
    let both = profilers(&engine);
    let bytes = wat::parse_str(CHANGED).unwrap();
    let (mut taken, mut refused) = (0, 0);
    // Behind the header.
    for at in 8..bytes.len() {
        for more in [1, 2] {
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(more);
            let load = |profiler: &Profiler| match profiler.load("x", &changed) {
                Ok(module) => {
                    profiler.remove(&module);
                    Ok(())
                }
                Err(error) => Err(format!("{error:#}")),
            };
            let [plain, of_heaps] = [&both[0], &both[1]].map(load);
            assert_eq!(plain, of_heaps, "byte {at} and {more}");
            assert_eq!(plain.is_ok(), Module::from_binary(&engine, &changed).is_ok(), "byte {at} and {more}");
            *if plain.is_ok() { &mut taken } else { &mut refused } += 1;
        }
    }
    assert!(taken > 50 && refused > 200, "{taken} {refused}");
}

/// What each function has allocated: blocks and bytes.
fn allocated_by(recording: &Recording, name: &str) -> (f64, f64) {
    let of = |stack| {
        let leaf = recording.lines_of(stack).next().unwrap();
        recording.functions[leaf.function as usize].name == name
    };
    let sites = heap(recording).sites.iter().filter(|site| of(site.stack));
    sites.fold((0.0, 0.0), |(blocks, bytes), site| {
        let allocated = site.totals.part(HeapPart::Allocated);
        (blocks + allocated.blocks, bytes + allocated.bytes)
    })
}

/// Its allocator throws where it is asked for 13 bytes: in its own body, in one that something is put around, and in one that is called
/// once more when a sample is due.
const THROWS: &str = r#"(module
    (memory (export "memory") 1) (tag $t) (global $n (mut i32) (i32.const 64))
    (func $next (param i32) (result i32)
        (if (i32.eq (local.get 0) (i32.const 13)) (then (throw $t)))
        (global.set $n (i32.add (global.get $n) (i32.const 16))) (global.get $n))
    (func $malloc (export "malloc") (param i32) (result i32) (call $next (local.get 0)))
    (func $posix_memalign (export "posix_memalign") (param i32 i32 i32) (result i32)
        (i32.store (local.get 0) (call $next (local.get 2))) (i32.const 0))
    (func $calloc (export "calloc") (param i32 i32) (result i32)
        (if (i32.eq (local.get 0) (i32.const 13)) (then (throw $t)))
        (call $malloc (local.get 0)))
    (func $realloc (export "realloc") (param i32 i32) (result i32)
        (if (i32.eq (local.get 1) (i32.const 13)) (then (return (call $calloc (local.get 1) (i32.const 1)))))
        (call $malloc (local.get 1)))
    (func $free (export "free") (param i32))
    (func $before (drop (call $malloc (i32.const 100))))
    (func $after (drop (call $malloc (i32.const 1000))) (drop (call $calloc (i32.const 10) (i32.const 7))))
    (func $moves (drop (call $realloc (call $malloc (i32.const 5)) (i32.const 20))))
    (func $aligned (drop (call $posix_memalign (i32.const 0) (i32.const 8) (i32.const 30))))
    (func (export "_start") (local $i i32)
        (call $before)
        (loop $again
            (block $h (try_table (catch_all $h) (drop (call $malloc (i32.const 13))))) (call $after)
            (block $h (try_table (catch_all $h) (drop (call $calloc (i32.const 13) (i32.const 1))))) (call $after)
            (block $h (try_table (catch_all $h) (drop (call $realloc (i32.const 8) (i32.const 13))))) (call $moves)
            (block $h (try_table (catch_all $h)
                (drop (call $posix_memalign (i32.const 0) (i32.const 8) (i32.const 13))))) (call $aligned)
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 500)))))
    (func (export "uncaught") (drop (call $realloc (i32.const 8) (i32.const 13)))))"#;

#[test]
fn an_allocator_that_throws_is_no_end_of_what_is_seen() {
    let place = Place::new();
    place.file("guest.wat", THROWS);
    let ran = place.run(["--sampler=off", "--memory", "--memory-rate=1", "-o", "x.wlprof", "guest.wat"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let recording = place.recording("x.wlprof");
    let by = |name: &str| allocated_by(&recording, name);
    assert_eq!(by("before"), (1.0, 100.0));
    assert_eq!(by("after"), (2000.0, 1_070_000.0), "a call in another is that other's");
    assert_eq!(by("moves"), (1000.0, 500.0 * 25.0));
    assert_eq!(by("aligned"), (500.0, 15_000.0));
    let all = heap(&recording).total(HeapPart::Allocated);
    assert_eq!((all.blocks, all.bytes), (3501.0, 100.0 + 1_070_000.0 + 12_500.0 + 15_000.0));
    assert!(!ran.stderr.contains("has ended calls of the allocator"), "{}", ran.stderr);
    // What nobody catches ends the guest as it does without.
    let uncaught = |options: &[&str]| {
        let ran = place.run(options.iter().copied().chain(["-q", "--sampler=off", "--invoke=uncaught", "guest.wat"]));
        (ran.code, ran.stderr.lines().next().unwrap_or_default().to_owned())
    };
    let alone = uncaught(&[]);
    assert!(alone.0 == Some(134) || alone.0 == Some(1), "{alone:?}");
    for rate in ["--memory-rate=1", "--memory-rate=512KiB"] {
        assert_eq!(uncaught(&["--memory", rate]), alone);
    }
}

#[test]
fn estimates_are_right_beside_an_allocator_that_throws() {
    let place = Place::new();
    place.file("guest.wat", THROWS);
    let options = ["--sampler=off", "--memory", "--memory-rate=4KiB", "-o", "x.wlprof", "guest.wat"];
    let ran = place.run(options);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let recording = place.recording("x.wlprof");
    let all = heap(&recording).total(HeapPart::Allocated);
    // 1.96 standard deviations are its bound: within five of them but once in two million runs.
    assert!((all.bytes - 1_097_600.0).abs() < 5.0 / 1.96 * all.bound(), "{all:?}");
}

#[test]
fn a_function_that_has_a_name_by_chance_is_left_out() {
    let allocator = r#"(memory (export "memory") 1) (func $malloc (param i32) (result i32) (i32.const 64))
        (func $free (param i32))
        (func $keeps (drop (call $malloc (i32.const 1000)))) (func (export "_start") (call $keeps) (call $keeps))"#;
    for (other, why) in [
        (
            r#"(func (export "realloc") (param i32 i32 i32 i32) (result i32) (call $malloc (local.get 3)))"#,
            "realloc is left out: function 4 is not called as realloc is",
        ),
        (
            r#"(func $calloc (param i64 i64) (result i64) (i64.const 0))"#,
            "calloc is left out: function 4 is not called as calloc is",
        ),
        (
            r#"(table 1 funcref) (type $r (func (param i32 i32) (result i32))) (func $realloc (param i32 i32) (result i32)
                (return_call_indirect (type $r) (local.get 0) (local.get 1) (i32.const 0)))"#,
            "realloc is left out: function 4 allocates by others",
        ),
    ] {
        let text = format!("(module {allocator} {other})");
        let place = Place::new();
        place.file("guest.wat", &text);
        let ran = place.run(["--sampler=off", "--memory", "--memory-rate=1", "-o", "x.wlprof", "guest.wat"]);
        assert!(ran.code == Some(0) && ran.stderr.contains(why), "{text}: {}", ran.stderr);
        assert_eq!(allocated_by(&place.recording("x.wlprof"), "keeps"), (2.0, 2000.0), "{text}");
    }
    let none = r#"(module (memory 1) (func (export "_start")) (func $malloc (param i64) (result i64) (i64.const 0))
        (func $realloc (param i32) (result i32) (i32.const 0)))"#;
    let place = Place::new();
    place.file("guest.wat", none);
    let said = place.run(["--sampler=off", "--memory", "guest.wat"]).stderr;
    let reasons =
        "function 1 is not called as malloc is: it has another signature; function 2 is not called as realloc is";
    assert!(said.contains(reasons), "{said}");
}
