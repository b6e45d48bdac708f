//! Samples the threads of a process: the instants at which they are looked at, and the order in which they are served.
//!
//! One thread of this process does that and nothing else. When it ends, all threads run on that it has stopped or asked to stop.

use crate::failure::AttachError;
use crate::processors::Processors;
use crate::rate_limit::RateLimit;
use crate::sampled::{ReadStack, SampledThread, SamplingContext};
use crate::session::Session;
use crate::stopper::{Event, Halt, Stopper};
use crate::thread::Thread;
use nix::errno::Errno;
use nix::unistd::gettid;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};
use wlprof_recording::Clock;

/// How often threads that have come are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long naming what was found may take at a time.
const NAMING: Duration = Duration::from_millis(5);

/// How long a thread that runs on another processor takes to stop.
const SPIN: Duration = Duration::from_micros(50);

/// While some thread has yet to stop, this process looks after it as often.
const MOMENT: Duration = Duration::from_micros(200);

/// How long is waited for a thread to stop. Then the next ones are asked, and it is read as soon as it has stopped.
const MAX_STOP: Duration = Duration::from_millis(1);

/// How long images are not looked for, which may take seconds, because some thread has yet to stop. After that it is waited for.
const LOOK_AT_LAST: Duration = Duration::from_secs(10);

/// How long is waited for it.
const LONGEST_BREAK: Duration = Duration::from_millis(500);

/// How long a dump waits for threads to stop. One that waits for a disk may take as long as that.
const LONGEST_DUMP: Duration = Duration::from_secs(10);

/// Files that a thread takes while it is sampled.
const FILES_OF_THREAD: usize = 3;

/// How many files this process may have open.
fn most_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize)
}

/// The threads of a process, as the one sees them that samples them.
pub(crate) struct Sampling<'s> {
    session: &'s mut Session,
    threads: BTreeMap<i32, SampledThread>,
    stopper: Stopper,
    processors: Processors,
    random: u64,
    /// The instant now.
    instant: Instant,
}

impl<'s> Sampling<'s> {
    /// Prepares this thread to sample those of the session's process.
    ///
    /// # Errors
    /// If they are this process's, and it leaves no signal for it.
    pub(crate) fn by_this_thread(session: &'s mut Session) -> io::Result<Self> {
        let stopper = Stopper::of_this_thread(&session.reader.process)?;
        let mut sampling = Self {
            session,
            threads: BTreeMap::new(),
            stopper,
            processors: Processors::of_this_thread(),
            random: RandomState::new().hash_one(std::process::id()) | 1,
            instant: Instant::now(),
        };
        let Session { fibers, begun, .. } = &mut *sampling.session;
        fibers.begin(begun.elapsed().as_nanos() as u64);
        sampling.stopper.run(true);
        sampling.look_for_threads();
        Ok(sampling)
    }

    /// Samples until `ends`, until the process has ended, or until the session keeps more than it should.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub(crate) fn sample_until(&mut self, ends: impl Fn() -> bool) -> Result<(), AttachError> {
        let options = &self.session.options;
        let (most, max_overhead, limit) = (options.rate_hz, options.max_overhead, options.limit.clone());
        let look_every = options.look_every;
        let wanted =
            || Duration::from_secs_f64(1.0 / most).max(limit.as_ref().map_or(Duration::ZERO, RateLimit::period));
        let (mut period, mut next) = (self.session.period.unwrap_or_else(wanted), Instant::now());
        let mut usual = 0;
        let is_own = self.session.reader.process.is_own();
        while !ends() && (is_own || !self.threads.is_empty()) {
            // One instant anywhere in each period: a guest in step with the periods is seen evenly.
            let instant = next + period.mul_f64(self.fraction());
            next += period;
            if !self.sleep_until(instant, period, &ends) {
                continue;
            }
            // After a pause of this process the instants that it slept through are gone.
            if let Some(earliest) = Instant::now().checked_sub(period) {
                let missed = earliest.saturating_duration_since(next).as_nanos() / period.as_nanos();
                self.session.samples.ticks.late += missed as u64 * usual;
                next = next.max(earliest);
            }
            let fired = self.session.samples.ticks.fired;
            self.look_at_threads()?;
            usual = self.session.samples.ticks.fired - fired;
            // Whoever has stopped would stand still meanwhile.
            if self.stopper.is_done() {
                self.processors.move_on();
            }
            self.session.instants += 1;
            period = self.session.stops.next_period(wanted(), max_overhead);
            self.session.period = Some(period);
            if self.session.looked.elapsed() > LOOK_AGAIN {
                // No thread may stand still for as long as that takes. One that does not stop keeps all others from being sampled only now
                // and then.
                let is_late = self.session.looked.elapsed() > LOOK_AT_LAST;
                let is_done = self.wait_for(if is_late { LONGEST_BREAK } else { Duration::ZERO }, Stopper::is_done);
                if is_done && self.session.looked_for_images.elapsed() >= look_every {
                    self.session.looked_for_images = Instant::now();
                    if !self.is_there() {
                        break;
                    }
                }
                if is_done || is_late {
                    self.session.looked = Instant::now();
                    if self.session.is_overgrown() {
                        break;
                    }
                    self.session.publish();
                    self.session.name(NAMING);
                    self.look_for_threads();
                }
            }
        }
        Ok(())
    }

    /// Looks for images. Returns whether the program is still there that is sampled.
    fn is_there(&mut self) -> bool {
        // It may take seconds.
        self.stopper.run(false);
        let looked = self.session.look();
        self.stopper.run(true);
        match looked {
            Ok(is_there) => is_there,
            Err(error) => {
                let is_gone = error.raw_os_error() == Some(Errno::ESRCH as i32);
                !is_gone && error.kind() != io::ErrorKind::NotFound
            }
        }
    }

    /// Adds the last sample of each thread and of each store that waits.
    pub(crate) fn end(mut self) {
        let Session { fibers, samples, begun, .. } = &mut *self.session;
        fibers.end(samples, begun.elapsed().as_nanos() as u64);
        while let Some((&tid, _)) = self.threads.first_key_value() {
            self.remove(tid, self.stopper.is_asked(tid));
        }
    }

    /// Has `read` read the stacks of all threads as they are now, one after the other. It gets a thread's registers, what it is called and
    /// what it does.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub(crate) fn read_all<R>(&mut self, read: ReadStack<R>) -> Result<Vec<R>, AttachError> {
        let mut stacks = BTreeMap::new();
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        for tid in tids {
            let Some(thread) = self.threads.get(&tid) else { continue };
            if let Some(stack) = thread.read_waiting(&mut self.session.reader, read) {
                stacks.insert(tid, stack);
            } else if thread.ask_at_last(self.session.reader.process.pid(), &mut self.stopper)? {
                self.wait_for_stacks(MAX_STOP, &mut stacks, read, |stopper| !stopper.is_asked(tid));
            }
        }
        self.wait_for_stacks(LONGEST_DUMP, &mut stacks, read, Stopper::is_done);
        Ok(stacks.into_values().collect())
    }

    fn wait_for_stacks<R>(
        &mut self,
        longest: Duration,
        stacks: &mut BTreeMap<i32, R>,
        read: ReadStack<R>,
        is_over: impl Fn(&Stopper) -> bool,
    ) {
        self.wait(longest, is_over, |this, stopped| {
            let tid = stopped.tid;
            let stack = this.threads.get(&tid).and_then(|thread| thread.read(&mut this.session.reader, &stopped, read));
            stacks.extend(stack.filter(|_| stopped.release()).map(|stack| (tid, stack)));
        });
    }

    /// Takes the samples of this instant.
    fn look_at_threads(&mut self) -> Result<(), AttachError> {
        let now = Instant::now();
        self.instant = now;
        self.serve();
        let tids: Vec<i32> = self.threads.keys().copied().collect();
        for &tid in &tids {
            self.look_at(tid, SampledThread::look)?;
        }
        if self.threads.values().any(SampledThread::was_blocked) {
            let lateness = self.session.stops.lateness();
            if self.session.reader.process.is_own() {
                // The processor's time is the process's own.
                std::thread::sleep(lateness.saturating_sub(now.elapsed()));
            }
            while now.elapsed() < lateness {
                std::hint::spin_loop();
            }
            for tid in tids {
                self.look_at(tid, SampledThread::look_again)?;
            }
        }
        let Session { fibers, reader, samples, options, begun, .. } = &mut *self.session;
        // A thread that stops meanwhile would stand still for as long as that takes.
        if options.clock == Clock::Wall && self.stopper.is_done() {
            fibers.look(reader, samples, || begun.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    /// Has `look` ask a thread for a sample, and waits for it a little. Threads stop one after the other, where they do at once.
    fn look_at(
        &mut self,
        tid: i32,
        look: impl Fn(&mut SampledThread, &mut SamplingContext<'_>, &mut Stopper) -> Result<bool, AttachError>,
    ) -> Result<(), AttachError> {
        let was_asked = self.stopper.is_asked(tid);
        if !self.with(tid, look).transpose()?.unwrap_or(true) {
            self.remove(tid, was_asked);
        }
        if !was_asked {
            self.wait_for(MAX_STOP, |stopper| !stopper.is_asked(tid));
        }
        Ok(())
    }

    /// Sleeps until then, and takes samples of threads that stop late meanwhile. `false` if it is over before, for which it looks when it is woken.
    fn sleep_until(&mut self, instant: Instant, period: Duration, ends: impl Fn() -> bool) -> bool {
        // How soon an end is seen that nobody says. Where instants are far apart, looking for it would take more than they do.
        let a_while = (period / 2).clamp(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            self.serve();
            let left = instant.saturating_duration_since(Instant::now());
            if left.is_zero() || ends() {
                return left.is_zero();
            }
            std::thread::park_timeout(left.min(if self.stopper.is_done() { a_while } else { MOMENT }));
        }
    }

    /// Takes the samples of the threads that have stopped.
    fn serve(&mut self) {
        self.wait_for(Duration::ZERO, Stopper::is_done);
    }

    /// Takes samples of threads that stop until `is_over`, but no longer than `longest`. Returns whether it is.
    fn wait_for(&mut self, longest: Duration, is_over: impl Fn(&Stopper) -> bool) -> bool {
        self.wait(longest, is_over, |this, stopped| {
            let tid = stopped.tid;
            let is_there = this.with(tid, |thread, looking, _| thread.stopped(looking, stopped));
            if is_there == Some(false) {
                this.remove(tid, true);
            }
        })
    }

    /// Serves all threads that stop, whichever they are, until `is_over`, but no longer than `longest`. Returns whether it is.
    fn wait(
        &mut self,
        longest: Duration,
        is_over: impl Fn(&Stopper) -> bool,
        mut serve: impl FnMut(&mut Self, Halt),
    ) -> bool {
        let begun = Instant::now();
        loop {
            while let Some(event) = self.stopper.next() {
                match event {
                    Event::Stopped(stopped) => serve(self, stopped),
                    Event::RanOn { tid, stood } => {
                        self.with(tid, |thread, looking, _| thread.miss(looking, stood));
                    }
                    Event::Ended(tid) => self.remove(tid, true),
                }
            }
            let waited = begun.elapsed();
            if is_over(&self.stopper) || waited >= longest {
                return is_over(&self.stopper);
            }
            // Where this thread has taken its processor, it stops once this one sleeps.
            if waited > SPIN {
                std::thread::sleep(SPIN);
            }
        }
    }

    fn with<R>(
        &mut self,
        tid: i32,
        what: impl FnOnce(&mut SampledThread, &mut SamplingContext<'_>, &mut Stopper) -> R,
    ) -> Option<R> {
        let Self {
            session: Session { reader, samples, options, begun, stops, .. },
            processors,
            threads,
            stopper,
            instant,
            ..
        } = self;
        let (clock, begun, instant) = (options.clock, *begun, *instant);
        let mut looking = SamplingContext { reader, samples, clock, begun, instant, stops, processors };
        threads.get_mut(&tid).map(|thread| what(thread, &mut looking, stopper))
    }

    /// Nothing more comes of a thread, which had been asked to stop if `was_asked`.
    fn remove(&mut self, tid: i32, was_asked: bool) {
        self.with(tid, |thread, looking, _| thread.end(looking, was_asked));
        self.threads.remove(&tid);
        self.stopper.forget(tid);
    }

    fn look_for_threads(&mut self) {
        let Session { reader, options, begun, unopened, .. } = &mut *self.session;
        let mut refused = 0;
        let own = reader.process.is_own().then(gettid);
        // The files of this process are its own, too.
        let most = own.map_or(usize::MAX, |_| most_files() / 2 / FILES_OF_THREAD);
        // Those that have ended give their last samples when they are looked at.
        for tid in reader.process.threads().unwrap_or_default() {
            if self.threads.contains_key(&tid) || own.is_some_and(|own| own.as_raw() == tid) {
                continue;
            }
            if self.threads.len() >= most {
                refused += 1;
                continue;
            }
            match Thread::open(&reader.process, tid) {
                Ok(thread) => {
                    let thread = SampledThread::new(thread, options.clock, *begun);
                    self.threads.extend(thread.map(|thread| (tid, thread)));
                }
                Err(error) => refused += usize::from(error.raw_os_error() == Some(Errno::EMFILE as i32)),
            }
        }
        *unopened = refused.max(*unopened);
    }

    fn fraction(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }
}
