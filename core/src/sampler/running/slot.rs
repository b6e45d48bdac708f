//! A thread that is sampled: its ring, what interrupts it if signals do, and which store it runs.

use super::super::os::clock::{monotonic_ns, own_cpu_ns};
use super::super::os::own_thread::{self, SignalBlocked, own_stack_low};
use super::super::os::thread_watch::own_tid;
use super::super::reading::Ring;
use super::super::timing::{Answers, Due, Spent, Timers, add};
use super::store_state::{StoreNumber, StoreState};
use super::store_time::StoreTime;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence};
use wlprof_recording::Clock;
use wlprof_walk::Registers;

/// A thread that runs guests of a session.
pub(in crate::sampler) struct ThreadSlot {
    pub(in crate::sampler) tid: u32,
    pub(in crate::sampler) name: String,
    /// Lowest address of its stack.
    stack_low: usize,
    pub(in crate::sampler) ring: Ring,
    /// The ring had no room so often.
    pub(in crate::sampler) ring_full: AtomicU64,
    /// What interrupts the thread, if signals do.
    pub(in crate::sampler) timers: Option<Timers>,
    /// What it has answered, if it calls back by itself at ticks.
    pub(in crate::sampler) answers: Option<Answers>,
    /// The store that the thread runs; null if it runs none.
    current: AtomicPtr<StoreState>,
    /// Its number, for the thread itself: the store may be about to go.
    current_number: AtomicU64,
    /// Somebody who knows all of the time says which store that is: host code that is interrupted is this store's, too. Else it
    /// is the call hook, which does not see when a store is suspended.
    is_told: AtomicBool,
    /// The handler is at work.
    in_handler: AtomicBool,
    /// No signal is answered any more.
    stopped: AtomicBool,
    /// CPU time in the handler, and in walks when host calls return, altogether.
    pub(in crate::sampler) handler_ns: AtomicU64,
    /// CPU time in which samples were recorded.
    pub(in crate::sampler) drain_ns: AtomicU64,
    /// This process has sent it a signal that it has not handled yet.
    is_signalled: AtomicBool,
    /// The thread is to go no further.
    halted: AtomicBool,
    /// It goes no further.
    halted_in_place: AtomicBool,
    /// The thread has ended, or will have no part in this any more.
    pub(in crate::sampler) is_gone: AtomicBool,
    /// Somebody wants samples, and with them to know how much CPU time there was in stores.
    is_wanted: AtomicBool,
    time: StoreTime,
    /// Instants of CPU time that another thread asks to be sampled.
    asked: AtomicU64,
    /// Those that count only if the thread stands in wasm: it was without a processor.
    asked_standing: AtomicU64,
    /// Time without a processor that another thread has seen, in nanoseconds.
    queued_ns: AtomicU64,
    /// CPU time in stores that samples stand for none of, where no timers count that.
    left_out_ns: AtomicU64,
    /// CPU time in stores at the last sample.
    since_ns: AtomicU64,
    /// When it last left for none.
    pub(in crate::sampler) left_ns: AtomicU64,
    /// How often it had waited when the slot was made.
    waits_before: u64,
}

/// What a thread runs, and whether whoever said so knows all of the time.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct RunningStore {
    /// By its number: it may go meanwhile.
    pub(in crate::sampler) store: Option<StoreNumber>,
    pub(in crate::sampler) is_told: bool,
}

thread_local! {
    /// The slot that this thread's signals and hooks go to. A plain constant-initialized cell: reading it in a signal handler
    /// runs no initializer.
    static OWN: Cell<*const ThreadSlot> = const { Cell::new(std::ptr::null()) };
}

impl ThreadSlot {
    /// A slot for the calling thread, which is not sampled before [`ThreadSlot::enter`]. `timers` are those that interrupt it, or it
    /// has `answers`.
    ///
    /// # Errors
    /// If the system does not say where its stack is.
    pub(in crate::sampler) fn new(timers: Option<Timers>, answers: Option<Answers>) -> io::Result<Self> {
        Ok(Self {
            tid: own_tid(),
            name: std::thread::current().name().unwrap_or("guest").to_owned(),
            stack_low: own_stack_low()?,
            ring: Ring::new(),
            ring_full: AtomicU64::new(0),
            timers,
            answers,
            current: AtomicPtr::default(),
            current_number: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            in_handler: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            handler_ns: AtomicU64::new(0),
            drain_ns: AtomicU64::new(0),
            is_signalled: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            halted_in_place: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_wanted: AtomicBool::new(true),
            time: StoreTime::new(monotonic_ns(), own_cpu_ns()),
            asked: AtomicU64::new(0),
            asked_standing: AtomicU64::new(0),
            queued_ns: AtomicU64::new(0),
            left_out_ns: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            left_ns: AtomicU64::new(0),
            waits_before: own_thread::voluntary_waits(),
        })
    }

    /// The slot that this thread's signals and hooks go to. Async-signal-safe.
    ///
    /// # Safety
    /// * Use the reference only in the handler, the hook or the host code of this thread that has asked for it.
    /// * Meanwhile this thread must not give the slot up ([`ThreadSlot::leave_own`]).
    pub(in crate::sampler) unsafe fn own<'a>() -> Option<&'a Self> {
        // SAFETY: this thread clears `OWN`, or puts another slot there, before it lets the slot go.
        unsafe { OWN.get().as_ref() }
    }

    /// This thread's signals and hooks go to this slot, which must be its own, until [`ThreadSlot::leave_own`].
    pub(in crate::sampler) fn make_own(&self) {
        if std::ptr::eq(OWN.get(), self) {
            return;
        }
        let _no_signal = SignalBlocked::new();
        OWN.set(self);
        if let Some(timers) = &self.timers
            && !self.is_stopped()
        {
            // While signals went to the slot of another session, its event was put to rest.
            timers.set_again();
        }
    }

    /// This thread's signals and hooks do not go to this slot any more.
    pub(in crate::sampler) fn leave_own(&self) {
        if std::ptr::eq(OWN.get(), self) {
            OWN.set(std::ptr::null());
        }
    }

    /// The store that the thread runs.
    pub(in crate::sampler) fn current(&self) -> *const StoreState {
        self.current.load(Ordering::Acquire)
    }

    /// Says which store the thread runs from here on, and whether whoever says so knows all of the time. To be called on the
    /// slot's thread; a store that is not null must be detached before it goes.
    pub(in crate::sampler) fn enter(&self, store: *const StoreState, is_told: bool) -> RunningStore {
        let was_none = self.current().is_null();
        let number = (!was_none).then(|| self.current_number.load(Ordering::Relaxed));
        let before = RunningStore { store: number, is_told: self.is_told.load(Ordering::Relaxed) };
        self.is_told.store(is_told, Ordering::Relaxed);
        // SAFETY: callers give null, a store that `Threads::enter` finds in its list, whose lock it holds, or the store whose call hook is
        // running.
        match unsafe { store.as_ref() } {
            Some(StoreState { number, .. }) => {
                match (was_none, &self.answers) {
                    (true, _) => self.comes_in(),
                    // What ticked in a host call that now enters another store is not that store's.
                    (false, Some(answers)) if !std::ptr::eq(self.current(), store) => drop(answers.cross(false)),
                    (false, _) => {}
                }
                self.current_number.store(*number, Ordering::Relaxed);
                self.current.store(store.cast_mut(), Ordering::Release);
            }
            None => {
                self.current.store(std::ptr::null_mut(), Ordering::Release);
                // From here on the handler leaves the time alone.
                compiler_fence(Ordering::SeqCst);
                match was_none {
                    // It may have been forgotten.
                    true => self.time.give_up(),
                    false => self.has_left(),
                }
            }
        }
        before
    }

    /// The thread comes to a store from none.
    fn comes_in(&self) {
        self.time.give_up();
        if let Some(answers) = &self.answers {
            // What ticked while it ran none is no host call's.
            answers.cross(false);
        }
        if self.is_wanted.load(Ordering::Relaxed) {
            let now_ns = monotonic_ns();
            self.settle_if_due(now_ns);
            self.time.begin(now_ns);
            self.timers.iter().for_each(Timers::account);
            // What it waited for in another store is not this one's.
            self.take_queued();
        }
        if self.has_passed() {
            self.pass_over();
        }
    }

    /// Instants that have passed that no signal has reported are nobody's.
    #[cold]
    pub(in crate::sampler) fn pass_over(&self) {
        let _no_signal = SignalBlocked::new();
        if let Some(timers) = &self.timers
            && let Some(instants) = timers.pass_unsignalled()
        {
            if !self.current().is_null() {
                // Of the store's time, which no sample stands for.
                timers.leave_out(instants * timers.period_ns());
            }
            let cpu_ns = own_cpu_ns();
            // SAFETY: this is the timers' thread, and the signal is blocked.
            unsafe { timers.goes_on(cpu_ns, || self.spent(cpu_ns)) };
        }
    }

    /// A signal has reported instants where the thread runs no store: they are nobody's. Call this in the handler.
    pub(in crate::sampler) fn pass_over_signalled(&self, timers: &Timers, asked: u64) {
        let cpu_ns = own_cpu_ns();
        timers.pass_over(asked, cpu_ns, self.in_stores_ns(cpu_ns));
        // SAFETY: this runs in the handler, on the slot's own thread.
        unsafe { timers.goes_on(cpu_ns, || self.spent(cpu_ns)) };
    }

    /// A sample of the instants that have passed that no signal has reported, if any have. `cpu_ns` is the thread's CPU time, `in_guest` whether
    /// they are the guest's own. Call this with the signal blocked, and then [`ThreadSlot::goes_on`].
    pub(in crate::sampler) fn unsignalled(&self, cpu_ns: u64, in_guest: bool) -> Option<Due> {
        let timers = self.timers.as_ref()?;
        let instants = timers.pass_unsignalled()?;
        self.count_time(cpu_ns);
        let due = timers.due(instants, self.in_stores_ns(cpu_ns), in_guest);
        Some(timers.with_wait(due, cpu_ns, || self.take_queued()))
    }

    /// Whether an instant has passed that no signal has reported. Costs a look at the monotonic clock at nearly every call.
    pub(in crate::sampler) fn has_passed(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| timers.may_have_passed() && timers.has_passed())
    }

    /// As [`ThreadSlot::has_passed`], in the guest, which is about to call the host.
    pub(in crate::sampler) fn has_passed_in_guest(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| timers.may_have_passed() && timers.has_passed_in_guest())
    }

    /// As [`ThreadSlot::has_passed`], in the host call that returns.
    pub(in crate::sampler) fn has_passed_in_call(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| timers.may_have_passed() && timers.has_passed_in_call())
    }

    /// A sample that began at `began_ns` of CPU time has been taken, or could not be: what it took is nobody's, and the thread goes on.
    ///
    /// # Safety
    /// Call this on the slot's thread, in the handler or with the signal blocked.
    pub(in crate::sampler) unsafe fn goes_on(&self, began_ns: u64) {
        if let Some(timers) = &self.timers {
            let now_ns = own_cpu_ns();
            timers.leave_out(now_ns.saturating_sub(began_ns));
            // SAFETY: this is the timers' thread, in the handler or with the signal blocked.
            unsafe { timers.goes_on(now_ns, || self.spent(now_ns)) };
        }
    }

    /// Asks the thread, which runs or `is_standing` without a processor, for a sample of an instant of CPU time that stands for `ns`: by a
    /// signal, or at its next check. One that is without a processor counts only if that is in wasm.
    pub(in crate::sampler) fn ask(&self, ns: u64, is_standing: bool) {
        match (&self.answers, is_standing) {
            (Some(answers), _) => return answers.ask(ns, is_standing),
            (None, true) => self.asked_standing.fetch_add(1, Ordering::Relaxed),
            (None, false) => self.asked.fetch_add(1, Ordering::Relaxed),
        };
        self.interrupt();
    }

    /// The thread waits in wasm for a processor, for so much time as far as another thread sees it.
    pub(in crate::sampler) fn waits_for_processor(&self, ns: u64) {
        self.queued_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// What the thread has waited for a processor since it was last asked, as far as another thread has seen it.
    pub(in crate::sampler) fn take_queued(&self) -> u64 {
        self.queued_ns.swap(0, Ordering::Relaxed)
    }

    /// How many instants another thread has asked for, of a thread that stands in wasm or not.
    pub(in crate::sampler) fn take_asked(&self, in_guest: bool) -> u64 {
        let standing = self.asked_standing.swap(0, Ordering::Relaxed);
        self.asked.swap(0, Ordering::Relaxed) + if in_guest { standing } else { 0 }
    }

    /// The thread has left a store for none.
    fn has_left(&self) {
        let now_ns = monotonic_ns();
        if self.time.counts() {
            self.time.end(now_ns);
            self.settle_if_due(now_ns);
        }
        self.left_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Divides what went by until the thread has used `cpu_ns`, and counts the time of the store that it runs from
    /// here on, if samples are wanted. To be called in the handler, or where that cannot run. Gives whether it was counted before.
    pub(in crate::sampler) fn count_time(&self, cpu_ns: u64) -> bool {
        self.count_time_if(cpu_ns, self.is_wanted.load(Ordering::Relaxed))
    }

    /// As [`ThreadSlot::count_time`], whether anybody wants samples or not.
    pub(in crate::sampler) fn count_time_always(&self, cpu_ns: u64) {
        if !self.current().is_null() {
            self.count_time_if(cpu_ns, true);
        }
    }

    fn count_time_if(&self, cpu_ns: u64, begins: bool) -> bool {
        let (now_ns, did_count) = (monotonic_ns(), self.time.counts());
        self.time.settle(now_ns, cpu_ns);
        if !did_count && begins {
            self.time.begin(now_ns);
        }
        did_count
    }

    fn settle_if_due(&self, now_ns: u64) {
        if self.time.is_due(now_ns) {
            self.time.settle(now_ns, own_cpu_ns());
        }
    }

    /// Has the thread not run `store`, which is about to go, and waits until the handler does not use it. From any thread.
    pub(in crate::sampler) fn forget(&self, store: *const StoreState) {
        if self.tid == own_tid() {
            if std::ptr::eq(self.current(), store) {
                // With the time that it took up to here.
                self.enter(std::ptr::null(), self.is_told());
            }
            return;
        }
        let its =
            self.current.compare_exchange(store.cast_mut(), std::ptr::null_mut(), Ordering::SeqCst, Ordering::SeqCst);
        if its.is_ok() {
            while self.is_in_handler() {
                std::thread::yield_now();
            }
        }
    }

    /// CPU time that the thread has spent in stores, as far as it was counted, if it has used `cpu_ns` by now.
    pub(in crate::sampler) fn in_stores_ns(&self, cpu_ns: u64) -> u64 {
        self.time.in_stores_ns(monotonic_ns(), cpu_ns, !self.current().is_null())
    }

    /// CPU time in stores that samples are to stand for, where no timers count that, and what of it came since the last sample.
    pub(in crate::sampler) fn sampleable_ns(&self, cpu_ns: u64) -> (u64, u64) {
        let all_ns = self.in_stores_ns(cpu_ns).saturating_sub(self.left_out_ns.load(Ordering::Relaxed));
        (all_ns, all_ns.saturating_sub(self.since_ns.swap(all_ns, Ordering::Relaxed)))
    }

    /// Samples of that clock are wanted from here on, or none. From any thread.
    pub(in crate::sampler) fn follow(&self, clock: Option<Clock>) {
        // A store that the thread is in already is counted from its first signal on.
        self.is_wanted.store(clock.is_some(), Ordering::Relaxed);
        match (&self.timers, clock) {
            (Some(timers), Some(clock)) => timers.resume(clock),
            (Some(timers), None) => timers.rest(),
            (None, _) => {}
        }
    }

    /// No signal is answered any more, from any thread. The handler may still be at work: [`ThreadSlot::is_in_handler`].
    pub(in crate::sampler) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(timers) = &self.timers {
            timers.stop();
        }
    }

    /// Whether no signal is answered any more.
    pub(in crate::sampler) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Whether the handler is at work, on a thread that has been stopped.
    pub(in crate::sampler) fn is_in_handler(&self) -> bool {
        self.in_handler.load(Ordering::SeqCst)
    }

    /// The thread takes no part in this any more. To be called on it.
    pub(in crate::sampler) fn end(&self) {
        self.stop();
        self.enter(std::ptr::null(), true);
        // Nobody can ask the system for it when it has gone.
        self.time.settle(monotonic_ns(), own_cpu_ns());
        self.is_gone.store(true, Ordering::Release);
    }

    /// Has the handler run soon, for a dump or a halt that waits for it, if signals interrupt the thread: others are read, or
    /// halted, at their next check or host call. Interrupts what the thread waits for: to be called where it runs.
    pub(in crate::sampler) fn interrupt(&self) {
        // Without timers nobody handles the signal.
        if self.timers.is_some() {
            self.is_signalled.store(true, Ordering::SeqCst);
            own_thread::interrupt(self.tid);
        }
    }

    /// Whether a signal was sent by [`ThreadSlot::interrupt`], which it is handled for now. Async-signal-safe.
    pub(in crate::sampler) fn takes_signal(&self) -> bool {
        self.is_signalled.swap(false, Ordering::SeqCst)
    }

    /// Whether the thread stays where it is.
    pub(in crate::sampler) fn is_halted(&self) -> bool {
        self.halted_in_place.load(Ordering::Acquire)
    }

    /// Whether somebody who knows all of the time says which store the thread runs.
    pub(in crate::sampler) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Whether there is nothing to sample now: the thread runs no store, or stays where it is.
    pub(in crate::sampler) fn is_idle(&self) -> bool {
        self.current().is_null() || self.halted_in_place.load(Ordering::Acquire)
    }

    /// Halts the guest: see [`Sampler::halt_guest`](super::super::at_work::Sampler::halt_guest).
    pub(in crate::sampler) fn halt(&self) {
        self.halted.store(true, Ordering::SeqCst);
    }

    /// Stays here for good if the guest has been halted. To be called where the thread holds no lock.
    pub(in crate::sampler) fn stay_if_halted(&self) {
        while self.halted.load(Ordering::Relaxed) {
            self.halted_in_place.store(true, Ordering::Release);
            own_thread::pause();
        }
    }

    /// The handler begins to work. From here on no store that [`ThreadSlot::interrupted_store`] gives goes before
    /// [`ThreadSlot::handler_ends`].
    pub(in crate::sampler) fn handler_begins(&self) {
        self.in_handler.store(true, Ordering::SeqCst);
    }

    /// The handler is done.
    pub(in crate::sampler) fn handler_ends(&self) {
        self.in_handler.store(false, Ordering::SeqCst);
    }

    /// The store whose code, or host code on whose behalf, was interrupted; `None` if it was neither. To be called in the handler.
    pub(in crate::sampler) fn interrupted_store(&self, registers: Registers) -> Option<&StoreState> {
        // SAFETY: `Threads::detach` has every slot forget a store before that goes, and `forget` waits while the handler is at work.
        let store = unsafe { self.current.load(Ordering::SeqCst).as_ref() }?;
        let is_its = self.is_told.load(Ordering::Relaxed)
            || store.shared.code.contains(registers.pc) && store.runs_wasm_on(self)
            || store.calls_host_code_at(registers.sp, self);
        is_its.then_some(store)
    }

    /// Lowest address of the thread's own stack.
    pub(in crate::sampler) fn stack_low(&self) -> usize {
        self.stack_low
    }

    /// Leaves the CPU time since `began_ns`, which was not the guest's, out of what samples stand for. To be called where the
    /// handler cannot run, or in it.
    pub(in crate::sampler) fn leave_out(&self, began_ns: u64) {
        let ns = own_cpu_ns().saturating_sub(began_ns);
        match &self.timers {
            Some(timers) => timers.leave_out_instants(ns),
            None => add(&self.left_out_ns, ns),
        }
    }

    /// What the user should know of a thread that has used `cpu_ns` of CPU time and has waited so often.
    pub(in crate::sampler) fn bursts_note(&self, cpu_ns: u64, waits: u64) -> Option<String> {
        let waits = waits.checked_sub(self.waits_before)?;
        self.timers.as_ref()?.bursts_note(self.in_stores_ns(cpu_ns), waits)
    }

    /// Time between samples now.
    pub(in crate::sampler) fn period_ns(&self) -> u64 {
        self.timers.as_ref().map_or(u64::MAX, Timers::period_ns)
    }

    /// What has been spent on sampling so far, but for the number of signals. `cpu_ns` is the thread's CPU time.
    pub(in crate::sampler) fn spent(&self, cpu_ns: u64) -> Spent {
        Spent {
            signals: 0,
            sampling_ns: self.handler_ns.load(Ordering::Relaxed) + self.drain_ns.load(Ordering::Relaxed),
            guest_ns: self.in_stores_ns(cpu_ns),
        }
    }

    /// Counts the CPU time since `began_ns` as a cost of sampling, which the governor bounds, but for a walk that panicked: it
    /// may take seconds, and there are but a few, so that it says nothing of what the next sample costs.
    pub(in crate::sampler) fn charge(&self, began_ns: u64, has_panicked: bool) {
        if !has_panicked {
            add(&self.handler_ns, own_cpu_ns().saturating_sub(began_ns));
        }
    }
}
