//! The thread that takes samples out of the rings and interns them, and looks where guests wait.

mod checks;
mod heaps;
mod lanes;
mod paths;
mod pauses;
mod stores;
mod waits;

pub(super) use lanes::LaneCounts;
pub(super) use pauses::Pauses;
pub(super) use waits::WaitCounts;

use super::kept::Mark;
use super::os::clock::{monotonic_ns, own_cpu_ns};
use super::os::thread_watch::ThreadWatch;
use super::reading::{Header, Kind, MAX_WORDS, Record, Ring};
use super::running::{StoreState, ThreadSlot, Threads};
use super::shared::Shared;
use super::unloading::LeavingModules;
use checks::CheckTable;
use heaps::HeapStacks;
use lanes::{Lanes, SampleStack};
use paths::{FrameTable, InternedStack, Path, Step};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stores::Stores;
use waits::Waits;
use wlprof_recording::{Clock, HeldNumbers, LanguageTruncation, ModuleId, Naming, Origin, Recorder, State, Truncation};
use wlprof_walk::{FrameWord, WalkTruncation};

/// How long samples may wait in a ring.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// Likewise where governors have lowered the rate: each look at the rings is to be paid for. What is new is to be in the journal within
/// three quarters of a second all the same.
const MAX_LOWERED_INTERVAL: Duration = Duration::from_millis(700);
/// How long while nobody wants samples. Who wants some wakes this.
const RESTING_INTERVAL: Duration = Duration::from_secs(2);
/// How often the rings are emptied at most.
const MIN_INTERVAL: Duration = Duration::from_micros(250);
/// How long naming may keep it from the rings at once.
const NAMING: Duration = Duration::from_millis(5);
/// The first interval: what comes at first, and how fast, is not known.
const FIRST_INTERVAL: Duration = Duration::from_millis(5);

/// What the drain saw.
#[derive(Debug, Default)]
pub(super) struct DrainCounts {
    /// What became of the samples that were recorded.
    pub(super) lanes: LaneCounts,
    /// Samples that were taken out of the ring after this had failed.
    pub(super) unrecorded: u64,
    /// Time in the handler of each sample.
    pub(super) pauses: Pauses,
    /// Looks from outside.
    pub(super) waits: WaitCounts,
    /// Why not all samples were recorded.
    pub(super) failure: Option<&'static str>,
}

/// A thread whose ring is emptied.
struct RingSource {
    slot: Arc<ThreadSlot>,
    waits: Option<Waits>,
    /// Words taken out of the ring since the interval began.
    read_words: usize,
    /// Its last stack.
    path: Path,
}

/// Moves records from the rings into the recorder.
pub(super) struct Drain {
    threads: Arc<Threads>,
    drawn: Vec<RingSource>,
    frames: FrameTable,
    /// Words seen under a language's stack, which may show none of them.
    under_language: HashSet<FrameWord>,
    checks: CheckTable,
    lanes: Lanes,
    stores: Stores,
    heaps: HeapStacks,
    leaving: LeavingModules,
    naming: Naming,
    /// What time samples stood for when the threads were last looked at; `None` if nobody wanted any.
    clock: Option<Clock>,
    drained: DrainCounts,
}

impl Drain {
    /// Drains until `stop` is set, and then once more. Should this panic, sampling ends, and not the guests.
    pub(super) fn run(threads: Arc<Threads>, stop: &AtomicBool) -> DrainCounts {
        let mut drain = Self {
            threads,
            drawn: Vec::new(),
            frames: FrameTable::new(),
            under_language: HashSet::default(),
            checks: CheckTable::default(),
            lanes: Lanes::default(),
            stores: Stores::default(),
            heaps: HeapStacks::default(),
            leaving: LeavingModules::default(),
            naming: Naming::default(),
            clock: None,
            drained: DrainCounts::default(),
        };
        if catch_unwind(AssertUnwindSafe(|| drain.drain_until(stop))).is_err() {
            drain.threads.stop();
            const WHY: &str = "the thread that records samples failed";
            drain.drained.failure = Some(WHY);
            drain.threads.fail_drain(WHY);
            drain.drop_until(stop);
        }
        drain.threads.shared.unloading.give_back(std::mem::take(&mut drain.leaving).into_left());
        for drawn in &drain.drawn {
            drain.drained.waits.add(drawn.waits.as_ref().map(|waits| waits.counts).unwrap_or_default());
        }
        drain.drained.lanes = drain.lanes.counts;
        drain.drained
    }

    fn drain_until(&mut self, stop: &AtomicBool) {
        let mut interval = FIRST_INTERVAL;
        // Up to here this thread's CPU time has been charged.
        let mut charged_ns = own_cpu_ns();
        loop {
            let last = stop.load(Ordering::Acquire);
            // Before the threads that ran them are met: their samples come before it is told that they have gone.
            let gone = self.threads.take_gone();
            let unloaded = if last { Vec::new() } else { self.threads.shared.unloading.take_asked() };
            self.leaving.look_who_has_them(&unloaded, &self.threads.shared);
            self.meet_threads();
            let flush = self.threads.flush.asked();
            // A host call may return on another thread than it was sampled on. What is pushed there comes after what was
            // pushed here, and is not looked at before all of that is there.
            let until_ns = if last { u64::MAX } else { monotonic_ns() };
            let mut sightings = if last { Vec::new() } else { self.look() };
            sightings.sort_by_key(|(_, words)| Header::time_ns(words));
            if !sightings.is_empty() || self.clock == Some(Clock::Wall) {
                // Looks are not counted: they come as time goes by, however little of it is the guest's.
                charged_ns = own_cpu_ns();
            }
            let threads = self.threads.clone();
            let shared = &threads.shared;
            let mut recorder = shared.recorder();
            for (drawn, words) in sightings {
                self.empty_rings(Header::time_ns(&words).min(until_ns), shared, &mut recorder);
                self.record(drawn, &words, shared, &mut recorder);
            }
            self.empty_rings(until_ns, shared, &mut recorder);
            if flush.is_some() {
                self.read_awaited(shared, &mut recorder);
                self.lanes.give_up_tasks(&mut recorder);
            }
            let before_heaps_ns = own_cpu_ns();
            self.record_heaps(last || flush.is_some(), &gone, shared, &mut recorder);
            // No sample of time has cost that.
            charged_ns += own_cpu_ns() - before_heaps_ns;
            let before_stores_ns = own_cpu_ns();
            for (store, gone_ns) in gone {
                self.lanes.store_has_gone(store, &mut recorder);
                if let Some(id) = self.stores.gone(store) {
                    recorder.memory(id, gone_ns.saturating_sub(threads.started_ns()), 0);
                }
                threads.forget_name(store);
            }
            self.stores.write_labels(&mut recorder);
            // However many stores come and go, that is no cost of samples: a lower rate would not make it less.
            charged_ns += own_cpu_ns() - before_stores_ns;
            if last {
                self.lanes.give_up(&mut recorder);
                return;
            }
            // What went in an earlier round: by now nothing of it can be in a ring.
            self.leaving.free_code(shared);
            if !unloaded.is_empty() {
                self.unload(&unloaded, shared, &mut recorder);
            }
            let before_names_ns = own_cpu_ns();
            self.naming.name(&mut recorder, NAMING, |id| shared.module(id).and_then(|module| module.program.clone()));
            // Each is named once, however many samples there are.
            charged_ns += own_cpu_ns() - before_names_ns;
            // Before the first thread has begun there is no time to count by.
            if let started_ns @ 1.. = threads.started_ns() {
                let since_start_ns = monotonic_ns().saturating_sub(started_ns);
                match flush {
                    Some(_) => recorder.flush(since_start_ns),
                    None => recorder.write_if_due(since_start_ns),
                }
                self.mark_if_due(&threads, since_start_ns, &mut recorder);
                self.let_go_of_modules(shared, since_start_ns, &mut recorder);
            }
            if recorder.is_overgrown() {
                self.compact(&mut recorder);
            }
            drop(recorder);
            self.leaving.drop_forgotten();
            flush.into_iter().for_each(|number| threads.flush.done(number));
            let now_ns = own_cpu_ns();
            self.threads.drain_cpu_ns.store(now_ns, Ordering::Relaxed);
            if self.charge(now_ns - charged_ns) {
                charged_ns = now_ns;
            }
            self.let_go_of_ended();
            interval = self.next_interval(interval);
            std::thread::park_timeout(interval);
        }
    }

    /// Notes what has been counted so far, for windows that begin here, and lets go of what is too old for any.
    fn mark_if_due(&mut self, threads: &Threads, now_ns: u64, recorder: &mut Recorder) {
        let mut kept = threads.shared.kept();
        if kept.is_due(now_ns) {
            let totals = threads.totals_at(&threads.clocks());
            kept.mark(Mark { time_ns: now_ns, totals, truncated: recorder.truncated_counts() });
            recorder.keep_from(kept.first_ns(now_ns), kept.late_from());
        }
    }

    /// Lets go of the names of modules that went before all samples that are kept.
    fn let_go_of_modules(&mut self, shared: &Shared, now_ns: u64, recorder: &mut Recorder) {
        let Some(first_ns) = recorder.forgets_before_ns() else { return };
        if !shared.are_ids_held() && self.leaving.is_due(first_ns, now_ns) {
            self.compact(recorder);
            self.leaving.names_go(now_ns, shared, recorder);
        }
    }

    /// Lets go of the code of modules, of which all samples are recorded. Other code may come to be where it was.
    fn unload(&mut self, modules: &[ModuleId], shared: &Shared, recorder: &mut Recorder) {
        let now_ns = match self.threads.started_ns() {
            0 => 0,
            started_ns => monotonic_ns().saturating_sub(started_ns),
        };
        self.threads.name_host_calls();
        self.leaving.code_goes(modules, now_ns, shared, recorder);
        self.forget_addresses();
        self.under_language.clear();
    }

    fn forget_addresses(&mut self) {
        self.frames = FrameTable::new();
        self.checks = CheckTable::default();
        self.drawn.iter_mut().for_each(|drawn| drawn.path = Path::default());
    }

    /// Lets go of what of the recorder's tables is seen no more.
    fn compact(&mut self, recorder: &mut Recorder) {
        let mut held = HeldNumbers { stores: self.stores.held(), ..self.lanes.held() };
        held.stacks.extend(self.heaps.stacks());
        let Some(numbers) = recorder.compact(held) else { return };
        self.lanes.renumber(&numbers);
        self.stores.renumber(&numbers.stores);
        self.heaps.renumber(&numbers.stacks);
        self.forget_addresses();
    }

    /// Takes up threads that have come since.
    fn meet_threads(&mut self) {
        self.lanes.started(self.threads.started_ns());
        for slot in self.threads.slots() {
            if !self.drawn.iter().any(|drawn| Arc::ptr_eq(&drawn.slot, &slot)) {
                // Only what is interrupted is looked at: other transports see no waits.
                let watch = slot.timers.as_ref().and_then(|_| ThreadWatch::new(slot.tid).ok());
                let waits = watch.map(Waits::new);
                self.drawn.push(RingSource { slot, waits, read_words: 0, path: Path::default() });
            }
        }
    }

    /// Drops threads that have ended, and all of whose samples are recorded.
    fn let_go_of_ended(&mut self) {
        for index in (0..self.drawn.len()).rev() {
            let RingSource { slot, waits, .. } = &self.drawn[index];
            // SAFETY: only the drain reads rings, and it is borrowed mutably here, so no `pop` runs.
            let is_over = slot.is_gone.load(Ordering::Acquire) && unsafe { slot.ring.peek(|_| ()) }.is_none();
            if is_over {
                self.drained.waits.add(waits.as_ref().map(|waits| waits.counts).unwrap_or_default());
                self.threads.let_go(slot);
                self.lanes.thread_has_ended(slot.tid);
                self.drawn.swap_remove(index);
            }
        }
    }

    /// Looks at the threads that wait, if that is due, and gives records of them by the index of the thread.
    fn look(&mut self) -> Vec<(usize, Box<[u64]>)> {
        let clock = self.threads.clock();
        if clock != self.clock {
            // What the looks before were for says nothing of what these are for.
            self.drawn.iter_mut().filter_map(|drawn| drawn.waits.as_mut()).for_each(Waits::rest);
        }
        self.clock = clock;
        let Some(clock) = clock else { return Vec::new() };
        let mut sightings = Vec::new();
        let mut stores: Option<Vec<Arc<StoreState>>> = None;
        for (index, RingSource { slot, waits, .. }) in self.drawn.iter_mut().enumerate() {
            let Some(waits) = waits else { continue };
            // Where only the call hook says what a thread runs, a store that was suspended there may be anywhere by now.
            if slot.is_idle() || !slot.is_told() {
                waits.rest();
                continue;
            }
            // It may be no more, so it is looked for among those that are.
            let stores = stores.get_or_insert_with(|| self.threads.stores());
            let Some(store) = stores.iter().find(|store| std::ptr::eq(Arc::as_ptr(store), slot.current())) else {
                continue;
            };
            sightings.extend(waits.look(clock, slot, store).map(|words| (index, words.into())));
        }
        sightings
    }

    /// Records what was begun by `until_ns`, of all rings in order of time.
    fn empty_rings(&mut self, until_ns: u64, shared: &Shared, recorder: &mut Recorder) {
        loop {
            // SAFETY: only the drain reads rings, and it is borrowed mutably here, so no `pop` runs.
            let front = |drawn: &RingSource| unsafe { drawn.slot.ring.peek(Header::time_ns) };
            let fronts = self.drawn.iter().enumerate().filter_map(|(index, drawn)| Some((front(drawn)?, index)));
            let Some((_, index)) = fronts.min().filter(|(time_ns, _)| *time_ns <= until_ns) else { return };
            let slot = self.drawn[index].slot.clone();
            // SAFETY: only the drain reads rings, and it is borrowed mutably here, so no other `pop` runs.
            unsafe { slot.ring.pop(|words| self.record(index, words, shared, recorder)) };
        }
    }

    /// Reads the languages' stacks of host calls that are going on, which samples await.
    fn read_awaited(&mut self, shared: &Shared, recorder: &mut Recorder) {
        let mut words = vec![0; MAX_WORDS];
        for store in self.threads.stores() {
            if let Some(length) = store.read_awaited_beside(&mut words)
                && !self.drawn.is_empty()
            {
                // Whose ring it would have come out of is of no account: samples of any thread may await it.
                self.record(0, &words[..length], shared, recorder);
            }
        }
    }

    /// Charges the threads with the CPU time that recording took, each with its part. `false` if there was nothing to record.
    fn charge(&mut self, spent_ns: u64) -> bool {
        let all: usize = self.drawn.iter().map(|drawn| drawn.read_words).sum();
        for drawn in self.drawn.iter().filter(|drawn| drawn.read_words > 0) {
            let part_ns = spent_ns as u128 * drawn.read_words as u128 / all as u128;
            drawn.slot.drain_ns.fetch_add(part_ns as u64, Ordering::Relaxed);
        }
        all > 0
    }

    /// When the rings are to be emptied again, after an interval that was so long.
    fn next_interval(&mut self, interval: Duration) -> Duration {
        let most = self.drawn.iter_mut().map(|drawn| std::mem::take(&mut drawn.read_words)).max().unwrap_or(0);
        let (fastest_hz, is_lowered) = self.fastest_hz();
        let most_patient = if is_lowered { MAX_LOWERED_INTERVAL } else { MAX_INTERVAL };
        let longest = (Ring::until_full_at(fastest_hz) / 2).clamp(MIN_INTERVAL, most_patient);
        let next = (Ring::until_full(most, interval) / 4).clamp(MIN_INTERVAL, longest);
        let looked_at = self.drawn.iter().filter(|drawn| !drawn.slot.is_idle());
        let Some(clock) = self.clock else { return RESTING_INTERVAL };
        let due = looked_at.filter_map(|drawn| Some(drawn.waits.as_ref()?.until_due(clock))).min();
        next.min(due.unwrap_or(match clock {
            // A thread that comes now may wait at once.
            Clock::Wall => FIRST_INTERVAL,
            Clock::Cpu => longest,
        }))
    }

    /// The highest rate that a thread is sampled at, and whether that is less than was asked for. Where governors have lowered it this
    /// thread has less to do as well: it goes by the wall's time, of which a guest that is kept from running has much more than it has to
    /// pay with. A governor that raises its rate again has little to spend, so that half a ring is room enough until this looks anew.
    fn fastest_hz(&self) -> (f64, bool) {
        let options = &self.threads.shared.options;
        let asked_hz = options.first_hz.map_or(options.rate_hz, |first_hz| first_hz.max(options.rate_hz));
        let periods = self.drawn.iter().map(|drawn| drawn.slot.period_ns());
        // Where no timer is set, nothing is lowered.
        let shortest_ns = periods.min().filter(|period_ns| *period_ns < u64::MAX);
        let now_hz = shortest_ns.map_or(asked_hz, |period_ns| asked_hz.min(1e9 / period_ns as f64));
        (now_hz, now_hz < 0.9 * options.rate_hz)
    }

    /// Counts what is still in the rings, and what comes before the handlers have stopped.
    fn drop_until(&mut self, stop: &AtomicBool) {
        self.drained.unrecorded += self.lanes.waiting() as u64;
        loop {
            let last = stop.load(Ordering::Acquire);
            self.meet_threads();
            let shared = &self.threads.shared;
            for (store, _) in self.threads.take_gone() {
                self.threads.forget_name(store);
                shared.heaps.forget(store);
            }
            shared.remove_unnamed(&shared.unloading.take_asked());
            let mut count = |words: &[u64]| {
                let is_sample =
                    matches!(Header::read(words).header.kind, Kind::Sample | Kind::AwaitsLanguage | Kind::AwaitsTasks);
                self.drained.unrecorded += u64::from(is_sample);
            };
            for drawn in &self.drawn {
                // SAFETY: only the drain reads rings, and it is borrowed mutably here, so no other `pop` runs.
                while unsafe { drawn.slot.ring.pop(&mut count) } {}
            }
            if last {
                return;
            }
            std::thread::park_timeout(MAX_INTERVAL);
        }
    }

    fn record(&mut self, drawn: usize, words: &[u64], shared: &Shared, recorder: &mut Recorder) {
        self.drawn[drawn].read_words += words.len();
        let slot = self.drawn[drawn].slot.clone();
        let record = Header::read(words);
        let judged = self.checks.judge(&record, shared);
        let header = Header { state: judged.state, ..record.header };
        if header.kind == Kind::Language {
            if self.lanes.awaits(&header) {
                let found = self.stack_on(drawn, &record, false, shared, recorder);
                self.lanes.complete(&header, found, recorder);
            }
            return;
        }
        if header.kind == Kind::Ended {
            return self.lanes.host_call_is(&header, recorder);
        }
        let store = self.stores.id(header.store, &self.threads, recorder);
        let track = self.lanes.track((header.store, store), slot.tid, &slot.name, recorder);
        self.lanes.host_call_is(&header, recorder);
        recorder.memory(store, header.time_ns.saturating_sub(self.threads.started_ns()), header.memory_bytes);
        let found = self.stack_on(drawn, &record, judged.is_callers, shared, recorder);
        if header.state.is_guest() || header.host_call == 0 {
            recorder.no_host_call(track);
        } else {
            let time_ns = header.time_ns.saturating_sub(self.threads.started_ns());
            recorder.host_call(track, header.host_call, found.leaf, time_ns, header.state == State::Blocked);
        }
        if header.pause_ns > 0 {
            self.drained.pauses.add(header.pause_ns);
        }
        match header.kind {
            Kind::Sample => self.lanes.add(slot.tid, header, found, false, recorder),
            // In no host call that the hook is told of: nothing will come.
            Kind::AwaitsLanguage if header.host_call == 0 => {
                let reason = Truncation::Language(LanguageTruncation::InHostCode);
                let found = SampleStack { truncation: found.truncation.or(Some(reason)), ..found };
                self.lanes.add(slot.tid, header, found, false, recorder);
            }
            Kind::AwaitsLanguage | Kind::AwaitsTasks => self.lanes.add(slot.tid, header, found, true, recorder),
            Kind::Sighting | Kind::Language | Kind::Ended => {}
        }
    }

    /// Interns the stack of a record of a thread. With `is_callers` a leaf that is at a check is left out.
    fn stack_on(
        &mut self,
        drawn: usize,
        record: &Record<'_>,
        is_callers: bool,
        shared: &Shared,
        recorder: &mut Recorder,
    ) -> SampleStack {
        let mut path = std::mem::take(&mut self.drawn[drawn].path);
        let is_left_out = |word: FrameWord| is_callers && word.is_at_check();
        let found = self.stack(&mut path, record, is_left_out, shared, recorder);
        self.drawn[drawn].path = path;
        found
    }

    /// Interns the stack of a record: the language's where it has one, with the wasm frames that it refers to. Wasm frames that `is_left_out` says
    /// so of are left out at the leaf end.
    fn stack(
        &mut self,
        path: &mut Path,
        record: &Record<'_>,
        is_left_out: impl Fn(FrameWord) -> bool,
        shared: &Shared,
        recorder: &mut Recorder,
    ) -> SampleStack {
        let mut truncation = record.walked.err().map(|reason| match reason {
            WalkTruncation::Elided | WalkTruncation::TooManyEntries => Truncation::TooDeep,
            WalkTruncation::BrokenChain => Truncation::BrokenChain,
        });
        // What is left out in the middle has its place there.
        let has_root = matches!(record.walked, Ok(()) | Err(WalkTruncation::Elided));
        let shows_language = record.language.is_some_and(|language| !language.is_empty());
        if shared.options.keep_functions && shows_language {
            self.note_functions(record, shared, recorder);
        }
        path.begin();
        let mut labels = None;
        match &record.language {
            Some(language) if !language.is_empty() => {
                let module = language.module;
                truncation = language.truncation.map(Truncation::Language);
                labels = (!language.labels.is_empty()).then(|| recorder.labels(module, language.labels));
                if !path.push_language(record, module, language.entries(), shared) {
                    truncation = Some(Truncation::Language(LanguageTruncation::Inconsistent));
                }
            }
            language => {
                path.push_native(record, shared);
                let reason = language.as_ref().and_then(|language| language.truncation);
                truncation = truncation.or(reason.map(Truncation::Language));
            }
        }
        path.leave_out_leaves(is_left_out);
        if truncation.is_some_and(|reason| loses_root(reason, has_root)) {
            path.push(Step::Truncated);
        }
        let InternedStack { leaf, stack } = path.intern(&mut self.frames, shared, recorder);
        SampleStack { leaf, stack, labels, truncation }
    }

    /// Keeps in mind which functions ran, whatever the language shows of them.
    fn note_functions(&mut self, record: &Record<'_>, shared: &Shared, recorder: &mut Recorder) {
        for word in record.frames.iter().map(|&word| FrameWord(word)) {
            if self.under_language.insert(word)
                && let Some(Origin::Wasm { module, function, .. }) = shared.code.origin(word.native_pc())
            {
                recorder.saw_function(module, function);
            }
        }
    }
}

/// Whether the missing frames are at the root end, of a wasm stack that `has_root` says so of.
fn loses_root(truncation: Truncation, has_root: bool) -> bool {
    match truncation {
        Truncation::TooDeep | Truncation::BrokenChain => !has_root,
        Truncation::TooMany => true,
        // Without any frame of the language the wasm stack stands in, and that is whole.
        Truncation::Language(reason) => !matches!(
            reason,
            LanguageTruncation::NoStack
                | LanguageTruncation::InHostCode
                | LanguageTruncation::Panicked
                | LanguageTruncation::Busy
        ),
    }
}
