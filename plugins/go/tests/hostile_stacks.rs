//! Stopped guests whose registers, stacks, goroutines and labels lie: every walk ends with a reason, within a bounded
//! number of frames and reads.

mod forge;

use forge::*;
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::{FrameSink, Program, SinkEntry, ThreadStack, Truncation, Walker, WasmFrame};

/// More than any walk needs: seven reads a frame, and a map of labels.
const MOST_READS: u64 = 32 * 1024;
const OUTSIDE: [u64; 5] = [MEMORY - 4, MEMORY, u32::MAX as u64 - 7, u64::MAX - 7, u64::MAX];

struct Outcome {
    end: Result<(), Truncation>,
    frames: Vec<SinkEntry>,
    labels: Vec<(String, String)>,
}

fn walk(forge: &Forge, guest: &Stopped, wasm: &[WasmFrame]) -> Outcome {
    let mut walker = attach(forge);
    let mut out = FrameSink::new();
    let end = walker.walk(&guest.frozen, wasm, &mut out);
    assert!(guest.frozen.reads.get() <= MOST_READS, "{} reads", guest.frozen.reads.get());
    let mut labels = Vec::new();
    out.labels().iter().for_each(|&key| walker.program().labels(key, &mut labels));
    let labels = labels.into_iter().map(|label| (label.name, label.value)).collect();
    Outcome { end, frames: out.entries().collect(), labels }
}

fn attach(forge: &Forge) -> GoWalker {
    Go.attach_program(&forge.module()).unwrap().new_walker()
}

fn goroutines(forge: &Forge, guest: &Stopped) -> Vec<ThreadStack> {
    let mut found = Vec::new();
    attach(forge).threads(&guest.frozen, &[], &mut found);
    found
}

fn leaf(forge: &Forge) -> [WasmFrame; 2] {
    [frame(&forge.module(), LEAF, 16), frame(&forge.module(), LOOP, 0)]
}

/// The wasm stack of code resumed by the scheduler.
fn resumed(forge: &Forge) -> [WasmFrame; 1] {
    [frame(&forge.module(), LOOP, 0)]
}

#[test]
fn sp_outside_memory_leaves_the_wasm_stack() {
    let forge = Forge::new(24);
    for sp in OUTSIDE {
        let mut guest = Stopped::new(&forge);
        guest.registers(sp, G);
        let outcome = walk(&forge, &guest, &leaf(&forge));
        assert_eq!((outcome.end, outcome.frames.len()), (Err(Truncation::Inconsistent), 1), "{sp:#x}");
        assert_eq!(walk(&forge, &guest, &resumed(&forge)).end, Err(Truncation::NoStack), "{sp:#x}");
    }
}

#[test]
fn a_stack_that_runs_out_of_memory_is_a_bad_pointer() {
    let forge = Forge::new(24);
    let mut guest = Stopped::new(&forge);
    guest.registers(MEMORY - 64, G);
    guest.fill(MEMORY - 72, MEMORY, pc(FLAT, 1));
    let outcome = walk(&forge, &guest, &resumed(&forge));
    assert_eq!((outcome.end, outcome.frames.len()), (Err(Truncation::BadPointer), 9));
}

#[test]
fn return_addresses_that_lead_nowhere_are_inconsistent() {
    let forge = Forge::new(24);
    for nowhere in [0, 1, pc(COUNT, 0), pc(COUNT, 1), u64::MAX, 0x0fff << 16] {
        let mut guest = Stopped::new(&forge);
        guest.u64(STACK - 8, pc(FLAT, 1));
        guest.u64(STACK, nowhere);
        let outcome = walk(&forge, &guest, &resumed(&forge));
        assert_eq!((outcome.end, outcome.frames.len()), (Err(Truncation::Inconsistent), 1), "{nowhere:#x}");
    }
}

#[test]
fn g_outside_memory_costs_the_goroutine_and_not_the_stack() {
    let forge = Forge::new(24);
    for g in OUTSIDE {
        let mut guest = Stopped::new(&forge);
        guest.registers(STACK, g);
        guest.u64(STACK - 8, pc(FLAT, 1));
        guest.u64(STACK, pc(GOEXIT, 1));
        let outcome = walk(&forge, &guest, &resumed(&forge));
        assert_eq!((outcome.end, outcome.frames.len()), (Ok(()), 2), "{g:#x}");
        assert!(outcome.labels.is_empty());
        assert!(goroutines(&forge, &guest).is_empty());
    }
    // No registers at all, as before the runtime has started.
    let mut guest = Stopped::new(&forge);
    for (sp, g) in [(0, G), (STACK, 0)] {
        guest.registers(sp, g);
        assert_eq!(walk(&forge, &guest, &leaf(&forge)).end, Err(Truncation::NoStack));
    }
}

#[test]
fn a_stack_of_one_return_address_over_and_over_is_too_deep() {
    // Each is 8 bytes further up, as deep recursion would have it: only the number of frames tells.
    let forge = Forge::new(24);
    for function in [FLAT, MAIN, TAIL] {
        let mut guest = Stopped::new(&forge);
        guest.registers(HEAP + 8, G);
        guest.fill(HEAP, MEMORY, pc(function, 1));
        let outcome = walk(&forge, &guest, &resumed(&forge));
        assert_eq!((outcome.end, outcome.frames.len()), (Err(Truncation::TooDeep), FrameSink::CAPACITY));
    }
}

#[test]
fn switches_between_stacks_that_lead_back_end() {
    for function in [SYSTEMSTACK, MORESTACK] {
        let forge = Forge::new(24);
        let mut guest = Stopped::new(&forge);
        // The scheduler's stack says to go on with the goroutine, which is the scheduler itself.
        guest.registers(STACK, G0);
        guest.u64(M + 144, G0);
        guest.u64(G0 + G_SCHED_SP, STACK);
        guest.u64(G0 + G_SCHED_PC, pc(function, 1));
        guest.fill(STACK - 8, MEMORY, pc(function, 1));
        let outcome = walk(&forge, &guest, &resumed(&forge));
        assert_eq!(outcome.end, Err(Truncation::Cycle));
        assert!(outcome.frames.len() <= 8, "{}", outcome.frames.len());
    }
}

#[test]
fn a_write_barrier_below_itself_ends() {
    let forge = Forge::new(24);
    let mut guest = Stopped::new(&forge);
    guest.u64(STACK - 8, pc(BARRIER, 1));
    // Its caller has made a tail call, so SP is above its return address, which is the write barrier's again: the one
    // stack that does not grow.
    let module = forge.module();
    let mut wasm = vec![frame(&module, LOOP, 0); FrameSink::CAPACITY];
    let tail = module.bodies[TAIL as usize].len() as u32 - 4;
    wasm[FrameSink::CAPACITY - 2..].copy_from_slice(&[frame(&module, BARRIER, 1), frame(&module, TAIL, tail)]);
    let outcome = walk(&forge, &guest, &wasm);
    assert_eq!(outcome.end, Err(Truncation::Cycle));
    assert_eq!(outcome.frames[2], SinkEntry::Own(pc(BARRIER, 0)), "it did not go round");
}

#[test]
fn wasm_frames_that_do_not_exist_are_shown_as_they_are() {
    let forge = Forge::new(24);
    let guest = Stopped::new(&forge);
    let frame = |function, code_offset| WasmFrame::attached(function, code_offset);
    let outcome = walk(&forge, &guest, &[frame(u32::MAX, u32::MAX), frame(0, 0), frame(1 + COUNT, 3)]);
    assert_eq!((outcome.end, outcome.frames), (Err(Truncation::NoStack), (0..3).map(SinkEntry::Wasm).collect()));
    for code_offset in [0, u32::MAX] {
        let outcome = walk(&forge, &guest, &[frame(1 + LEAF, code_offset)]);
        assert_eq!((outcome.end, outcome.frames.len()), (Err(Truncation::Inconsistent), 1));
    }
    assert_eq!(walk(&forge, &guest, &[]).end, Err(Truncation::NoStack));
}

#[test]
fn lists_of_goroutines_with_huge_lengths_are_not_believed() {
    let forge = Forge::new(24);
    for length in [1 << 14, 1 << 20, (1 << 20) + 1, 1 << 32, 1 << 61, u64::MAX] {
        let mut guest = Stopped::new(&forge);
        guest.u64(BSS, HEAP);
        guest.u64(BSS + 8, length);
        guest.u64(BSS + 16, length);
        guest.fill(HEAP, HEAP + 0x1_0000, G);
        assert!(goroutines(&forge, &guest).is_empty(), "{length:#x}");
        assert!(guest.frozen.reads.get() < 1 << 17);
    }
    let mut guest = Stopped::new(&forge);
    guest.u64(BSS, HEAP);
    guest.u64(BSS + 8, 1);
    guest.u64(BSS + 16, 1);
    guest.u64(HEAP, G);
    let found = goroutines(&forge, &guest);
    assert_eq!(found.iter().map(|thread| &thread.name).collect::<Vec<_>>(), ["goroutine 1"]);
}

#[test]
fn variables_that_are_all_lists_of_goroutines_cost_a_bounded_number_of_reads() {
    let mut forge = Forge::new(24);
    forge.u64(MODULEDATA + 224, 1 << 20);
    forge.u64(MODULEDATA + 232, 8 << 20);
    let mut guest = Stopped::new(&forge);
    guest.frozen.memory.resize(9 << 20, 0);
    // Nearly a million words, any three of which are a list of 131,072 goroutines.
    guest.fill(1 << 20, 8 << 20, 1 << 17);
    (0..1 << 17).for_each(|index| guest.u64((1 << 17) + 8 * index, 8 * (index + 1)));
    guest.registers(STACK, G);
    assert!(goroutines(&forge, &guest).len() <= 1 << 17);
    assert!(guest.frozen.reads.get() < 32 << 20, "{} reads", guest.frozen.reads.get());
}

#[test]
fn maps_of_labels_whose_buckets_lead_back_end() {
    let forge = Forge::new(21);
    for used in [0, 0x77] {
        let mut guest = Stopped::new(&forge);
        let (header, map, bucket) = (HEAP, HEAP + 0x100, HEAP + 0x200);
        guest.u64(G + 344, header);
        guest.u64(header, map);
        // As many buckets as can be, and as many old ones.
        guest.u64(map + 8, 0xff << 8);
        guest.u64(map + 16, bucket);
        guest.u64(map + 24, bucket);
        for index in 0..64 {
            let bucket = bucket + 272 * index;
            guest.u64(bucket, u64::from_le_bytes([used; 8]));
            guest.u64(bucket + 264, bucket);
        }
        let outcome = walk(&forge, &guest, &leaf(&forge));
        assert_eq!(outcome.labels[0], ("goroutine".to_owned(), "1".to_owned()));
        assert_eq!(outcome.labels.len(), if used == 0 { 1 } else { 33 });
    }
}

#[test]
fn labels_with_huge_lengths_are_cut() {
    let forge = Forge::new(24);
    let mut guest = Stopped::new(&forge);
    let (header, items) = (HEAP, HEAP + 0x100);
    guest.u64(G + 352, header);
    guest.u64(header, items);
    guest.u64(header + 8, u64::MAX);
    for index in 0..64 {
        for string in [0, 16] {
            guest.u64(items + 32 * index + string, STACK);
            guest.u64(items + 32 * index + string + 8, u64::MAX - index);
        }
    }
    let outcome = walk(&forge, &guest, &leaf(&forge));
    assert_eq!(outcome.labels.len(), 33);
    assert!(outcome.labels.iter().all(|(name, value)| name.len() <= 256 && value.len() <= 256));
    // Strings outside memory end the list and keep what was before.
    guest.u64(items + 32 * 3, u64::MAX - 3);
    guest.frozen.reset_counts();
    assert_eq!(walk(&forge, &guest, &leaf(&forge)).labels.len(), 1 + 3);
}

#[test]
fn goroutines_that_make_up_labels_use_a_bounded_amount_of_memory() {
    let forge = Forge::new(24);
    let mut guest = Stopped::new(&forge);
    let (header, items) = (HEAP, HEAP + 0x100);
    guest.u64(G + 352, header);
    guest.u64(header, items);
    guest.u64(header + 8, 32);
    for index in 0..32 {
        for string in [0, 16] {
            guest.u64(items + 32 * index + string, STACK);
            guest.u64(items + 32 * index + string + 8, 256);
        }
    }
    let mut walker = attach(&forge);
    let mut with_labels = 0;
    let wasm = leaf(&forge);
    for number in 0..4096_u64 {
        guest.u64(STACK, number);
        let mut out = FrameSink::new();
        let _ = walker.walk(&guest.frozen, &wasm, &mut out);
        with_labels += u64::from(!out.labels().is_empty());
    }
    // 16 KiB each, 16 MiB in all.
    assert!((1000..2000).contains(&with_labels), "{with_labels}");
}
