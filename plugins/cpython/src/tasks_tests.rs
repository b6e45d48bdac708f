//! Tasks of guests made up: what they await while nothing runs, in memory that is damaged, too.

use crate::{
    synthetic::{Guest, NewFrame, RUNTIME, layouts},
    walker_tests::{stack, suspended, walker},
};
use std::collections::BTreeSet;
use wlprof_plugin::Truncation;

/// A guest whose tasks are suspended, and the innermost coroutine of one of them, and that task.
fn waiting() -> (Guest, u32, u32) {
    let layout = layouts().into_iter().find(|layout| layout.tasks.is_some()).unwrap();
    let mut guest = Guest::new(layout);
    let codes = [("main", 1), ("fetch", 10), ("rest", 20)].map(|(name, line)| guest.code("/a.py", name, line));
    let [main, fetch, rest] = codes.map(|code| NewFrame { code, unit: Some(3) });
    guest.task("_asyncio.Task", &[main]);
    guest.task("_asyncio.Future", &[fetch]);
    let (coroutines, task) = guest.task("_asyncio.Future", &[main, fetch, rest]);
    (guest, coroutines[0], task)
}

#[test]
fn each_task_that_awaits_no_other_has_its_turn() {
    let (guest, ..) = waiting();
    let mut walker = walker(&guest.layout, &[RUNTIME]);
    let mut stacks = || {
        // Whatever else is walked in between takes no turn.
        assert_eq!(stack(&mut walker, &guest.frozen, &[]), (Vec::new(), Ok(())));
        let (frames, end) = suspended(&mut walker, &guest.frozen);
        assert_eq!(end, Ok(()));
        frames.join(" ")
    };
    let seen: BTreeSet<String> = [stacks(), stacks()].into();
    assert_eq!(seen, ["fetch:14", "rest:24 fetch:14 main:5"].map(str::to_owned).into());
}

#[test]
fn damaged_tasks_end_walks() {
    let (whole, innermost, task) = waiting();
    let tasks = whole.layout.tasks.unwrap();
    let walk = |guest: &Guest| suspended(&mut walker(&guest.layout, &[RUNTIME]), &guest.frozen);
    // The list leads in a circle, to what is no task, and out of memory.
    for node in [task + tasks.node, innermost, 0xffff_fff0] {
        let mut guest = whole.clone();
        guest.set(task + tasks.node, node);
        let (frames, end) = walk(&guest);
        assert_eq!((frames.len(), end), (3, Ok(())), "{node:x}");
    }
    // A coroutine awaits itself.
    let mut guest = whole.clone();
    let top = guest.word(innermost + tasks.frame + tasks.stack_pointer) - 4;
    guest.set(top, innermost | 1);
    guest.set(task + tasks.node, 0);
    assert_eq!(walk(&guest), (Vec::new(), Err(Truncation::TooDeep)));
    // Its stack is nowhere.
    guest.set(innermost + tasks.frame + tasks.stack_pointer, 0);
    assert_eq!(walk(&guest), (Vec::new(), Err(Truncation::BadPointer)));
}
