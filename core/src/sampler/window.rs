//! Looking at guests while they run: a stretch of a run as a recording of its own, and what the run has come to.

use super::kept::{Mark, OpenWindows};
use super::options::SamplerKind;
use super::os::clock::monotonic_ns;
use super::running::{Demand, SlotTotals, Threads};
use super::session::Session;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wlprof_recording::{Clock, LanguageNames, Meta, NameSource, Recorder, TickCounts, Truncation, WindowOf};

/// A part of a run that is sampled, from [`Session::window`] until it is dropped. Any number of them may
/// overlap: a guest is sampled once for all.
///
/// # Overhead
/// With [`SamplerOptions::on_demand`](super::SamplerOptions::on_demand) guests are sampled only while there is one. Its samples are
/// in memory, some 13 bytes each, and the tables of the stacks that the session has seen: all of them, or, where nothing else is kept of the
/// run, those that kept samples are of.
///
/// # Accuracy
/// It begins at the first of the kernel's ticks that finds a thread running: mostly within 4 ms of that thread's CPU time, later for
/// one that runs in short bursts. What is not sampled is told as such.
pub(crate) struct Window {
    session: Arc<Session>,
    threads: Arc<Threads>,
    clock: Clock,
    from_ns: u64,
    before: SlotTotals,
    truncated: BTreeMap<Truncation, u64>,
    /// The window that it follows, if it does.
    follows: Option<u64>,
    demand: Option<Demand>,
}

/// Where a window is looked at.
#[derive(Clone)]
pub(crate) struct WindowEnd {
    until_ns: u64,
    after: SlotTotals,
    truncated: BTreeMap<Truncation, u64>,
    recorded: u64,
}

/// Samples are taken for the whole of a session that samples on demand, until this is dropped.
pub(crate) struct Sampling(#[expect(dead_code, reason = "it is dropped")] Demand);

/// What the guests of a session have done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// CPU time in their stores while somebody wanted samples, in nanoseconds; all of it of a store that was
    /// [held](crate::StoreHandle::hold), and up to its end of a call that was going on when nobody did any more.
    pub cpu_ns: u64,
    /// Of that, what sampling took, in nanoseconds.
    pub sampling_ns: u64,
    /// CPU time of the thread that records, beside them, in nanoseconds.
    pub recording_ns: u64,
    /// Wall time since the first of them began, in nanoseconds.
    pub duration_ns: u64,
    /// Size of the linear memories of the stores that are there, of each the first, in bytes.
    pub memory_bytes: u64,
    /// Calls of the host that have returned by the names of what is imported, with [`SamplerOptions::counts_host_calls`]. What cannot be
    /// told apart has no name.
    ///
    /// [`SamplerOptions::counts_host_calls`]: super::SamplerOptions::counts_host_calls
    pub host_calls: BTreeMap<Option<String>, u64>,
    /// Samples taken.
    pub samples: u64,
    /// Time that they stand for, in nanoseconds.
    pub sampled_ns: u64,
    /// Samples that a full buffer had no room for.
    pub lost: u64,
}

impl Session {
    /// Begins a window whose samples stand for time of `clock`. [`Clock::Wall`] is to be had where the session's own clock is that,
    /// or where it samples on demand: what is sampled for the whole run would have waits otherwise that nobody asked for.
    ///
    /// # Errors
    /// Why there is none, in words for the user.
    pub(crate) fn window(self: &Arc<Self>, clock: Clock) -> Result<Window, String> {
        let options = &self.shared.options;
        if clock == Clock::Wall && options.clock == Clock::Cpu && !options.on_demand {
            return Err("the run is recorded by CPU time; waits are seen with --clock=wall".to_owned());
        }
        if clock == Clock::Wall && options.kind == SamplerKind::Epoch {
            return Err(
                "the epoch sampler does not see where a guest waits; windows of CPU time are to be had".to_owned()
            );
        }
        let threads = self.begun()?;
        let from_ns = monotonic_ns().saturating_sub(threads.started_ns());
        let truncated = self.recorder()?.truncated_counts();
        let mark = Mark { time_ns: from_ns, totals: threads.totals_at(&threads.clocks()), truncated };
        let mut window = {
            let mut recorder = self.shared.recorder();
            let mut kept = self.shared.kept();
            self.open(&mut recorder, &mut kept, threads, clock, (mark, None))
        };
        // Not before: until it is open nobody keeps what is sampled.
        window.demand = Some(Demand::new(&window.threads, clock));
        Ok(window)
    }

    /// The last so long of the run, or somewhat more, as far as it is kept ([`SamplerOptions::keep`]). Nothing is sampled for it that
    /// would not be without it.
    ///
    /// # Errors
    /// Why there is none, in words for the user.
    ///
    /// [`SamplerOptions::keep`]: super::SamplerOptions::keep
    pub(crate) fn last(self: &Arc<Self>, past: Duration) -> Result<Window, String> {
        let threads = self.begun()?;
        let mut recorder = self.recorder()?;
        let mut kept = self.shared.kept();
        let from_ns =
            (monotonic_ns() - threads.started_ns()).saturating_sub(u64::try_from(past.as_nanos()).unwrap_or(u64::MAX));
        let mark = kept.since(from_ns).cloned().ok_or("no samples of the past are kept")?;
        Ok(self.open(&mut recorder, &mut kept, threads, self.clock(), (mark, None)))
    }

    /// Begins a window where what is kept begins, or now if nothing of the past is, with samples that stand for time of the session's own clock.
    ///
    /// # Errors
    /// Why there is none, in words for the user.
    #[cfg(feature = "push")]
    pub(crate) fn window_of_all(self: &Arc<Self>) -> Result<Window, String> {
        let Ok(mut window) = self.last(Duration::MAX) else { return self.window(self.clock()) };
        window.demand = Some(Demand::new(&window.threads, window.clock));
        Ok(window)
    }

    /// Has samples be taken, by the session's own clock, whether a window is open or not; `None` if it is not started.
    pub(crate) fn sample(&self) -> Option<Sampling> {
        let sampler = self.started().clone()?;
        Some(Sampling(Demand::new(sampler.threads(), self.clock())))
    }

    /// What time its samples stand for.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.options.clock
    }

    /// The threads, if a guest has begun.
    fn begun(&self) -> Result<Arc<Threads>, String> {
        let sampler = self.started().clone().filter(|sampler| sampler.threads().started_ns() > 0);
        Ok(sampler.ok_or("the guest has not begun")?.threads().clone())
    }

    /// The recorder, while it keeps what windows are made of.
    fn recorder(&self) -> Result<MutexGuard<'_, Recorder>, String> {
        let mut recorder = self.shared.recorder();
        match recorder.keeps_windows() {
            true => Ok(recorder),
            false if self.shared.unloading.is_over() => Err("the run is over".to_owned()),
            false => Err("nothing is kept beside the journal: it is to be a `Journal::with_windows`".to_owned()),
        }
    }

    fn open(
        self: &Arc<Self>,
        recorder: &mut Recorder,
        kept: &mut OpenWindows,
        threads: Arc<Threads>,
        clock: Clock,
        (from, follows): (Mark, Option<u64>),
    ) -> Window {
        let Mark { time_ns: from_ns, totals: before, truncated } = from;
        kept.open(from_ns, follows);
        recorder.keep_from(kept.first_ns(from_ns), kept.late_from());
        Window { session: self.clone(), threads, clock, from_ns, before, truncated, follows, demand: None }
    }

    /// Whether a guest has begun, so that there are windows to be had.
    pub(crate) fn has_begun(&self) -> bool {
        self.started().as_ref().is_some_and(|sampler| sampler.threads().started_ns() > 0)
    }

    /// What the guests have done so far; `None` before one has begun.
    pub(crate) fn activity(&self) -> Option<Activity> {
        let sampler = self.started().clone()?;
        let threads = sampler.threads();
        let totals = threads.totals_at(&threads.clocks());
        let started_ns = threads.started_ns();
        let host_calls = threads.host_calls();
        let (samples, sampled_ns) = self.shared.recorder().sampled();
        Some(Activity {
            cpu_ns: totals.cpu_ns,
            sampling_ns: totals.handler_ns,
            recording_ns: threads.drain_cpu_ns.load(Ordering::Relaxed),
            duration_ns: if started_ns == 0 { 0 } else { monotonic_ns().saturating_sub(started_ns) },
            memory_bytes: threads.stores().iter().map(|store| store.memory_bytes_beside()).sum(),
            host_calls,
            samples,
            sampled_ns,
            lost: totals.ring_full,
        })
    }
}

impl Window {
    /// How long it has been open.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now_ns().saturating_sub(self.from_ns))
    }

    /// Has all that was sampled up to now be recorded.
    ///
    /// # Errors
    /// If sampling is over.
    pub(crate) fn until_now(&self) -> io::Result<WindowEnd> {
        if !self.session.shared.recorder().keeps_windows() {
            return Err(io::Error::other("sampling is over"));
        }
        let after = self.threads.totals_at(&self.threads.clocks());
        let until_ns = self.now_ns();
        self.threads.flush.wait(|| self.threads.wake_drain());
        if let Some(why) = self.threads.drain_failure() {
            return Err(io::Error::other(why));
        }
        let mut recorder = self.session.shared.recorder();
        Ok(WindowEnd { until_ns, after, truncated: recorder.truncated_counts(), recorded: recorder.recorded() })
    }

    /// Begins a window where this one was looked at: what is recorded after that is of the new one.
    pub(crate) fn following(&self, end: &WindowEnd) -> Self {
        let mut recorder = self.session.shared.recorder();
        let mut kept = self.session.shared.kept();
        let WindowEnd { until_ns, after, truncated, recorded } = end.clone();
        let mark = Mark { time_ns: until_ns, totals: after, truncated };
        let from = (mark, Some(recorded));
        let mut window = self.session.open(&mut recorder, &mut kept, self.threads.clone(), self.clock, from);
        drop((recorder, kept));
        window.demand = self.demand.is_some().then(|| Demand::new(&self.threads, self.clock));
        window
    }

    /// What was sampled in it up to `end`, as the bytes of a recording without the symbols of wasm frames. What of its names only the
    /// languages know, `names` knows: those of [`Session::images_and_programs`].
    ///
    /// # Errors
    /// If sampling is over.
    pub(crate) fn recording(&self, end: WindowEnd, names: &mut dyn LanguageNames) -> io::Result<Vec<u8>> {
        let WindowEnd { until_ns, after, truncated, recorded } = end;
        let notes = self.name(names);
        let window = WindowOf {
            from_ns: self.from_ns,
            until_ns,
            clock: self.clock,
            follows: self.follows,
            until: Some(recorded),
        };
        let mut recorder = self.session.shared.recorder();
        let truncated = truncated.into_iter().filter_map(|(reason, count)| {
            let more = count - self.truncated.get(&reason).copied().unwrap_or(0);
            (more > 0).then_some((reason, more))
        });
        let truncated = truncated.collect();
        let end = |count, weight_ns| {
            let (mut meta, ticks) = self.end(after, until_ns, count, weight_ns);
            meta.notes.extend(notes);
            (meta, ticks)
        };
        recorder.window(&window, end, truncated)
    }

    /// Has `names` name what only it can, while samples are recorded. What it does not know is asked for again by the next, and when
    /// the guest has ended. Gives what there is to be said of it.
    fn name(&self, names: &mut dyn LanguageNames) -> Vec<String> {
        let unnamed = self.session.shared.recorder().unnamed();
        for unnamed in unnamed {
            match unnamed {
                NameSource::Frame(module, key) => {
                    let mut frames = Vec::new();
                    names.own_frame(module, key, &mut frames);
                    if !frames.is_empty() {
                        self.session.shared.recorder().name_frame(module, key, frames);
                    }
                }
                NameSource::Labels(module, key) => {
                    let labels = names.labels(module, key);
                    if !labels.is_empty() {
                        self.session.shared.recorder().name_labels(module, key, labels);
                    }
                }
            }
        }
        names.notes()
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.threads.started_ns())
    }

    /// How it came out, with so many samples that stand for so much time.
    fn end(&self, after: SlotTotals, until_ns: u64, count: u64, weight_ns: u64) -> (Meta, TickCounts) {
        let before = &self.before;
        let mut ticks = TickCounts {
            sampled: count,
            ring_full: after.ring_full.saturating_sub(before.ring_full),
            ..TickCounts::default()
        };
        ticks.fired = ticks.accounted();
        let (duration_ns, cpu_ns) = (until_ns.saturating_sub(self.from_ns), after.cpu_ns.saturating_sub(before.cpu_ns));
        let sampling_ns = after.handler_ns.saturating_sub(before.handler_ns);
        let signals = after.fired.saturating_sub(before.fired);
        let mut meta = self.session.meta_so_far();
        meta.notes.extend(self.threads.failure().map(|error| format!("a thread was not sampled: {error}")));
        let began = SystemTime::now() - self.elapsed();
        let meta = Meta {
            start_unix_ms: began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            duration_ns,
            cpu_ns,
            sampling_ns,
            unsampled_ns: match self.clock {
                Clock::Cpu => cpu_ns.saturating_sub(sampling_ns + weight_ns),
                Clock::Wall => duration_ns.saturating_sub(sampling_ns + weight_ns),
            },
            clock: self.clock,
            allowed_hz: match after.periods_ns.saturating_sub(before.periods_ns) {
                0 => meta.requested_hz,
                periods_ns => 1e9 * signals as f64 / periods_ns as f64,
            },
            ..meta
        };
        (meta, ticks)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let now_ns = self.now_ns();
        let mut recorder = self.session.shared.recorder();
        let mut kept = self.session.shared.kept();
        kept.close(self.from_ns, self.follows);
        recorder.keep_from(kept.first_ns(now_ns), kept.late_from());
    }
}
