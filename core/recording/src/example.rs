//! A recording for tests of all that reads recordings: small, and with something of every kind in it, so that a format can be
//! tested without a guest.

use super::{
    Amount, Category, Clock, Frame, FrameId, Function, FunctionId, Heap, HeapSite, HostCallSpan, LabelSetId,
    LanguageTruncation, Line, MemorySize, Meta, Module, ModuleId, Origin, PauseStats, Recording, Sample, SiteTotals,
    Stack, StackId, State, Store, Thread, TickCounts, Truncation,
};
use std::collections::BTreeMap;

/// Untrusted text as bad as it comes: what ends lines, strings, fields and frames, moves cursors, and is not ASCII.
const HOSTILE: &str = "f;g \"q\" 'p' \\ \n\t\0\u{1b}]0;x\u{7}\u{9b}0m \u{202e}é漢🦀 </script> 99";

/// Nanoseconds between ticks.
const PERIOD_NS: u64 = 1_000_000;

/// The recording of a run of two threads in an interpreter with a library, written in two other languages.
pub fn example() -> Recording {
    let ticks = TickCounts {
        fired: 18,
        sampled: 11,
        idle: 1,
        preempted: 1,
        coalesced: 1,
        ring_full: 1,
        unrecorded: 1,
        woke: 1,
        at_end: 1,
        late: 2,
    };
    Recording {
        meta: meta(),
        modules: vec![module("app.wasm", "00c0ffee"), module(&format!("lib/{HOSTILE}.wasm"), "0123456789abcdef")],
        functions: functions(),
        frames: frames(),
        stacks: stacks(),
        label_sets: vec![
            vec![label("state", "python")],
            vec![
                label("goroutine", "7"),
                label(HOSTILE, HOSTILE),
                label("", ""),
                label("thread", "9"),
                label("pprof::base", "true"),
            ],
        ],
        stores: stores(),
        threads: threads(),
        ticks,
        truncated: vec![(Truncation::TooDeep, 1), (Truncation::Language(LanguageTruncation::InHostCode), 2)],
        sources: BTreeMap::new(),
        part: None,
    }
}

fn meta() -> Meta {
    Meta {
        wlprof_version: "0.1.0".into(),
        guest: "app.wasm".into(),
        arguments: vec!["--size".into(), "10".into(), String::new(), HOSTILE.into()],
        start_unix_ms: 1_750_000_000_123,
        duration_ns: 20_500_000,
        cpu_ns: 13_250_000,
        sampling_ns: 40_000,
        unsampled_ns: 1_200_000,
        sampler: "signal".into(),
        clock: Clock::Wall,
        requested_hz: 1000.0,
        allowed_hz: 812.5,
        pause: PauseStats { handler_p50_ns: 400, handler_p99_ns: 15_800, tick_ns: 2_100 },
        architecture: "x86_64".into(),
        requests: Vec::new(),
        notes: vec!["the rate was lowered".into(), HOSTILE.into()],
    }
}

/// The first has memory that grows; the second gives back what it had, and goes.
fn stores() -> Vec<Store> {
    let sizes = |sizes: &[(u64, u64)]| {
        sizes.iter().map(|&(tick, pages)| MemorySize { time_ns: tick * PERIOD_NS, bytes: pages << 16 }).collect()
    };
    vec![
        Store {
            name: "app.wasm".into(),
            memory: sizes(&[(1, 17), (5, 32), (9, 4096)]),
            labels: Vec::new(),
            heap: Some(heap()),
        },
        Store { name: HOSTILE.into(), memory: sizes(&[(2, 1), (8, 65_536), (10, 0)]), labels: Vec::new(), heap: None },
    ]
}

/// Of a loop that leaks, one that frees what it takes, and a cache that was emptied, at the default rate.
fn heap() -> Heap {
    const RATE: u64 = 512 << 10;
    let amount = |samples: u64, size: u64| {
        let weight = 1.0 / (1.0 - (-(size as f64) / RATE as f64).exp());
        let mut amount = Amount::default();
        (0..samples).for_each(|_| amount.add(Amount::of_block(size, weight)));
        amount
    };
    let site = |stack, size, [samples, held, at_peak]: [u64; 3], held_since_ns| {
        let [allocated, held, at_peak] = [samples, held, at_peak].map(|samples| amount(samples, size));
        let mut grown = Amount::default();
        (0..samples / 20).for_each(|_| grown.add(Amount::of_block(1 << 16, 1.0)));
        let held_since_ns = (held.blocks > 0.0).then_some(held_since_ns);
        HeapSite { stack, totals: SiteTotals { samples, allocated, held, at_peak, grown, held_since_ns } }
    };
    let sites = vec![
        site(3, 4096, [30, 20, 12], (2 * PERIOD_NS, 11 * PERIOD_NS)),
        site(5, 64, [16, 0, 1], (0, 0)),
        site(7, 1 << 20, [40, 1, 40], (8 * PERIOD_NS, 8 * PERIOD_NS)),
        site(9, 1 << 16, [3, 2, 0], (9 * PERIOD_NS, 10 * PERIOD_NS)),
    ];
    Heap { number: 0, rate: RATE, peak_ns: 9 * PERIOD_NS, sites, notes: vec!["the rate was lowered".into()] }
}

fn module(name: &str, build_id: &str) -> Module {
    Module { name: name.to_owned(), build_id: build_id.to_owned() }
}

fn label(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

// Functions, by their places in the table.
const START: FunctionId = 0;
const EVALUATE: FunctionId = 1;
const GENERATOR: FunctionId = 2;
const OUTER: FunctionId = 3;
const INNER: FunctionId = 4;
const INNERMOST: FunctionId = 5;
const BAD: FunctionId = 6;
const UNNAMED: FunctionId = 7;
const INIT: FunctionId = 8;
const OTHER_INIT: FunctionId = 9;
const WRITE: FunctionId = 10;
const HOST: FunctionId = 11;
const TRUNCATED: FunctionId = 12;
const ELIDED: FunctionId = 13;

fn functions() -> Vec<Function> {
    let function = |name: &str, linkage_name: Option<&str>, place: Option<(&str, u32)>, category, module| Function {
        name: name.to_owned(),
        linkage_name: linkage_name.map(str::to_owned),
        file: place.map(|(file, _)| file.to_owned()),
        line: place.map(|(_, line)| line),
        category,
        module,
    };
    let (app, library) = (Some(0), Some(1));
    vec![
        function("_start", None, None, Category::Runtime, app),
        function("_PyEval_EvalFrameDefault", None, Some(("Python/ceval.c", 1064)), Category::Interpreter, app),
        function("Shop.price.<locals>.<genexpr>", None, Some(("/app/shop.py", 6)), Category::User, app),
        function("shapes::outer", None, Some(("src/shapes.rs", 10)), Category::User, library),
        function(
            "<alloc::vec::Vec<T> as Clone>::clone",
            Some("_RNvXs_NtC5alloc3vecINtB4_3VecpENtC4core5Clone5clone"),
            Some(("/rustc/library/alloc/src/vec/mod.rs", 3571)),
            Category::Library,
            library,
        ),
        function("memcpy", None, Some(("/rustc/library/core/src/ptr.rs", 1)), Category::Library, library),
        function(HOSTILE, Some(HOSTILE), Some((HOSTILE, u32::MAX)), Category::User, library),
        function("", None, Some(("", 1)), Category::GarbageCollector, library),
        // Two statics of one name.
        function("init", None, Some(("a.c", 3)), Category::User, app),
        function("init", None, Some(("b.c", 3)), Category::User, app),
        function("wasi_snapshot_preview1.fd_write", None, None, Category::Host, None),
        function("[host]", None, None, Category::Host, None),
        function("[truncated]", None, None, Category::Runtime, None),
        function("[elided]", None, None, Category::Runtime, None),
    ]
}

fn frames() -> Vec<Frame> {
    let line = |function, line, column| Line { function, line, column };
    let plain = |function| vec![line(function, None, None)];
    let wasm = |module: ModuleId, function, code_offset| Origin::Wasm { module, function, code_offset };
    let frames = [
        (wasm(0, 4, 0x40), plain(START)),
        (wasm(0, 5, 0x1_0000), vec![line(EVALUATE, Some(1337), Some(21))]),
        // Two lines of one function, one of them twice.
        (Origin::Language { module: 0, key: 0x1_0000_0006 }, vec![line(GENERATOR, Some(6), Some(16))]),
        (Origin::Language { module: 0, key: 0x1_0000_0007 }, vec![line(GENERATOR, Some(7), None)]),
        (Origin::Language { module: 0, key: 0x1_0000_0008 }, vec![line(GENERATOR, Some(6), Some(40))]),
        (
            wasm(1, 0, 0x20),
            vec![line(INNERMOST, Some(2), None), line(INNER, Some(3580), Some(9)), line(OUTER, Some(12), Some(5))],
        ),
        (wasm(1, 0, 0x28), vec![line(OUTER, Some(13), Some(1))]),
        (wasm(1, 1, 0x99), vec![line(BAD, Some(u32::MAX), Some(u32::MAX))]),
        (wasm(1, 2, 0xa0), vec![line(UNNAMED, Some(1), None)]),
        (wasm(0, 6, 0x2_0000), vec![line(INIT, Some(4), None)]),
        (wasm(0, 7, 0x2_0100), vec![line(OTHER_INIT, Some(4), None)]),
        (Origin::HostCall { module: 0, function: 5, code_offset: 0x1_0040 }, plain(WRITE)),
        (Origin::Host, plain(HOST)),
        (Origin::Truncated, plain(TRUNCATED)),
        (Origin::Elided, plain(ELIDED)),
    ];
    frames.map(|(origin, lines)| Frame { origin, lines }).into()
}

/// The frame of the host call, by its place in the table.
const WRITE_FRAME: FrameId = 11;

fn stacks() -> Vec<Stack> {
    let stack = |parent: Option<StackId>, frame: FrameId| Stack { parent, frame };
    vec![
        stack(None, 0),
        stack(Some(0), 1),
        stack(Some(1), 2),
        stack(Some(2), 5),
        stack(Some(1), 3),
        stack(Some(4), WRITE_FRAME),
        stack(Some(4), 4),
        stack(Some(6), 6),
        stack(None, 13),
        stack(Some(8), 14),
        stack(Some(9), 7),
        stack(Some(10), 8),
        stack(Some(0), 9),
        stack(Some(0), 10),
        stack(None, 12),
    ]
}

fn threads() -> Vec<Thread> {
    let sample = |tick: u64, stack: StackId, state: State, labels: Option<LabelSetId>| Sample {
        time_ns: tick * PERIOD_NS + 7 * tick,
        cpu_delta_ns: if state == State::Blocked { 0 } else { PERIOD_NS - tick },
        period_ns: PERIOD_NS,
        stack,
        state,
        labels,
    };
    let slower = |tick, stack, state, labels| Sample { period_ns: 2 * PERIOD_NS, ..sample(tick, stack, state, labels) };
    let main = [
        sample(1, 14, State::Host, None),
        sample(2, 12, State::Guest, None),
        sample(3, 13, State::Guest, Some(0)),
        sample(4, 3, State::Entering, Some(0)),
        sample(5, 3, State::Guest, Some(0)),
        sample(6, 5, State::Host, Some(0)),
        sample(7, 5, State::Blocked, Some(0)),
        // The governor lowered the rate.
        slower(9, 7, State::Guest, Some(1)),
        slower(11, 11, State::Guest, Some(1)),
    ];
    let worker = [sample(2, 1, State::Guest, None), sample(8, 9, State::Returned, Some(1))];
    let in_call = HostCallSpan { frame: WRITE_FRAME, start_ns: 6_000_042, end_ns: 7_000_049, blocked: true };
    vec![
        Thread {
            name: "main".into(),
            tid: 4711,
            store: 0,
            samples: main.into_iter().collect(),
            host_calls: vec![
                in_call,
                HostCallSpan { start_ns: 12_000_000, end_ns: 13_500_000, blocked: false, ..in_call },
            ],
        },
        Thread {
            name: HOSTILE.into(),
            tid: 4712,
            store: 1,
            samples: worker.into_iter().collect(),
            host_calls: Vec::new(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashSet};
    use std::mem::discriminant;

    #[test]
    fn it_has_something_of_every_kind_and_nothing_else() {
        let recording = example();
        let samples: Vec<Sample> = recording.samples().collect();
        let counts = (
            recording.frames.iter().map(|frame| discriminant(&frame.origin)).collect::<HashSet<_>>().len(),
            recording.functions.iter().map(|function| function.category).collect::<BTreeSet<_>>().len(),
            samples.iter().map(|sample| sample.state).collect::<HashSet<_>>().len(),
        );
        assert_eq!(counts, (6, 6, 5), "origins, categories, states");
        assert!(recording.ticks.balanced() && recording.ticks.sampled == samples.len() as u64);

        let shown: HashSet<FunctionId> =
            samples.iter().flat_map(|sample| recording.lines_of(sample.stack)).map(|line| line.function).collect();
        assert_eq!(shown.len(), recording.functions.len(), "each function is in a sample");
        let frames: HashSet<FrameId> = samples.iter().flat_map(|sample| recording.frame_ids(sample.stack)).collect();
        assert_eq!(frames.len(), recording.frames.len(), "each frame is in a sample");
    }
}
