//! A language's own stacks, as its walker reads them of a guest that stands still, with the wasm frames of other modules among them. Whose
//! memory it is does not matter.

use crate::code_map::CodeReader;
use crate::dump::{Dump, DumpedFrame, DumpedFrameId, DumpedThread};
use crate::frames::FrameWord;
use crate::language_record::{self, Natives};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use wlprof_plugin::{
    FrameKey, FrameSink, GuestMemory, HeapBucket, Program, ThreadStack, Truncation, Walker, WasmFrame,
};
use wlprof_recording::{LanguageTruncation, ModuleId, Origin};

/// Panics of a walker after which it is not called any more.
const MOST_PANICS: u32 = 3;

/// Buckets of a runtime's own heap profile that are believed.
const MAX_BUCKETS: usize = 1 << 20;

/// Places of the cache of native pcs, which recur: a power of two.
const CACHED_PCS: usize = 1024;

/// The name of labels that say what the guest does.
const STATE: &str = "state";

/// What a recording says of a walk's end.
fn recorded(reason: Truncation) -> LanguageTruncation {
    match reason {
        Truncation::TooDeep => LanguageTruncation::TooDeep,
        Truncation::BadPointer => LanguageTruncation::BadPointer,
        Truncation::Cycle => LanguageTruncation::Cycle,
        Truncation::Inconsistent => LanguageTruncation::Inconsistent,
        Truncation::NoStack => LanguageTruncation::NoStack,
        Truncation::WouldAllocate => LanguageTruncation::InHostCode,
        Truncation::Failed => LanguageTruncation::Panicked,
        Truncation::Busy => LanguageTruncation::Busy,
    }
}

/// A walker of one memory, and what it needs to walk again and again without allocating.
pub struct LanguageStacks {
    module: ModuleId,
    /// The others that work on its memory, by the numbers that frames have.
    siblings: Vec<ModuleId>,
    /// Names what is dumped.
    program: Arc<dyn Program>,
    walker: Box<dyn Walker>,
    sink: FrameSink,
    wasm: Vec<WasmFrame>,
    /// For each frame in `wasm`, its index among the record's native frames.
    native: Vec<u16>,
    /// The indices of those that the walker is not given, since they work on other memories.
    others: Vec<u16>,
    cache: Vec<(FrameWord, Place)>,
    panics: u32,
    /// Returns whether the last walk ended in one.
    panicked_last: bool,
}

/// Where a native frame is, for a walker.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In a module that works on the walker's memory.
    Given(WasmFrame),
    /// In other wasm, or between components.
    Other,
    /// In no wasm: a stub.
    Nowhere,
}

impl LanguageStacks {
    /// Prepares `walker`, of `program`, for the memory that `module` and these siblings work on.
    pub fn new(module: ModuleId, siblings: Vec<ModuleId>, program: Arc<dyn Program>, walker: Box<dyn Walker>) -> Self {
        Self {
            module,
            siblings,
            program,
            walker,
            sink: FrameSink::new(),
            wasm: Vec::with_capacity(FrameSink::CAPACITY),
            native: Vec::with_capacity(FrameSink::CAPACITY),
            others: Vec::with_capacity(FrameSink::CAPACITY),
            cache: vec![(FrameWord(0), Place::Nowhere); CACHED_PCS],
            panics: 0,
            panicked_last: false,
        }
    }

    /// Walks the language's stack and writes it into `words`, of which there are [`MAX_LANGUAGE_WORDS`](crate::MAX_LANGUAGE_WORDS). Returns the
    /// number of words written, which [`LanguageStack::read`](crate::LanguageStack::read) reads.
    ///
    /// `frames` are the native frames found before, leaf first. Without any, what is walked is one of the language's tasks that are suspended.
    /// With `may_allocate` false the walker neither allocates nor frees memory.
    pub fn collect(
        &mut self,
        guest: &dyn GuestMemory,
        code: &CodeReader<'_>,
        frames: &[u64],
        may_allocate: bool,
        words: &mut [u64],
    ) -> usize {
        self.find_wasm_frames(code, frames);
        self.sink.clear();
        self.sink.set_may_allocate(may_allocate);
        let is_asked = self.panics < MOST_PANICS;
        let walked = if is_asked {
            let (walker, wasm, sink) = (&mut self.walker, &self.wasm, &mut self.sink);
            let walk = || match frames.is_empty() {
                true => walker.walk_suspended(guest, sink),
                false => walker.walk(guest, wasm, sink),
            };
            catch_unwind(AssertUnwindSafe(walk)).unwrap_or(Err(Truncation::Failed))
        } else {
            Err(Truncation::Failed)
        };
        self.panicked_last = is_asked && walked == Err(Truncation::Failed);
        self.panics += u32::from(self.panicked_last);
        if walked.is_err_and(|reason| !reason.keeps_frames()) {
            self.sink.clear();
        }
        // Readers take it that nothing is missing where there is no stack. Nothing is if all wasm frames are there.
        let is_cut = !self.sink.is_empty() && self.sink.len() < self.wasm.len();
        let is_cut = is_cut && walked == Err(Truncation::NoStack);
        let walked = if is_cut { Err(Truncation::Inconsistent) } else { walked };
        let natives = Natives { given: &self.native, others: &self.others };
        language_record::write(&self.sink, natives, self.module, walked.err().map(recorded), words)
    }

    /// Reads and names the stacks of all threads that the language has, or else the one that [`Walker::walk`] gives. There are none if it has no
    /// stack, or panics.
    ///
    /// `frames` are the native frames of the running one, leaf first. `state` is what the guest does, where the language does not know better.
    pub fn threads(&mut self, guest: &dyn GuestMemory, code: &CodeReader<'_>, frames: &[u64], state: &str) -> Dump {
        self.find_wasm_frames(code, frames);
        let (walker, wasm, sink) = (&mut *self.walker, &self.wasm, &mut self.sink);
        let (attached, program, siblings) = (self.module, &*self.program, &self.siblings);
        let natives = Natives { given: &self.native, others: &self.others };
        let id = |module: u32| match module.checked_sub(1) {
            None => Some(attached),
            Some(sibling) => siblings.get(sibling as usize).copied(),
        };
        catch_unwind(AssertUnwindSafe(|| {
            let mut threads = Vec::new();
            walker.threads(guest, wasm, &mut threads);
            if threads.is_empty() {
                threads.extend(running_thread(walker, program, guest, wasm, sink, state));
            }
            let mut dump = Dump::default();
            let mut known = HashMap::new();
            let origin = |native: u16| code.origin(FrameWord(frames[usize::from(native)]).native_pc());
            let mut frame = |place: DumpEntry| {
                *known.entry(place).or_insert_with(|| {
                    let key = match place {
                        DumpEntry::Of(key) => key,
                        DumpEntry::Other(native) => {
                            let origin = origin(native).unwrap_or(Origin::Elided);
                            dump.frames.push(DumpedFrame::Unnamed(origin));
                            return (dump.frames.len() - 1) as DumpedFrameId;
                        }
                    };
                    let mut lines = Vec::new();
                    if key != FrameKey::Elided {
                        program.symbolize(key, &mut lines);
                    }
                    dump.frames.push(match key {
                        FrameKey::Wasm(WasmFrame { module, function, code_offset })
                            if let (Some(module), true) = (id(module), lines.is_empty()) =>
                        {
                            DumpedFrame::Unnamed(Origin::Wasm { module, function, code_offset })
                        }
                        FrameKey::Elided => DumpedFrame::Unnamed(Origin::Elided),
                        _ => DumpedFrame::Source(lines),
                    });
                    (dump.frames.len() - 1) as DumpedFrameId
                })
            };
            let thread = |thread: ThreadStack| DumpedThread {
                name: thread.name,
                state: thread.state,
                is_running: thread.is_running,
                frames: match thread.is_running {
                    true => with_others(&thread.frames, wasm, natives).into_iter().map(&mut frame).collect(),
                    false => thread.frames.into_iter().map(|key| frame(DumpEntry::Of(key))).collect(),
                },
                truncation: thread.walked.err().map(recorded),
                creator: thread.creator.map(|creator| (creator.name, frame(DumpEntry::Of(creator.frame)))),
                labels: thread.labels,
            };
            let threads = threads.into_iter().map(thread).collect();
            Dump { threads, ..dump }
        }))
        .unwrap_or_default()
    }

    /// Returns what the language's runtime has counted itself of what the guest allocates, and how many bytes are between two of its samples.
    ///
    /// # Errors
    /// The reason why it could not be read.
    pub fn heap_profile(&mut self, guest: &dyn GuestMemory) -> Result<(u64, Vec<HeapBucket>), Truncation> {
        if self.panics >= MOST_PANICS {
            return Err(Truncation::Failed);
        }
        let (walker, mut buckets) = (&mut self.walker, Vec::new());
        let read = catch_unwind(AssertUnwindSafe(|| walker.heap_profile(guest, &mut buckets)));
        let read = read.unwrap_or(Err(Truncation::Failed));
        self.panics += u32::from(read == Err(Truncation::Failed));
        if buckets.len() > MAX_BUCKETS {
            return Err(Truncation::TooDeep);
        }
        read.map(|rate| (rate, buckets))
    }

    /// Writes a stack of a bucket as [`Self::collect`] does, and gives the number of words.
    pub fn write_bucket(&mut self, bucket: &HeapBucket, words: &mut [u64]) -> usize {
        self.sink.clear();
        let pushed = bucket.frames.iter().try_for_each(|frame| match frame {
            FrameKey::Own(key) => self.sink.push(*key),
            // It is on no wasm stack that anybody has walked.
            FrameKey::Wasm(_) | FrameKey::Elided => self.sink.push_elided(),
        });
        let truncation = pushed.err().map(recorded);
        language_record::write(&self.sink, Natives::default(), self.module, truncation, words)
    }

    /// Returns whether the last walk ended in a panic, or was left because it did not end.
    pub fn panicked_last(&self) -> bool {
        self.panicked_last
    }

    /// Returns whether it gives what suspended tasks await.
    pub fn reads_suspended_tasks(&self) -> bool {
        self.walker.reads_suspended_tasks()
    }

    /// Returns whether it can walk where host code was interrupted, which may hold the allocator's lock.
    pub fn walks_without_allocating(&self) -> bool {
        self.walker.walks_without_allocating()
    }

    fn find_wasm_frames(&mut self, code: &CodeReader<'_>, frames: &[u64]) {
        self.wasm.clear();
        self.native.clear();
        self.others.clear();
        for (index, &word) in frames.iter().enumerate().take(FrameSink::CAPACITY) {
            let word = FrameWord(word);
            let cached = &mut self.cache[(word.pc() >> 2) % CACHED_PCS];
            if cached.0 != word {
                *cached = (word, place(code, word, self.module, &self.siblings));
            }
            match cached.1 {
                Place::Given(frame) => {
                    self.wasm.push(frame);
                    self.native.push(index as u16);
                }
                Place::Other => self.others.push(index as u16),
                Place::Nowhere => {}
            }
        }
    }
}

/// What stands on a stack that is dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DumpEntry {
    /// A frame that the walker gave.
    Of(FrameKey),
    /// The native frame of this index, which it was not given.
    Other(u16),
}

/// A stack that runs, as a walker gave it, with the frames among it that it was not given: where a record has them (see
/// [`language_record::write`]). `wasm` are those that it was given.
fn with_others(stack: &[FrameKey], wasm: &[WasmFrame], natives: Natives<'_>) -> Vec<DumpEntry> {
    let mut others = natives.others.iter().copied().peekable();
    let mut all = Vec::new();
    if stack.is_empty() {
        return all;
    }
    let mut push_others_before = |native: u16, all: &mut Vec<DumpEntry>| {
        all.extend(std::iter::from_fn(|| others.next_if(|other| *other < native)).map(DumpEntry::Other));
    };
    push_others_before(natives.given.first().copied().unwrap_or(u16::MAX), &mut all);
    let mut given = natives.given.iter().zip(wasm);
    for key in stack {
        let mut rest = given.clone();
        if let FrameKey::Wasm(frame) = key
            && let Some((native, _)) = rest.find(|(_, own)| *own == frame)
        {
            given = rest;
            push_others_before(*native, &mut all);
        }
        all.push(DumpEntry::Of(*key));
    }
    push_others_before(u16::MAX, &mut all);
    all
}

/// The stack that runs, of a language that gives no threads. `None` if it has no stack at this moment.
fn running_thread(
    walker: &mut dyn Walker,
    program: &dyn Program,
    guest: &dyn GuestMemory,
    wasm: &[WasmFrame],
    sink: &mut FrameSink,
    state: &str,
) -> Option<ThreadStack> {
    sink.clear();
    sink.set_may_allocate(true);
    let walked = walker.walk(guest, wasm, sink);
    if walked.is_err_and(|reason| !reason.keeps_frames()) || sink.is_empty() {
        return None;
    }
    let mut labels = Vec::new();
    sink.labels().iter().for_each(|&key| program.labels(key, &mut labels));
    // The language knows better what its code does.
    let known = labels.iter().position(|label| label.name == STATE).map(|index| labels.remove(index).value);
    Some(ThreadStack {
        name: "main".to_owned(),
        state: known.unwrap_or_else(|| state.to_owned()),
        is_running: true,
        frames: sink.entries().filter_map(|entry| entry.key(wasm)).collect(),
        walked,
        creator: None,
        labels,
    })
}

/// Where a native frame is, for a walker of `attached` and its siblings.
fn place(code: &CodeReader<'_>, word: FrameWord, attached: ModuleId, siblings: &[ModuleId]) -> Place {
    match code.origin(word.native_pc()) {
        Some(Origin::Wasm { module, function, code_offset }) if module == attached => {
            Place::Given(WasmFrame::attached(function, code_offset))
        }
        Some(Origin::Wasm { module, function, code_offset }) => {
            let sibling = (1..).zip(siblings).find(|(_, sibling)| **sibling == module);
            sibling.map_or(Place::Other, |(module, _)| Place::Given(WasmFrame { module, function, code_offset }))
        }
        Some(_) => Place::Other,
        None => Place::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_a_walker_was_not_given_stand_where_they_are_in_samples() {
        let frame = |function| WasmFrame::attached(function, 0);
        let wasm = |function| DumpEntry::Of(FrameKey::Wasm(frame(function)));
        let own = |key| DumpEntry::Of(FrameKey::Own(key));
        // Of six native frames the walker was given three, two of them alike.
        let natives = Natives { given: &[1, 3, 4], others: &[0, 2, 5] };
        let given = [frame(7), frame(8), frame(7)];
        let keys = |stack: &[DumpEntry]| -> Vec<FrameKey> {
            let key = |place: &DumpEntry| match place {
                DumpEntry::Of(key) => *key,
                DumpEntry::Other(_) => panic!("a walker knows none"),
            };
            stack.iter().map(key).collect()
        };
        let [first, second, third] = [0, 2, 5].map(DumpEntry::Other);
        let cases: [(&[DumpEntry], &[DumpEntry]); 4] = [
            (&[wasm(7), own(1), wasm(8), wasm(7)], &[first, wasm(7), own(1), second, wasm(8), wasm(7), third]),
            // Its own frame in place of one.
            (&[own(1), wasm(8)], &[first, own(1), second, wasm(8), third]),
            (&[own(1)], &[first, own(1), second, third]),
            (&[], &[]),
        ];
        for (stack, expected) in cases {
            assert_eq!(with_others(&keys(stack), &given, natives), expected, "{stack:?}");
        }
    }
}
