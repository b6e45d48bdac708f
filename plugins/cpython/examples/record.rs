//! Makes a replay file of captured guests: `record MODULE.wasm DUMPS OUT.replay`.
//!
//! DUMPS is a folder with, for each capture N from 0 on, `N.memory`, all of the guest's memory; `N.wasm`, its wasm
//! stack, a line `FUNCTION OFFSET` for each frame, leaf first; and `N.stack`, what `stacks.py` printed. Walks each with
//! a walker of its own, which reads all that any walk reads, says where Python disagrees, and writes the file.
//! `tests/replay/capture.py` makes such a folder.

#[path = "../tests/replay/mod.rs"]
mod replay;

use replay::{Capture, Expected, Replay};
use std::{fs, path::Path};
use wlprof_cpython::Python;
use wlprof_plugin::{
    FrameKey, FrameSink, Program, SinkEntry, SourceFrame, Truncation, Walker, WasmFrame,
    testing::{Frozen, Snapshot, TestModule},
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, dumps, out] = &arguments[..] else { panic!("usage: record MODULE.wasm DUMPS OUT.replay") };
    let module = TestModule::parse(fs::read(module).expect("a module"));
    let mut replay = Replay::default();
    let mut worst = (0, 0);
    for number in 0.. {
        let file = |kind: &str| Path::new(dumps).join(format!("{number}.{kind}"));
        let Ok(memory) = fs::read(file("memory")) else { break };
        let wasm = wasm_frames(&fs::read_to_string(file("wasm")).expect("a wasm stack"));
        let stack = fs::read_to_string(file("stack")).expect("a stack");
        let (name, frames) = stack.split_once('\n').expect("a name and frames");
        let expected: Vec<Expected> = frames.lines().map(Expected::parse).collect();
        let mut walker = Python.attach_program(&module).unwrap_or_else(|error| panic!("{error}")).new_walker();
        let mut sink = FrameSink::new();
        let mut end = Err(Truncation::NoStack);
        let guest = Snapshot::record(&Frozen::new(memory), |guest| end = walker.walk(guest, &wasm, &mut sink));
        let mut found: Vec<SourceFrame> = Vec::new();
        for entry in sink.entries() {
            if let SinkEntry::Own(key) = entry {
                walker.program().symbolize(FrameKey::Own(key), &mut found);
            }
        }
        worst.1 += expected.len();
        let differing = expected.iter().zip(&found).filter(|(expected, frame)| !expected.is(frame)).count();
        let differing = differing + expected.len().abs_diff(found.len());
        if differing > 0 {
            worst.0 += differing;
            println!("{name}: {end:?}, {} frames, {differing} differ", found.len());
            for (expected, frame) in expected.iter().zip(&found).filter(|(expected, frame)| !expected.is(frame)).take(3)
            {
                println!("  python {expected:?}\n  walker {frame:?}");
            }
        }
        for frame in &wasm {
            if let Some(name) = module.names.get(&frame.function) {
                replay.functions.insert(frame.function, name.clone());
            }
        }
        let (minor, runtime) = walker.runtime().expect("a runtime");
        (replay.minor, replay.runtime) = (minor.into(), runtime);
        let name = name.trim_start_matches("@ ").to_owned();
        replay.captures.push(Capture { name, guest, wasm, expected });
    }
    let bytes = replay.write();
    assert_eq!(Replay::read(&bytes), replay);
    println!("{} captures, {} of {} frames differ, {} bytes", replay.captures.len(), worst.0, worst.1, bytes.len());
    fs::write(out, bytes).expect("the file can be written");
}

fn wasm_frames(text: &str) -> Vec<WasmFrame> {
    let number = |text: &str| text.parse().expect("a number");
    let frame = |line: &str| {
        let (function, offset) = line.split_once(' ').expect("function and offset");
        WasmFrame::attached(number(function), number(offset))
    };
    text.lines().map(frame).collect()
}
