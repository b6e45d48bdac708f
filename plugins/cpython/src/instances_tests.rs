//! Walkers of other instances, on made-up guests; and frames of other modules.

use crate::{
    synthetic::{Guest, NewFrame, RUNTIME, layouts},
    walker_tests::{WASM, sorting, stack, walker},
};
use std::sync::Arc;
use wlprof_plugin::WasmFrame;
use wlprof_plugin::testing::{Moment, check_walkers};

#[test]
fn walkers_on_two_threads_give_what_each_gives_alone() {
    for layout in layouts() {
        let mut other = Guest::new(layout);
        // The same addresses have other functions.
        let [first, second] = [("other", 5), ("<module>", 1)].map(|(name, line)| other.code("/b.py", name, line));
        other.activate(&[NewFrame { code: second, unit: Some(3) }, NewFrame { code: first, unit: Some(1) }]);
        let moments = [(sorting(layout), &WASM[..]), (other, &WASM[3..])];
        let moments = moments.map(|(guest, wasm)| Moment { guest: guest.frozen, wasm: wasm.to_vec() });
        check_walkers(|| Arc::new(walker(&layout, &[RUNTIME]).program().clone()), &moments);
    }
}

#[test]
fn the_hint_of_another_instance_is_not_believed() {
    let layout = layouts()[0];
    let mut first = walker(&layout, &[RUNTIME]);
    let guest = sorting(layout);
    let (expected, _) = stack(&mut first, &guest.frozen, &WASM);
    assert!(first.runtime().is_some());
    // Where the runtime was, this one has nothing.
    let empty = vec![0; guest.frozen.memory.len()];
    let mut second = first.program().new_walker();
    assert_eq!(second.runtime(), None);
    let nothing = wlprof_plugin::testing::Frozen::new(empty);
    assert_eq!(stack(&mut second, &nothing, &WASM).0, Vec::<String>::new());
    assert_eq!(second.runtime(), None);
    // It starts later.
    assert_eq!(stack(&mut second, &guest.frozen, &WASM).0, expected);
}

#[test]
fn a_walker_finds_at_once_what_another_searched_for() {
    let layout = layouts()[0];
    let guest = sorting(layout);
    let mut first = walker(&layout, &[]);
    let searched = (0..1000).position(|_| {
        let _ = stack(&mut first, &guest.frozen, &WASM);
        first.runtime().is_some()
    });
    let mut second = first.program().new_walker();
    let found = stack(&mut second, &guest.frozen, &WASM);
    assert_eq!(found, stack(&mut first, &guest.frozen, &WASM), "after {searched:?} walks");
}

#[test]
fn frames_of_other_modules_are_passed_on() {
    let layout = layouts()[0];
    let guest = sorting(layout);
    let (own, end) = stack(&mut walker(&layout, &[RUNTIME]), &guest.frozen, &WASM);
    let is_wasm = |name: &&String| name.starts_with('#');
    for at in 1..WASM.len() {
        // With the numbers of the interpreter's loop.
        let mut wasm = WASM.to_vec();
        wasm.insert(at, WasmFrame { module: 1, ..WASM[0] });
        let (with, with_end) = stack(&mut walker(&layout, &[RUNTIME]), &guest.frozen, &wasm);
        assert_eq!((with_end, with.len()), (end, own.len() + 1));
        assert_eq!(with.iter().filter(is_wasm).count(), own.iter().filter(is_wasm).count() + 1);
        assert!(with.contains(&format!("#{at}")), "{with:?}");
    }
}
