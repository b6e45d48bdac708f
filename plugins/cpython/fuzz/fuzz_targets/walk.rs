//! The walker on damaged guests. The input chooses one of the captures of `testdata/python/replay` and what of its
//! memory and its wasm stack is changed. Whatever that is, the walk ends, gives no more frames than it may, and every
//! frame of its own can be named.
#![no_main]

#[path = "../../tests/replay/mod.rs"]
mod replay;

use libfuzzer_sys::fuzz_target;
use replay::{Capture, Replay};
use std::sync::OnceLock;
use wlprof_cpython::Python;
use wlprof_plugin::{FrameKey, FrameSink, Program, SinkEntry, Walker, testing::TestModule};

fn replays() -> &'static [(Replay, TestModule)] {
    static REPLAYS: OnceLock<Vec<(Replay, TestModule)>> = OnceLock::new();
    REPLAYS.get_or_init(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../testdata/python/replay");
        let read = |release: &str| {
            let bytes = std::fs::read(format!("{folder}/{release}.replay")).expect("a replay file");
            let replay = Replay::read(&bytes);
            let module = replay.module();
            (replay, module)
        };
        ["3.11", "3.13"].map(read).into()
    })
}

/// Changes a word of a block, or a wasm frame.
fn damage(capture: &mut Capture, which: u16, at: u8, value: u32) {
    if at & 0x80 != 0 {
        let count = capture.wasm.len().max(1);
        if let Some(frame) = capture.wasm.get_mut(usize::from(which) % count) {
            frame.function = value;
        }
        return;
    }
    let count = capture.guest.blocks.len();
    let Some(block) = capture.guest.blocks.values_mut().nth(usize::from(which) % count) else { return };
    let start = usize::from(at) % (block.len() / 4) * 4;
    block[start..start + 4].copy_from_slice(&value.to_le_bytes());
}

fuzz_target!(|input: (bool, u8, Vec<(u16, u8, u32)>)| {
    let (newer, number, damages) = input;
    let (replay, module) = &replays()[usize::from(newer)];
    let original = &replay.captures[usize::from(number) % replay.captures.len()];
    let mut capture = original.clone();
    for (which, at, value) in damages.into_iter().take(16) {
        damage(&mut capture, which, at, value);
    }
    let mut walker = Python.attach_program(module).expect("a CPython").new_walker();
    // The whole one before and after: what is kept must not confuse.
    for capture in [original, &capture, original] {
        let mut out = FrameSink::new();
        walker.walk(&capture.guest.replay(), &capture.wasm, &mut out);
        assert!(out.len() <= FrameSink::CAPACITY);
        let mut frames = Vec::new();
        for entry in out.entries() {
            match entry {
                SinkEntry::Own(key) => walker.program().symbolize(FrameKey::Own(key), &mut frames),
                SinkEntry::Wasm(index) => assert!(index < capture.wasm.len()),
                SinkEntry::Elided => panic!("nothing is left out"),
            }
        }
        if std::ptr::eq(capture, original) {
            let names: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
            let expected: Vec<&str> = original.expected.iter().map(|frame| frame.function.as_str()).collect();
            assert_eq!(names, expected);
        }
    }
});
