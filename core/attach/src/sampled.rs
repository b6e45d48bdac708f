//! A thread that is sampled: its looks, and what their samples stand for.

use crate::failure::AttachError;
use crate::processors::Processors;
use crate::reading::{FoundStack, StackReader};
use crate::samples::{Interned, Samples, Seen};
use crate::stops::Stops;
use crate::thread::{Activity, Stop, Thread, Turns};
use crate::weights::Weights;
use std::time::{Duration, Instant};
use wlprof_recording::Clock;
use wlprof_walk::Dump;

/// How long is waited for a thread to stop. Others are asked then, and it is read when it has stopped.
const MAX_STOP: Duration = Duration::from_millis(5);

/// A thread, and the samples of it.
pub(crate) struct SampledThread {
    thread: Thread,
    weights: Weights<Interned>,
    /// What it had had of processors when its last sample was taken, and when it was last asked to stop.
    seen: Turns,
    asked: (Turns, Instant),
    /// It was blocked at the instant now.
    was_blocked: Option<Turns>,
    /// What was found when it was last seen blocked: nothing else until it runs again.
    blocked: Option<(Turns, FoundStack)>,
}

/// What threads are looked at with.
pub(crate) struct Looking<'a> {
    pub(crate) reader: &'a mut StackReader,
    pub(crate) samples: &'a mut Samples,
    pub(crate) clock: Clock,
    pub(crate) begun: Instant,
    pub(crate) stops: &'a mut Stops,
    pub(crate) processors: &'a mut Processors,
}

impl Looking<'_> {
    fn time_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn now_ns(&self, turns: Turns) -> u64 {
        match self.clock {
            Clock::Cpu => turns.cpu_ns,
            Clock::Wall => self.time_ns(),
        }
    }
}

impl SampledThread {
    /// The thread's time from now on is sampled. `None` if it has ended.
    pub(crate) fn new(thread: Thread, clock: Clock, begun: Instant) -> Option<Self> {
        let turns = thread.turns()?;
        let since = match clock {
            Clock::Cpu => turns.cpu_ns,
            Clock::Wall => begun.elapsed().as_nanos() as u64,
        };
        Some(Self {
            thread,
            weights: Weights::since(since),
            seen: turns,
            asked: (turns, Instant::now()),
            was_blocked: None,
            blocked: None,
        })
    }

    /// Takes a sample if it is due: if the thread runs, or in any case by the wall clock. `false` if it has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn look(&mut self, looking: &mut Looking<'_>) -> Result<bool, AttachError> {
        if self.thread.is_asked() {
            // The instant before this one is still to come.
            return Ok(true);
        }
        let now = Instant::now();
        let (Some(turns), Some(activity)) = (self.thread.turns(), self.thread.activity()) else { return Ok(false) };
        match (activity, looking.clock) {
            (Activity::Running { processor }, _) => {
                looking.processors.leave(processor);
                self.asked = (turns, now);
                let is_there = self.thread.ask(looking.reader.process.pid())?;
                Ok(is_there && self.stopped(looking, MAX_STOP))
            }
            (Activity::Blocked, Clock::Cpu) => {
                self.was_blocked = Some(turns);
                Ok(true)
            }
            (Activity::Blocked, Clock::Wall) => {
                self.look_at_blocked(looking, turns);
                Ok(true)
            }
        }
    }

    /// Looks once more at a thread that was blocked at this instant, when others that ran then have stopped: it may have been woken until
    /// then. Without this, what threads do first when they have been woken would be seen too rarely, since they stop a while after it is known
    /// that they run. `false` if it has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn look_again(&mut self, looking: &mut Looking<'_>) -> Result<bool, AttachError> {
        let Some(turns) = self.was_blocked.take() else { return Ok(true) };
        let has_run = self.thread.turns().is_some_and(|now| now.count != turns.count);
        let is_there = !has_run || self.look(looking)?;
        self.was_blocked = None;
        Ok(is_there)
    }

    /// Whether it was blocked when it was looked at.
    pub(crate) fn was_blocked(&self) -> bool {
        self.was_blocked.is_some()
    }

    /// Reads all that its guest has on its stacks: of a thread that runs while it stands still, of another as it waits. Empty if that is nothing,
    /// or it does not stop within `longest`.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn dump(&mut self, reader: &mut StackReader, longest: Duration) -> Result<Dump, AttachError> {
        let thread = &mut self.thread;
        let name = format!("thread {}", thread.tid);
        let before = thread.turns();
        if thread.activity() == Some(Activity::Blocked)
            && let Some(registers) = thread.registers_in_call()
        {
            let dump = reader.dump(registers, &[], &name, "waiting");
            // What was read while it ran again may be anything.
            if thread.turns() == before {
                return Ok(dump);
            }
        }
        if !thread.is_asked() && !thread.ask(reader.process.pid())? {
            return Ok(Dump::default());
        }
        let read = |registers, general: &[usize]| reader.dump(registers, general, &name, "running");
        match thread.stopped(longest, read) {
            Stop::Stopped(dump, _) => Ok(dump),
            Stop::NotYet | Stop::Ended => Ok(Dump::default()),
        }
    }

    /// Whether it was asked to stop and has not yet.
    pub(crate) fn is_asked(&self) -> bool {
        self.thread.is_asked()
    }

    /// Takes the sample for which it was asked to stop, if it does within `longest`. `false` if it has ended.
    pub(crate) fn stopped(&mut self, looking: &mut Looking<'_>, longest: Duration) -> bool {
        let thread = &mut self.thread;
        let stopped = thread.stopped(longest, |registers, general| looking.reader.read(registers, general));
        let (found, stood) = match stopped {
            Stop::Stopped(found, stood) => (found, stood),
            Stop::NotYet => return true,
            Stop::Ended => return false,
        };
        let (asked, looked) = self.asked;
        let late = looked.elapsed().saturating_sub(stood);
        let Some(turns) = self.thread.turns() else { return false };
        // It was on no processor when it was asked.
        let waited = turns.count != asked.count;
        looking.stops.add(stood, (!waited).then_some(late));
        // No CPU time passes where a thread has been woken and waits for a processor.
        let only_woke = looking.clock == Clock::Cpu && found.is_behind_system_call && waited;
        if only_woke {
            looking.samples.ticks.fired += u64::from(!found.words.is_empty());
            looking.samples.ticks.preempted += u64::from(!found.words.is_empty());
        } else {
            self.found(looking, turns, &found, false);
        }
        true
    }

    /// Reads the stack of a thread that waits, without stopping it.
    fn look_at_blocked(&mut self, looking: &mut Looking<'_>, turns: Turns) {
        let known = self.blocked.take().filter(|(then, _)| *then == turns);
        let found = known.or_else(|| {
            let registers = self.thread.registers_in_call()?;
            let found = looking.reader.read(registers, &[]);
            Some((turns, found))
        });
        // What was read while it ran again may be anything.
        let found = found.filter(|_| self.thread.turns() == Some(turns));
        match &found {
            Some((_, stack)) => self.found(looking, turns, stack, true),
            None => {
                looking.samples.ticks.fired += 1;
                looking.samples.ticks.woke += 1;
            }
        }
        self.blocked = found;
    }

    fn found(&mut self, looking: &mut Looking<'_>, turns: Turns, found: &FoundStack, is_blocked: bool) {
        let cpu_delta_ns = turns.cpu_ns.saturating_sub(self.seen.cpu_ns);
        if !found.words.is_empty() {
            looking.stops.ran(Duration::from_nanos(cpu_delta_ns), turns.count.saturating_sub(self.seen.count));
        }
        self.seen = turns;
        let seen =
            Seen { tid: self.thread.tid, is_blocked, time_ns: looking.time_ns(), cpu_ns: turns.cpu_ns, cpu_delta_ns };
        // Else it is the host's own work.
        let has_wasm = !found.words.is_empty();
        let interned = has_wasm.then(|| looking.samples.intern(&looking.reader.code, found, seen)).flatten();
        looking.samples.ticks.fired += u64::from(interned.is_some());
        looking.samples.ticks.sampled += u64::from(interned.is_some());
        let closed = self.weights.next(looking.now_ns(turns), interned);
        closed.into_iter().for_each(|sample| looking.samples.add(sample));
    }

    /// Adds the last sample. Nothing more comes of the thread.
    pub(crate) fn end(&mut self, looking: &mut Looking<'_>) {
        // Of a thread that has ended it is not known how long it went on.
        let now_ns = self.thread.turns().map(|turns| looking.now_ns(turns));
        let last = self.weights.end(now_ns.unwrap_or_else(|| self.weights.at_ns()));
        last.into_iter().for_each(|sample| looking.samples.add(sample));
    }
}
