//! Attaches to real Go programs once, then walks over memory that is what the program starts with, and whatever the
//! fuzzer writes into it: stacks, goroutines, the scheduler's records and labels. Nothing may panic, and the number of
//! frames and reads is bounded.
#![no_main]

#[path = "../../tests/forge/mod.rs"]
mod forge;
mod input;

use input::Input;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use wasmparser::{DataKind, Operator, Parser, Payload};
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::testing::{Frozen, TestModule};
use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, Program as _, Walker, WasmFrame};

/// Seven reads a frame, and a map of labels.
const MOST_READS: u64 = 32 * 1024;
/// The search for the list of goroutines, and their stacks.
const MOST_READS_OF_THREADS: u64 = 64 << 20;
/// What the fuzzer writes to most lies in these 64 KiB after what the program starts with.
const ARENA: u64 = 1 << 16;

struct Program {
    module: TestModule,
    walker: GoWalker,
    guest: forge::Stopped,
    arena: u64,
    /// Where variables are that the program starts with at zero, `allgs` among them.
    zeros: u64,
}

impl Program {
    fn new(name: &str) -> Self {
        let bytes = input::fixture(name);
        let mut memory = Vec::new();
        for payload in Parser::new(0).parse_all(&bytes) {
            let Ok(Payload::DataSection(section)) = payload else { continue };
            for data in section {
                let data = data.unwrap();
                let DataKind::Active { offset_expr, .. } = data.kind else { continue };
                let Ok(Operator::I32Const { value }) = offset_expr.get_operators_reader().read() else { continue };
                let start = value.cast_unsigned() as usize;
                memory.resize(memory.len().max(start + data.data.len()), 0);
                memory[start..start + data.data.len()].copy_from_slice(data.data);
            }
        }
        // The runtime's variables go on to where the program is loaded's end; then comes ours.
        let arena = (memory.len() as u64 + (1 << 18)).next_multiple_of(ARENA);
        memory.resize((arena + ARENA) as usize, 0);
        let module = TestModule::parse(bytes);
        let walker = Go.attach_program(&module).unwrap().new_walker();
        let zeros = moduledata(&memory).expect("moduledata");
        Self { module, walker, guest: forge::Stopped { frozen: Frozen::new(memory) }, arena, zeros }
    }
}

/// The start of the zero-initialised variables.
fn moduledata(memory: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(memory.get(at..at + 8)?.try_into().ok()?));
    let header = b"\xf1\xff\xff\xff\0\0\x01\x08";
    let table = (0..memory.len()).step_by(8).find(|&at| memory[at..].starts_with(header))?;
    let names = table as u64 + word(table + 32)?;
    let at = (0..memory.len()).step_by(8).find(|&at| word(at) == Some(table as u64) && word(at + 8) == Some(names))?;
    word(at + 224)
}

thread_local! {
    static PROGRAMS: RefCell<Vec<Program>> = RefCell::new(
        ["go-stacks-1.21-stripped.wasm", "go-stacks-1.24-stripped.wasm", "go-stacks-1.27-stripped.wasm"]
            .map(Program::new)
            .into(),
    );
}

/// An address in the arena, or elsewhere.
fn address(input: &mut Input<'_>, arena: u64) -> u64 {
    match input.u8() {
        0..240 => arena + u64::from(input.u16() & !7),
        240..250 => arena + u64::from(input.u16()),
        _ => input.u64(),
    }
}

/// A word as a walker may expect it: a pc, a pointer, a length.
fn word(input: &mut Input<'_>, program: &Program) -> u64 {
    let functions = program.module.bodies.len() as u32;
    match input.u8() % 8 {
        0..4 => forge::pc(u32::from(input.u16()) % functions, u64::from(input.u8() % 32)),
        4 | 5 => address(input, program.arena),
        6 => u64::from(input.u8()),
        _ => input.u64(),
    }
}

fn wasm_frame(input: &mut Input<'_>, module: &TestModule) -> WasmFrame {
    let function = u32::from(input.u16()) % (module.imports.len() + module.bodies.len() + 1) as u32;
    let offset = u32::from(input.u16());
    let body = (function as usize).checked_sub(module.imports.len()).and_then(|index| module.bodies.get(index));
    let code_offset = match body {
        Some(body) if offset % 16 != 15 => body.start + offset % (body.end - body.start),
        _ => offset << 8,
    };
    WasmFrame::attached(function, code_offset)
}

fn run(program: &mut Program, input: &mut Input<'_>) {
    let arena = program.arena;
    let (sp, g) = (address(input, arena), address(input, arena));
    let wasm: Vec<_> = (0..input.u8() % 32).map(|_| wasm_frame(input, &program.module)).collect();
    let asks_for_threads = input.u8().is_multiple_of(8);
    program.guest.registers(sp & u64::from(u32::MAX), g);
    let size = program.guest.frozen.size();
    let mut written = Vec::new();
    let mut set = |guest: &mut forge::Stopped, address: u64, value: u64| {
        if let Some(end) = address.checked_add(8).filter(|&end| end <= size) {
            let place = &mut guest.frozen.memory[address as usize..end as usize];
            written.push((address, <[u8; 8]>::try_from(&*place).unwrap()));
            place.copy_from_slice(&value.to_le_bytes());
        }
    };
    // A scheduler's goroutine, or one that runs, as far as the fuzzer does not change it.
    let (m, other) = (arena + 0x8000, arena + 0x9000);
    for (offset, value) in [(48, m), (144, 2), (152, 1), (160, 1), (56, sp)] {
        set(&mut program.guest, g.wrapping_add(offset), value);
        set(&mut program.guest, other + offset, if offset == 56 { sp.wrapping_add(512) } else { value });
    }
    let curg_offset = if input.u8().is_multiple_of(2) { 144 } else { 136 };
    let (g0, curg) = if input.u8().is_multiple_of(2) { (other, g) } else { (g, other) };
    set(&mut program.guest, m, g0);
    set(&mut program.guest, m + curg_offset, curg);
    let (list, zeros) = (arena + 0xa000, program.zeros);
    for (address, value) in [(zeros, list), (zeros + 8, 2), (zeros + 16, 2), (list, g), (list + 8, other)] {
        set(&mut program.guest, address, value);
    }
    while !input.is_empty() {
        let command = input.u8();
        let address = match command % 4 {
            // Around SP, around g, anywhere; and into the runtime's variables.
            0 | 1 => sp.wrapping_sub(16).wrapping_add(8 * u64::from(input.u8())),
            2 => g.wrapping_add(8 * u64::from(input.u8() % 64)),
            _ if command & 0x80 != 0 => program.zeros + 8 * u64::from(input.u8()),
            _ => self::address(input, arena),
        };
        let value = word(input, program);
        let times = if command & 0x70 == 0x70 { 1 << (input.u8() % 14) } else { 1 };
        for index in 0..times {
            set(&mut program.guest, address.wrapping_add(8 * index), value);
        }
    }

    let mut out = FrameSink::new();
    program.guest.frozen.reset_counts();
    let _ = program.walker.walk(&program.guest.frozen, &wasm, &mut out);
    assert!(program.guest.frozen.reads.get() <= MOST_READS, "{} reads", program.guest.frozen.reads.get());
    let mut frames = Vec::new();
    for entry in out.entries() {
        if let wlprof_plugin::SinkEntry::Own(key) = entry {
            program.walker.program().symbolize(FrameKey::Own(key), &mut frames);
            assert!(!frames.is_empty(), "a frame without a name: {key:#x}");
            frames.clear();
        }
    }
    for &key in out.labels() {
        let mut labels = Vec::new();
        program.walker.program().labels(key, &mut labels);
        assert!((1..=33).contains(&labels.len()), "{} labels", labels.len());
    }
    if asks_for_threads {
        let mut threads = Vec::new();
        program.guest.frozen.reset_counts();
        program.walker.threads(&program.guest.frozen, &wasm, &mut threads);
        assert!(
            program.guest.frozen.reads.get() <= MOST_READS_OF_THREADS,
            "{} reads",
            program.guest.frozen.reads.get()
        );
        assert!(threads.iter().all(|thread| thread.frames.len() <= FrameSink::CAPACITY));
    }
    let _ = program.walker.program().warnings();
    for (address, before) in written.into_iter().rev() {
        program.guest.frozen.memory[address as usize..address as usize + 8].copy_from_slice(&before);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    PROGRAMS.with_borrow_mut(|programs| {
        let which = usize::from(input.u8()) % programs.len();
        run(&mut programs[which], &mut input);
    });
});
