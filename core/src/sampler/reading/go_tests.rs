//! Proves Go's stacks against what Go itself says of them, in guests of every release, with and without symbols.
//!
//! The guests print their own stacks, as `runtime.Callers` and `runtime.Stack` have them, in one write; what is read when
//! that write is about to happen has to be the same, function, file and line, inlined calls among them.

use super::self_report_tests::{Pair, WithThreads, fixture, run};
use wasmtime_wasi::WasiCtxBuilder;
use wlprof_plugin::{Category, Label, Program, SourceFrame};
use wlprof_walk::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};

/// `function file:line`, as the guests print frames.
fn line(frame: &SourceFrame) -> String {
    let (file, line) = (frame.file.as_deref().unwrap_or("?"), frame.line.unwrap_or(0));
    format!("{} {file}:{line}", frame.function)
}

/// Whether a traceback of Go's shows a function: of the runtime's own only those that programs call.
fn is_shown(function: &str) -> bool {
    let of_runtime = function.strip_prefix("runtime.");
    function.contains('.')
        && of_runtime.is_none_or(|name| name.starts_with(|c: char| c.is_ascii_uppercase()) || name == "panic")
}

/// Go leaves wrappers that the compiler made out of its tracebacks, and these (`cmd/internal/objabi/funcid.go`).
fn is_wrapper(frame: &SourceFrame) -> bool {
    const TREATED_AS_WRAPPERS: [&str; 3] =
        ["runtime.deferreturn", "runtime.runOpenDeferFrame", "runtime.deferCallSave"];
    let function = frame.function.as_str();
    TREATED_AS_WRAPPERS.contains(&function) || frame.category == Category::Runtime && !function.starts_with("runtime.")
}

/// Compares the running goroutine's stack. Gives the number of frames.
fn compare_stack(pair: &Pair, program: &dyn Program, what: &str) -> usize {
    let mut said = pair.said.lines();
    let head = said.next().unwrap();
    let (name, goroutine) = head.trim_start_matches("@ ").split_once(" goroutine ").unwrap();
    let said: Vec<&str> = said.collect();
    let mut frames = Vec::new();
    assert_eq!(pair.seen.truncation, None, "{what}: {name}");
    for &key in &pair.seen.frames {
        program.symbolize(key, &mut frames);
    }
    let checkpoint = frames.iter().position(|frame| frame.function == "main.checkpoint").unwrap();
    let seen: Vec<String> = frames[checkpoint + 1..].iter().filter(|frame| !is_wrapper(frame)).map(line).collect();
    assert_eq!(seen, said, "{what}: {name}");
    let mut labels = Vec::new();
    program.labels(pair.seen.labels[0], &mut labels);
    assert_eq!(labels[0], Label { name: "goroutine".into(), value: goroutine.into() }, "{what}: {name}");
    let labels: Vec<String> = labels[1..].iter().map(|label| format!("{}={}", label.name, label.value)).collect();
    assert_eq!(labels.join(" "), if name == "labelled" { "request=42 user=ada" } else { "" }, "{what}: {name}");
    said.len()
}

/// Writes a goroutine as `runtime.Stack` does, without the arguments and pc offsets that only it knows.
fn as_go_writes_it(thread: &DumpedThread, stacks: &Dump) -> String {
    let mut text = format!("{} [{}]:\n", thread.name, thread.state);
    let source = |frame: &DumpedFrameId| match &stacks.frames[*frame as usize] {
        DumpedFrame::Source(frames) => frames.as_slice(),
        DumpedFrame::Unnamed(origin) => panic!("{origin:?}"),
    };
    let place = |frame: &SourceFrame| format!("\t{}:{}\n", frame.file.as_deref().unwrap(), frame.line.unwrap());
    let frames: Vec<&SourceFrame> = thread.frames.iter().flat_map(source).collect();
    let is_shown = |frame: &SourceFrame| is_shown(&frame.function) && !is_wrapper(frame);
    // Rather than nothing Go shows everything.
    let none = !frames.iter().any(|frame| is_shown(frame));
    for frame in frames.into_iter().filter(|frame| none || is_shown(frame)) {
        text += &format!("{}\n{}", frame.function, place(frame));
    }
    if let Some((creator, frame)) = &thread.creator {
        let frame = source(frame).last().unwrap();
        text += &format!("created by {} in {creator}\n{}", frame.function, place(frame));
    }
    text
}

/// What `runtime.Stack` wrote of each goroutine, without the arguments and the pc offsets.
fn goroutines_said(text: &str) -> Vec<String> {
    let goroutines = text.trim().split("\n\n");
    goroutines
        .map(|goroutine| {
            let lines = goroutine.lines().map(|line| match line {
                // Times that goroutines have waited for are in minutes and so not here.
                head if head.starts_with("goroutine ") => head.to_owned(),
                place if place.starts_with('\t') => place.split(" +0x").next().unwrap().to_owned(),
                creator if creator.starts_with("created by ") => creator.to_owned(),
                call => call[..call.rfind('(').unwrap_or(call.len())].to_owned(),
            });
            lines.map(|line| line + "\n").collect()
        })
        .collect()
}

/// Compares all goroutines but the running one, which has gone on to print since. Gives their number.
fn compare_goroutines(pair: &Pair, what: &str) -> usize {
    let said = goroutines_said(pair.said.trim_start_matches("@@ all\n"));
    let stacks = &pair.seen.stacks;
    let seen: Vec<String> = stacks.threads.iter().map(|thread| as_go_writes_it(thread, stacks)).collect();
    for said in &said[1..] {
        let name = said.split_once(" [").unwrap().0;
        let seen = seen.iter().find(|seen| seen.split_once(" [").unwrap().0 == name);
        let seen = seen.unwrap_or_else(|| panic!("{what}: no {name} in {:?}", stacks.threads));
        let elision = said.lines().find(|line| line.ends_with("frames elided..."));
        match elision.and_then(|elision| said.split_once(elision)) {
            // Of deep stacks Go shows the innermost fifty frames and the outermost fifty.
            Some((inner, outer)) => {
                assert!(seen.starts_with(inner) && seen.ends_with(outer.trim_start()), "{what}: {seen} {said}");
            }
            None => assert_eq!(seen, said, "{what}"),
        }
    }
    // Go leaves out the runtime's own goroutines.
    assert!(seen.len() >= said.len(), "{what}: {} of {} goroutines", seen.len(), said.len());
    said.len() - 1
}

/// Compares the stacks and the goroutines of the test guest that this release of Go made.
fn compare_release(release: &str) {
    let name = format!("go-stacks-{release}.wasm");
    let (pairs, program) =
        run(&fixture(&name), WasiCtxBuilder::new().args(&["guest"]), &wlprof_go::Go, WithThreads::Yes);
    let (lists, stacks): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.said.starts_with("@@"));
    let frames: usize = stacks.iter().map(|pair| compare_stack(pair, &*program, &name)).sum();
    assert!(stacks.len() >= 20 && frames > 1000, "{name}: {} stacks, {frames} frames", stacks.len());
    assert_eq!(lists.len(), 1, "{name}");
    let goroutines = compare_goroutines(lists[0], &name);
    assert!(goroutines >= 15, "{name}: {goroutines}");
    println!("{name}: {} stacks, {frames} frames, {goroutines} other goroutines", stacks.len());
}

#[test]
fn stacks_are_what_go_says_they_are() {
    ["1.21", "1.27-stripped"].into_iter().for_each(compare_release);
}

#[test]
fn of_every_other_release_stacks_are_what_go_says_they_are() {
    ["1.21-stripped", "1.27"].into_iter().for_each(compare_release);
    for minor in 22..=26 {
        ["", "-stripped"].into_iter().for_each(|stripped| compare_release(&format!("1.{minor}{stripped}")));
    }
}
