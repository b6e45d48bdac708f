//! Walks of guests made up, of every release: what comes out, half-made and strange stacks too.

use crate::{
    functions::Functions,
    layout::{Layout, Top},
    program::PythonProgram,
    prologue::Prologue,
    runtime::Runtime,
    state::HostCalls,
    synthetic::{Guest, NewFrame, RUNTIME, layouts},
    walker::PythonWalker,
};
use wlprof_plugin::{
    FrameKey, FrameSink, GuestMemory, Program, SinkEntry, Truncation, Walker, WasmFrame, testing::TestModule,
};

pub(crate) const EVAL: WasmFrame = WasmFrame::attached(0, 100);
const SORT: WasmFrame = WasmFrame::attached(1, 200);
pub(crate) const CALL: WasmFrame = WasmFrame::attached(2, 300);

/// Throws an exception into a generator.
pub(crate) const THROW: WasmFrame = WasmFrame::attached(3, 400);

/// Four functions and nothing else.
pub(crate) fn functions() -> Functions {
    let names =
        ["_PyEval_EvalFrameDefault", "list_sort_impl", "_PyFunction_Vectorcall", "_gen_throw"].map(str::to_owned);
    let bodies = (1..5).map(|index| 100 * index..100 * index + 50).collect();
    Functions::new(&TestModule { bodies, names: (0..).zip(names).collect(), ..TestModule::default() }, None)
}

pub(crate) fn program(layout: &Layout, candidates: &[u32]) -> PythonProgram {
    let runtime = Runtime::new(layout.minor, candidates.to_vec(), None, None);
    PythonProgram::new(runtime, functions(), HostCalls::default(), Prologue::default())
}

pub(crate) fn walker(layout: &Layout, candidates: &[u32]) -> PythonWalker {
    program(layout, candidates).new_walker()
}

/// A stack in words, leaf first: Python frames as `name:line`, wasm frames as `#index`.
pub(crate) fn stack(
    walker: &mut PythonWalker,
    guest: &dyn GuestMemory,
    wasm: &[WasmFrame],
) -> (Vec<String>, Result<(), Truncation>) {
    let mut out = FrameSink::new();
    let end = walker.walk(guest, wasm, &mut out);
    (named(walker, &out), end)
}

/// The same of a task that is suspended, one at each call.
pub(crate) fn suspended(walker: &mut PythonWalker, guest: &dyn GuestMemory) -> (Vec<String>, Result<(), Truncation>) {
    let mut out = FrameSink::new();
    let end = walker.walk_suspended(guest, &mut out);
    (named(walker, &out), end)
}

pub(crate) fn named(walker: &PythonWalker, out: &FrameSink) -> Vec<String> {
    let mut named = |entry| match entry {
        SinkEntry::Wasm(index) => format!("#{index}"),
        SinkEntry::Elided => panic!("nothing is left out"),
        SinkEntry::Own(key) => {
            let mut frames = Vec::new();
            walker.program().symbolize(FrameKey::Own(key), &mut frames);
            let frame = frames.pop().unwrap_or_default();
            format!("{}:{}", frame.function, frame.line.unwrap_or(0))
        }
    };
    out.entries().map(&mut named).collect()
}

pub(crate) fn at(code: u32, unit: u32) -> NewFrame {
    NewFrame { code, unit: Some(unit) }
}

/// `main` calls `outer`, which sorts with `key`, which calls `inner`.
pub(crate) fn sorting(layout: Layout) -> Guest {
    let mut guest = Guest::new(layout);
    let [main, outer, key, inner] = [("<module>", 1), ("outer", 10), ("Ключ.key", 20), ("𐐷.inner", 30)]
        .map(|(name, line)| guest.code("/a/é.py", name, line));
    guest.activate(&[at(main, 3), at(outer, 0)]);
    guest.activate(&[at(key, 1), NewFrame { code: inner, unit: None }]);
    guest
}

pub(crate) const WASM: [WasmFrame; 6] = [EVAL, CALL, SORT, EVAL, CALL, CALL];
const SORTING: [&str; 8] = ["𐐷.inner:30", "Ключ.key:22", "#1", "#2", "outer:11", "<module>:5", "#4", "#5"];

#[test]
fn frames_stand_where_the_loops_stood() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut walker = walker(&layout, &[RUNTIME]);
        let mut expected: Vec<&str> = SORTING.to_vec();
        if !layout.frame.instruction_is_previous {
            // There, a function that has not begun is at its first instruction.
            expected[0] = "𐐷.inner:31";
        }
        assert_eq!(stack(&mut walker, &guest.frozen, &WASM).0, expected, "3.{}", layout.minor);
        assert_eq!(
            stack(&mut walker, &guest.frozen, &WASM),
            (expected.iter().map(|s| (*s).to_owned()).collect(), Ok(()))
        );
        // C code that the innermost function calls.
        let called = [&[SORT, CALL], &WASM[..]].concat();
        assert_eq!(stack(&mut walker, &guest.frozen, &called).0[..3], ["#0", "#1", expected[0]]);
    }
}

#[test]
fn steady_walks_are_short() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut walker = walker(&layout, &[RUNTIME]);
        let _ = stack(&mut walker, &guest.frozen, &WASM);
        guest.frozen.reset_counts();
        let _ = stack(&mut walker, &guest.frozen, &WASM);
        let (reads, bytes) = (guest.frozen.reads.get(), guest.frozen.bytes_read.get());
        assert!(reads < 50 && bytes < 2000, "{reads} reads, {bytes} bytes");
    }
}

#[test]
fn a_loop_that_begins_or_ends_has_no_frame() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut walker = walker(&layout, &[RUNTIME]);
        let (frames, end) = stack(&mut walker, &guest.frozen, &[&[EVAL, CALL], &WASM[..]].concat());
        assert_eq!((&frames[0], &frames[1], end), (&"#0".to_owned(), &"#1".to_owned(), Ok(())));
        assert_eq!(frames.len(), 10);
    }
}

#[test]
fn stacks_that_do_not_fit_are_shown_side_by_side() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut walker = walker(&layout, &[RUNTIME]);
        for wasm in [&[SORT, EVAL, CALL][..], &[SORT, EVAL, EVAL, EVAL, EVAL]] {
            let (frames, end) = stack(&mut walker, &guest.frozen, wasm);
            assert_eq!(end, Err(Truncation::Inconsistent));
            assert_eq!((frames.len(), &frames[0]), (5, &"#0".to_owned()));
        }
        let (frames, end) = stack(&mut walker, &guest.frozen, &[]);
        assert_eq!((frames.len(), end), (4, Ok(())), "nothing is known of the wasm stack");
    }
}

#[test]
fn a_cframe_without_its_frame_is_passed_over() {
    for layout in layouts() {
        let Top::CFrame { at: _, current, previous } = layout.thread.top else { continue };
        for junk in [0, 4, RUNTIME, u32::MAX - 3, 0x11_0000] {
            let mut guest = sorting(layout);
            let cframe = guest.allocate(12);
            guest.set(cframe + current, junk);
            let slot = guest.top_slot();
            guest.set(cframe + previous, guest.word(slot));
            guest.set(slot, cframe);
            let mut walker = walker(&layout, &[RUNTIME]);
            let wasm = [&[EVAL, CALL], &WASM[..]].concat();
            let (frames, end) = stack(&mut walker, &guest.frozen, &wasm);
            assert_eq!((frames.len(), end), (10, Ok(())), "3.{} {junk:#x}", layout.minor);
            // What is left there of an earlier call.
            guest.set(cframe + current, guest.word(guest.word(cframe + previous) + current));
            assert_eq!(stack(&mut walker, &guest.frozen, &wasm), (frames, end));
        }
    }
}

#[test]
fn a_frame_without_code_is_left_out_only_if_innermost() {
    for layout in layouts() {
        let mut guest = sorting(layout);
        let top = guest.top();
        guest.set(top + layout.frame.code, 64);
        let mut walker = walker(&layout, &[RUNTIME]);
        assert_eq!(
            stack(&mut walker, &guest.frozen, &WASM),
            (SORTING[1..].iter().map(|s| (*s).to_owned()).collect(), Ok(()))
        );
        let next = guest.word(top + layout.frame.previous);
        guest.set(next + layout.frame.code, 64);
        let called = [&[SORT, CALL], &WASM[..]].concat();
        assert_eq!(stack(&mut walker, &guest.frozen, &called).1, Err(Truncation::Inconsistent));
    }
}

#[test]
fn cycles_and_endless_stacks_end() {
    for layout in layouts() {
        let mut guest = Guest::new(layout);
        let code = guest.code("a.py", "f", 1);
        guest.activate(&vec![at(code, 1); 3000]);
        let mut walker = walker(&layout, &[RUNTIME]);
        let (frames, end) = stack(&mut walker, &guest.frozen, &[EVAL]);
        assert_eq!((frames.len(), end), (FrameSink::CAPACITY, Err(Truncation::TooDeep)));

        let mut guest = Guest::new(layout);
        let code = guest.code("a.py", "f", 1);
        let top = guest.activate(&[at(code, 1); 5]);
        let fourth = guest
            .word(guest.word(guest.word(top + layout.frame.previous) + layout.frame.previous) + layout.frame.previous);
        guest.set(fourth + layout.frame.previous, top);
        assert_eq!(stack(&mut walker, &guest.frozen, &[EVAL]).1, Err(Truncation::Cycle));
    }
}

#[test]
fn another_function_at_the_same_address_is_another_function() {
    for layout in layouts() {
        let mut guest = Guest::new(layout);
        let code = guest.code("<made 1>", "f", 1);
        guest.activate(&[at(code, 1)]);
        let mut walker = walker(&layout, &[RUNTIME]);
        let mut out = FrameSink::new();
        assert_eq!(walker.walk(&guest.frozen, &[EVAL], &mut out), Ok(()));
        let first = out.entries().next().unwrap();
        // The name of the file, of equal length at the same address, is all that changes.
        let file = guest.word(code + layout.code.file_name) + layout.text.ascii;
        guest.frozen.memory[file as usize + 6] = b'2';
        out.clear();
        assert_eq!(walker.walk(&guest.frozen, &[EVAL], &mut out), Ok(()));
        let second = out.entries().next().unwrap();
        assert_ne!(first, second);
        // And the instructions' lines.
        let table = guest.word(code + layout.code.line_table);
        guest.frozen.memory[table as usize + 19] = 4;
        out.clear();
        assert_eq!(walker.walk(&guest.frozen, &[EVAL], &mut out), Ok(()));
        let third = out.entries().next().unwrap();
        // The first is named when memory has long been used for something else.
        guest.frozen.memory.fill(0xaa);
        let mut files = Vec::new();
        for entry in [first, second, third] {
            let SinkEntry::Own(key) = entry else { panic!("a wasm frame") };
            let mut frames = Vec::new();
            walker.program().symbolize(FrameKey::Own(key), &mut frames);
            files.push((frames[0].file.clone().unwrap(), frames[0].line.unwrap()));
        }
        let file = |number: u32| format!("<made {number}>");
        assert_eq!(files, [(file(1), 3), (file(2), 3), (file(2), 4)]);
    }
}

#[test]
fn the_runtime_is_found_without_being_told() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut walker = walker(&layout, &[]);
        let mut most = 0;
        let found = (0..200).find(|_| {
            guest.frozen.reset_counts();
            let end = stack(&mut walker, &guest.frozen, &WASM).1;
            most = most.max(guest.frozen.bytes_read.get());
            end == Ok(())
        });
        assert!(found.is_some(), "3.{}", layout.minor);
        assert!(most < 300 << 10, "a single walk read {most} bytes");
        assert_eq!(walker.runtime(), Some((layout.minor, RUNTIME)));
    }
}

#[test]
fn an_interpreter_that_starts_after_the_first_scan_is_found() {
    for layout in layouts() {
        let guest = sorting(layout);
        let mut before = Guest::new(layout);
        before.frozen.memory = vec![0; guest.frozen.memory.len()];
        // Static data may end anywhere.
        for cut in 0..9 {
            let statics = 0..guest.frozen.memory.len() as u64 - cut;
            let runtime = Runtime::new(layout.minor, Vec::new(), None, Some(statics));
            let mut walker =
                PythonProgram::new(runtime, functions(), HostCalls::default(), Prologue::default()).new_walker();
            for _ in 0..100 {
                assert_eq!(stack(&mut walker, &before.frozen, &WASM).1, Err(Truncation::NoStack));
            }
            let found = (0..1000).any(|_| stack(&mut walker, &guest.frozen, &WASM).1 == Ok(()));
            assert!(found, "3.{}, {cut} bytes short", layout.minor);
        }
    }
}

#[test]
fn candidates_that_are_wrong_do_not_hide_the_runtime() {
    for layout in layouts() {
        let guest = sorting(layout);
        // Where everything is zero, where nothing is, and where a table of location is.
        let mut walker = walker(&layout, &[0x700, u32::MAX, 0x11_0040]);
        let found = (0..1000).any(|_| stack(&mut walker, &guest.frozen, &WASM).1 == Ok(()));
        assert!(found, "3.{}", layout.minor);
    }
}

#[test]
fn scans_that_find_nothing_become_rare() {
    let layout = layouts()[0];
    let mut guest = Guest::new(layout);
    guest.frozen.memory = vec![0; 1 << 20];
    let mut walker = walker(&layout, &[]);
    for _ in 0..10_000 {
        assert_eq!(stack(&mut walker, &guest.frozen, &WASM).1, Err(Truncation::NoStack));
    }
    let (reads, bytes) = (guest.frozen.reads.get(), guest.frozen.bytes_read.get());
    assert!(reads < 200 && bytes < 16 << 20, "{reads} {bytes}");
    assert_eq!(walker.program().warnings(), ["no running Python interpreter was found in memory"]);
}
