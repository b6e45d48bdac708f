//! Calls that are left to end by themselves: where there is no `recovery`.

use super::AbortReason;
use super::slot::Slot;
use std::io;
use std::ops::Range;
use std::path::Path;

/// A stack that is not needed here.
pub(in super::super) struct OwnStack;

impl OwnStack {
    pub(in super::super) fn new() -> io::Result<Self> {
        Ok(Self)
    }
}

/// A hint to the processor, which is not given here.
pub(in super::super) fn fetch<T>(_start: *const T, _bytes: usize) {}

/// What a call changed of the process: not looked for here.
#[derive(Clone, Copy)]
pub(super) struct Changes(pub(super) u8);

impl Changes {
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        std::iter::empty()
    }
}

/// Who handles signals: nobody puts them back here.
pub(super) struct Handlers;

impl Handlers {
    pub(super) fn now() -> Self {
        Self
    }

    pub(super) fn put_back_functions(&self) {}
}

/// What is put back after a call: nothing here.
pub(super) enum SavedContext {
    FloatingPoint,
    Mask,
    Handlers,
}

pub(super) fn keeping<T>(_kept: SavedContext, run: impl FnOnce() -> T) -> (T, Changes) {
    (run(), Changes(0))
}

pub(super) fn prepare() {}

pub(super) fn watch_thread() {}

pub(super) fn watch_thread_at_times() {}

/// Threads need no numbers: none is interrupted.
pub(super) fn thread_id() -> i32 {
    0
}

pub(super) fn crash(signal: i32) -> String {
    format!("signal {signal}")
}

pub(super) fn end_stuck_process(_thread: i32, _is_naming: bool, _why: &str) {}

pub(super) fn interrupt(_thread: i32) {}

pub(super) fn is_out_of_reach(_thread: i32) -> bool {
    false
}

pub(super) fn code_around(_address: usize) -> Vec<Range<usize>> {
    Vec::new()
}

pub(super) fn call<T>(
    _slot: &Slot,
    _code: &[Range<usize>],
    _stack: Option<&OwnStack>,
    run: impl FnOnce() -> T,
) -> Result<T, AbortReason> {
    Ok(run())
}

pub(in super::super) fn in_host<T: Copy>(run: impl FnOnce() -> T) -> T {
    run()
}

pub(super) fn loading<T>(_path: &Path, load: impl FnOnce() -> T) -> (T, Changes) {
    (load(), Changes(0))
}

pub(in super::super) fn end_process(code: u8) -> ! {
    std::process::exit(code.into())
}
