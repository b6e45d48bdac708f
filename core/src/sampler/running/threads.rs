//! The threads that run a session's stores, and the stores.

use super::super::os::clock::monotonic_ns;
use super::super::os::own_thread::SignalBlocked;
use super::super::reading::StoreContext;
use super::super::shared::Shared;
use super::demand::SampleDemand;
use super::flush::Flush;
use super::slot::{RunningStore, ThreadSlot};
use super::store_name::NamedStore;
use super::store_state::{StoreNumber, StoreState};
use super::totals::{Clocks, SlotTotals};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use wlprof_recording::Clock;

/// What stops guests so that they can be read: makes a thread ready for that.
pub(in crate::sampler) trait Transport: Send + Sync {
    /// Makes a slot for the calling thread, whose time is sampled from here on.
    ///
    /// # Errors
    /// If the thread cannot be interrupted.
    fn take_up(&self) -> io::Result<Arc<ThreadSlot>>;

    /// What an interruption costs the thread, in nanoseconds; 0 if that is not known.
    fn interrupt_ns(&self) -> u64;
}

/// The threads and stores of a session.
pub(in crate::sampler) struct Threads {
    /// No other's.
    number: u64,
    pub(in crate::sampler) shared: Arc<Shared>,
    transport: Box<dyn Transport>,
    slots: Mutex<Vec<Arc<ThreadSlot>>>,
    /// Calls of the host by stores that have gone, by return address.
    host_calls: Mutex<HashMap<usize, u64>>,
    /// Those whose addresses may mean something else by now, by name.
    named_host_calls: Mutex<BTreeMap<Option<String>, u64>>,
    /// What the threads that have ended counted. Locked after the slots.
    ended: Mutex<SlotTotals>,
    /// What one of them had to say of its rate.
    ended_rate_note: Mutex<Option<String>>,
    /// Locked before the slots.
    wanted: Mutex<SampleDemand>,
    /// What records.
    drain: OnceLock<Thread>,
    /// CPU time that it has used, in nanoseconds.
    pub(in crate::sampler) drain_cpu_ns: AtomicU64,
    pub(in crate::sampler) flush: Flush,
    /// There may be thousands, and each poll looks for its own.
    stores: Mutex<BTreeMap<StoreNumber, Arc<StoreState>>>,
    /// Of the next store.
    next_store: AtomicU64,
    /// Of the stores that are there, and of those that have gone until the drain knows it.
    store_names: Mutex<HashMap<StoreNumber, Arc<NamedStore>>>,
    /// Stores that have gone since the drain last asked, and when.
    gone: Mutex<Vec<(StoreNumber, u64)>>,
    /// When the first thread could run a store, calibration done; 0 before.
    started_ns: AtomicU64,
    /// No more threads are taken.
    stopped: AtomicBool,
    /// Why a thread is not sampled.
    failure: Mutex<Option<io::Error>>,
    /// Why nothing is recorded any more.
    drain_failure: OnceLock<&'static str>,
}

/// The slots of this thread, one for each session whose stores it has run.
#[derive(Default)]
struct OwnSlots {
    /// By the numbers of the sessions' threads.
    slots: Vec<(u64, Arc<ThreadSlot>)>,
    /// Those that this thread cannot be sampled for.
    refused: Vec<u64>,
}

impl Drop for OwnSlots {
    fn drop(&mut self) {
        for (_, slot) in &self.slots {
            slot.leave_own();
            slot.end();
        }
    }
}

thread_local! {
    static OWN_SLOTS: RefCell<OwnSlots> = RefCell::default();
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    pub(in crate::sampler) fn new(shared: Arc<Shared>, transport: Box<dyn Transport>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            shared,
            transport,
            slots: Mutex::default(),
            host_calls: Mutex::default(),
            named_host_calls: Mutex::default(),
            ended: Mutex::default(),
            ended_rate_note: Mutex::default(),
            wanted: Mutex::default(),
            drain: OnceLock::new(),
            drain_cpu_ns: AtomicU64::new(0),
            flush: Flush::default(),
            stores: Mutex::default(),
            next_store: AtomicU64::new(0),
            store_names: Mutex::default(),
            gone: Mutex::default(),
            started_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            failure: Mutex::default(),
            drain_failure: OnceLock::new(),
        }
    }

    /// The slot of the calling thread, a new one if it has none; `None` if it cannot be sampled: [`Threads::failure`] says why.
    pub(in crate::sampler) fn of_this_thread(&self) -> Option<Arc<ThreadSlot>> {
        let own = OWN_SLOTS.try_with(|own| {
            let Ok(mut own) = own.try_borrow_mut() else { return None };
            own.slots.retain(|(_, slot)| {
                let is_over = slot.is_stopped();
                if is_over {
                    slot.leave_own();
                }
                !is_over
            });
            if let Some((_, slot)) = own.slots.iter().find(|(number, _)| *number == self.number) {
                slot.make_own();
                return Some(slot.clone());
            }
            if self.stopped.load(Ordering::Acquire) || own.refused.contains(&self.number) {
                return None;
            }
            match self.new_slot() {
                Ok(slot) => {
                    own.slots.push((self.number, slot.clone()));
                    Some(slot)
                }
                Err(error) => {
                    own.refused.push(self.number);
                    locked(&self.failure).get_or_insert(error);
                    None
                }
            }
        });
        // A thread that is ending has none any more.
        own.ok().flatten()
    }

    fn new_slot(&self) -> io::Result<Arc<ThreadSlot>> {
        let slot = self.transport.take_up()?;
        // Those who come later have begun later.
        let _ = self.started_ns.compare_exchange(0, monotonic_ns(), Ordering::Relaxed, Ordering::Relaxed);
        let wanted = locked(&self.wanted);
        let mut slots = locked(&self.slots);
        if wanted.clock() != Some(self.shared.options.clock) {
            slot.follow(wanted.clock());
        }
        if self.stopped.load(Ordering::Acquire) {
            slot.stop();
        }
        slots.push(slot.clone());
        Ok(slot)
    }

    /// What time samples are to stand for; `None` while nobody wants any.
    pub(in crate::sampler) fn clock(&self) -> Option<Clock> {
        locked(&self.wanted).clock()
    }

    /// Changes who wants samples.
    pub(super) fn change_wanted(&self, change: impl FnOnce(&mut SampleDemand)) {
        let mut wanted = locked(&self.wanted);
        let before = wanted.clock();
        change(&mut wanted);
        if wanted.clock() != before {
            locked(&self.slots).iter().for_each(|slot| slot.follow(wanted.clock()));
            self.wake_drain();
        }
    }

    /// Says which thread records.
    pub(in crate::sampler) fn drained_by(&self, thread: Thread) {
        // There is one a session.
        let _ = self.drain.set(thread);
    }

    /// Has the drain look at once.
    pub(in crate::sampler) fn wake_drain(&self) {
        self.drain.get().inspect(|drain| drain.unpark());
    }

    /// Nothing is recorded any more, and why. Nobody is to wait for it.
    pub(in crate::sampler) fn fail_drain(&self, why: &'static str) {
        // It fails once.
        let _ = self.drain_failure.set(why);
        self.flush.done(u64::MAX);
    }

    /// Why nothing is recorded any more, if that is so.
    pub(in crate::sampler) fn drain_failure(&self) -> Option<&'static str> {
        self.drain_failure.get().copied()
    }

    /// Why a thread could not be sampled, if one could not.
    pub(in crate::sampler) fn failure(&self) -> Option<String> {
        locked(&self.failure).as_ref().map(ToString::to_string)
    }

    /// What a signal costs, in nanoseconds.
    pub(in crate::sampler) fn interrupt_ns(&self) -> u64 {
        self.transport.interrupt_ns()
    }

    /// When sampling began.
    pub(in crate::sampler) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    /// All threads that have not been let go.
    pub(in crate::sampler) fn slots(&self) -> Vec<Arc<ThreadSlot>> {
        locked(&self.slots).clone()
    }

    /// Takes a thread that has ended out of the list.
    pub(in crate::sampler) fn let_go(&self, slot: &Arc<ThreadSlot>) {
        let mut slots = locked(&self.slots);
        slots.retain(|other| !Arc::ptr_eq(other, slot));
        locked(&self.ended).add(slot, 0);
        // SAFETY: the thread has given the slot up and has then set `is_gone`, so neither its handler nor its hooks use the timers any
        // more.
        if let Some(note) = slot.timers.as_ref().and_then(|timers| unsafe { timers.rate_note() }) {
            *locked(&self.ended_rate_note) = Some(note);
        }
    }

    /// What a thread that has ended had to say of its rate.
    pub(in crate::sampler) fn ended_rate_note(&self) -> Option<String> {
        locked(&self.ended_rate_note).clone()
    }

    /// The threads, and the CPU time that each has used by now.
    pub(in crate::sampler) fn clocks(&self) -> Clocks {
        Clocks::of(self.slots())
    }

    /// What all threads have counted, those that have ended as well, with the CPU time at `clocks`.
    pub(in crate::sampler) fn totals_at(&self, clocks: &Clocks) -> SlotTotals {
        let slots = locked(&self.slots);
        clocks.totals(*locked(&self.ended), |slot| slots.iter().any(|other| Arc::ptr_eq(other, slot)))
    }

    /// Adds a store of that name, whose context is `context`.
    pub(in crate::sampler) fn add_store(
        self: &Arc<Self>,
        name: Arc<NamedStore>,
        context: StoreContext,
    ) -> Arc<StoreState> {
        let number = self.next_store.fetch_add(1, Ordering::Relaxed);
        locked(&self.store_names).insert(number, name);
        let store = Arc::new(StoreState::new(number, self.shared.clone(), Arc::downgrade(self), context));
        locked(&self.stores).insert(number, store.clone());
        store
    }

    /// What a store is called; nothing if the drain knows already that it has gone.
    pub(in crate::sampler) fn store_name(&self, number: StoreNumber) -> Arc<NamedStore> {
        locked(&self.store_names).get(&number).cloned().unwrap_or_default()
    }

    /// The drain knows that a store has gone, and has recorded all of it.
    pub(in crate::sampler) fn forget_name(&self, number: StoreNumber) {
        locked(&self.store_names).remove(&number);
    }

    /// The stores that are there.
    pub(in crate::sampler) fn stores(&self) -> Vec<Arc<StoreState>> {
        locked(&self.stores).values().cloned().collect()
    }

    /// How often wasm has called the host, by what was called. What could not be told apart has no name.
    pub(in crate::sampler) fn host_calls(&self) -> BTreeMap<Option<String>, u64> {
        let (sums, mut named) = {
            // Held together, so that no call is in both or in neither.
            let (stores, gone) = (locked(&self.stores), locked(&self.host_calls));
            let mut sums = gone.clone();
            stores.values().for_each(|store| store.add_host_calls(&mut sums));
            (sums, locked(&self.named_host_calls).clone())
        };
        for (pc, count) in sums {
            *named.entry(self.shared.import_called_from(pc)).or_default() += count;
        }
        named
    }

    /// Finds the names of what stores that have gone have called: code is about to go.
    pub(in crate::sampler) fn name_host_calls(&self) {
        // Not with the lock held: stores that go wait for it.
        let called: Vec<usize> = locked(&self.host_calls).keys().copied().collect();
        let names: Vec<_> = called.into_iter().map(|pc| (pc, self.shared.import_called_from(pc))).collect();
        let mut sums = locked(&self.host_calls);
        let mut named = locked(&self.named_host_calls);
        for (pc, name) in names {
            *named.entry(name).or_default() += sums.remove(&pc).unwrap_or_default();
        }
    }

    /// This thread, whose slot this is, runs the store of that id from here on; none, if that is not there any more.
    pub(in crate::sampler) fn enter(
        &self,
        slot: &ThreadSlot,
        store: Option<StoreNumber>,
        is_told: bool,
    ) -> RunningStore {
        // Held until it is entered: whoever lets the store go finds it here, or in the slot.
        let stores = locked(&self.stores);
        let store = store.and_then(|number| stores.get(&number));
        slot.enter(store.map_or(std::ptr::null(), Arc::as_ptr), is_told)
    }

    /// Lets go of a store that is about to go: nobody reads it from here on. From any thread, while none of its wasm runs.
    pub(in crate::sampler) fn detach(&self, store: &Arc<StoreState>) {
        {
            // In one, so that nobody sees fewer calls than before.
            let mut stores = locked(&self.stores);
            store.add_host_calls(&mut locked(&self.host_calls));
            stores.remove(&store.number);
        }
        for slot in self.slots() {
            slot.forget(Arc::as_ptr(store));
        }
        // Dropped last.
        let _language;
        let _locked = store.close();
        let _no_signal = SignalBlocked::new();
        // SAFETY: no thread runs the store any more, and it is locked.
        _language = unsafe { store.take_language() };
        locked(&self.gone).push((store.number, monotonic_ns()));
    }

    /// The stores that have gone since this was last asked, and when that was on the monotonic clock.
    pub(in crate::sampler) fn take_gone(&self) -> Vec<(StoreNumber, u64)> {
        std::mem::take(&mut *locked(&self.gone))
    }

    /// Whether sampling is over.
    pub(in crate::sampler) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// No thread answers signals any more, and none is taken. Handlers may still be at work.
    pub(in crate::sampler) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.slots().iter().for_each(|slot| slot.stop());
    }
}
