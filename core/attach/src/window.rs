//! Looking at a process while it is sampled: a part of a session as a recording of its own, and what the session has come to.

use crate::session::Session;
use std::collections::BTreeMap;
use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wlprof_recording::{Clock, Meta, TickCounts, Truncation, WindowOf};

/// How long naming what was found may take. What is not named then is shown by its number.
const NAMING: Duration = Duration::from_secs(1);

/// A part of a session, from [`Session::open_window`] until [`Session::close_window`].
///
/// ```no_run
/// use wlprof_attach::{Options, Process, Session};
/// use wlprof_recording::{Clock, Journal};
///
/// let process = Process::open(4711)?;
/// let mut session = Session::new(process, Vec::new(), Journal::of_windows(), Options::default())?;
/// let window = session.open_window(Clock::Cpu);
/// let begun = std::time::Instant::now();
/// session.run(|| begun.elapsed().as_secs() >= 10)?;
/// let recording = session.recording(&window)?;
/// session.close_window(window);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Window {
    clock: Clock,
    opened: Instant,
    /// Since sampling began.
    from_ns: u64,
    cpu_ns: u64,
    ticks: TickCounts,
    instants: u64,
    truncated: BTreeMap<Truncation, u64>,
}

/// What a session has come to.
///
/// ```
/// assert_eq!(wlprof_attach::Progress::default().samples, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// CPU time that samples stand for, in nanoseconds.
    pub cpu_ns: u64,
    /// Time since sampling began, in nanoseconds; 0 before that.
    pub duration_ns: u64,
    /// Samples taken.
    pub samples: u64,
    /// Time that they stand for, in nanoseconds.
    pub sampled_ns: u64,
    /// How often threads are looked at, in times a second: what was asked for, or less where that would take too much of their time.
    pub allowed_hz: f64,
}

impl Window {
    /// Returns what time its samples stand for.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns how long it has been open.
    pub fn elapsed(&self) -> Duration {
        self.opened.elapsed()
    }
}

impl Session {
    /// Returns what it has come to so far.
    pub fn progress(&self) -> Progress {
        let (samples, sampled_ns) = self.samples.recorder.sampled();
        let duration_ns = if self.instants == 0 { 0 } else { self.now_ns() };
        let allowed_hz = self.period.map_or(self.options.rate_hz, |period| 1.0 / period.as_secs_f64());
        Progress { cpu_ns: self.samples.cpu_ns, duration_ns, samples, sampled_ns, allowed_hz }
    }

    /// Has [`SharedSession::progress`](crate::SharedSession::progress) return what it has come to by now.
    pub(crate) fn publish(&self) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = self.progress();
    }

    /// Begins a window now, with samples that stand for time of `clock`. While one is open, its samples are kept in memory, some 13 bytes each.
    ///
    /// A session that samples CPU time has no waits for a window of [`Clock::Wall`].
    pub fn open_window(&mut self, clock: Clock) -> Window {
        let from_ns = self.now_ns();
        self.windows.push(from_ns);
        self.keep();
        Window {
            clock,
            opened: Instant::now(),
            from_ns,
            cpu_ns: self.samples.cpu_ns,
            ticks: self.samples.ticks,
            instants: self.instants,
            truncated: self.samples.recorder.truncated_counts(),
        }
    }

    /// Ends a window: nothing is kept for it any more.
    pub fn close_window(&mut self, window: Window) {
        let place = self.windows.iter().position(|from_ns| *from_ns == window.from_ns);
        place.into_iter().for_each(|place| _ = self.windows.swap_remove(place));
        self.keep();
    }

    /// Returns what was sampled in `window` so far, as the bytes of a recording without the symbols of wasm frames.
    ///
    /// # Errors
    /// If the journal of the session keeps nothing for windows.
    pub fn recording(&mut self, window: &Window) -> io::Result<Vec<u8>> {
        let until_ns = self.now_ns();
        self.name(NAMING);
        #[cfg(feature = "host-frames")]
        self.name_host_frames();
        let of = WindowOf { from_ns: window.from_ns, until_ns, clock: window.clock, follows: None, until: None };
        let truncated = self.samples.recorder.truncated_counts().into_iter().filter_map(|(reason, count)| {
            let more = count - window.truncated.get(&reason).copied().unwrap_or(0);
            (more > 0).then_some((reason, more))
        });
        let truncated = truncated.collect();
        let duration = Duration::from_nanos(until_ns.saturating_sub(window.from_ns));
        let began = (SystemTime::now() - duration).duration_since(UNIX_EPOCH);
        let meta = Meta {
            start_unix_ms: began.map_or(0, |since| since.as_millis() as u64),
            clock: window.clock,
            duration_ns: duration.as_nanos() as u64,
            cpu_ns: self.samples.cpu_ns - window.cpu_ns,
            allowed_hz: self.options.rate_hz.min((self.instants - window.instants) as f64 / duration.as_secs_f64()),
            notes: self.meta.notes.iter().cloned().chain(self.stops.notes()).chain(self.notes_of_lost()).collect(),
            ..self.meta.clone()
        };
        let ticks = self.samples.ticks.since(&window.ticks);
        self.samples.recorder.window(
            &of,
            |sampled, _| {
                let ticks = TickCounts { sampled, ..ticks };
                (meta, TickCounts { fired: ticks.accounted(), ..ticks })
            },
            truncated,
        )
    }

    /// Has samples be kept from where the first open window begins.
    fn keep(&mut self) {
        self.samples.recorder.keep_from(self.windows.iter().min().copied(), None);
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}
