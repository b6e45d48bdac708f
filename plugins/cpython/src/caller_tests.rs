//! Walks of guests made up whose innermost frame does not lead to its caller.

use crate::{
    layout::{Layout, Top},
    program::PythonProgram,
    prologue::Prologue,
    runtime::Runtime,
    state::HostCalls,
    synthetic::{Guest, RUNTIME, layouts},
    walker::PythonWalker,
    walker_tests::{CALL, EVAL, THROW, at, functions, stack, walker},
};
use wlprof_plugin::{Truncation, WasmFrame};

/// An instruction of the loop's beginning between the thread's link and the last store.
const LINKING: WasmFrame = WasmFrame { code_offset: 110, ..EVAL };

/// Those whose innermost frame may lead nowhere.
fn affected() -> impl Iterator<Item = Layout> {
    layouts().into_iter().filter(|layout| layout.thread.callers.is_some())
}

/// A walker of a loop that begins with a store with the offset of what the thread points to, the first of a run, and one
/// with that of anything else, the last.
fn linking_walker(layout: &Layout) -> PythonWalker {
    let (Top::Frame { at } | Top::CFrame { at, .. }) = layout.thread.top;
    let code =
        [&[0; 100][..], &[0, 0x41, 0, 0x41, 0, 0x36, 2, at as u8, 0x41, 0, 0x41, 0, 0x36, 2, 4, 3, 0x40]].concat();
    let prologue = Prologue::new(&code, 100..code.len() as u32);
    PythonProgram::new(
        Runtime::new(layout.minor, vec![RUNTIME], None, None),
        functions(),
        HostCalls::default(),
        prologue,
    )
    .new_walker()
}

#[test]
fn a_loop_that_links_its_frame_is_under_its_caller() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, last] = ["main", "last"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1), at(main, 2)]);
        let top = guest.activate(&[at(last, 0)]);
        for (code_offset, is_linking) in [(104, false), (105, true), (108, true), (112, true), (113, false)] {
            let wasm = [WasmFrame { code_offset, ..EVAL }, CALL, EVAL, CALL];
            let mut walker = linking_walker(&layout);
            let whole = ["last:2", "#1", "main:4", "main:3", "#3"].map(str::to_owned).to_vec();
            assert_eq!(stack(&mut walker, &guest.frozen, &wasm), (whole.clone(), Ok(())), "3.{}", layout.minor);
            // What is there of an earlier call, and of none.
            for left in [0, 64, RUNTIME + 0x20_0000] {
                let link = guest.word(top + layout.frame.previous);
                guest.set(top + layout.frame.previous, left);
                let walked = stack(&mut walker, &guest.frozen, &wasm);
                assert_eq!(walked == (whole.clone(), Ok(())), is_linking, "3.{} {code_offset}", layout.minor);
                guest.set(top + layout.frame.previous, link);
            }
        }
    }
}

#[test]
fn a_frame_that_an_earlier_loop_has_left_is_not_believed() {
    for layout in layouts().into_iter().filter(|layout| layout.thread.callers.is_none()) {
        let mut guest = Guest::new(layout);
        let [main, left] = ["main", "left"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1), at(main, 2)]);
        guest.activate(&[at(left, 3)]);
        for (code_offset, is_linking) in [(104, false), (105, true), (108, true), (112, true), (113, false)] {
            let wasm = [WasmFrame { code_offset, ..EVAL }, CALL, EVAL, CALL];
            let innermost = if is_linking { "#0" } else { "left:5" };
            let whole = [innermost, "#1", "main:4", "main:3", "#3"].map(str::to_owned).to_vec();
            let walked = stack(&mut linking_walker(&layout), &guest.frozen, &wasm);
            assert_eq!(walked, (whole, Ok(())), "3.{} {code_offset}", layout.minor);
        }
    }
}

#[test]
fn generators_that_an_exception_passes_are_in_the_activation_that_throws() {
    for layout in layouts() {
        let mut guest = Guest::new(layout);
        let [main, outer, inner] = ["main", "outer", "inner"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1)]);
        guest.activate(&[at(main, 2), at(main, 3)]);
        guest.throw_through(at(outer, 4));
        guest.throw_through(at(outer, 5));
        let mut walker = walker(&layout, &[RUNTIME]);
        let thrown = ["#0", "#1", "outer:7", "outer:6", "main:5", "main:4", "main:3"].map(str::to_owned).to_vec();
        let walked = stack(&mut walker, &guest.frozen, &[THROW, THROW, EVAL, EVAL]);
        assert_eq!(walked, (thrown.clone(), Ok(())), "3.{}", layout.minor);
        guest.activate(&[at(inner, 6)]);
        let mut whole = ["inner:8", "#1"].map(str::to_owned).to_vec();
        whole.extend(thrown[2..].iter().cloned());
        let walked = stack(&mut walker, &guest.frozen, &[EVAL, THROW, EVAL, EVAL]);
        assert_eq!(walked, (whole, Ok(())), "3.{}", layout.minor);
    }
}

#[test]
fn generators_that_an_exception_passes_are_not_left_out() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, outer, inner] = ["main", "outer", "inner"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1)]);
        guest.throw_through(at(outer, 2));
        let top = guest.activate(&[at(inner, 3)]);
        guest.set(top + layout.frame.previous, 64);
        let walked = stack(&mut linking_walker(&layout), &guest.frozen, &[LINKING, THROW, EVAL, CALL]);
        assert_eq!(walked, (vec!["inner:5".to_owned()], Err(Truncation::Inconsistent)));
    }
}

#[test]
fn a_function_that_has_returned_calls_nothing() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, holding, last] = ["main", "holding", "last"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1)]);
        // In the activation of its caller, and in one of its own, which then has no frame.
        for is_apart in [false, true] {
            let mut guest = guest.clone();
            let returned = if is_apart { guest.activate(&[at(holding, 2)]) } else { guest.call(at(holding, 2)) };
            guest.give_back(returned);
            let top = guest.activate(&[at(last, 0)]);
            guest.set(top + layout.frame.previous, 64);
            let (wasm, whole) = if is_apart {
                ([LINKING, CALL, EVAL, CALL, EVAL].to_vec(), ["last:2", "#1", "#2", "#3", "main:3"].to_vec())
            } else {
                ([LINKING, CALL, EVAL].to_vec(), ["last:2", "#1", "main:3"].to_vec())
            };
            let whole: Vec<String> = whole.into_iter().map(str::to_owned).collect();
            assert_eq!(stack(&mut linking_walker(&layout), &guest.frozen, &wasm), (whole, Ok(())), "{is_apart}");
            // Without locals it may as well run.
            guest.set(holding + layout.thread.callers.unwrap().local_count, 0);
            let walked = stack(&mut linking_walker(&layout), &guest.frozen, &wasm);
            assert_eq!(walked, (vec!["last:2".to_owned()], Err(Truncation::Inconsistent)));
        }
    }
}

#[test]
fn what_calls_init_for_a_class_is_not_shown() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, other, init] = ["main", "other", "C.__init__"].map(|name| guest.code("a.py", name, 1));
        let trampoline = guest.code("__init__", "__init__", 0);
        let unrelated = guest.activate(&[at(main, 1), at(other, 2)]);
        guest.activate(&[at(main, 3)]);
        let between = guest.call(at(trampoline, 1));
        let wasm = [EVAL, EVAL].to_vec();
        for unit in [0, 1] {
            let mut guest = guest.clone();
            guest.call(at(init, unit));
            let whole: Vec<String> =
                [&format!("C.__init__:{}", unit + 2), "main:5", "other:4", "main:3"].map(str::to_owned).to_vec();
            let mut walker = walker(&layout, &[RUNTIME]);
            assert_eq!(stack(&mut walker, &guest.frozen, &wasm), (whole.clone(), Ok(())), "3.{}", layout.minor);
            // What an earlier call has left there is not believed before the first instruction.
            guest.set(between + layout.frame.previous, unrelated);
            let is_whole = stack(&mut walker, &guest.frozen, &wasm) == (whole, Ok(()));
            assert_eq!(is_whole, unit == 0, "3.{}", layout.minor);
        }
    }
}

#[test]
fn the_first_of_all_frames_has_no_caller() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let main = guest.code("a.py", "main", 1);
        let top = guest.activate(&[at(main, 1)]);
        guest.set(top + layout.frame.previous, 64);
        let whole = ["main:3", "#1"].map(str::to_owned).to_vec();
        assert_eq!(stack(&mut linking_walker(&layout), &guest.frozen, &[LINKING, CALL]), (whole, Ok(())));
    }
}

#[test]
fn a_generator_that_yields_is_under_its_caller() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, outer, called, inner] = ["main", "outer", "called", "inner"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1)]);
        let mut walker = walker(&layout, &[RUNTIME]);
        let mut expected = vec!["main:3".to_owned(), "#1".to_owned()];
        // Under a function, under a generator, and under a function that a generator has called.
        for (code, is_generator, name) in
            [(outer, true, "outer"), (inner, true, "inner"), (called, false, "called"), (inner, true, "inner")]
        {
            expected.insert(0, format!("{name}:4"));
            if !is_generator {
                guest.call(at(code, 2));
                continue;
            }
            let frame = guest.resume(at(code, 2));
            let link = guest.word(frame + layout.frame.previous);
            guest.set(frame + layout.frame.previous, 0);
            assert_eq!(stack(&mut walker, &guest.frozen, &[EVAL, CALL]), (expected.clone(), Ok(())));
            // It has reset the list of those that run before it yields.
            let exceptions = guest.exceptions();
            let item = guest.word(exceptions);
            guest.set(exceptions, guest.word(item + 4));
            assert_eq!(stack(&mut walker, &guest.frozen, &[EVAL, CALL]), (expected.clone(), Ok(())));
            // In an activation of its own, that C code has begun.
            let mut apart = vec![expected[0].clone(), "#1".to_owned()];
            apart.extend(expected[1..expected.len() - 1].iter().cloned());
            apart.push("#3".to_owned());
            assert_eq!(stack(&mut walker, &guest.frozen, &[EVAL, CALL, EVAL, CALL]), (apart, Ok(())));
            guest.set(exceptions, item);
            guest.set(frame + layout.frame.previous, link);
        }
    }
}

#[test]
fn callers_are_found_in_the_chunk_before() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, last] = ["main", "last"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1), at(main, 2)]);
        guest.chunk(0x4000);
        let top = guest.activate(&[at(last, 3)]);
        guest.set(top + layout.frame.previous, 0);
        let whole = ["last:5", "#1", "main:4", "main:3", "#3"].map(str::to_owned).to_vec();
        let wasm = [LINKING, CALL, EVAL, CALL];
        assert_eq!(stack(&mut linking_walker(&layout), &guest.frozen, &wasm), (whole, Ok(())));
    }
}

#[test]
fn callers_that_are_not_found_leave_the_innermost_frame() {
    for layout in affected() {
        let mut guest = Guest::new(layout);
        let [main, inner] = ["main", "inner"].map(|name| guest.code("a.py", name, 1));
        guest.activate(&[at(main, 1)]);
        let frame = guest.resume(at(inner, 2));
        guest.set(frame + layout.frame.previous, 0);
        let (stack_at, exceptions) = (guest.data_stack(), guest.exceptions());
        let item = guest.word(exceptions);
        let chunk = guest.word(stack_at);
        // An endless stack, one of frames without a size, lists that are cut, endless or lead elsewhere.
        let damages = [
            vec![(stack_at + 4, !3)],
            vec![(stack_at + 4, chunk + 20)],
            vec![(stack_at, u32::MAX - 3)],
            vec![(main + layout.thread.callers.unwrap().frame_size, 0)],
            vec![(main + layout.thread.callers.unwrap().frame_size, u32::MAX)],
            vec![(exceptions, u32::MAX - 3)],
            vec![(item + 4, chunk + 12), (chunk + 16, chunk)],
        ];
        for damage in damages {
            let mut damaged = guest.clone();
            damage.iter().for_each(|&(address, word)| damaged.set(address, word));
            let mut walker = walker(&layout, &[RUNTIME]);
            let _ = stack(&mut walker, &damaged.frozen, &[EVAL, CALL]);
            damaged.frozen.reset_counts();
            let (frames, end) = stack(&mut walker, &damaged.frozen, &[EVAL, CALL]);
            assert_eq!(frames, ["inner:4"], "{damage:x?}");
            assert!(matches!(end, Err(Truncation::Inconsistent | Truncation::BadPointer)), "{damage:x?}: {end:?}");
            assert!(damaged.frozen.reads.get() < 3000, "{damage:x?}: {}", damaged.frozen.reads.get());
        }
    }
}
