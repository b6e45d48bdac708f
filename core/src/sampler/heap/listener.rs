//! Whom a guest's rewritten allocator tells of its calls.
//!
//! # Accuracy
//! Stacks are those of the call itself, whole as those of any host call. Of allocations by start functions nothing is told: the module has
//! to be there first. Where a trap or an exception leaves the allocator, and the module has no exceptions of its own, nothing is seen until the
//! store's wasm has returned: a note says so.
//!
//! # Overhead
//! What the guest's code does at each call of its allocator is a nanosecond. A call that is told of takes about two microseconds, and with a
//! language's stack what its walk takes.
//!
//! # Security
//! What was added to a module is exported, so that the embedder's other modules can reach it: one that calls the functions in the table, or writes
//! the countdown and the filter, makes its own figures wrong and nothing else. Addresses that a guest gives are numbers here, and read
//! within its memory alone.

use super::super::os::clock::monotonic_ns;
use super::super::reading::MemoryDefinition;
use super::super::running::StoreState;
use super::StoreHeap;
use crate::heap::{Call, EXPORTS, Told, call_of_number, is_inside};
use std::sync::Arc;
use wasmtime::{AsContextMut, Caller, Func, Global, Instance, Memory, Ref, Store, Val};

/// What is told of one instance.
struct Listener {
    store: Arc<StoreState>,
    heap: Arc<StoreHeap>,
    countdown: Global,
    filter: Memory,
    /// The guest's memory.
    memory: MemoryDefinition,
}

/// The mark of an instance that a call of its allocator is going on.
pub(in crate::sampler) struct AllocatorMark {
    countdown: Global,
    heap: Arc<StoreHeap>,
}

impl AllocatorMark {
    /// Takes the mark away where none of the store's wasm runs any more: a trap or an exception has ended the call.
    pub(in crate::sampler) fn no_wasm_runs(&self, mut store: impl AsContextMut) {
        if self.countdown.get(&mut store).i64().is_some_and(is_inside) {
            self.heap.was_left();
            let next = Val::I64(self.heap.draw());
            // It is a mutable global of that type.
            let _ = self.countdown.set(&mut store, next);
        }
    }
}

/// Has `instance`, of a module that was rewritten, tell of what it allocates from here on. `memory` is its own.
///
/// # Errors
/// If it is none such, or another instance of its store is listened to.
pub(in crate::sampler) fn listen<T: 'static>(
    state: &Arc<StoreState>,
    store: &mut Store<T>,
    instance: &Instance,
    memory: MemoryDefinition,
    heap: Arc<StoreHeap>,
) -> wasmtime::Result<AllocatorMark> {
    let missing = || wasmtime::format_err!("it does not have what its allocator tells by");
    let table = instance.get_table(&mut *store, EXPORTS.table).ok_or_else(missing)?;
    let countdown = instance.get_global(&mut *store, EXPORTS.countdown).ok_or_else(missing)?;
    let is_heard = instance.get_global(&mut *store, EXPORTS.is_heard).ok_or_else(missing)?;
    let filter = instance.get_memory(&mut *store, EXPORTS.filter).ok_or_else(missing)?;
    wasmtime::ensure!(heap.claim_for_calls(), "another instance of its store is profiled already");
    let listener = Arc::new(Listener { store: state.clone(), heap, countdown, filter, memory });
    let (of_allocations, of_frees) = (listener.clone(), listener.clone());
    let allocated =
        Func::wrap(&mut *store, move |mut caller: Caller<'_, T>, size: i64, block: i32, before: i32, call: i32| {
            of_allocations.allocated(&mut caller, size as u64, block as u32, before as u32, call)
        });
    let freed = Func::wrap(&mut *store, move |mut caller: Caller<'_, T>, block: i32| {
        of_frees.heap.freed(block as u32, of_frees.filter.data_mut(&mut caller));
    });
    for (place, function) in (0..).zip([allocated, freed]) {
        table.set(&mut *store, place, Ref::Func(Some(function)))?;
    }
    countdown.set(&mut *store, Val::I64(listener.heap.draw()))?;
    is_heard.set(&mut *store, Val::I32(1))?;
    Ok(AllocatorMark { countdown, heap: listener.heap.clone() })
}

impl Listener {
    fn allocated<T>(&self, caller: &mut Caller<'_, T>, size: u64, block: u32, before: u32, call: i32) {
        // Another number is no call of the allocator's.
        let Some(call) = call_of_number(call) else { return };
        let is_sample = self.countdown.get(&mut *caller).i64().is_some_and(|countdown| countdown < 0);
        let (block, before) = match call {
            // What it returned says whether there is one, and what it was given says where.
            Call::PosixMemalign if block == 0 => (self.word_at(before), 0),
            Call::PosixMemalign => (0, 0),
            _ => (block, before),
        };
        let told = Told { call, size, block, before, is_sample, time_ns: monotonic_ns() };
        let filter = self.filter.data_mut(&mut *caller);
        self.heap.allocated(&told, filter, |words| self.store.write_stack(words));
        if is_sample {
            let next = Val::I64(self.heap.draw());
            // It is a mutable global of that type.
            let _ = self.countdown.set(&mut *caller, next);
        }
    }

    /// The word at `address` of the guest's memory; 0 if it has none there.
    fn word_at(&self, address: u32) -> u32 {
        // SAFETY: the guest is in a host call of its store, which is alive.
        let (base, length) = unsafe { self.memory.read() };
        let start = address as usize;
        if start + size_of::<u32>() > length {
            return 0;
        }
        // SAFETY: the word lies in the memory, of which `length` bytes from `base` are mapped while the guest is in this call.
        unsafe { (base as *const u8).add(start).cast::<u32>().read_unaligned() }
    }
}
