//! Walks of real guests, CPython 3.11.2 and 3.13.5 that ran `stacks.py`, against the stacks that they printed
//! themselves at the same moment.

#[path = "replay/mod.rs"]
mod replay;

use replay::{Capture, Replay};
use wlprof_cpython::{Python, PythonWalker, categorize};
use wlprof_plugin::testing::{Moment, check_walkers};
use wlprof_plugin::{
    Category, Detection, FrameKey, FrameSink, Language, Program, SinkEntry, SourceFrame, Truncation, Walker,
    testing::TestModule,
};

fn replays() -> impl Iterator<Item = (Replay, TestModule)> {
    ["3.11", "3.13"].into_iter().map(|release| {
        let path = format!("{}/../../testdata/python/replay/{release}.replay", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let replay = Replay::read(&bytes);
        let module = replay.module();
        (replay, module)
    })
}

/// An entry of a stack with its name: Python's or the wasm function's.
enum Named {
    Python(SourceFrame),
    Wasm(String),
}

fn walk(walker: &mut PythonWalker, replay: &Replay, capture: &Capture) -> (Vec<Named>, Result<(), Truncation>) {
    let guest = capture.guest.replay();
    let mut out = FrameSink::new();
    let end = walker.walk(&guest, &capture.wasm, &mut out);
    assert_eq!(guest.missed.get(), 0, "{}: more is read than was captured, so capture again", capture.name);
    let entries = out.entries().map(|entry| match entry {
        SinkEntry::Own(key) => {
            let mut frames = Vec::new();
            walker.program().symbolize(FrameKey::Own(key), &mut frames);
            Named::Python(frames.pop().expect("a frame has a name"))
        }
        SinkEntry::Wasm(index) => Named::Wasm(replay.functions[&capture.wasm[index].function].clone()),
        SinkEntry::Elided => panic!("nothing is left out"),
    });
    (entries.collect(), end)
}

fn check(walker: &mut PythonWalker, replay: &Replay, capture: &Capture) {
    let (entries, end) = walk(walker, replay, capture);
    assert_eq!(end, Ok(()), "{}", capture.name);
    let found: Vec<&SourceFrame> =
        entries.iter().filter_map(|entry| if let Named::Python(frame) = entry { Some(frame) } else { None }).collect();
    assert_eq!(found.len(), capture.expected.len(), "{}", capture.name);
    for (expected, frame) in capture.expected.iter().zip(found) {
        assert!(expected.is(frame), "{}: {expected:?} is {frame:?}", capture.name);
    }
}

#[test]
fn stacks_are_those_that_python_printed() {
    for (replay, module) in replays() {
        assert!(replay.captures.len() > 90);
        for capture in &replay.captures {
            check(&mut Python.attach_program(&module).unwrap().new_walker(), &replay, capture);
        }
        // Each leaves behind what the next one may take for its own.
        let mut walker = Python.attach_program(&module).unwrap().new_walker();
        for capture in replay.captures.iter().chain(replay.captures.iter().rev()) {
            check(&mut walker, &replay, capture);
        }
        assert_eq!(walker.program().warnings(), [""; 0]);
    }
}

#[test]
fn c_code_stands_below_the_python_code_that_called_it() {
    for (replay, module) in replays() {
        for (capture, caller, c, called) in [
            ("sort key", "callbacks", "list_sort_impl", "callbacks.<locals>.<lambda>"),
            ("re.sub", "sub", "pattern_subx", "callbacks.<locals>.<lambda>"),
            ("json hook", "JSONDecoder.raw_decode", "scanner_call", "callbacks.<locals>.<lambda>"),
            ("reduce", "callbacks", "functools_reduce", "callbacks.<locals>.<lambda>"),
            ("map", "callbacks", "map_next", "callbacks.<locals>.<lambda>"),
            ("__getattr__ missing", "objects", "slot_tp_getattr_hook", "Thing.__getattr__"),
            ("gc callback start", "objects", "gc_collect", "objects.<locals>.<lambda>"),
            ("exec", "compiled", "builtin_exec", "<module>"),
        ] {
            let capture = replay.captures.iter().find(|found| found.name == capture).expect(capture);
            let (entries, _) = walk(&mut Python.attach_program(&module).unwrap().new_walker(), &replay, capture);
            let python = |name: &str| {
                let is_it = |entry: &Named| matches!(entry, Named::Python(frame) if frame.function == name);
                entries.iter().position(is_it).unwrap_or_else(|| panic!("{}: no {name}", capture.name))
            };
            let between = &entries[python(called) + 1..python(caller)];
            let is_c = |entry: &Named| matches!(entry, Named::Wasm(name) if name.contains(c));
            assert!(between.iter().any(is_c), "{}: no {c}", capture.name);
            let has_python = between.iter().any(|entry| matches!(entry, Named::Python(_)));
            assert!(!has_python, "{}: C code called it", capture.name);
        }
    }
}

#[test]
fn the_interpreter_is_told_from_what_it_runs() {
    for (replay, _) in replays() {
        let of = |name: &str| categorize(&SourceFrame { function: name.to_owned(), ..SourceFrame::default() });
        for name in
            ["_PyEval_EvalFrameDefault", "_PyEval_Vector", "PyObject_Vectorcall", "_start", "_PyFunction_Vectorcall"]
        {
            assert!(replay.functions.values().any(|function| function == name), "{name}");
            assert_eq!(of(name), Some(Category::Interpreter), "{name}");
        }
        for name in
            replay.functions.values().filter(|name| name.starts_with("pattern_") || name.starts_with("list_sort"))
        {
            assert_ne!(of(name), Some(Category::Interpreter), "{name}");
        }
    }
}

#[test]
fn without_names_python_frames_are_all_there_is() {
    for (replay, mut module) in replays() {
        module.names.clear();
        assert!(matches!(Python.detect(&module), Detection::Yes(_)));
        let mut walker = Python.attach_program(&module).unwrap().new_walker();
        assert!(!walker.program().merges());
        for capture in &replay.captures {
            check(&mut walker, &replay, capture);
        }
        assert!(walker.program().warnings()[0].contains("without function names"));
    }
}

#[test]
fn walkers_on_two_threads_give_what_each_gives_alone() {
    for (replay, module) in replays() {
        let captures: Vec<_> = replay.captures.iter().collect();
        for pair in captures.chunks_exact(2).step_by(captures.len().div_ceil(8)) {
            let moments =
                [pair[0], pair[1]].map(|capture| Moment { guest: capture.guest.replay(), wasm: capture.wasm.clone() });
            check_walkers(|| Python.attach(&module).unwrap(), &moments);
        }
    }
}
