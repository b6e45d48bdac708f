//! Guests that lie: every walk ends with a reason, within a bounded number of frames and reads; every attachment that
//! fails says what was found and what happens now.

mod forge;

use forge::*;
#[cfg(unix)]
use std::time::Duration;
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::{
    FrameKey, FrameSink, Language, Program, SinkEntry, SourceFrame, ThreadStack, Truncation, Walker, WasmFrame,
};

/// More than any walk needs: seven reads a frame, and a map of labels.
const MOST_READS: u64 = 32 * 1024;

fn attach(forge: &Forge) -> GoWalker {
    Go.attach_program(&forge.module()).unwrap().new_walker()
}

fn walk_with(walker: &mut GoWalker, guest: &Stopped, wasm: &[WasmFrame]) -> (Result<(), Truncation>, Vec<SinkEntry>) {
    let mut out = FrameSink::new();
    guest.frozen.reset_counts();
    let end = walker.walk(&guest.frozen, wasm, &mut out);
    assert!(guest.frozen.reads.get() <= MOST_READS, "{} reads", guest.frozen.reads.get());
    (end, out.entries().collect())
}

#[cfg(unix)]
fn walk(forge: &Forge, guest: &Stopped, wasm: &[WasmFrame]) -> (Result<(), Truncation>, Vec<SinkEntry>) {
    walk_with(&mut attach(forge), guest, wasm)
}

fn goroutines(walker: &mut GoWalker, guest: &Stopped) -> Vec<ThreadStack> {
    let mut found = Vec::new();
    walker.threads(&guest.frozen, &[], &mut found);
    found
}

fn names(walker: &mut GoWalker, pc: u64) -> Vec<String> {
    let mut frames = Vec::new();
    walker.program().symbolize(FrameKey::Own(pc), &mut frames);
    frames.into_iter().map(|frame: SourceFrame| frame.function).collect()
}

/// The wasm stack of code resumed by the scheduler.
fn resumed(forge: &Forge) -> [WasmFrame; 1] {
    [frame(&forge.module(), LOOP, 0)]
}

#[test]
fn an_honest_guest_is_walked_to_its_root() {
    for minor in [21, 24] {
        let forge = Forge::new(minor);
        let (mut guest, module) = (Stopped::new(&forge), forge.module());
        guest.u64(STACK + 16, pc(MAIN, 1));
        guest.u64(STACK + 24 + 16, pc(GOEXIT, 1));
        // Past the prologue.
        let wasm = [frame(&module, LEAF, 16), frame(&module, LOOP, 0)];
        let mut walker = attach(&forge);
        let (end, frames) = walk_with(&mut walker, &guest, &wasm);
        assert_eq!(end, Ok(()));
        let keys = [pc(LEAF, 1), pc(MAIN, 0), pc(GOEXIT, 0)];
        assert_eq!(frames, keys.map(SinkEntry::Own));
        assert_eq!(names(&mut walker, keys[0])[0], "main.leaf");
        assert_eq!(names(&mut walker, pc(INLINES, 1)), ["runtime.goexit", "main.inlines"]);
        assert!(walker.program().warnings().is_empty(), "{:?}", walker.program().warnings());
    }
}

/// The scheduler's stack says nothing of the layout, and a goroutine's only if it keeps saying so: a short program may be
/// stopped in nothing but the start of its runtime.
#[test]
fn an_unknown_layout_is_told_when_goroutines_keep_fitting_none() {
    let forge = Forge::new(24);
    let mut walker = attach(&forge);
    let mut guest = Stopped::new(&forge);
    guest.u64(STACK - 8, pc(FLAT, 1));
    guest.u64(STACK, pc(GOEXIT, 1));
    let walk = |walker: &mut GoWalker, guest: &Stopped, times: u32| {
        for _ in 0..times {
            assert_eq!(walk_with(walker, guest, &resumed(&forge)).0, Ok(()));
        }
        walker.program().warnings()
    };
    let known = guest.clone();
    // Waiting, under the rows of all releases, and yet it runs.
    guest.u64(G + 144, 4);
    guest.u64(G + 152, 4);
    guest.registers(STACK, G0);
    assert!(walk(&mut walker, &guest, 100).is_empty(), "the scheduler's stack");
    guest.registers(STACK, G);
    assert!(walk(&mut walker, &guest, 9).is_empty());
    let warnings = walk(&mut walker, &guest, 1);
    assert!(matches!(&warnings[..], [warning] if warning.contains("not laid out as in any release")), "{warnings:?}");
    assert!(walk(&mut walker, &known, 1).is_empty(), "one fits");
}

#[test]
fn a_table_that_lies_about_its_size_or_place_is_refused_in_words() {
    let lies: [&dyn Fn(&mut Forge); 5] = [
        &|forge| forge.u64(BASE + 8, 1 << 60),
        &|forge| forge.u64(BASE + 8, u64::from(COUNT) - 1),
        // The list of functions lies past the end, and past what an offset may be.
        &|forge| forge.u64(BASE + 64, 0xffff_fff8),
        &|forge| forge.u64(BASE + 64, u64::MAX - BASE),
        &|forge| forge.u32(FUNCTAB + 8, 0x1000 << 16),
    ];
    for lie in lies {
        let mut forge = Forge::new(24);
        lie(&mut forge);
        let error = Go.attach(&forge.module()).err().unwrap().to_string();
        for part in ["test is Go's", "no table of its 10 functions", "frames will be wasm functions only"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn thousands_of_headers_cost_no_more_than_a_few() {
    let mut forge = Forge::new(24);
    // Each asks for a comparison of every function but for the last, which is wrong.
    forge.u32(FUNCTAB + 8 * (u64::from(COUNT) - 1), 0);
    let header = forge.image[..0x48].to_vec();
    let functions = (FUNCTAB - BASE).to_le_bytes();
    for copy in 0..1000_u64 {
        let mut header = header.clone();
        header[64..72].copy_from_slice(&(u64::from_le_bytes(functions) - 72 * copy.min(28)).to_le_bytes());
        forge.image.extend(header);
    }
    assert!(Go.attach(&forge.module()).is_err());
}

#[test]
fn parts_of_the_table_may_lie_past_the_end() {
    for part in [4, 5, 6, 7] {
        let mut forge = Forge::new(24);
        forge.u64(BASE + 8 * part, 0xffff_ff00);
        // The names are what moduledata is found by.
        forge.u64(MODULEDATA + 8, if part == 4 { BASE + 0xffff_ff00 } else { NAMES });
        let mut walker = attach(&forge);
        let guest = Stopped::new(&forge);
        for index in 0..COUNT {
            assert!(names(&mut walker, pc(index, 1)).len() <= 2);
        }
        let (end, _) = walk_with(&mut walker, &guest, &[frame(&forge.module(), LEAF, 16)]);
        assert_ne!(end, Ok(()), "part {part}");
    }
}

#[test]
fn records_and_names_past_the_end_cost_only_themselves() {
    let mut forge = Forge::new(24);
    forge.u32(record(LEAF) + 4, u32::MAX);
    forge.u32(FUNCTAB + 8 * u64::from(FLAT) + 4, u32::MAX);
    for field in [16, 20, 24, 32] {
        forge.u32(record(TAIL) + field, u32::MAX - 3);
    }
    let mut walker = attach(&forge);
    assert_eq!(names(&mut walker, pc(LEAF, 0)), [""]);
    assert!(names(&mut walker, pc(FLAT, 0)).is_empty());
    assert_eq!(names(&mut walker, pc(TAIL, 0)), ["main.tail"]);
    assert_eq!(names(&mut walker, pc(MAIN, 0)), ["main.main"]);
    assert!(names(&mut walker, pc(COUNT, 0)).is_empty() && names(&mut walker, 0).is_empty());
    // The walk says why it goes no further.
    let mut guest = Stopped::new(&forge);
    guest.u64(STACK - 8, pc(FLAT, 1));
    assert_eq!(walk_with(&mut walker, &guest, &resumed(&forge)).0, Err(Truncation::NoStack));
}

#[test]
fn tables_of_pcs_that_never_end_end() {
    let mut forge = Forge::new(24);
    // To the end of memory: a new value each time, no way forward.
    let end = forge.image.len() as u64 + (1 << 20);
    forge.image.resize(end as usize, 1);
    forge.image.truncate(end as usize - 1);
    forge.image[(IMAGE_END - BASE) as usize..].iter_mut().step_by(2).for_each(|byte| *byte = 2);
    forge.image[(IMAGE_END - BASE + 1) as usize..].iter_mut().step_by(2).for_each(|byte| *byte = 0);
    for field in [16, 20, 24] {
        forge.u32(record(MAIN) + field, (IMAGE_END - PCTAB) as u32);
    }
    forge.u32(record(MAIN) + 44 + 8, (IMAGE_END - PCTAB) as u32);
    let mut walker = attach(&forge);
    assert_eq!(names(&mut walker, pc(MAIN, 0xffff)), ["main.main"]);
    let mut guest = Stopped::new(&Forge::new(24));
    guest.u64(STACK - 8, pc(FLAT, 1));
    guest.u64(STACK, pc(MAIN, 1));
    let (end, frames) = walk_with(&mut walker, &guest, &resumed(&forge));
    assert_eq!((end, frames.len()), (Err(Truncation::Inconsistent), 2));
}

/// CPU time of one walk that has to read a body with so many resume points, up to 32,000 of them: a `br_table` has 65,520
/// targets at the most.
#[cfg(unix)]
fn time_of_reading(regions: u32) -> Duration {
    let mut forge = Forge::new(24);
    let start = forge.image.len();
    forge.image.extend([2, 1].repeat(1 << 16));
    forge.u32(record(LEAF) + 16, (start as u64 + BASE - PCTAB) as u32);
    let leb = |value: u32| [value as u8 | 0x80, (value >> 7) as u8 | 0x80, (value >> 14) as u8];
    let mut body = vec![1, 1, 0x7f, 0x23, 0, 0x21, 1, 0x03, 0x40];
    body.extend([0x02, 0x40].repeat(regions as usize));
    body.extend([0x20, 0, 0x0e]);
    // Blocks go to the regions first upwards and then downwards, so that each region claims all between.
    body.extend(leb(2 * regions - 1));
    (0..regions).chain((1..regions).rev()).for_each(|region| body.extend(leb(region)));
    body.extend(leb(regions - 1));
    body.extend([1, 1, 1, 0x0b].repeat(regions as usize));
    body.extend([0x0b, 0x0b]);
    forge.bodies[LEAF as usize] = body;
    let wasm = [frame(&forge.module(), LEAF, 9)];
    let guest = Stopped::new(&Forge::new(24));
    let cpu_time = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let started = cpu_time();
    let (end, _) = walk(&forge, &guest, &wasm);
    assert_eq!(end, Err(Truncation::Inconsistent));
    cpu_time() - started
}

#[cfg(unix)]
#[test]
fn bodies_with_as_many_resume_points_as_there_are_steps_are_read_in_linear_time() {
    // Reads of the guest do not show it. Of sixteen times as many what is quadratic makes 256 times as much: half a minute.
    let (some, many) = (time_of_reading(2_000), time_of_reading(32_000));
    assert!(many < 64 * some, "{some:?} {many:?}");
}

#[test]
fn cyclic_trees_of_inlined_calls_end() {
    let mut forge = Forge::new(24);
    // Block 1 is of call 0, which was inlined in block 2, which is of call 1, which was inlined in block 1.
    forge.u32(TREES + 8, 2);
    forge.u32(TREES + 16 + 8, 1);
    let frames = names(&mut attach(&forge), pc(INLINES, 1));
    assert!(frames.len() > 2 && frames.len() <= 65, "{}", frames.len());
    assert_eq!(frames.last().unwrap(), "main.inlines");
}

#[test]
fn moduledata_may_point_anywhere() {
    let mut forge = Forge::new(24);
    forge.u64(MODULEDATA, BASE + 8);
    let error = Go.attach(&forge.module()).err().unwrap().to_string();
    assert!(error.contains("moduledata cannot be found; frames will be wasm functions only"), "{error}");

    for anywhere in [0, BASE, IMAGE_END - 4, u64::from(u32::MAX), u64::MAX - 3, u64::MAX] {
        let mut forge = Forge::new(24);
        for field in [224, 232, 320] {
            forge.u64(MODULEDATA + field, anywhere);
        }
        let mut walker = attach(&forge);
        assert_eq!(names(&mut walker, pc(INLINES, 1)), ["main.inlines"], "{anywhere:#x}");
        assert_eq!(walker.program().warnings().len(), 1, "{anywhere:#x}");
        assert!(goroutines(&mut walker, &Stopped::new(&forge)).is_empty());
    }
    // From the start of memory to its end, and the wrong way round.
    for (start, end) in [(0, u64::MAX), (EBSS, BSS), (MEMORY - 8, MEMORY)] {
        forge = Forge::new(24);
        forge.u64(MODULEDATA + 224, start);
        forge.u64(MODULEDATA + 232, end);
        assert!(goroutines(&mut attach(&forge), &Stopped::new(&forge)).is_empty());
    }
}

/// Tables of lines and files that begin within each other, each as long as they may be. A lookup used to go through one from
/// its start.
#[test]
fn tables_within_each_other_are_decoded_once_and_not_all() {
    const STEPS: u32 = 0xffff;
    let mut forge = Forge::new(24);
    let start = forge.image.len() as u32 - (PCTAB - forge::BASE) as u32;
    // One line, and one block, further.
    forge.image.extend([2, 1].repeat(STEPS as usize + 2 * COUNT as usize));
    for function in 0..COUNT {
        forge.u32(record(function) + 24, start + 2 * function);
        forge.u32(record(function) + 20, start + 2 * (COUNT + function));
    }
    let walker = attach(&forge);
    let line = |function, block: u32| {
        let mut frames = Vec::new();
        walker.program().symbolize(FrameKey::Own(pc(function, block.into())), &mut frames);
        let frame = frames.pop().unwrap();
        assert!(!frame.function.is_empty());
        frame.line
    };
    for block in (1..STEPS).rev() {
        assert_eq!(line(LEAF, block), Some(block));
    }
    let known = (0..COUNT).filter(|&function| line(function, STEPS - 1).is_some()).count();
    assert!((1..COUNT as usize).contains(&known), "{known}");
    assert!(
        walker.program().warnings().iter().any(|warning| warning.contains("given up")),
        "{:?}",
        walker.program().warnings()
    );
}
