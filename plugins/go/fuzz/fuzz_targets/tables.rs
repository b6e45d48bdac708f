//! Attaches to modules whose data segments, bodies and sections lie, then names many pcs. Nothing may panic, and nothing
//! may take longer or more memory than libFuzzer is told.
#![no_main]

#[path = "../../tests/forge/mod.rs"]
mod forge;
mod input;

use forge::{BASE, COUNT, Forge, G, STACK, Stopped, frame, pc};
use input::Input;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use wasmparser::{DataKind, Operator, Parser, Payload};
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::{FrameKey, FrameSink, Language, Program, Walker, WasmFrame, testing::TestModule};

/// Symbolizing one pc gives the function and at most this many inlined calls.
const MOST_INLINED: usize = 64;

/// A module that Go's linker wrote.
struct Real {
    module: TestModule,
    /// Address and place in the file of each data segment, ascending.
    segments: Vec<(u64, std::ops::Range<usize>)>,
    table: u64,
}

static REAL: LazyLock<Real> = LazyLock::new(|| {
    let bytes = input::fixture("go-stacks-1.24-stripped.wasm");
    let mut segments = Vec::new();
    for payload in Parser::new(0).parse_all(&bytes) {
        let Ok(Payload::DataSection(section)) = payload else { continue };
        for data in section {
            let data = data.unwrap();
            let DataKind::Active { offset_expr, .. } = data.kind else { continue };
            let Ok(Operator::I32Const { value }) = offset_expr.get_operators_reader().read() else { continue };
            segments.push((u64::from(value.cast_unsigned()), data.range.end - data.data.len()..data.range.end));
        }
    }
    segments.sort_by_key(|segment| segment.0);
    let is_table = |range: &std::ops::Range<usize>| bytes[range.clone()].starts_with(b"\xf1\xff\xff\xff\0\0\x01\x08");
    let table = segments.iter().find(|(_, range)| is_table(range)).expect("a function table").0;
    Real { module: TestModule::parse(bytes), segments, table }
});

fn patch(bytes: &mut [u8], at: usize, kind: u8, value: u64) {
    let length = [1, 2, 4, 8][usize::from(kind % 4)];
    if let Some(place) = bytes.get_mut(at..at + length) {
        place.copy_from_slice(&value.to_le_bytes()[..length]);
    }
}

/// A value that means something to the tables, or any.
fn value(input: &mut Input<'_>) -> u64 {
    match input.u8() % 8 {
        0 => 0,
        1 => u64::from(u32::MAX),
        2 => u64::MAX - u64::from(input.u8()),
        3 => BASE + u64::from(input.u16()),
        4 => u64::from(input.u16()),
        5 => pc(u32::from(input.u8() % 16), u64::from(input.u16())),
        6 => u64::from(input.u32()),
        _ => input.u64(),
    }
}

fn forged(input: &mut Input<'_>) -> Forge {
    let mut forge = Forge::new(if input.u8().is_multiple_of(2) { 21 } else { 24 });
    let patches = input.u8();
    for _ in 0..patches {
        let (at, kind) = (usize::from(input.u16()) % forge.image.len(), input.u8());
        let value = value(input);
        patch(&mut forge.image, at, kind, value);
    }
    forge
}

fn mutated_real(input: &mut Input<'_>) -> TestModule {
    let mut module = REAL.module.clone();
    while !input.is_empty() {
        // Header, names and tables are in the 512 KiB from the header on; moduledata is elsewhere.
        let offset = u64::from(input.u32()) % (1 << 19);
        let (offset, kind) = (if input.u8().is_multiple_of(4) { offset % 72 } else { offset }, input.u8());
        let (address, value) = (REAL.table + offset, value(input));
        let after = REAL.segments.partition_point(|segment| segment.0 <= address);
        let Some((start, range)) = after.checked_sub(1).map(|at| &REAL.segments[at]) else { continue };
        let at = range.start + (address - start) as usize;
        if at + 8 <= range.end {
            patch(&mut module.bytes, at, kind, value);
        }
    }
    module
}

fn use_walker(walker: &mut GoWalker, module: &TestModule, guest: &Stopped, functions: u32) {
    let mut frames = Vec::new();
    let mut name = |walker: &mut GoWalker, key| {
        frames.clear();
        walker.program().symbolize(key, &mut frames);
        assert!(frames.len() <= 1 + MOST_INLINED);
    };
    for function in (0..functions + 1).chain([u32::MAX - 0x1000]) {
        for block in [0, 1, 2, 3, 200, 0xffff] {
            name(walker, FrameKey::Own(pc(function, block)));
        }
    }
    for function in 0..COUNT + 2 {
        for at in [0, 9, 16, u32::MAX / 2] {
            let frame = module.bodies.get(function as usize).map(|_| frame(module, function, at));
            let frame = frame.unwrap_or(WasmFrame::attached(function, at));
            name(walker, FrameKey::Wasm(frame));
            let mut out = FrameSink::new();
            let _ = walker.walk(&guest.frozen, &[frame], &mut out);
            assert!(out.len() <= FrameSink::CAPACITY);
        }
    }
    let _ = walker.program().warnings();
    walker.threads(&guest.frozen, &[], &mut Vec::new());
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    // A real module takes 100 times as long as a forged one.
    let mode = match input.u8() {
        255 if input.u8() == 255 => 13,
        mode if mode % 16 == 13 => 0,
        mode => mode,
    };
    let mut forge = if mode % 16 < 13 { forged(&mut input) } else { Forge::new(24) };
    let mut functions = COUNT;
    let module = match mode % 16 {
        0..9 => forge.module(),
        9..11 => {
            let at = usize::from(input.u8()) % forge.bodies.len();
            forge.bodies[at] = input.rest().to_vec();
            forge.module()
        }
        11 => {
            // The tables go on in arbitrary bytes.
            forge.image.extend(input.rest());
            forge.module()
        }
        12 => {
            let mut module = forge.module();
            module.sections.insert("producers".to_owned(), input.rest().to_vec());
            module
        }
        13 => {
            functions = 64;
            mutated_real(&mut input)
        }
        14 => {
            let mut module = forge.module();
            module.bytes = [&module.bytes[..8], input.rest()].concat();
            module
        }
        _ => {
            let mut module = forge.module();
            for _ in 0..input.u8() {
                let (at, kind, value) = (usize::from(input.u16()) % 512, input.u8(), input.u64());
                patch(&mut module.bytes, at, kind, value);
            }
            module
        }
    };
    let _ = Go.detect(&module);
    if let Ok(mut walker) = Go.attach_program(&module).map(|program| program.new_walker()) {
        forge.image.truncate((forge::IMAGE_END - BASE) as usize);
        let mut guest = Stopped::new(&forge);
        guest.registers(STACK, G);
        for address in (STACK - 64..STACK + 512).step_by(8) {
            guest.u64(address, pc(input.u8().into(), input.u8().into()));
        }
        use_walker(&mut walker, &module, &guest, functions);
    } else if mode % 16 == 13 {
        assert!(Go.attach(&module).is_err_and(|error| error.0.contains("frames will be wasm functions only")));
    }
});
