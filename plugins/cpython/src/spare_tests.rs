//! Functions that are met for the first time where nothing may be allocated.

use crate::{
    layout::Layout,
    program::PythonProgram,
    synthetic::{Guest, NewFrame, RUNTIME, layouts},
    walker::PythonWalker,
    walker_tests::{CALL, EVAL, WASM, at, named, program, sorting},
};
use wlprof_plugin::{FrameSink, Program, SinkEntry, Truncation, Walker, WasmFrame};

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

/// Has a new walker of `program` meet a function of that name where nothing may be allocated.
fn meet(program: &PythonProgram, layout: Layout, name: &str) -> Result<String, Truncation> {
    let (mut walker, mut guest) = started(program, layout);
    let code = guest.code("/a/main.py", name, 7);
    guest.activate(&[at(code, 1)]);
    let (found, end) = walk(&mut walker, &guest, &[EVAL, CALL, EVAL], false);
    end.map(|()| named(&walker, &found)[0].clone())
}

#[test]
fn instances_share_room_but_no_functions() {
    for layout in layouts() {
        let program = program(&layout, &[RUNTIME]);
        // All that differs is far from where code objects are compared first.
        let names = ["one", "two"].map(|first| format!("{first}{}", "_".repeat(40)));
        for _ in 0..260 {
            for name in &names {
                assert_eq!(meet(&program, layout, name), Ok(format!("{name}:9")), "3.{}", layout.minor);
            }
        }
        assert_eq!(program.warnings(), [""; 0]);
        let found = (0..600).map(|number| meet(&program, layout, &format!("f{number}")));
        assert_eq!(found.filter(Result::is_ok).count(), 510);
        let [warning] = &program.warnings()[..] else { panic!("{:?}", program.warnings()) };
        assert!(warning.starts_with("too many functions were first met in memory.copy"), "{warning}");
        assert_eq!(meet(&program, layout, &names[1]), Ok(format!("{}:9", names[1])), "those that have room keep it");
    }
}
