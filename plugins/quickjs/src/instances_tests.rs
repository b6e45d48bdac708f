//! Walkers of other instances, on made-up guests; and frames of other modules.

use crate::synthetic::{Guest, LOOP, NATIVE, OTHER, walker, wasm};
use std::sync::Arc;
use wlprof_plugin::testing::{Moment, check_walkers};
use wlprof_plugin::{FrameSink, SinkEntry, Walker, WasmFrame};

const NESTED: [u32; 5] = [LOOP, OTHER, NATIVE, LOOP, LOOP];

/// A guest in which functions of these names call each other, the second by native code.
fn guest(names: [&str; 3]) -> Moment {
    let mut guest = Guest::new();
    let (outer, native, inner) =
        (guest.function(names[0], false), guest.function(names[1], true), guest.function(names[2], false));
    guest.run(&[(inner, 0), (native, 0), (outer, 51)]);
    Moment { guest: guest.frozen, wasm: wasm(&NESTED) }
}

#[test]
fn walkers_on_two_threads_give_what_each_gives_alone() {
    let moments = [guest(["outer", "map", "inner"]), guest(["inner", "filter", "other"])];
    check_walkers(|| Arc::new(walker().program().clone()), &moments);
}

#[test]
fn frames_of_other_modules_are_passed_on() {
    let entries = |moment: &Moment| {
        let mut sink = FrameSink::new();
        let end = walker().walk(&moment.guest, &moment.wasm, &mut sink);
        (end, sink.entries().collect::<Vec<_>>())
    };
    let mut moment = guest(["outer", "map", "inner"]);
    let (end, own) = entries(&moment);
    // With the numbers of the interpreter's loop.
    moment.wasm.insert(1, WasmFrame { module: 1, ..moment.wasm[0] });
    let (with_end, with) = entries(&moment);
    assert_eq!((with_end, with.len()), (end, own.len() + 1));
    assert!(with.contains(&SinkEntry::Wasm(1)), "{with:?}");
}
