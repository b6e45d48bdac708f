//! A store whose guest is sampled, as the signal handler sees it: where wasm runs in it, what it calls, and the walker of its
//! language.

mod heap;
mod language;
mod ticked;

use super::super::heap::{AllocatorMark, CountedHeap, StoreHeap};
use super::super::os::clock::monotonic_ns;
use super::super::reading::{
    Activations, Entry, Header, Kind, LanguageWalk, MemoryDefinition, Reads, Stack, StoreContext,
};
use super::super::shared::Shared;
use super::dump_request::DumpRequest;
use super::host_call_counts::HostCallCounts;
use super::linear_memory::LinearMemory;
use super::slot::{RunningStore, ThreadSlot};
use super::threads::Threads;
use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, compiler_fence};
use std::sync::{Arc, OnceLock, Weak};
use wlprof_recording::State;
use wlprof_walk::Walk;

/// Which store of a session: no other has the same, gone or not.
pub(in crate::sampler) type StoreNumber = u64;

/// A store that runs a guest.
pub(in crate::sampler) struct StoreState {
    pub(in crate::sampler) number: StoreNumber,
    pub(in crate::sampler) shared: Arc<Shared>,
    threads: Weak<Threads>,
    context: StoreContext,
    activations: Activations,
    /// The thread's slot that ran its wasm last. Compared only.
    ran_on: AtomicPtr<ThreadSlot>,
    /// A thread that did not run the store before the call hook said so, and what it ran instead, to be put back. Touched by the
    /// hook alone.
    before: Cell<Option<(*const ThreadSlot, RunningStore)>>,
    /// The call that the hook was told of is a check. Touched where the guest calls back, by the hook and by what the check calls.
    at_check: Cell<bool>,
    /// The walker of the guest's language. Touched on the guest's thread, by a dump that keeps that from going on, and
    /// by whoever takes it when that is stopped for good.
    language: UnsafeCell<Option<LanguageWalk>>,
    has_language: AtomicBool,
    /// The walker gives what suspended tasks await.
    reads_tasks: AtomicBool,
    memory: LinearMemory,
    host_calls: Option<HostCallCounts>,
    /// What the guest allocates, if that is profiled.
    heap: OnceLock<Arc<StoreHeap>>,
    /// The same, if the language's runtime counts it.
    counted_heap: OnceLock<CountedHeap>,
    /// Whether a call of its allocator is going on, if its calls are reported.
    allocator_mark: OnceLock<AllocatorMark>,
    pub(in crate::sampler) dump: DumpRequest,
    /// Samples taken while none of its wasm was open await what the language's tasks awaited then.
    awaits_tasks: AtomicBool,
    /// The last walk of the language ended in a panic.
    walk_panicked: AtomicBool,
    /// The drain is reading this store or the call hook is reading its language.
    locked: AtomicBool,
    /// The store is there.
    alive: AtomicBool,
}

// SAFETY: beside `language`, `before` and `at_check` everything is atomic or synchronized by itself. `language` is touched on the thread
// that runs the store (handler and hook exclude each other by blocking the signal), by a dump from another one while that is in a host call
// (both with the store locked), and, when sampling has ended and no dump is being made, by whoever takes it. `before` and `at_check` are
// those of whom the guest calls: one thread at a time runs a store, and one happens before the next.
unsafe impl Sync for StoreState {}
// SAFETY: nothing in it belongs to a thread: what the pointers lead to outlives it or is compared only.
unsafe impl Send for StoreState {}

/// Keeps a store locked.
pub(in crate::sampler) struct StoreLock<'a>(&'a AtomicBool);

impl Drop for StoreLock<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl StoreState {
    /// A store in which no wasm runs yet.
    pub(in crate::sampler) fn new(
        number: StoreNumber,
        shared: Arc<Shared>,
        threads: Weak<Threads>,
        context: StoreContext,
    ) -> Self {
        let host_calls = shared.options.counts_host_calls.then(HostCallCounts::new);
        Self {
            number,
            shared,
            threads,
            context,
            activations: Activations::new(),
            ran_on: AtomicPtr::default(),
            before: Cell::new(None),
            at_check: Cell::new(false),
            language: UnsafeCell::new(None),
            has_language: AtomicBool::new(false),
            reads_tasks: AtomicBool::new(false),
            memory: LinearMemory::default(),
            host_calls,
            heap: OnceLock::new(),
            counted_heap: OnceLock::new(),
            allocator_mark: OnceLock::new(),
            dump: DumpRequest::default(),
            awaits_tasks: AtomicBool::new(false),
            walk_panicked: AtomicBool::new(false),
            locked: AtomicBool::new(false),
            alive: AtomicBool::new(true),
        }
    }

    /// Whether the store is still there.
    pub(in crate::sampler) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// The store is about to go, and none of its wasm runs: waits until nobody reads it, and has nobody read it any more. What
    /// samples in its host calls await will not come.
    pub(in crate::sampler) fn close(&self) -> StoreLock<'_> {
        self.dump.guest_goes_on();
        // The drain may be reading its stack.
        let locked = self.lock();
        self.alive.store(false, Ordering::Release);
        locked
    }

    /// To be called when the host enters wasm: what the store says is about to be replaced.
    pub(in crate::sampler) fn calling_wasm(&self) {
        self.dump.guest_goes_on();
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let (activation, fiber) = unsafe { (self.context.activation(), self.context.fiber()) };
        let was_open = self.activations.any();
        if let Some(slot) = self.slot() {
            self.leaves_host(slot);
        }
        self.activations.enter(activation, fiber);
        if let Some(slot) = self.runs_here()
            && !was_open
            && self.awaits_tasks.load(Ordering::Relaxed)
        {
            self.calling_tasks(slot);
        }
    }

    /// To be called when wasm has returned to the host.
    pub(in crate::sampler) fn returning_from_wasm(&self) {
        // SAFETY: the store's own call hook runs this, so the store and its instances are alive.
        unsafe { self.memory.read() };
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let awaited = self.activations.leave(unsafe { self.context.fiber() });
        if let Some(slot) = self.slot() {
            if let Some(answers) = &slot.answers {
                // Whose time it was has returned.
                answers.cross(false);
            }
            awaited.into_iter().for_each(|entry| self.nothing_will_come(entry, slot));
        }
        if self.activations.any() {
            // The others are in host calls.
            return self.dump.guest_waits();
        }
        if self.counted_heap.get().is_some_and(CountedHeap::is_due) {
            self.read_counted_heap();
        }
        if let (Some(slot), Some((on, before))) = (self.slot(), self.before.take()) {
            let before_here = before.store.filter(|_| std::ptr::eq(slot, on));
            match (before_here, self.threads.upgrade()) {
                // The store that ran here before may have gone meanwhile.
                (Some(store), Some(threads)) => threads.enter(slot, Some(store), before.is_told),
                _ => slot.enter(std::ptr::null(), before.is_told),
            };
        }
    }

    /// To be called when wasm calls the host.
    pub(in crate::sampler) fn calling_host(&self) {
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let activation = unsafe { self.context.activation() };
        self.activations.calling_host(activation);
        if self.counted_heap.get().is_some_and(CountedHeap::is_due) {
            self.read_counted_heap();
        }
        let Some(slot) = self.slot() else { return self.dump.guest_waits() };
        self.leaves_guest(slot);
        if self.dump.is_requested() || self.shared.options.import_watch.is_some() {
            return self.calling_host_for_others(slot);
        }
        self.dump.guest_waits();
        slot.stay_if_halted();
    }

    /// The rest of what is done when wasm calls the host, if somebody may want a dump. Apart, so that calls that nobody looks at do not
    /// pay for the room that this takes on the stack.
    #[cold]
    #[inline(never)]
    fn calling_host_for_others(&self, slot: &ThreadSlot) {
        self.dump_at_host_call(slot);
        let at_import = self.dump_at_import(slot);
        self.dump.guest_waits();
        // Whoever is told may wait for someone who asks for a dump: that can be made from here on.
        if let (Some((call, dump)), Some(watch)) = (at_import, &self.shared.options.import_watch) {
            watch.tell(call, dump);
        }
        slot.stay_if_halted();
    }

    /// To be called when a host call returns to wasm.
    pub(in crate::sampler) fn returning_from_host(&self) {
        self.dump.guest_goes_on();
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let activation = unsafe { self.context.activation() };
        // To Wasmtime a check is a call as well: that it was one is known once it is made.
        let was_check = self.at_check.take();
        if let (Some(counts), false) = (&self.host_calls, was_check) {
            counts.count(activation.exit_pc);
        }
        // Before the thread counts as running the store: it may be another one than that which made the call.
        let entry = self.activations.returning_from_host(activation.entry_fp);
        let slot = self.runs_here();
        if let (Some(slot), Some(entry)) = (slot, &entry)
            && entry.awaits_language()
        {
            self.returning_to_samples(entry, slot);
        }
        if let (Some(slot), Some(_)) = (slot, &entry) {
            self.leaves_host(slot);
        }
        if let Some(entry) = entry {
            entry.host_call_is_over();
        }
        if let Some(slot) = slot {
            slot.stay_if_halted();
        }
    }

    /// To be called where the store is about to be suspended in a host call: this thread runs none of it until that returns, there or on
    /// another thread.
    pub(in crate::sampler) fn suspends(&self) {
        if let Some(slot) = self.slot().filter(|slot| !slot.is_told()) {
            slot.enter(std::ptr::null(), false);
        }
    }

    /// Of a record about samples that were taken before.
    fn header(&self, kind: Kind, entry: u64, host_call: u64) -> Header {
        Header {
            time_ns: monotonic_ns(),
            cpu_ns: 0,
            weight_ns: 0,
            used_ns: 0,
            period_ns: 0,
            store: self.number,
            entry,
            host_call,
            pause_ns: 0,
            memory_bytes: self.memory.last(),
            state: State::Host,
            kind,
        }
    }

    /// This thread runs the store from here on, if it did not already. Gives its slot.
    fn runs_here(&self) -> Option<&ThreadSlot> {
        // Before anything asks what the thread runs: a handler that found it to run this store, which was last seen elsewhere, would take it
        // for suspended here, and have the thread run none.
        // SAFETY: the call hook runs this on its own thread, and does not use the slot after this block.
        if let Some(own) = unsafe { ThreadSlot::own() } {
            self.ran_on.store((&raw const *own).cast_mut(), Ordering::Release);
            compiler_fence(Ordering::SeqCst);
        }
        self.slot().or_else(|| self.comes_here())
    }

    /// This thread begins to run the store.
    #[cold]
    #[inline(never)]
    fn comes_here(&self) -> Option<&ThreadSlot> {
        let slot = self.threads.upgrade()?.of_this_thread()?;
        self.ran_on.store(Arc::as_ptr(&slot).cast_mut(), Ordering::Release);
        self.before.set(Some((Arc::as_ptr(&slot), slot.enter(self, false))));
        self.slot()
    }

    /// The slot of this thread, if that runs the store.
    pub(in crate::sampler) fn slot(&self) -> Option<&ThreadSlot> {
        // SAFETY: callers are in the call hook, a check or other host code of this thread, and do not keep the slot past it.
        unsafe { ThreadSlot::own() }.filter(|slot| std::ptr::eq(slot.current(), self))
    }

    /// Whether wasm that the thread of `slot` runs may be this store's: not if the store has been suspended in a host call there, and another one
    /// that nobody tells of runs in its place. Nothing of the store's own is read, as in [`StoreState::calls_host_code_at`].
    pub(in crate::sampler) fn runs_wasm_on(&self, slot: &ThreadSlot) -> bool {
        // Of entries that have no place it is not known whether they wait.
        std::ptr::eq(self.ran_on.load(Ordering::Acquire), slot) && (self.is_in_wasm() || self.activations.overflow())
    }

    /// Whether host code with this stack pointer, on the thread of `slot`, was called by this store's wasm. Nothing of the
    /// store's own is read: it may have been suspended here, gone on elsewhere, and be no more.
    pub(in crate::sampler) fn calls_host_code_at(&self, sp: usize, slot: &ThreadSlot) -> bool {
        if !std::ptr::eq(self.ran_on.load(Ordering::Acquire), slot) {
            return false;
        }
        let Some(entry) = self.activations.innermost() else { return false };
        let low = if entry.fiber() == 0 { slot.stack_low() } else { entry.fiber() };
        // Without a host call that the hook was told of, it is one of Wasmtime's builtins, in which nothing is suspended.
        entry.host_call() == 0 || (low..entry.entry_fp()).contains(&sp)
    }

    /// Whether any wasm has been entered and has not returned.
    pub(in crate::sampler) fn is_open(&self) -> bool {
        self.activations.any()
    }

    /// The open entry that runs, if one does.
    ///
    /// # Safety
    /// The store must be alive.
    pub(in crate::sampler) unsafe fn entry(&self) -> Option<Entry<'_>> {
        // SAFETY: the store is alive (see # Safety).
        self.activations.current(unsafe { self.context.activation() })
    }

    /// The open entry whose wasm waits for the host: the one that runs, or a task that is suspended.
    ///
    /// # Safety
    /// The store must be alive.
    pub(in crate::sampler) unsafe fn waiting_entry(&self) -> Option<Entry<'_>> {
        // SAFETY: the store is alive (see # Safety).
        let activation = unsafe { self.context.activation() };
        let suspended = || self.activations.suspended().filter(|_| activation.entry_fp == 0);
        self.activations.current(activation).or_else(suspended)
    }

    /// What a walk of this store's wasm reads.
    pub(in crate::sampler) fn stack(&self, reads: Reads) -> Stack<'_> {
        Stack {
            walk: Walk { code: self.shared.code.read(), memory: reads },
            store: self.context,
            activations: &self.activations,
        }
    }

    /// Keeps the drain, the call hook and the end of the thread apart. Each holds it for a few microseconds.
    pub(in crate::sampler) fn lock(&self) -> StoreLock<'_> {
        loop {
            match self.try_lock() {
                Some(locked) => return locked,
                None => std::thread::yield_now(),
            }
        }
    }

    /// The lock, if nobody has it.
    pub(in crate::sampler) fn try_lock(&self) -> Option<StoreLock<'_>> {
        // Who has it then asks whether the thread has been told to stop; who tells it to then asks whether there is a lock. So that
        // one of them sees the other's, these are in one order for all.
        (!self.locked.swap(true, Ordering::SeqCst)).then(|| StoreLock(&self.locked))
    }

    /// Whether the drain reads this thread or the call hook is at work. A call hook that stays so is stuck in a plugin.
    pub(in crate::sampler) fn is_locked(&self) -> bool {
        self.locked.load(Ordering::SeqCst)
    }

    /// Whether it is known which memory's size is asked for.
    pub(in crate::sampler) fn has_memory(&self) -> bool {
        self.memory.is_known()
    }

    /// The memory whose size is asked for; the first that is given. To be called on the store's thread.
    pub(in crate::sampler) fn set_memory(&self, memory: MemoryDefinition) {
        self.memory.set(memory);
    }

    /// Size of its memory in bytes where its thread stands still in the open `entry`; as last read without one. Async-signal-safe.
    ///
    /// # Safety
    /// Call this on the thread that runs the store. If there is an `entry`, it must be open: its instances are alive then.
    pub(in crate::sampler) unsafe fn memory_bytes(&self, entry: Option<&Entry<'_>>) -> u64 {
        // SAFETY: there is an open entry, on the thread that runs the store (see # Safety), so the instance that has the memory is alive.
        entry.map_or_else(|| self.memory.last(), |_| unsafe { self.memory.read() })
    }

    /// Size of its memory in bytes, asked for by another thread.
    pub(in crate::sampler) fn memory_bytes_beside(&self) -> u64 {
        let open = || self.activations.all().map(|entry| entry.number()).min();
        let before = open();
        let bytes = self.memory.read_beside();
        // An entry that has been open all the while. Which one does not matter: no two of a store have one number.
        if before.is_some() && before == open() { bytes } else { self.memory.last() }
    }

    /// Adds to `sums` how often its wasm has called the host, by return address.
    pub(in crate::sampler) fn add_host_calls(&self, sums: &mut HashMap<usize, u64>) {
        self.host_calls.iter().for_each(|counts| counts.add_to(sums));
    }

    /// Whether the innermost wasm runs, or something that it calls without telling the call hook.
    pub(in crate::sampler) fn is_in_wasm(&self) -> bool {
        self.activations.innermost().is_some_and(|entry| entry.host_call() == 0)
    }
}
