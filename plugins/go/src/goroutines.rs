//! All goroutines of a stopped guest.
//!
//! `runtime.allgs` is a slice variable without a symbol. It is the one in the zero-initialised variables whose array
//! holds the running goroutine and nothing but goroutines.

use crate::{
    labels,
    layout::{self, G, Layout},
    pclntab,
    walk::Walk,
};
use wlprof_plugin::{Creator, FrameKey, FrameSink, GuestMemory, Label, ThreadStack, Truncation};

/// Bounds the search and the answer.
const MOST_GOROUTINES: u64 = 1 << 20;
const MOST_VARIABLES: u64 = 16 << 20;
/// A list of the most goroutines, and as much again for what only looks like one.
const MOST_READS: u64 = 2 * MOST_GOROUTINES;
/// Frames of all stacks together; goroutines past it have none.
const MOST_FRAMES: usize = 4 << 20;
const IDLE: u32 = 0;
const DEAD: u32 = 6;

/// Reads all goroutines; `sp` and `g` are the running one's.
pub(crate) fn all(mut walk: Walk<'_>, sp: u64, g: G, out: &mut Vec<ThreadStack>) {
    let running = if layout::is_g0(walk.guest, g) == Ok(true) { curg(&walk, g) } else { Some(g) };
    let goroutines = find(&walk, running, MOST_READS).map(|(_, goroutines)| goroutines).unwrap_or_default();
    if running.is_none() && !goroutines.is_empty() {
        out.push(scheduler(&mut walk, sp, g));
    }
    let mut sink = FrameSink::new();
    let mut frames_left = MOST_FRAMES;
    out.extend(goroutines.into_iter().filter_map(|goroutine| {
        sink.clear();
        let mut thread = describe(&mut walk, goroutine)?;
        if frames_left > 0 {
            let registers = (Some(goroutine) == running).then_some((sp, g));
            read_frames(&mut walk, goroutine, registers, &mut sink, &mut thread);
            let labels = labels::program_labels(walk.guest, walk.layout, goroutine);
            thread.labels = labels.into_iter().map(|(name, value)| Label { name, value }).collect();
            // A label takes about as much as some frames do.
            let size = thread.frames.len() + 32 * thread.labels.len();
            frames_left = frames_left.saturating_sub(size.max(1));
        }
        Some(thread)
    }));
}

/// What runs while no goroutine does: the scheduler, looking for one or waiting for the host.
fn scheduler(walk: &mut Walk<'_>, sp: u64, g: G) -> ThreadStack {
    let mut thread = ThreadStack {
        name: "scheduler".to_owned(),
        state: "running".to_owned(),
        is_running: true,
        frames: Vec::new(),
        walked: Err(Truncation::NoStack),
        creator: None,
        labels: Vec::new(),
    };
    let mut sink = FrameSink::new();
    read_frames(walk, g, Some((sp, g)), &mut sink, &mut thread);
    thread
}

fn curg(walk: &Walk<'_>, g: G) -> Option<G> {
    walk.layout.curg(walk.guest, g).ok().flatten()
}

/// A goroutine without its stack; `None` if this place of the list has none.
fn describe(walk: &mut Walk<'_>, goroutine: G) -> Option<ThreadStack> {
    let (layout, guest) = (*walk.layout, walk.guest);
    let status = layout.status(guest, goroutine).ok().filter(|status| ![IDLE, DEAD].contains(status))?;
    Some(ThreadStack {
        name: format!("goroutine {}", layout.goid(guest, goroutine).ok()?),
        state: state(walk, status, layout.waitreason(guest, goroutine).ok()?),
        is_running: false,
        frames: Vec::new(),
        walked: Err(Truncation::TooDeep),
        creator: creator(walk, goroutine),
        labels: Vec::new(),
    })
}

/// Reads a goroutine's stack; `running` are SP and g if it is the one that runs.
fn read_frames(
    walk: &mut Walk<'_>,
    goroutine: G,
    running: Option<(u64, G)>,
    sink: &mut FrameSink,
    out: &mut ThreadStack,
) {
    let Walk { layout, guest, wasm, .. } = *walk;
    let mut of_this = Walk { code: walk.code, layout, statistics: walk.statistics, guest, wasm, out: sink };
    out.walked = match running {
        Some((sp, g)) => of_this.run(sp, g),
        None => of_this.scheduled(goroutine),
    };
    out.frames = sink.entries().filter_map(|entry| entry.key(wasm)).collect();
    out.is_running = running.is_some();
}

/// The `go` statement that started a goroutine; `None` for the first.
fn creator(walk: &Walk<'_>, goroutine: G) -> Option<Creator> {
    let (parent, pc) = walk.layout.creator(walk.guest, goroutine).ok()?;
    let function = walk.code.table.index(pc)?;
    let frame = FrameKey::Own(pclntab::pc(function, pclntab::block(pc).saturating_sub(1)));
    (parent != 0).then(|| Creator { name: format!("goroutine {parent}"), frame })
}

fn state(walk: &mut Walk<'_>, status: u32, reason: u8) -> String {
    let name = match status {
        1 => "runnable",
        2 => "running",
        3 => "syscall",
        4 => return walk.code.wait_reason(reason).unwrap_or_else(|| "waiting".to_owned()),
        8 => "copystack",
        9 => "preempted",
        10 => "leaked",
        _ => "unknown",
    };
    name.to_owned()
}

/// Address of the variable that has the runtime's list of goroutines, if so many reads find it.
pub(crate) fn variable(walk: &Walk<'_>, reads: u64) -> Option<u64> {
    find(walk, None, reads).map(|(variable, _)| variable)
}

/// Whether the list that the variable at `address` has begins with the main goroutine.
pub(crate) fn begins_at(guest: &dyn GuestMemory, layout: &Layout, address: u64) -> bool {
    let first = guest.read_u64(address).and_then(|array| guest.read_u64(array)).map(G);
    first.and_then(|first| layout.goid(guest, first)) == Ok(1)
}

/// The first goroutines of the list that the variable at `address` has, as many as `bytes` have room for; none if they cannot be
/// read.
pub(crate) fn at_variable<'a>(
    guest: &dyn GuestMemory,
    address: u64,
    bytes: &'a mut [u8],
) -> impl Iterator<Item = G> + use<'a> {
    let mut read = || {
        let (array, length) = (guest.read_u64(address)?, guest.read_u64(address.wrapping_add(8))?);
        let size = (length as usize).saturating_mul(8).min(bytes.len());
        guest.read(array, &mut bytes[..size]).map(|()| size)
    };
    let length = read().unwrap_or(0);
    bytes[..length].as_chunks::<8>().0.iter().map(|word| G(u64::from_le_bytes(*word)))
}

/// The runtime's list of goroutines and where the variable is that has it.
fn find(walk: &Walk<'_>, running: Option<G>, mut reads: u64) -> Option<(u64, Vec<G>)> {
    let guest = walk.guest;
    let bss = walk.code.moduledata.bss.clone();
    let size = bss.end.saturating_sub(bss.start).min(MOST_VARIABLES) as usize & !7;
    let mut variables = vec![0; size];
    guest.read(bss.start, &mut variables).ok()?;
    let (words, _) = variables.as_chunks::<8>();
    let mut longest: Option<(u64, Vec<G>)> = None;
    for (at, words) in words.array_windows().enumerate() {
        let [address, length, capacity] = words.map(u64::from_le_bytes);
        let is_longer = length as usize > longest.as_ref().map_or(0, |(_, goroutines)| goroutines.len());
        if is_longer && length <= capacity && length <= MOST_GOROUTINES && address >= 4096 {
            let found = goroutines_at(walk, address, length, &mut reads);
            // While the scheduler looks for something to run, no goroutine is known to be in the list.
            let found = found.filter(|found| running.is_none_or(|running| found.contains(&running)));
            longest = found.map(|found| (bss.start + 8 * at as u64, found)).or(longest);
        }
    }
    longest
}

/// The array of goroutines at `address`, no two of them the same; `None` if it holds anything else, or if no reads are
/// `left` to find out.
fn goroutines_at(walk: &Walk<'_>, address: u64, length: u64, left: &mut u64) -> Option<Vec<G>> {
    let (guest, layout) = (walk.guest, walk.layout);
    let mut found = Vec::new();
    for index in 0..length {
        *left = left.checked_sub(1)?;
        let g = G(guest.read_u64(address.checked_add(8 * index)?).ok()?);
        let is_goroutine = g.0 != 0
            && g.0.is_multiple_of(8)
            && layout.status(guest, g).is_ok_and(|status| status <= 10)
            // The main goroutine was the first. Lists of other things are full of zeros where numbers would be.
            && layout.goid(guest, g).is_ok_and(|id| if index == 0 { id == 1 } else { id > 1 && id < 1 << 40 });
        if !is_goroutine {
            return None;
        }
        found.push(g);
    }
    // One goroutine a million times would have its stack read as often.
    let mut distinct: Vec<u64> = found.iter().map(|g| g.0).collect();
    distinct.sort_unstable();
    distinct.array_windows().all(|[one, other]| one != other).then_some(found)
}
