//! Stops threads and has them run on: those of another process as their tracer, those of this one by a signal.

use crate::process::Process;
use crate::signaller::{Signaller, Ticket};
use crate::thread::traced_registers;
use crate::tracer::{self, Tracer};
use nix::errno::Errno;
use nix::libc;
use std::io;
use std::time::{Duration, Instant};
use wlprof_walk::Registers;

/// What this thread has asked to stop.
pub(crate) enum Stopper {
    Tracer(Tracer),
    Signaller(Signaller),
}

/// What has become of a thread that was asked to stop.
#[derive(Debug)]
pub(crate) enum Event {
    /// It stands still.
    Stopped(Halt),
    /// It did not wait for its stack to be read: it stood still for so long, or could not be stopped.
    RanOn { tid: i32, stood: Duration },
    /// It has ended.
    Ended(i32),
}

/// A thread that stands still, until this is dropped.
#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) tid: i32,
    /// It has stopped then or later.
    since: Instant,
    /// When it was seen that it has.
    pub(crate) seen: Instant,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Traced {
        /// The signal that it was about to get; 0 if there is none.
        signal: i32,
    },
    /// `None` once it runs on.
    Signalled(Option<Ticket>),
}

impl Stopper {
    /// What stops threads of `process` for this thread.
    ///
    /// # Errors
    /// If that is this process, and it leaves no signal.
    pub(crate) fn of_this_thread(process: &Process) -> io::Result<Self> {
        Ok(if process.is_own() { Self::Signaller(Signaller::new()?) } else { Self::Tracer(Tracer::of_this_thread()) })
    }

    /// Has this thread run before the others, if that is allowed and `first`: while it waits for a processor, those stand still that have
    /// stopped for it.
    pub(crate) fn run(&self, first: bool) {
        // Threads of this process that stand still run on by themselves, and need a processor for it.
        if let Self::Signaller(_) = self {
            return;
        }
        let policy = if first { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
        // Who is not root may not take that back.
        let policy = policy | libc::SCHED_RESET_ON_FORK;
        let priority = libc::c_int::from(first);
        // SAFETY: the kernel only reads `priority`, which is all that is in its `sched_param`; some C libraries refuse the call.
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    }

    /// Asks thread `tid` to stop.
    ///
    /// # Errors
    /// `ESRCH` if it has ended, or another of the kernel's reasons.
    pub(crate) fn ask(&mut self, tid: i32) -> Result<(), Errno> {
        match self {
            Self::Tracer(tracer) => tracer.ask(tid),
            Self::Signaller(signaller) => signaller.ask(tid),
        }
    }

    /// Returns whether `tid` was asked to stop and has not yet.
    pub(crate) fn is_asked(&self, tid: i32) -> bool {
        match self {
            Self::Tracer(tracer) => tracer.is_asked(tid),
            Self::Signaller(signaller) => signaller.is_asked(tid),
        }
    }

    /// Returns whether all threads have stopped that were asked to.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Tracer(tracer) => tracer.is_done(),
            Self::Signaller(signaller) => signaller.is_done(),
        }
    }

    /// Waits no longer for `tid`.
    pub(crate) fn forget(&mut self, tid: i32) {
        match self {
            Self::Tracer(tracer) => tracer.forget(tid),
            Self::Signaller(signaller) => signaller.forget(tid),
        }
    }

    /// Returns the next event of those that have happened.
    pub(crate) fn next(&mut self) -> Option<Event> {
        match self {
            Self::Tracer(tracer) => tracer.next(),
            Self::Signaller(signaller) => signaller.next(),
        }
    }
}

impl Halt {
    /// A thread that a tracer has stopped, as it was about to get `signal`.
    pub(crate) fn traced(tid: i32, signal: i32, since: Instant) -> Self {
        Self { tid, since, seen: Instant::now(), way: Way::Traced { signal } }
    }

    /// A thread that a signal has stopped.
    pub(crate) fn signalled(tid: i32, ticket: Ticket, since: Instant) -> Self {
        Self { tid, since, seen: Instant::now(), way: Way::Signalled(Some(ticket)) }
    }

    /// Returns the registers that a walk begins with, and all general ones. `None` if the thread has been killed.
    pub(crate) fn registers(&self) -> Option<(Registers, Vec<usize>)> {
        match self.way {
            Way::Traced { .. } => traced_registers(self.tid),
            Way::Signalled(ticket) => ticket.map(Ticket::registers),
        }
    }

    /// Returns for how long it has stood still, at most.
    pub(crate) fn stood(&self) -> Duration {
        self.since.elapsed()
    }

    /// Has it run on. Returns whether it has stood still until now: what was read of it is right.
    pub(crate) fn release(mut self) -> bool {
        match &mut self.way {
            Way::Traced { .. } => true,
            Way::Signalled(ticket) => ticket.take().is_some_and(Ticket::release),
        }
    }
}

impl Drop for Halt {
    fn drop(&mut self) {
        match &mut self.way {
            Way::Traced { signal } => tracer::detach(self.tid, *signal),
            Way::Signalled(ticket) => {
                ticket.take().map(Ticket::release);
            }
        }
    }
}
