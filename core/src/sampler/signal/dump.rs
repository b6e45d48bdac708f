//! Dumps on request: every stack that the guest has, read where the guest next stands still.
//!
//! That is in the handler of the next tick, or at the next host call. If the guest waits in a host call, whoever asked
//! reads its memory meanwhile, and the call does not return before that is done.

use super::super::dump::{DumpedFrame, DumpedThread};
use super::thread::GuestThread;
use super::walk::{FrameWord, Frames, MAX_FRAMES, WalkEnd};
use super::x86_64::Registers;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a dump may take to come: guests seldom run host code for longer without waiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whoever asks looks this often.
const INTERVAL: Duration = Duration::from_millis(2);

const NONE: u8 = 0;
const REQUESTED: u8 = 1;
const TAKEN: u8 = 2;
const DONE: u8 = 3;

/// A dump being asked for and made.
#[derive(Default)]
pub(super) struct DumpRequest {
    state: AtomicU8,
    threads: Mutex<Vec<DumpedThread>>,
    /// The guest is in a host call, and the call hook will look here before it goes on.
    waits: AtomicBool,
}

impl DumpRequest {
    /// Whether a dump has been asked for that nobody makes yet; the caller has to, then.
    fn take(&self) -> bool {
        // Without a request a load is all that this costs.
        self.state.load(Ordering::SeqCst) == REQUESTED
            && self.state.compare_exchange(REQUESTED, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn done(&self, threads: Vec<DumpedThread>) {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) = threads;
        self.state.store(DONE, Ordering::SeqCst);
    }

    /// The guest begins to wait in a host call.
    pub(super) fn guest_waits(&self) {
        self.waits.store(true, Ordering::SeqCst);
    }

    /// The guest is about to go on: waits for whoever reads it. Either that one sees that the guest goes on, or this
    /// sees that it is being read.
    pub(super) fn guest_goes_on(&self) {
        self.waits.store(false, Ordering::SeqCst);
        while self.state.load(Ordering::SeqCst) == TAKEN {
            std::thread::yield_now();
        }
    }
}

impl GuestThread {
    /// Makes a dump if one is asked for. To be called in the handler, where wasm stands still.
    ///
    /// # Safety
    /// As for [`GuestThread::collect_language`], with the registers of the interrupted thread.
    pub(super) unsafe fn dump_interrupted(&self, registers: Registers) {
        if self.dump.take() {
            // SAFETY: the caller's promise.
            let threads = unsafe { self.read_threads(|frames| self.stack().walk(registers, frames)) };
            self.dump.done(threads);
        }
    }

    /// Makes a dump if one is asked for. To be called by the call hook, on the guest's thread, in a host call.
    pub(super) fn dump_at_host_call(&self) {
        if self.dump.take() {
            let _no_signal = super::own_thread::SignalBlocked::new();
            // SAFETY: the handler is blocked, the thread is in the host call whose stack is walked, and nobody else
            // reads the language.
            let threads = unsafe { self.read_threads(|frames| self.stack().walk_blocked(frames)) };
            self.dump.done(threads);
        }
    }

    /// Asks for a dump and waits for it, on any other thread than the guest's.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn dump(&self) -> Result<Vec<DumpedThread>, String> {
        let since = Instant::now();
        if self.dump.state.compare_exchange(NONE, REQUESTED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Err("another dump is being made".to_owned());
        }
        loop {
            std::thread::sleep(INTERVAL);
            self.dump_beside();
            if self.dump.state.load(Ordering::SeqCst) == DONE {
                let threads = std::mem::take(&mut *self.dump.threads.lock().unwrap_or_else(PoisonError::into_inner));
                self.dump.state.store(NONE, Ordering::SeqCst);
                return Ok(threads);
            }
            let is_over = self.is_over();
            if (is_over || since.elapsed() > PATIENCE)
                && self.dump.state.compare_exchange(REQUESTED, NONE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                let reason = if is_over { "the guest has ended" } else { "the guest has not stopped for five seconds" };
                return Err(reason.to_owned());
            }
        }
    }

    /// Reads the guest from another thread, if it waits in a host call.
    fn dump_beside(&self) {
        if !self.dump.waits.load(Ordering::SeqCst) || !self.dump.take() {
            return;
        }
        if self.dump.waits.load(Ordering::SeqCst) {
            // SAFETY: the guest was in a host call after this was taken, and does not leave it before it is done; no
            // walk of the language is made in one.
            let threads = unsafe { self.read_threads(|frames| self.stack().walk_blocked(frames)) };
            self.dump.done(threads);
        } else {
            self.dump.state.store(REQUESTED, Ordering::SeqCst);
        }
    }

    /// # Safety
    /// As for [`GuestThread::collect_language`], but on any thread while the guest's cannot go on.
    unsafe fn read_threads(&self, walk: impl FnOnce(&mut Frames<'_>) -> WalkEnd) -> Vec<DumpedThread> {
        let mut words = vec![0; MAX_FRAMES];
        let mut frames = Frames::new(&mut words);
        walk(&mut frames);
        let length = frames.len();
        let words = &words[..length];
        // SAFETY: the caller's promise.
        let threads = unsafe { self.language_threads(words) };
        if !threads.is_empty() {
            return threads;
        }
        let frames = words
            .iter()
            .filter_map(|&word| self.shared.code.origin(FrameWord(word).native_pc()).map(DumpedFrame::Wasm));
        vec![DumpedThread {
            name: "guest".to_owned(),
            state: "running".to_owned(),
            frames: frames.collect(),
            truncation: None,
            creator: None,
            labels: Vec::new(),
        }]
    }
}
