//! Functions that are met for the first time where nothing may be allocated.

use crate::{
    layout::Layout,
    program::PythonProgram,
    synthetic::{Guest, NewFrame, RUNTIME, layouts},
    walker::PythonWalker,
    walker_tests::{CALL, EVAL, WASM, at, named, program, sorting},
};
use wlprof_plugin::{FrameKey, FrameSink, Program, SinkEntry, Truncation, Walker, WasmFrame};

fn walk(
    walker: &mut PythonWalker,
    guest: &Guest,
    wasm: &[WasmFrame],
    may_allocate: bool,
) -> (FrameSink, Result<(), Truncation>) {
    let mut out = FrameSink::new();
    out.set_may_allocate(may_allocate);
    let end = walker.walk(&guest.frozen, wasm, &mut out);
    (out, end)
}

/// A guest that runs a module, and a walker that has met only that.
fn started(program: &PythonProgram, layout: Layout) -> (PythonWalker, Guest) {
    let mut walker = program.new_walker();
    let mut guest = Guest::new(layout);
    let main = guest.code("/a/main.py", "<module>", 1);
    guest.activate(&[at(main, 1)]);
    assert_eq!(walk(&mut walker, &guest, &[EVAL], true).1, Ok(()));
    (walker, guest)
}

#[test]
fn functions_met_where_nothing_may_be_allocated_have_their_names() {
    for layout in layouts() {
        let (mut walker, mut guest) = started(&program(&layout, &[RUNTIME]), layout);
        // Three functions that no walk has met.
        let sorting = sorting(layout);
        let (first, end) = walk(&mut walker, &sorting, &WASM, false);
        assert_eq!(end, Ok(()), "3.{}", layout.minor);
        let (again, _) = walk(&mut walker, &sorting, &WASM, false);
        assert!(first.entries().eq(again.entries()), "the same frames have the same keys");

        // Where what was met first is no more.
        guest.frozen.memory.fill(0);
        let names = named(&walker, &first);
        let (kept, end) = walk(&mut walker, &sorting, &WASM, true);
        assert_eq!((named(&walker, &kept), end), (names.clone(), Ok(())));
        assert!(names.contains(&"outer:11".to_owned()) && names.contains(&"Ключ.key:22".to_owned()), "{names:?}");

        // Walks of both kinds give it the same key.
        let (after, _) = walk(&mut walker, &sorting, &WASM, false);
        assert!(kept.entries().eq(after.entries()) && first.entries().eq(kept.entries()));
        let own = |sink: &FrameSink| sink.entries().filter(|entry| matches!(entry, SinkEntry::Own(_))).count();
        assert_eq!(own(&first), own(&kept));
    }
}

#[test]
fn there_is_room_for_so_many_until_a_walk_that_may_allocate() {
    for layout in layouts() {
        let (mut walker, mut guest) = started(&program(&layout, &[RUNTIME]), layout);
        let mut wasm = vec![EVAL];
        let mut met = 0;
        let mut call = |guest: &mut Guest, wasm: &mut Vec<WasmFrame>| {
            met += 1;
            let code = guest.code("/a/more.py", &format!("f{met}"), met);
            guest.activate(&[NewFrame { code, unit: Some(1) }]);
            wasm.splice(0..0, [EVAL, CALL]);
        };
        for _ in 0..16 {
            call(&mut guest, &mut wasm);
            assert_eq!(walk(&mut walker, &guest, &wasm, false).1, Ok(()));
        }
        call(&mut guest, &mut wasm);
        assert_eq!(walk(&mut walker, &guest, &wasm, false).1, Err(Truncation::WouldAllocate));
        assert_eq!(walk(&mut walker, &guest, &wasm, true).1, Ok(()));
        assert_eq!(walk(&mut walker, &guest, &wasm, false).1, Ok(()));
        call(&mut guest, &mut wasm);
        let (found, end) = walk(&mut walker, &guest, &wasm, false);
        assert_eq!((named(&walker, &found)[0].as_str(), end), ("f18:20", Ok(())));
    }
}

#[test]
fn what_finds_no_room_is_met_again_later() {
    for layout in layouts() {
        let (mut walker, mut guest) = started(&program(&layout, &[RUNTIME]), layout);
        let code = guest.code("/a/main.py", &"n".repeat(600), 1);
        guest.activate(&[at(code, 1)]);
        let wasm = [EVAL, CALL, EVAL];
        for _ in 0..100 {
            assert_eq!(walk(&mut walker, &guest, &wasm, false).1, Err(Truncation::WouldAllocate));
        }
        let (found, end) = walk(&mut walker, &guest, &wasm, true);
        assert_eq!((named(&walker, &found)[0].len(), end), ("n".repeat(600).len() + 2, Ok(())));
    }
}

/// What makes a function another one.
#[derive(Clone, Copy)]
struct Function<'a> {
    file: &'a str,
    name: &'a str,
    first_line: u32,
    /// Lines that it goes on by at its sixtieth code unit.
    step: u8,
}

const MAIN: Function<'_> = Function { file: "/a/main.py", name: "main", first_line: 7, step: 1 };

/// Has a new walker of `program`, of an instance that has all functions at one address, meet one where nothing may be allocated.
fn meet(program: &PythonProgram, layout: Layout, function: Function<'_>) -> Result<String, Truncation> {
    let (mut walker, mut guest) = started(program, layout);
    let code = guest.code(function.file, function.name, function.first_line);
    let word = (code + layout.code.line_table) as usize;
    let table = u32::from_le_bytes(guest.frozen.memory[word..][..4].try_into().unwrap());
    guest.frozen.memory[(table + layout.code.bytes_data) as usize + 2 * 60 + 1] = 2 * function.step;
    guest.activate(&[at(code, 80)]);
    let (found, end) = walk(&mut walker, &guest, &[EVAL, CALL, EVAL], false);
    let Some(SinkEntry::Own(key)) = found.entries().next() else { return end.map(|()| String::new()) };
    let mut frames = Vec::new();
    program.symbolize(FrameKey::Own(key), &mut frames);
    let frame = frames.pop().unwrap();
    end.map(|()| format!("{} {}:{}", frame.file.unwrap(), frame.function, frame.line.unwrap()))
}

#[test]
fn instances_share_room_but_no_functions() {
    for layout in layouts() {
        let program = program(&layout, &[RUNTIME]);
        // Each differs in one thing, which is far from where code objects are compared first, or a number.
        let functions = [
            MAIN,
            Function { file: "/srv/one/handler/main.py", ..MAIN },
            Function { file: "/srv/two/handler/main.py", ..MAIN },
            Function { name: "one of many functions", ..MAIN },
            Function { name: "two of many functions", ..MAIN },
            Function { first_line: 8, ..MAIN },
            Function { step: 5, ..MAIN },
        ];
        let met = |function: Function<'_>| {
            let line = function.first_line + 80 + u32::from(function.step);
            Ok(format!("{} {}:{line}", function.file, function.name))
        };
        for _ in 0..80 {
            for function in functions {
                assert_eq!(meet(&program, layout, function), met(function), "3.{}", layout.minor);
            }
        }
        assert_eq!(program.warnings(), [""; 0]);
        let found = (0..600).map(|number| meet(&program, layout, Function { name: &format!("f{number}"), ..MAIN }));
        assert_eq!(found.filter(Result::is_ok).count(), 512 - functions.len());
        let [warning] = &program.warnings()[..] else { panic!("{:?}", program.warnings()) };
        assert!(warning.starts_with("too many functions were first met in memory.copy"), "{warning}");
        assert_eq!(meet(&program, layout, functions[2]), met(functions[2]), "those that have room keep it");
    }
}
