//! The core instances of components. Wasmtime's API gives a component's exports, and none of the instances behind them.
//!
//! An [`Instance`] is the id of its store, eight bytes, and its number among all core instances of that, four (`StoreInstanceId` in
//! Wasmtime 48's `runtime/store/data.rs`, which its C API relies on). Numbers are given in order of creation: what is made between two
//! instances has the numbers between theirs. [`super::self_check`] proves this before anything relies on it.

use wasmtime::{Instance, Store};

/// Where in an [`Instance`] its number is.
const NUMBER: usize = 8;

const _: () = assert!(size_of::<Instance>() == 16 && align_of::<Instance>() == 8);

fn number(instance: &Instance) -> u32 {
    // SAFETY: the number lies within the instance, whose size is asserted, and is aligned.
    unsafe { std::ptr::from_ref(instance).byte_add(NUMBER).cast::<u32>().read() }
}

/// The core instances that were made in a store between these two of it, in order, as far as they export functions. An embedder's own
/// memories, tables and tags are in instances, too, which have numbers like others, no module, and no function.
pub(in crate::sampler) fn between<T: 'static>(
    store: &mut Store<T>,
    first: &Instance,
    last: &Instance,
) -> Vec<Instance> {
    let instance = |number: u32| {
        let mut instance = *first;
        // SAFETY: the number lies within the instance and is aligned, and any number is valid there. This one is that of an instance of the
        // store: later ones are there, and instances go only with their store.
        unsafe { (&raw mut instance).byte_add(NUMBER).cast::<u32>().write(number) };
        instance
    };
    let exports_functions =
        |instance: &Instance| instance.exports(&mut *store).any(|export| export.into_func().is_some());
    (number(first) + 1..number(last)).map(instance).filter(exports_functions).collect()
}
