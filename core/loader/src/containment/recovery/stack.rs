//! A stack for calls in signal handlers.
//!
//! A handler runs on the thread's alternate stack, which has no guard page, and on which the crash of an overflow could not be
//! handled. So the plugin gets a stack of its own there. That is not the alternate stack, at whose top the kernel would begin
//! again for a crash, over the handler that is at work; so meanwhile signals have another one.

use super::processor;
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::ptr::{null, null_mut};

/// Bytes for a plugin's own frames, with some for wlprof's functions that it calls.
const ROOM: usize = 256 << 10;
/// Bytes for signals that arrive meanwhile: crashes and the watchdog's.
const SIGNALS: usize = 64 << 10;
/// What cannot be written below each: frames may be large, and few compilers touch every page of them.
const GUARD: usize = 1 << 20;

/// A stack, and one for signals while it is in use.
pub(in super::super::super) struct OwnStack {
    mapping: *mut libc::c_void,
}

// SAFETY: the mapping is this value's own, and belongs to no thread.
unsafe impl Send for OwnStack {}

impl OwnStack {
    const SIGNALS_START: usize = GUARD;
    const ROOM_START: usize = GUARD + SIGNALS + GUARD;
    const SIZE: usize = Self::ROOM_START + ROOM;

    /// Memory is taken when it is first used.
    ///
    /// # Errors
    /// If there is no memory to map.
    pub(in super::super::super) fn new() -> io::Result<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel maps new memory at a place that it chooses, and no other memory is touched.
        let mapping = unsafe { libc::mmap(null_mut(), Self::SIZE, libc::PROT_NONE, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { mapping };
        for part in [Self::SIGNALS_START..Self::SIGNALS_START + SIGNALS, Self::ROOM_START..Self::SIZE] {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: these are whole pages of the new mapping, which nothing uses yet.
            if unsafe { libc::mprotect(mapping.byte_add(part.start), part.len(), protection) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(stack)
    }

    /// Has the processor fetch what the first frames will be written to: the guest has had its caches since the last call.
    #[inline]
    pub(super) fn fetch(&self) {
        const FRAMES: usize = 1 << 10;
        fetch(self.mapping.wrapping_byte_add(Self::SIZE - FRAMES), FRAMES);
    }

    /// Where its first frame begins.
    pub(super) fn top(&self) -> usize {
        self.mapping as usize + Self::SIZE
    }

    /// Has signals handled beside it, until the handler ends that this thread is in: the kernel puts the alternate stack back
    /// then. To be called on this stack.
    pub(super) fn take_signals(&self) {
        let signals =
            libc::stack_t { ss_sp: self.mapping.wrapping_byte_add(Self::SIGNALS_START), ss_flags: 0, ss_size: SIGNALS };
        // SAFETY: mapped, and in use by nobody: this thread has left the one before. If it fails, an overflow is no better
        // contained than it was.
        unsafe { libc::sigaltstack(&signals, null_mut()) };
    }
}

impl Drop for OwnStack {
    fn drop(&mut self) {
        // SAFETY: its own, and not used any more: calls on it are over, and so is the handler that they were made in.
        unsafe { libc::munmap(self.mapping, Self::SIZE) };
    }
}

/// Has the processor fetch so many bytes from `start` on, which are soon needed and are not likely to be in its caches.
#[inline]
pub(in super::super::super) fn fetch<T>(start: *const T, bytes: usize) {
    const LINE: usize = 64;
    for at in (0..bytes).step_by(LINE) {
        processor::prefetch(start.wrapping_byte_add(at).cast());
    }
}

/// Whether this thread is on its alternate stack: in a signal handler.
#[inline]
pub(super) fn on_signal_stack() -> bool {
    thread_local! {
        /// Asked for once: it is a system call. Threads set theirs when they begin.
        static SIGNAL_STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }
    let mut known = SIGNAL_STACK.get();
    if known.1 == 0 {
        let range = signal_stack();
        known = (range.start, range.end);
        SIGNAL_STACK.set(known);
    }
    let here = (&raw const known) as usize;
    (known.0..known.1).contains(&here)
}

/// This thread's alternate stack; an empty one at the end of memory if it has none.
fn signal_stack() -> Range<usize> {
    let mut current = libc::stack_t { ss_sp: null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: without a new stack `sigaltstack` changes nothing, and writes the one in use into `current`.
    let failed = unsafe { libc::sigaltstack(null(), &mut current) } != 0;
    if failed || current.ss_flags & libc::SS_DISABLE != 0 {
        return usize::MAX..usize::MAX;
    }
    let start = current.ss_sp as usize;
    start..start + current.ss_size
}
