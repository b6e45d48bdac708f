//! A guest whose outermost function ends with a host call: nothing of the guest is on the stack below it then.

use crate::guest::Place;
use std::sync::Arc;
use wlprof::recording::{Clock, Origin};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, Program, SourceFrame, Truncation, Walker, WasmFrame};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_run::profile::{Run, RunEnd, RunOptions, symbolize};
use wlprof_wasi::WasiOptions;

/// Sleeps for a fifth of a second in a tail call.
const GUEST: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "\01")
    (data (i32.const 24) "\00\c2\eb\0b")
    (func (export "sleep") (result i32)
        (return_call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))"#;

/// Finds one frame wherever it looks.
struct OneFrame;

impl Program for OneFrame {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(Self))
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if frame == FrameKey::Own(1) {
            out.push(SourceFrame { function: "the one".into(), ..SourceFrame::default() });
        }
    }
}

impl Walker for OneFrame {
    fn walk(&mut self, _: &dyn GuestMemory, _: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        out.push(1)
    }
}

#[test]
fn a_host_call_without_a_caller_is_recorded() {
    let place = Place::new();
    let guest = Guest::load(&place.file("guest.wat", GUEST), &LoadOptions::default()).unwrap();
    let sampler = SamplerOptions { kind: SamplerKind::Signal, clock: Clock::Wall, ..SamplerOptions::default() };
    let wasi = WasiOptions { arguments: vec!["guest".into()], ..WasiOptions::default() };
    let options = RunOptions { wasi, invoke: Some("sleep".into()), sampler: Some(sampler) };
    let run = Run::start(&guest, vec![Some(Arc::new(OneFrame))], options).unwrap();
    assert!(matches!(run.wait(), RunEnd::Exit(exit) if exit.code() == Some(0)));
    let images = [guest.code.images[0].clone()];
    let recording = symbolize(run.finish().unwrap(), &images, |_| ()).unwrap();
    assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
    // How far the rate has to be lowered is up to the machine.
    let others: Vec<_> = recording.meta.notes.iter().filter(|note| !note.contains("the rate was lowered")).collect();
    assert!(recording.ticks.unrecorded == 0 && others.is_empty(), "{} {others:?}", recording.ticks.unrecorded);
    assert!(recording.ticks.sampled > 0);
    // With a caller there would be a frame of the call itself.
    assert!(!recording.frames.iter().any(|frame| matches!(frame.origin, Origin::HostCall { .. })), "{recording:?}");
    assert!(recording.functions.iter().any(|function| function.name == "the one"), "{:?}", recording.functions);
}
