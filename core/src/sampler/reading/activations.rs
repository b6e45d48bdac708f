//! The entries into wasm that a store has open, on whatever stacks they are.
//!
//! A host call may enter wasm again, on the same stack or, in an async store, on a fiber of its own; and the tasks of one
//! store take turns, each on its fiber. So entries need not end in the reverse order of their beginning. They are told apart by
//! the frame through which the host entered wasm; the store says only that of the entry that runs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use wlprof_walk::Activation;

/// Places in a chunk.
const CHUNK: usize = 32;
/// Chunks that there may be.
const CHUNKS: usize = 32;
/// Entries that may be open: nested in each other, or of tasks that take turns. While there are more, stacks are truncated.
const MAX_OPEN: usize = CHUNK * CHUNKS;

/// No entry.
const NONE: usize = usize::MAX;

/// The entries of a store.
///
/// The call hook writes it, on one thread at a time. The signal handler may read it between any two instructions of the hook,
/// and the drain while the thread is blocked. So a place is filled before anything leads to it.
pub(in crate::sampler) struct Activations {
    chunks: [OnceLock<Box<[Place; CHUNK]>>; CHUNKS],
    /// Index of the entry whose wasm ran last; [`NONE`] if none.
    innermost: AtomicUsize,
    /// How many are open.
    open: AtomicUsize,
    /// Some entry has found no place, and since then not all have ended.
    overflowed: AtomicBool,
    /// Number of the newest entry.
    entries: AtomicU64,
    /// Number of the newest host call.
    host_calls: AtomicU64,
}

#[derive(Default)]
struct Place {
    /// Number of the entry, from 1; 0 if the place is free.
    number: AtomicU64,
    /// Lowest address of the fiber that it is on; 0 if it is on a thread's stack.
    fiber: AtomicUsize,
    /// What the store said just before it: exit pc, trampoline frame, entry frame.
    outer: [AtomicUsize; 3],
    /// The entry whose host call made this one: its place, its number and that of the call.
    outer_entry: AtomicUsize,
    outer_number: AtomicU64,
    outer_host_call: AtomicU64,
    /// Its entry frame, known from its first host call on; 0 until then.
    entry_fp: AtomicUsize,
    /// Number of the host call that is going on; 0 if none is.
    host_call: AtomicU64,
    /// Where wasm left for it: exit pc and trampoline frame. A task that is suspended there has taken this with it, so that the store does
    /// not say it.
    exit: [AtomicUsize; 2],
    /// Samples of that call await the language's stack.
    awaits_language: AtomicBool,
}

/// An open entry.
#[derive(Clone, Copy)]
pub(in crate::sampler) struct Entry<'a> {
    all: &'a Activations,
    index: usize,
    place: &'a Place,
}

impl Activations {
    pub(in crate::sampler) fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            innermost: AtomicUsize::new(NONE),
            open: AtomicUsize::new(0),
            overflowed: AtomicBool::new(false),
            entries: AtomicU64::new(0),
            host_calls: AtomicU64::new(0),
        }
    }

    /// Whether any is open.
    pub(in crate::sampler) fn any(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Whether more were open than there are places, and not all have ended since: it is not known then which are left, and places may
    /// be of entries that have ended.
    pub(in crate::sampler) fn overflow(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The host enters wasm on the stack `fiber`; `outer` is what the store said before.
    pub(in crate::sampler) fn enter(&self, outer: Activation, fiber: usize) {
        if outer.entry_fp == 0 {
            // Nothing else can be open on this stack: a host function that panicked was left without a word.
            self.forget_on(fiber);
        }
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open + 1, Ordering::Relaxed);
        let outer_entry = self.current(outer);
        let Some(index) = self.free_place(open) else {
            self.overflowed.store(true, Ordering::Relaxed);
            return;
        };
        let place = self.chunks[index / CHUNK].get_or_init(Box::default);
        let place = &place[index % CHUNK];
        let Activation { exit_pc, exit_trampoline_fp, entry_fp } = outer;
        place.fiber.store(fiber, Ordering::Relaxed);
        for (word, value) in place.outer.iter().zip([exit_pc, exit_trampoline_fp, entry_fp]) {
            word.store(value, Ordering::Relaxed);
        }
        place.outer_entry.store(outer_entry.map_or(NONE, |entry| entry.index), Ordering::Relaxed);
        place.outer_number.store(outer_entry.map_or(0, |entry| entry.number()), Ordering::Relaxed);
        place.outer_host_call.store(outer_entry.map_or(0, |entry| entry.host_call()), Ordering::Relaxed);
        place.entry_fp.store(0, Ordering::Relaxed);
        place.host_call.store(0, Ordering::Relaxed);
        place.awaits_language.store(false, Ordering::Relaxed);
        let number = self.entries.fetch_add(1, Ordering::Relaxed) + 1;
        place.number.store(number, Ordering::Release);
        self.innermost.store(index, Ordering::Release);
    }

    /// The entry on the stack `fiber` has ended: it returned, trapped or was given up. Gives its number if samples of its host call
    /// still await the language's stack.
    pub(in crate::sampler) fn leave(&self, fiber: usize) -> Option<u64> {
        let open = self.open.load(Ordering::Relaxed).saturating_sub(1);
        self.open.store(open, Ordering::Relaxed);
        // After an overflow it may be another's place that is taken for the one left.
        let left = self.end_newest_on(fiber);
        if open == 0 && self.overflow() {
            self.all().for_each(|entry| entry.place.number.store(0, Ordering::Release));
            self.innermost.store(NONE, Ordering::Release);
            self.overflowed.store(false, Ordering::Relaxed);
        }
        left
    }

    fn end_newest_on(&self, fiber: usize) -> Option<u64> {
        let is_on = |entry: &Entry<'_>| entry.place.fiber.load(Ordering::Relaxed) == fiber;
        // A fiber that is given up may not be the one whose wasm ran last.
        let left = self.innermost().filter(is_on).or_else(|| self.newest(is_on))?;
        let number = left.number();
        self.innermost.store(left.outer_entry().map_or(NONE, |outer| outer.index), Ordering::Release);
        left.place.number.store(0, Ordering::Release);
        left.set_awaits_language(false).then_some(number)
    }

    fn forget_on(&self, fiber: usize) {
        for entry in self.all().filter(|entry| entry.fiber() == fiber) {
            entry.place.number.store(0, Ordering::Release);
            self.open.store(self.open.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Wasm calls the host. `activation` is what the store says now. `None` while an open entry has no place.
    pub(in crate::sampler) fn calling_host(&self, activation: Activation) -> Option<Entry<'_>> {
        let Activation { exit_pc, exit_trampoline_fp, entry_fp } = activation;
        let entry = self.innermost().filter(|_| !self.overflow())?;
        let call = self.host_calls.load(Ordering::Relaxed) + 1;
        self.host_calls.store(call, Ordering::Relaxed);
        entry.place.entry_fp.store(entry_fp, Ordering::Relaxed);
        for (word, value) in entry.place.exit.iter().zip([exit_pc, exit_trampoline_fp]) {
            word.store(value, Ordering::Relaxed);
        }
        entry.place.host_call.store(call, Ordering::Release);
        Some(entry)
    }

    /// A host call returns to wasm in the entry with this frame, which becomes the innermost.
    pub(in crate::sampler) fn returning_from_host(&self, entry_fp: usize) -> Option<Entry<'_>> {
        let entry = self.with_frame(entry_fp).filter(|_| !self.overflow())?;
        self.innermost.store(entry.index, Ordering::Release);
        Some(entry)
    }

    /// The entry that ran last, in wasm or in a host call.
    pub(in crate::sampler) fn innermost(&self) -> Option<Entry<'_>> {
        self.at(self.innermost.load(Ordering::Acquire))
    }

    /// The entry that `activation`, as the store says it now, belongs to. `None` outside wasm, and if it is not known.
    pub(in crate::sampler) fn current(&self, activation: Activation) -> Option<Entry<'_>> {
        if activation.entry_fp == 0 {
            return None;
        }
        let innermost = self.innermost();
        // An entry that has called no host has no frame yet. If the store still says what it said before the entry, wasm has not
        // begun.
        let is_new = |entry: &Entry<'_>| entry.entry_fp() == 0 && entry.outer().entry_fp != activation.entry_fp;
        innermost.filter(is_new).or_else(|| self.with_frame(activation.entry_fp))
    }

    /// The task that waits, where the store says that no wasm runs: of several the one that ran last.
    pub(in crate::sampler) fn suspended(&self) -> Option<Entry<'_>> {
        self.all().filter(|entry| entry.fiber() != 0 && entry.host_call() != 0).max_by_key(Entry::host_call)
    }

    fn with_frame(&self, entry_fp: usize) -> Option<Entry<'_>> {
        let has_frame = |entry: &Entry<'_>| entry.entry_fp() == entry_fp;
        self.innermost().filter(has_frame).or_else(|| self.newest(has_frame))
    }

    fn newest(&self, is_meant: impl Fn(&Entry<'_>) -> bool) -> Option<Entry<'_>> {
        self.all().filter(is_meant).max_by_key(Entry::number)
    }

    /// All that are kept, in no order.
    pub(in crate::sampler) fn all(&self) -> impl Iterator<Item = Entry<'_>> {
        let made = self.chunks.iter().take_while(|chunk| chunk.get().is_some()).count();
        (0..made * CHUNK).filter_map(|index| self.at(index))
    }

    fn at(&self, index: usize) -> Option<Entry<'_>> {
        let place = &self.chunks.get(index / CHUNK)?.get()?[index % CHUNK];
        (place.number.load(Ordering::Acquire) != 0).then_some(Entry { all: self, index, place })
    }

    /// A free place: the one behind the open ones, if entries have ended last in, first out.
    fn free_place(&self, open: usize) -> Option<usize> {
        let is_free = |&index: &usize| index < MAX_OPEN && self.at(index).is_none();
        Some(open).filter(is_free).or_else(|| (0..MAX_OPEN).find(is_free))
    }
}

impl<'a> Entry<'a> {
    /// Its number, from 1; no other entry of the store has it.
    pub(in crate::sampler) fn number(&self) -> u64 {
        self.place.number.load(Ordering::Relaxed)
    }

    /// What the store said just before this entry.
    pub(in crate::sampler) fn outer(&self) -> Activation {
        let [exit_pc, exit_trampoline_fp, entry_fp] =
            [0, 1, 2].map(|word: usize| self.place.outer[word].load(Ordering::Relaxed));
        Activation { exit_pc, exit_trampoline_fp, entry_fp }
    }

    /// The entry whose host call made this one, if that call is still going on. A task may outlive the call that began it, and
    /// go on from another.
    pub(in crate::sampler) fn outer_entry(&self) -> Option<Entry<'a>> {
        let outer = self.all.at(self.place.outer_entry.load(Ordering::Relaxed))?;
        let is_it = outer.number() == self.place.outer_number.load(Ordering::Relaxed)
            && outer.host_call() == self.place.outer_host_call.load(Ordering::Relaxed);
        is_it.then_some(outer)
    }

    /// Its entry frame, 0 as long as it has called no host.
    pub(in crate::sampler) fn entry_fp(&self) -> usize {
        self.place.entry_fp.load(Ordering::Relaxed)
    }

    /// Lowest address of the fiber that it is on; 0 if it is on a thread's stack.
    pub(in crate::sampler) fn fiber(&self) -> usize {
        self.place.fiber.load(Ordering::Relaxed)
    }

    /// Number of its host call that is going on; 0 if none is.
    pub(in crate::sampler) fn host_call(&self) -> u64 {
        self.place.host_call.load(Ordering::Relaxed)
    }

    /// What the store said when its wasm last called the host.
    pub(in crate::sampler) fn exit(&self) -> Activation {
        let [exit_pc, exit_trampoline_fp] = [0, 1].map(|word: usize| self.place.exit[word].load(Ordering::Relaxed));
        Activation { exit_pc, exit_trampoline_fp, entry_fp: self.entry_fp() }
    }

    /// Its host call has returned.
    pub(in crate::sampler) fn host_call_is_over(&self) {
        self.place.host_call.store(0, Ordering::Relaxed);
    }

    /// Whether samples of its host call await the language's stack.
    pub(in crate::sampler) fn awaits_language(&self) -> bool {
        self.place.awaits_language.load(Ordering::Relaxed)
    }

    /// Samples of its host call await the language's stack, or not any more. Gives whether they did.
    pub(in crate::sampler) fn set_awaits_language(&self, awaits: bool) -> bool {
        self.place.awaits_language.swap(awaits, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(entry_fp: usize) -> Activation {
        Activation { exit_pc: entry_fp + 1, exit_trampoline_fp: entry_fp - 64, entry_fp }
    }

    const NO_WASM: Activation = Activation { exit_pc: 0, exit_trampoline_fp: 0, entry_fp: 0 };

    #[test]
    fn nested_entries_lead_to_the_outer_ones() {
        let all = Activations::new();
        all.enter(NO_WASM, 0);
        let outer = all.calling_host(activation(0x1000)).unwrap().number();
        // On a fiber at a lower address.
        all.enter(activation(0x1000), 0x400);
        let inner = all.innermost().unwrap();
        assert_eq!((inner.outer(), inner.outer_entry().unwrap().number()), (activation(0x1000), outer));
        all.leave(0x400);
        assert_eq!(all.innermost().unwrap().number(), outer);
        assert_ne!(all.innermost().unwrap().host_call(), 0, "it is still in its host call");
        all.leave(0);
        assert!(!all.any());
    }

    #[test]
    fn what_a_panic_left_open_on_a_stack_ends_when_that_is_used_again() {
        for fiber in [0, 0x400] {
            let all = Activations::new();
            all.enter(NO_WASM, 0x1400);
            let waiting = all.calling_host(activation(0x2000)).unwrap().number();
            all.enter(NO_WASM, fiber);
            all.calling_host(activation(0x1000));
            all.enter(NO_WASM, fiber);
            assert_eq!((all.all().count(), all.suspended().map(|entry| entry.number())), (2, Some(waiting)));
            all.leave(fiber);
            all.leave(0x1400);
            assert!(!all.any());
        }
    }

    #[test]
    fn of_tasks_that_wait_the_one_that_ran_last_is_known() {
        let all = Activations::new();
        assert!(all.suspended().is_none());
        let [first, second] = [(0x1000, 0x400), (0x2000, 0x1400)].map(|(frame, fiber)| {
            all.enter(NO_WASM, fiber);
            all.calling_host(activation(frame)).unwrap().number()
        });
        let waiting = || all.suspended().map(|entry| (entry.number(), entry.exit()));
        assert_eq!(waiting(), Some((second, activation(0x2000))));
        // The first goes on, and waits again.
        all.returning_from_host(0x1000).unwrap().host_call_is_over();
        all.calling_host(activation(0x1000));
        assert_eq!(waiting(), Some((first, activation(0x1000))));
        all.leave(0x400);
        assert_eq!(waiting(), Some((second, activation(0x2000))));
        all.leave(0x1400);
        assert_eq!(waiting(), None);
    }

    #[test]
    fn tasks_that_take_turns_are_told_apart_by_their_frames() {
        let all = Activations::new();
        let tasks = [(0x1000, 0x400), (0x2000, 0x1400), (0x3000, 0x2400)];
        let numbers = tasks.map(|(frame, fiber)| {
            all.enter(NO_WASM, fiber);
            all.calling_host(activation(frame)).unwrap().number()
        });
        // The first goes on, and ends before the others.
        let first = all.returning_from_host(0x1000).unwrap();
        first.host_call_is_over();
        assert_eq!((first.number(), all.current(activation(0x1000)).unwrap().number()), (numbers[0], numbers[0]));
        all.leave(0x400);
        assert!(all.current(activation(0x1000)).is_none());
        let found = [0x2000, 0x3000].map(|frame| all.current(activation(frame)).unwrap().number());
        assert_eq!(found, numbers[1..]);
        // Given up without ever having gone on.
        all.returning_from_host(0x2000).unwrap().set_awaits_language(true);
        assert_eq!(all.leave(0x1400), Some(numbers[1]));
        assert_eq!((all.leave(0x2400), all.any()), (None, false));
    }

    #[test]
    fn stacks_are_cut_until_all_have_ended_that_there_was_no_room_for() {
        let all = Activations::new();
        for depth in 0..MAX_OPEN + 5 {
            all.enter(if depth == 0 { NO_WASM } else { activation(depth * 0x100) }, 0);
            all.calling_host(activation((depth + 1) * 0x100));
        }
        for _ in 0..MAX_OPEN + 5 {
            assert!(all.overflow() && all.any());
            all.leave(0);
        }
        assert!(!all.overflow() && !all.any() && all.innermost().is_none());
    }

    #[test]
    fn no_place_is_lost_to_tasks_that_there_was_no_room_for() {
        let all = Activations::new();
        let fibers = |count: usize| (1..=count).map(|task| task * 0x1000);
        for _ in 0..3 {
            fibers(MAX_OPEN + 5).for_each(|fiber| all.enter(NO_WASM, fiber));
            // The first to end have places.
            fibers(MAX_OPEN + 5).for_each(|fiber| {
                all.leave(fiber);
            });
            assert!(!all.any() && !all.overflow());
            assert_eq!(all.all().count(), 0);
        }
    }
}
