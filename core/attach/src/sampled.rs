//! A thread that is sampled: its looks, and what their samples stand for.

use crate::failure::AttachError;
use crate::processors::Processors;
use crate::reading::{FoundStack, StackReader};
use crate::samples::{Labels, Samples, Sighting, UntimedSample};
use crate::stopper::{Halt, Stopper};
use crate::stops::Stops;
use crate::thread::{Activity, Thread, Turns};
use crate::weights::Weights;
use nix::errno::Errno;
use nix::unistd::getpid;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wlprof_recording::Clock;
use wlprof_walk::Registers;

/// How long another program may trace a thread before that counts as the reason why it cannot be sampled. `wlprof ps` does so for a moment.
pub(crate) const LONGEST_TRACED: Duration = Duration::from_secs(1);

/// A thread, and the samples of it.
pub(crate) struct SampledThread {
    thread: Thread,
    weights: Weights<UntimedSample>,
    /// What it had had of processors when its last sample was taken, and when it was last asked to stop.
    seen: Turns,
    /// Its ticks when it was last noted where it stopped.
    ticks: (u64, u64),
    asked: Asked,
    /// Instants since then, at which it had not stopped yet.
    missed: u64,
    /// Since when another program has traced it.
    traced: Option<Instant>,
    /// It had wasm on its stack when it was last read, and once.
    had_wasm: bool,
    runs_wasm: bool,
    /// It was blocked at the instant now.
    was_blocked: Option<Turns>,
    /// What was found when it was last seen blocked: nothing else until it runs again.
    blocked: Option<(Turns, FoundStack)>,
}

/// When a thread was asked to stop.
struct Asked {
    turns: Turns,
    at: Instant,
    /// The instant that it was asked for: others were before it.
    instant: Instant,
}

impl Asked {
    /// Whether the thread waited for a processor at the instant, as far as can be told, if it stopped then with these turns. That it lost its processor
    /// to the thread that samples is no such wait.
    fn was_off_processor(&self, turns: Turns, stopped: Instant) -> bool {
        /// How much earlier it may have lost the processor.
        const SLACK: Duration = Duration::from_micros(200);
        let waited = Duration::from_nanos(turns.waited_ns.saturating_sub(self.turns.waited_ns));
        turns.count != self.turns.count && waited > stopped.saturating_duration_since(self.instant) + SLACK
    }
}

/// Reads what is wanted of the stacks of a thread with these registers, the special and the general ones; then come what it is called and what
/// it does.
pub(crate) type ReadStack<R> = fn(&mut StackReader, Registers, &[usize], &str, &str) -> R;

/// What threads are looked at with.
pub(crate) struct SamplingContext<'a> {
    pub(crate) reader: &'a mut StackReader,
    pub(crate) samples: &'a mut Samples,
    pub(crate) clock: Clock,
    pub(crate) begun: Instant,
    /// The instant now.
    pub(crate) instant: Instant,
    pub(crate) stops: &'a mut Stops,
    pub(crate) processors: &'a mut Processors,
}

impl SamplingContext<'_> {
    fn time_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// What samples of thread `tid` carry, which stands still.
    fn labels(&self, tid: i32) -> Option<Arc<Labels>> {
        self.samples.labels.and_then(|labels| labels(tid))
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
        thread.activity()?;
        let turns = thread.turns()?;
        let since = match clock {
            Clock::Cpu => turns.cpu_ns,
            Clock::Wall => begun.elapsed().as_nanos() as u64,
        };
        Some(Self {
            weights: Weights::since(since),
            seen: turns,
            ticks: thread.ticks().unwrap_or_default(),
            asked: Asked { turns, at: Instant::now(), instant: Instant::now() },
            missed: 0,
            traced: None,
            had_wasm: false,
            runs_wasm: false,
            was_blocked: None,
            blocked: None,
            thread,
        })
    }

    /// Asks for a sample if it is due: if the thread runs, or in any case by the wall clock. `false` if it has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn look(
        &mut self,
        looking: &mut SamplingContext<'_>,
        stopper: &mut Stopper,
    ) -> Result<bool, AttachError> {
        let now = Instant::now();
        let (Some(turns), Some(activity)) = (self.thread.turns(), self.thread.activity()) else { return Ok(false) };
        if stopper.is_asked(self.thread.tid) {
            // The instant before this one is still to come.
            self.missed += 1;
            return Ok(true);
        }
        match (activity, looking.clock) {
            (Activity::Running { processor }, _) => {
                looking.processors.leave(processor);
                let asked = self.ask(looking.reader.process.pid(), stopper);
                if matches!(asked, Err(AttachError::Traced { .. }))
                    && self.traced.get_or_insert(now).elapsed() < LONGEST_TRACED
                {
                    self.missed += 1;
                    return Ok(true);
                }
                self.traced = None;
                self.asked = Asked { turns, at: now, instant: looking.instant };
                self.missed += u64::from(asked == Ok(true) && !stopper.is_asked(self.thread.tid));
                asked
            }
            (Activity::Blocked, Clock::Cpu) => {
                self.traced = None;
                self.was_blocked = self.runs_wasm.then_some(turns);
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
    pub(crate) fn look_again(
        &mut self,
        looking: &mut SamplingContext<'_>,
        stopper: &mut Stopper,
    ) -> Result<bool, AttachError> {
        let Some(turns) = self.was_blocked.take() else { return Ok(true) };
        let has_run = self.thread.turns().is_some_and(|now| now.count != turns.count);
        let is_there = !has_run || self.look(looking, stopper)?;
        self.was_blocked = None;
        Ok(is_there)
    }

    /// Whether it was blocked when it was looked at, and runs wasm at times.
    pub(crate) fn was_blocked(&self) -> bool {
        self.was_blocked.is_some()
    }

    /// Asks it to stop. `false` if it has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn ask(&self, pid: i32, stopper: &mut Stopper) -> Result<bool, AttachError> {
        match stopper.ask(self.thread.tid) {
            Ok(()) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            // It cannot be asked now.
            Err(Errno::EAGAIN) => Ok(true),
            Err(Errno::EBUSY) => Err(AttachError::Unreadable {
                pid,
                reason: "something has replaced wlprof's handler of its signal: let the profiler begin after that"
                    .to_owned(),
            }),
            // The kernel says the same of a thread that is ending.
            Err(_) if self.thread.activity().is_none() => Ok(false),
            Err(_) => match AttachError::forbidden(pid, self.thread.tid) {
                // Its process was killed while it stood still, and it has not ended yet.
                AttachError::Traced { tracer, .. } if tracer == getpid().as_raw() => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Asks it to stop, once no other program traces it. `false` if it has ended.
    ///
    /// # Errors
    /// If it may not be traced.
    pub(crate) fn ask_at_last(&self, pid: i32, stopper: &mut Stopper) -> Result<bool, AttachError> {
        let since = Instant::now();
        loop {
            match self.ask(pid, stopper) {
                Err(AttachError::Traced { .. }) if since.elapsed() < LONGEST_TRACED => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                asked => return asked,
            }
        }
    }

    /// Has `read` read its stacks, if it waits in a system call.
    pub(crate) fn read_waiting<R>(&self, reader: &mut StackReader, read: ReadStack<R>) -> Option<R> {
        let before = self.thread.turns();
        let is_blocked = self.thread.activity() == Some(Activity::Blocked);
        let registers = self.thread.registers_in_call().filter(|_| is_blocked)?;
        let stack = read(reader, registers, &[], &self.name(), "waiting");
        // What was read while it ran again may be anything.
        (self.thread.turns() == before).then_some(stack)
    }

    /// Has `read` read its stacks while it stands still. `None` if it has been killed meanwhile.
    pub(crate) fn read<R>(&self, reader: &mut StackReader, stopped: &Halt, read: ReadStack<R>) -> Option<R> {
        let (registers, general) = stopped.registers()?;
        Some(read(reader, registers, &general, &self.name(), "running"))
    }

    fn name(&self) -> String {
        format!("thread {}", self.thread.tid)
    }

    /// Takes the sample for which it was asked to stop. `false` if it has ended.
    pub(crate) fn stopped(&mut self, looking: &mut SamplingContext<'_>, stopped: Halt) -> bool {
        // It may be killed while it stands still.
        let (Some((registers, general)), Some(turns)) = (stopped.registers(), self.thread.turns()) else {
            return false;
        };
        let found = looking.reader.read(registers, &general);
        let labels = looking.labels(self.thread.tid);
        let (stood, late) = (stopped.stood(), stopped.seen.saturating_duration_since(self.asked.at));
        let was_off_processor = self.asked.was_off_processor(turns, stopped.seen);
        // The thread may run in place of this one from here on.
        if !stopped.release() {
            self.miss(looking, stood);
            return true;
        }
        // It was on no processor when it was asked.
        let waited = turns.count != self.asked.turns.count;
        looking.stops.add(stood, (!waited).then_some(late));
        if self.runs_wasm && !waited {
            let (user, kernel) = self.thread.ticks().unwrap_or(self.ticks);
            let since = (user.saturating_sub(self.ticks.0), kernel.saturating_sub(self.ticks.1));
            looking.stops.stopped(found.is_behind_system_call, since);
            self.ticks = (user, kernel);
        }
        let missed = std::mem::take(&mut self.missed);
        // No CPU time passes where a thread waits for a processor, or has been woken and does so. Where many wait, samples would else be of what is
        // preempted often: of long work, and not of what sleeps again before that.
        let passed_no_time = was_off_processor || found.is_behind_system_call && waited;
        if looking.clock == Clock::Cpu && passed_no_time {
            looking.samples.ticks.fired += u64::from(!found.words.is_empty());
            looking.samples.ticks.preempted += u64::from(!found.words.is_empty());
        } else {
            self.found(looking, turns, &found, (labels, false));
        }
        if self.had_wasm {
            looking.samples.ticks.fired += missed;
            looking.samples.ticks.coalesced += missed;
        }
        true
    }

    /// Counts an instant whose stack could not be read, though it stood still for so long.
    pub(crate) fn miss(&mut self, looking: &mut SamplingContext<'_>, stood: Duration) {
        looking.stops.add(stood, None);
        self.missed += 1;
    }

    /// Reads the stack of a thread that waits, without stopping it.
    fn look_at_blocked(&mut self, looking: &mut SamplingContext<'_>, turns: Turns) {
        let known = self.blocked.take().filter(|(then, _)| *then == turns);
        let found = known.or_else(|| {
            let registers = self.thread.registers_in_call()?;
            let found = looking.reader.read(registers, &[]);
            Some((turns, found))
        });
        let labels = looking.labels(self.thread.tid);
        // What was read while it ran again may be anything.
        let found = found.filter(|_| self.thread.turns() == Some(turns));
        match &found {
            Some((_, stack)) => self.found(looking, turns, stack, (labels, true)),
            // Else it is the host's own work, most likely.
            None if self.had_wasm => {
                looking.samples.ticks.fired += 1;
                looking.samples.ticks.woke += 1;
            }
            None => {}
        }
        self.blocked = found;
    }

    fn found(
        &mut self,
        looking: &mut SamplingContext<'_>,
        turns: Turns,
        found: &FoundStack,
        (labels, is_blocked): (Option<Arc<Labels>>, bool),
    ) {
        let cpu_delta_ns = turns.cpu_ns.saturating_sub(self.seen.cpu_ns);
        if !found.words.is_empty() {
            looking.stops.ran(Duration::from_nanos(cpu_delta_ns), turns.count.saturating_sub(self.seen.count));
        }
        self.seen = turns;
        let seen = Sighting {
            tid: self.thread.tid,
            labels,
            is_blocked,
            time_ns: looking.time_ns(),
            cpu_ns: turns.cpu_ns,
            cpu_delta_ns,
        };
        // Else it is the host's own work.
        let has_wasm = !found.words.is_empty();
        let interned = has_wasm.then(|| looking.samples.intern(&looking.reader.code, found, seen)).flatten();
        looking.samples.ticks.fired += u64::from(interned.is_some());
        looking.samples.ticks.sampled += u64::from(interned.is_some());
        self.had_wasm = interned.is_some();
        self.runs_wasm |= self.had_wasm;
        let closed = self.weights.next(looking.now_ns(turns), interned);
        closed.into_iter().for_each(|sample| looking.samples.add(sample));
    }

    /// Adds the last sample. Nothing more comes of the thread, which was asked to stop and was not read if `was_asked`.
    pub(crate) fn end(&mut self, looking: &mut SamplingContext<'_>, was_asked: bool) {
        if self.had_wasm {
            let missed = u64::from(was_asked) + self.missed;
            looking.samples.ticks.fired += missed;
            looking.samples.ticks.at_end += missed;
        }
        // Of a thread that has ended it is not known how long it went on.
        let now_ns = self.thread.turns().map(|turns| looking.now_ns(turns));
        let last = self.weights.end(now_ns.unwrap_or_else(|| self.weights.at_ns()));
        last.into_iter().for_each(|sample| looking.samples.add(sample));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;
    use crate::tracer::Tracer;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_nobody_has_asked_for_has_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let tid = child.id() as i32;
        let process = Process::open(tid).unwrap();
        let thread = || Thread::open(&process, tid).unwrap();
        let sampled = SampledThread::new(thread(), Clock::Cpu, Instant::now()).unwrap();
        assert!(sampled.thread.activity().is_some());
        child.kill().unwrap();
        while sampled.thread.activity().is_some() {
            std::thread::yield_now();
        }
        assert!(sampled.thread.turns().is_some(), "the kernel still shows it");
        assert!(SampledThread::new(thread(), Clock::Cpu, Instant::now()).is_none());
        // The kernel refuses to trace it, and the right to trace is not what is missing.
        assert_eq!(sampled.ask(tid, &mut Stopper::Tracer(Tracer::of_this_thread())), Ok(false));
        child.wait().unwrap();
    }
}
