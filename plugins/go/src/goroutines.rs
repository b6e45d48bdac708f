//! All goroutines of a stopped guest.
//!
//! `runtime.allgs` is a slice variable without a symbol. It is the one in the zero-initialised variables whose array
//! holds the running goroutine and nothing but goroutines.

use crate::{labels, layout::G, pclntab, walk::Walk};
use wlprof_plugin::{FrameSink, GuestMemory, WalkEnd};

/// Bounds the search and the answer.
const MOST_GOROUTINES: u64 = 1 << 20;
const MOST_VARIABLES: u64 = 16 << 20;
const DEAD: u32 = 6;

/// One goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Goroutine {
    /// Its number, as in Go's own tracebacks.
    pub id: u64,
    /// Whether it can run, runs, or what it waits for: `runnable`, `running`, `syscall`, `chan receive`.
    pub state: String,
    /// Its stack, leaf first: frames for `Walker::symbolize` as `FrameKey::Own`.
    pub stack: Vec<u64>,
    /// How the walk of its stack ended.
    pub end: WalkEnd,
    /// The function it was started with, as a frame like those of the stack.
    pub started_with: u64,
    /// The labels the program gave it.
    pub labels: Vec<(String, String)>,
}

/// Reads all goroutines; `sp` and `g` are the running one's.
pub(crate) fn all(mut walk: Walk<'_>, sp: u64, g: G) -> Vec<Goroutine> {
    let running = crate::layout::is_g0(walk.guest, g).unwrap_or(false);
    let running = if running { walk.layout.curg(walk.guest, g).ok().flatten() } else { Some(g) };
    let mut found = Vec::new();
    for other in list(&walk, g) {
        if let Some(goroutine) = read(&mut walk, other, Some(other) == running, sp, g) {
            found.push(goroutine);
        }
    }
    found
}

fn read(walk: &mut Walk<'_>, goroutine: G, is_running: bool, sp: u64, g: G) -> Option<Goroutine> {
    let (layout, guest) = (*walk.layout, walk.guest);
    let status = layout.status(guest, goroutine).ok()?;
    if status == 0 || status == DEAD {
        return None;
    }
    let mut stack = FrameSink::new();
    let mut of_this = Walk {
        program: walk.program,
        layout: walk.layout,
        last_blocks: walk.last_blocks,
        statistics: walk.statistics,
        guest,
        wasm: walk.wasm,
        out: &mut stack,
    };
    let end = if is_running { of_this.run(sp, g) } else { of_this.scheduled(goroutine).unwrap_or_else(WalkEnd::from) };
    let keys = stack.entries().filter_map(|entry| match entry {
        wlprof_plugin::SinkEntry::Own(pc) => Some(pc),
        wlprof_plugin::SinkEntry::Wasm(index) => walk.program.pc(*walk.wasm.get(index)?),
    });
    let stack = keys.collect();
    let start = layout.startpc(guest, goroutine).ok()?;
    Some(Goroutine {
        id: layout.goid(guest, goroutine).ok()?,
        state: state(walk, status, layout.waitreason(guest, goroutine).ok()?),
        stack,
        end,
        started_with: walk.program.table.index(start).map_or(0, |index| pclntab::pc(index, 0)),
        labels: labels::program_labels(guest, &layout, goroutine),
    })
}

fn state(walk: &Walk<'_>, status: u32, reason: u8) -> String {
    let name = match status {
        0 => "idle",
        1 => "runnable",
        2 => "running",
        3 => "syscall",
        4 => return wait_reason(walk, reason).unwrap_or_else(|| "waiting".to_owned()),
        8 => "copystack",
        9 => "preempted",
        10 => "leaked",
        _ => "unknown",
    };
    name.to_owned()
}

/// Reasons are renumbered in each release, but the runtime has an array of their texts: a string without length, then
/// "GC assist marking".
fn wait_reason(walk: &Walk<'_>, reason: u8) -> Option<String> {
    const SECOND: &[u8] = b"GC assist marking";
    const LONGEST: u64 = 64;
    let image = &walk.program.table.image;
    let is_array = |at: u64| image.u64(at + 8) == Some(SECOND.len() as u64) && at >= 16 && image.u64(at - 8) == Some(0);
    let headers = |text: u64| image.find_word(text).find(|at| is_array(*at));
    let array = image.find_text(SECOND).take(16).find_map(headers)? - 16;
    let header = array + 16 * u64::from(reason);
    let (address, length) = (image.u64(header)?, image.u64(header + 8)?);
    if length == 0 || length > LONGEST {
        return None;
    }
    image.text(address, length as usize)
}

/// The runtime's list of goroutines.
fn list(walk: &Walk<'_>, g: G) -> Vec<G> {
    let guest = walk.guest;
    let bss = walk.program.moduledata.bss.clone();
    let size = bss.end.saturating_sub(bss.start).min(MOST_VARIABLES) as usize & !7;
    let mut variables = vec![0; size];
    if guest.read(bss.start, &mut variables).is_err() {
        return Vec::new();
    }
    let one_of_them = match crate::layout::is_g0(guest, g) {
        Ok(true) => walk.layout.curg(guest, g).ok().flatten(),
        _ => Some(g),
    };
    let (words, _) = variables.as_chunks::<8>();
    let slices = words.windows(3).filter_map(|words| {
        let [address, length, capacity] = [words[0], words[1], words[2]].map(u64::from_le_bytes);
        let is_plausible = length > 0 && length <= capacity && length <= MOST_GOROUTINES && address >= 4096;
        is_plausible.then(|| pointers(guest, address, length)).flatten()
    });
    // While the scheduler looks for something to run, no goroutine is known to be in the list; then the largest wins.
    slices
        .filter(|list| one_of_them.is_none_or(|one| list.contains(&one)) && list.iter().all(|g| is_goroutine(walk, *g)))
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

fn pointers(guest: &dyn GuestMemory, address: u64, length: u64) -> Option<Vec<G>> {
    let size = guest.size();
    if address.checked_add(8 * length)? > size {
        return None;
    }
    let mut found = Vec::new();
    for index in 0..length {
        let pointer = guest.read_u64(address + 8 * index).ok()?;
        if pointer == 0 || pointer % 8 != 0 || pointer >= size {
            return None;
        }
        found.push(G(pointer));
    }
    Some(found)
}

fn is_goroutine(walk: &Walk<'_>, g: G) -> bool {
    let (layout, guest) = (walk.layout, walk.guest);
    layout.status(guest, g).is_ok_and(|status| status <= 10) && layout.goid(guest, g).is_ok_and(|id| id < 1 << 40)
}
