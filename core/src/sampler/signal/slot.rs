//! A thread that is sampled: its timers and its ring, which store it runs, and what the handler does on it.

use super::super::arch::x86_64::Registers;
use super::super::options::SamplerOptions;
use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::linux::own_thread::{SIGNAL, SignalBlocked, mask, own_stack_low, voluntary_waits};
use super::super::os::linux::thread_timer::TimerClock;
use super::super::os::linux::thread_watch::own_tid;
use super::collect::{Snapshot, collect};
use super::governor::{Governor, Spent};
use super::handler;
use super::pace::{Expired, MAX_PERIODS, Pace};
use super::ring::Ring;
use super::store_state::StoreState;
use crate::recording::Clock;
use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use wasmtime::Engine;

/// How often the governor looks, in signals.
const GOVERN_EVERY: u64 = 32;

/// A thread that runs guests of a session.
pub(super) struct ThreadSlot {
    pub(super) tid: libc::pid_t,
    pub(super) name: String,
    /// Lowest address of its stack.
    stack_low: usize,
    clock: Clock,
    pub(super) ring: Ring,
    pub(super) pace: Pace,
    /// The store that the thread runs; null if it runs none.
    current: AtomicPtr<StoreState>,
    /// Somebody who knows all of the time says which store that is: host code that is interrupted is this store's, too. Else it
    /// is the call hook, which does not see when a store is suspended.
    is_told: AtomicBool,
    /// Touched in the handler alone.
    governor: UnsafeCell<Option<Governor>>,
    /// Wall time up to which samples stand for it, and how often the thread had waited of its own accord by then. Used with
    /// [`Clock::Wall`].
    accounted_ns: AtomicU64,
    accounted_waits: AtomicU64,
    /// Signals when the governor last looked.
    governed_at: AtomicU64,
    /// The handler is at work.
    in_handler: AtomicBool,
    /// No signal is answered any more.
    stopped: AtomicBool,
    pub(super) counts: SignalCounts,
    /// CPU time in the handler, and in walks when host calls return, altogether.
    pub(super) handler_ns: AtomicU64,
    /// CPU time in which samples were recorded.
    pub(super) drain_ns: AtomicU64,
    /// Signals that the calibration has handled.
    pub(super) handled: AtomicU64,
    /// Signals are answered but nothing is recorded.
    calibrating: AtomicBool,
    /// The thread is to go no further.
    halted: AtomicBool,
    /// It goes no further.
    halted_in_place: AtomicBool,
    /// The thread has ended, or will have no part in this any more.
    pub(super) is_gone: AtomicBool,
    /// CPU time when the thread last came to a store from none, or left for none.
    turned_cpu_ns: AtomicU64,
    /// CPU time in stores until then, if it is in none.
    in_stores_ns: AtomicU64,
    /// When it last left for none.
    pub(super) left_ns: AtomicU64,
}

/// What a thread runs, and whether whoever said so knows all of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) store: *const StoreState,
    pub(super) is_told: bool,
}

/// What became of the timers' signals.
#[derive(Default)]
pub(super) struct SignalCounts {
    /// All of them.
    pub(super) fired: AtomicU64,
    /// The thread had been without a processor.
    pub(super) preempted: AtomicU64,
    /// The thread had been waiting.
    pub(super) waited: AtomicU64,
    /// The ring had no room.
    pub(super) ring_full: AtomicU64,
    /// Sum of the periods that the governor had set for those that called for a sample, in nanoseconds.
    pub(super) periods_ns: AtomicU64,
}

/// Adds to a counter that one thread alone writes.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

// SAFETY: beside `governor` and what `pace` keeps for the handler everything is atomic or synchronized by itself; those two are
// touched on the slot's own thread alone, or when the handler is not at work and will not be.
unsafe impl Sync for ThreadSlot {}

impl ThreadSlot {
    /// A slot for the calling thread, which is not sampled before [`ThreadSlot::enter`].
    ///
    /// # Errors
    /// If the system gives it no timers, or the handler cannot be installed.
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        handler::install()?;
        // Gives this thread Wasmtime's large alternate signal stack: a sample taken before the first wasm call would run on
        // Rust's, and overflow it.
        Engine::tls_eager_initialize();
        Ok(Self {
            tid: own_tid(),
            name: std::thread::current().name().unwrap_or("guest").to_owned(),
            stack_low: own_stack_low()?,
            clock,
            ring: Ring::new(),
            pace: Pace::new()?,
            current: AtomicPtr::default(),
            is_told: AtomicBool::new(false),
            governor: UnsafeCell::new(None),
            accounted_ns: AtomicU64::new(0),
            accounted_waits: AtomicU64::new(0),
            governed_at: AtomicU64::new(0),
            in_handler: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            counts: SignalCounts::default(),
            handler_ns: AtomicU64::new(0),
            drain_ns: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            calibrating: AtomicBool::new(true),
            halted: AtomicBool::new(false),
            halted_in_place: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            turned_cpu_ns: AtomicU64::new(0),
            in_stores_ns: AtomicU64::new(0),
            left_ns: AtomicU64::new(0),
        })
    }

    /// Has the handler answer signals on this thread, which must be the slot's own.
    ///
    /// # Errors
    /// If the signal cannot be unblocked.
    pub(super) fn listen(&self) -> io::Result<()> {
        handler::CURRENT.set(self);
        mask(libc::SIG_UNBLOCK).map(|_| ())
    }

    /// Ends the calibration: from here on signals are samples. `interrupt_ns` is what one costs. To be called on the slot's
    /// thread.
    pub(super) fn start(&self, options: &SamplerOptions, interrupt_ns: u64) {
        self.pace.stop();
        let governor = Governor::new(options, interrupt_ns);
        let period_ns = governor.period_ns();
        {
            let _no_signal = SignalBlocked::new();
            // SAFETY: the handler is the only other user, and the signal is blocked.
            unsafe { *self.governor.get() = Some(governor) };
        }
        self.turned_cpu_ns.store(own_cpu_ns(), Ordering::Relaxed);
        self.account();
        self.calibrating.store(false, Ordering::SeqCst);
        self.pace.start(period_ns);
    }

    /// The store that the thread runs.
    pub(super) fn current(&self) -> *const StoreState {
        self.current.load(Ordering::Acquire)
    }

    /// Says which store the thread runs from here on, and whether whoever says so knows all of the time. To be called on the
    /// slot's thread; a store that is not null must be detached before it goes.
    pub(super) fn enter(&self, store: *const StoreState, is_told: bool) -> Running {
        let before = Running { store: self.current(), is_told: self.is_told.load(Ordering::Relaxed) };
        if before.store.is_null() && !store.is_null() {
            // What went by outside is nobody's.
            let now_ns = own_cpu_ns();
            let away_ns = now_ns.saturating_sub(self.turned_cpu_ns.swap(now_ns, Ordering::Relaxed));
            self.pace.leave_out(away_ns);
            self.account();
        } else if !before.store.is_null() && store.is_null() {
            let now_ns = own_cpu_ns();
            let inside_ns = now_ns.saturating_sub(self.turned_cpu_ns.swap(now_ns, Ordering::Relaxed));
            add(&self.in_stores_ns, inside_ns);
            self.left_ns.store(monotonic_ns(), Ordering::Relaxed);
        }
        self.is_told.store(is_told, Ordering::Relaxed);
        self.current.store(store.cast_mut(), Ordering::Release);
        if !store.is_null() {
            self.pace.goes_on();
        }
        before
    }

    /// Has the thread not run `store`, which is about to go, and waits until the handler does not use it. From any thread.
    pub(super) fn forget(&self, store: *const StoreState) {
        let mine =
            self.current.compare_exchange(store.cast_mut(), std::ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        if mine.is_ok() && self.tid != own_tid() {
            while self.is_in_handler() {
                std::thread::yield_now();
            }
        }
    }

    /// CPU time that the thread has spent in stores, if it has used `cpu_ns` by now.
    pub(super) fn in_stores_ns(&self, cpu_ns: u64) -> u64 {
        let running_ns = match self.current().is_null() {
            true => 0,
            false => cpu_ns.saturating_sub(self.turned_cpu_ns.load(Ordering::Relaxed)),
        };
        self.in_stores_ns.load(Ordering::Relaxed) + running_ns
    }

    /// No signal is answered any more, from any thread. The handler may still be at work: [`ThreadSlot::is_in_handler`].
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.pace.stop();
    }

    /// Whether no signal is answered any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether the handler is at work, on a thread that has been stopped.
    pub(super) fn is_in_handler(&self) -> bool {
        self.in_handler.load(Ordering::SeqCst)
    }

    /// The thread takes no part in this any more. To be called on it.
    pub(super) fn end(&self) {
        self.stop();
        self.enter(std::ptr::null(), true);
        self.is_gone.store(true, Ordering::Release);
    }

    /// Has the handler run soon, for a dump or a halt that waits for it. Interrupts what the thread waits for: to be called
    /// where it runs.
    pub(super) fn interrupt(&self) {
        // SAFETY: plain system call. If the thread has ended there is none of that number in this process, or a new one,
        // whose handler does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, SIGNAL) };
    }

    /// Whether there is nothing to sample now: the thread runs no store, or stays where it is.
    pub(super) fn is_idle(&self) -> bool {
        self.current().is_null() || self.halted_in_place.load(Ordering::Acquire)
    }

    /// Halts the guest: see [`Sampler::halt_guest`](super::super::Sampler::halt_guest).
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    /// Stays here for good if the guest has been halted. To be called where the thread holds no lock.
    pub(super) fn stay_if_halted(&self) {
        while self.halted.load(Ordering::Relaxed) {
            self.halted_in_place.store(true, Ordering::Release);
            // SAFETY: waits for a signal; async-signal-safe.
            unsafe { libc::pause() };
        }
    }

    /// Answers a signal that interrupted this thread with these registers. Async-signal-safe.
    ///
    /// # Safety
    /// To be called in the handler alone, with its second argument.
    pub(super) unsafe fn answer(&self, info: *const libc::siginfo_t, registers: Registers) {
        self.in_handler.store(true, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        let timer = unsafe { TimerClock::of_signal(info) };
        let mut in_guest = false;
        if self.stopped.load(Ordering::SeqCst) {
            // Nothing is sampled any more.
        } else if self.calibrating.load(Ordering::Relaxed) {
            add(&self.handled, u64::from(timer.is_some()));
        } else if let Some(store) = self.interrupted_store(registers) {
            in_guest = store.shared.code.contains(registers.pc);
            if let Some(timer) = timer {
                // SAFETY: this is the handler, on the thread that runs the store.
                unsafe { self.expired(store, timer, registers, in_guest) };
            }
            // Without a timer: anyone may send this signal. It counts if a dump or a halt waits for it.
            if in_guest {
                let began_ns = own_cpu_ns();
                // SAFETY: this is the handler, in compiled code: nobody else has the walker.
                if unsafe { store.dump_interrupted(registers) } {
                    self.leave_out(began_ns);
                }
            }
        } else {
            if !self.current().is_null() {
                // It has been suspended here, which the call hook does not see.
                self.enter(std::ptr::null(), false);
            }
            self.pace.expired_outside();
        }
        self.in_handler.store(false, Ordering::SeqCst);
        if in_guest {
            // In compiled code the thread holds no lock of the host's.
            self.stay_if_halted();
        }
    }

    /// The store whose code, or host code on whose behalf, was interrupted; `None` if it was neither.
    fn interrupted_store(&self, registers: Registers) -> Option<&StoreState> {
        // SAFETY: whoever lets a store go has this forget it before, and waits until the handler is not at work.
        let store = unsafe { self.current.load(Ordering::SeqCst).as_ref() }?;
        let is_its = self.is_told.load(Ordering::Relaxed)
            || store.shared.code.contains(registers.pc)
            || store.calls_host_code_at(registers.sp, self);
        is_its.then_some(store)
    }

    /// Lowest address of the thread's own stack.
    pub(super) fn stack_low(&self) -> usize {
        self.stack_low
    }

    /// Takes a sample, if the timer that has expired calls for one.
    ///
    /// # Safety
    /// To be called in the handler alone, of the thread that runs `store`.
    unsafe fn expired(&self, store: &StoreState, timer: TimerClock, registers: Registers, in_guest: bool) {
        let cpu_ns = own_cpu_ns();
        add(&self.counts.fired, 1);
        // In wasm's own calls of host code the thread does not wait.
        let may_wait = !in_guest && !store.is_in_wasm();
        let used_ns = match self.pace.on_expiry(timer, cpu_ns, may_wait) {
            Expired::Preempted => return add(&self.counts.preempted, 1),
            Expired::Waited => return add(&self.counts.waited, 1),
            Expired::Sample { used_ns } => used_ns,
        };
        let period_ns = self.pace.period_ns();
        add(&self.counts.periods_ns, period_ns);
        let snapshot = Snapshot { registers, in_guest, cpu_ns, weight_ns: self.weight(used_ns, in_guest), period_ns };
        // SAFETY: this is the handler, and what it interrupted does not push meanwhile: the call hook blocks the signal.
        if !unsafe { collect(&snapshot, store, &self.ring) } {
            add(&self.counts.ring_full, 1);
        }
        self.charge(cpu_ns, store.has_walk_panicked());
        let now_ns = own_cpu_ns();
        // SAFETY: this is the handler, and nothing else touches it after the start.
        let governor = unsafe { &mut *self.governor.get() };
        let period_ns = governor.as_mut().map_or(period_ns, |governor| {
            let fired = self.counts.fired.load(Ordering::Relaxed);
            if fired - self.governed_at.load(Ordering::Relaxed) >= GOVERN_EVERY {
                self.governed_at.store(fired, Ordering::Relaxed);
                governor.adjust(self.spent(now_ns));
            }
            governor.period_ns()
        });
        self.pace.sampled(now_ns, period_ns);
        self.account();
    }

    /// Leaves the CPU time since `began_ns`, which was not the guest's, out of what samples stand for. To be called where the
    /// handler cannot run, or in it.
    pub(super) fn leave_out(&self, began_ns: u64) {
        self.pace.leave_out(own_cpu_ns().saturating_sub(began_ns));
        self.account();
    }

    /// With [`Clock::Wall`], begins the time that the next sample stands for.
    fn account(&self) {
        if self.clock == Clock::Wall {
            self.accounted_ns.store(monotonic_ns(), Ordering::Relaxed);
            self.accounted_waits.store(voluntary_waits(), Ordering::Relaxed);
        }
    }

    /// What has been spent on sampling so far.
    fn spent(&self, cpu_ns: u64) -> Spent {
        Spent {
            signals: self.counts.fired.load(Ordering::Relaxed),
            sampling_ns: self.handler_ns.load(Ordering::Relaxed) + self.drain_ns.load(Ordering::Relaxed),
            guest_ns: self.in_stores_ns(cpu_ns),
        }
    }

    /// What the user should know of the rate. To be called when no signal is answered any more.
    ///
    /// # Safety
    /// The handler must not be at work, nor begin to be.
    pub(super) unsafe fn rate_note(&self) -> Option<String> {
        // SAFETY: the caller's promise.
        unsafe { &*self.governor.get() }.as_ref()?.note()
    }

    /// The time that a sample stands for, of a thread that has used so much CPU time since the last. With [`Clock::Wall`]
    /// what it has waited for a processor is added, if it has not waited for anything else meanwhile: then it stood where
    /// it was without one. Its other waits are seen from outside.
    fn weight(&self, used_ns: u64, in_guest: bool) -> u64 {
        let most_ns = if in_guest { MAX_PERIODS * self.pace.period_ns() } else { u64::MAX };
        let weight_ns = used_ns.min(most_ns);
        let has_waited = || voluntary_waits() != self.accounted_waits.load(Ordering::Relaxed);
        if self.clock == Clock::Cpu || has_waited() {
            return weight_ns;
        }
        let since_ns = monotonic_ns().saturating_sub(self.accounted_ns.load(Ordering::Relaxed));
        weight_ns + since_ns.saturating_sub(used_ns)
    }

    /// Counts the CPU time since `began_ns` as a cost of sampling, which the governor bounds, but for a walk that panicked: it
    /// may take seconds, and there are but a few, so that it says nothing of what the next sample costs.
    pub(super) fn charge(&self, began_ns: u64, has_panicked: bool) {
        if !has_panicked {
            add(&self.handler_ns, own_cpu_ns().saturating_sub(began_ns));
        }
    }
}
