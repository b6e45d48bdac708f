//! Walkers of other instances: what they give, and what making one costs; and frames of other modules.

mod forge;

use forge::*;
use wlprof_go::Go;
use wlprof_plugin::testing::{Moment, TestModule, check_walkers, check_walkers_are_cheap};
use wlprof_plugin::{FrameSink, Language, SinkEntry, Truncation, WasmFrame};

/// Where a goroutine's labels are, in Go 1.24.
const LABELS: u64 = 352;
const GOID: u64 = 160;

/// A goroutine of that number with these labels, which runs a function.
fn labelled(forge: &Forge, goid: u64, labels: &[&str]) -> Moment {
    let mut guest = Stopped::new(forge);
    let (items, mut text) = (HEAP + 0x100, HEAP + 0x800);
    for (address, value) in [(G + GOID, goid), (G + LABELS, HEAP), (HEAP, items), (HEAP + 8, labels.len() as u64 / 2)] {
        guest.u64(address, value);
    }
    for (index, label) in labels.iter().enumerate() {
        guest.u64(items + 16 * index as u64, text);
        guest.u64(items + 16 * index as u64 + 8, label.len() as u64);
        guest.frozen.memory[text as usize..][..label.len()].copy_from_slice(label.as_bytes());
        text += 0x40;
    }
    guest.u64(STACK, pc(MAIN, 1));
    let module = forge.module();
    Moment { guest: guest.frozen, wasm: vec![frame(&module, LEAF, 16), frame(&module, LOOP, 0)] }
}

#[test]
fn walkers_on_two_threads_give_what_each_gives_alone() {
    let forge = Forge::new(24);
    let module = forge.module();
    let moments = [
        labelled(&forge, 1, &["request", "7", "tenant", "a"]),
        labelled(&forge, 5, &["tenant", "b", "request", "a long one"]),
    ];
    let program = Go.attach(&module).unwrap();
    let mut walker = program.walker().unwrap();
    let mut sink = FrameSink::new();
    let _ = walker.walk(&moments[1].guest, &moments[1].wasm, &mut sink);
    let mut labels = Vec::new();
    program.labels(sink.labels()[0], &mut labels);
    assert!(!sink.is_empty() && labels.len() == 3 && labels[1].value == "a long one", "{labels:?}");
    check_walkers(|| Go.attach(&module).unwrap(), &moments);
}

#[test]
fn a_walker_costs_next_to_nothing() {
    let module = TestModule::fixture("go-bench");
    check_walkers_are_cheap(|| Go.attach(&module).unwrap(), 1000);
}

#[test]
fn frames_of_other_modules_are_passed_on() {
    let forge = Forge::new(24);
    let module = forge.module();
    let mut moment = labelled(&forge, 1, &[]);
    let entries = |moment: &Moment| {
        let (mut walker, mut sink) = (Go.attach(&module).unwrap().walker().unwrap(), FrameSink::new());
        let end = walker.walk(&moment.guest, &moment.wasm, &mut sink);
        (end, sink.entries().collect::<Vec<_>>())
    };
    let (end, alone) = entries(&moment);
    let own = moment.wasm[0];
    for function in [own.function, moment.wasm[1].function, 0, u32::MAX] {
        moment.wasm.insert(0, WasmFrame { module: 1, function, code_offset: own.code_offset });
        let (with_end, mut with) = entries(&moment);
        assert_eq!(with.remove(0), SinkEntry::Wasm(0));
        assert_eq!((with_end, with), (end, alone.clone()), "{function}");
        moment.wasm.remove(0);
    }
    assert!(!matches!(end, Err(Truncation::NoStack)), "{end:?}");
    let mut frames = Vec::new();
    let other = WasmFrame { module: 1, ..own };
    Go.attach(&module).unwrap().symbolize(wlprof_plugin::FrameKey::Wasm(other), &mut frames);
    assert_eq!(frames, []);
}
