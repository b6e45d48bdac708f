//! A thread of another process: whether it runs, how much CPU time it has had, and its registers while it stands still.

use crate::failure::AttachError;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use wlprof_walk::Registers;

/// How long a thread may take to stop. It is let go of then, as soon as it has stopped.
const MAX_STOP: Duration = Duration::from_millis(5);

/// A thread of a process that is looked at.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    state: File,
    times: File,
    /// It was to stop and had not yet, when nobody wanted to wait any longer.
    stops_late: bool,
}

/// What a thread was asked to do.
pub(crate) enum Stop<T> {
    /// It stood still while this was found.
    Stopped(T),
    /// It did not stop in time.
    Late,
    /// It has ended.
    Ended,
}

impl Thread {
    /// Opens what the kernel shows of thread `tid` of process `pid`.
    pub(crate) fn open(pid: i32, tid: i32) -> io::Result<Self> {
        let file = |name| File::open(format!("/proc/{pid}/task/{tid}/{name}"));
        Ok(Self { tid, state: file("stat")?, times: file("schedstat")?, stops_late: false })
    }

    /// Whether it runs or waits only for a processor. `None` if it has ended.
    pub(crate) fn is_running(&self) -> Option<bool> {
        let mut buffer = [0; 256];
        let length = self.state.read_at(&mut buffer, 0).ok().filter(|length| *length > 0)?;
        // The state stands behind the name, which is in parentheses and may have some itself.
        let end_of_name = buffer[..length].iter().rposition(|byte| *byte == b')')?;
        Some(buffer.get(end_of_name + 2) == Some(&b'R'))
    }

    /// CPU time that it has had, in nanoseconds. `None` if it has ended.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        let mut buffer = [0; 64];
        let length = self.times.read_at(&mut buffer, 0).ok()?;
        str::from_utf8(&buffer[..length]).ok()?.split(' ').next()?.parse().ok()
    }

    /// Stops it, has `read` look at it, and has it run on, whatever happens.
    ///
    /// # Errors
    /// If that is forbidden.
    pub(crate) fn stopped<T>(
        &mut self,
        pid: i32,
        read: impl FnOnce(Registers, &[usize]) -> T,
    ) -> Result<Stop<T>, AttachError> {
        let tid = Pid::from_raw(self.tid);
        if self.stops_late {
            // It is still held by the request before.
            let signal = match wait(tid, Duration::ZERO) {
                Waited::Stopped(signal) => signal,
                Waited::Running => return Ok(Stop::Late),
                Waited::Ended => return Ok(Stop::Ended),
            };
            self.stops_late = false;
            let _ = ptrace::detach(tid, signal);
        }
        match ptrace::seize(tid, ptrace::Options::empty()) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(Stop::Ended),
            Err(_) => return Err(AttachError::forbidden(pid)),
        }
        let _ = ptrace::interrupt(tid);
        match wait(tid, MAX_STOP) {
            Waited::Stopped(signal) => {
                let found = registers(tid).map(|(registers, all)| read(registers, &all));
                // A signal that has come meanwhile is given to it.
                let _ = ptrace::detach(tid, signal);
                Ok(found.map_or(Stop::Ended, Stop::Stopped))
            }
            Waited::Running => {
                self.stops_late = true;
                Ok(Stop::Late)
            }
            Waited::Ended => Ok(Stop::Ended),
        }
    }

    /// Lets go of it if it has stopped since it was last too late. `true` while it has not.
    pub(crate) fn release_late(&mut self) -> bool {
        if self.stops_late {
            match wait(Pid::from_raw(self.tid), Duration::ZERO) {
                Waited::Running => return true,
                Waited::Stopped(signal) => _ = ptrace::detach(Pid::from_raw(self.tid), signal),
                Waited::Ended => {}
            }
            self.stops_late = false;
        }
        false
    }
}

enum Waited {
    /// It stands still; a signal waits for it.
    Stopped(Option<Signal>),
    Running,
    Ended,
}

/// Waits until `tid` stands still.
fn wait(tid: Pid, longest: Duration) -> Waited {
    let begun = Instant::now();
    loop {
        match waitpid(tid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Stopped(_, signal)) => return Waited::Stopped(Some(signal)),
            // The stop that was asked for.
            Ok(WaitStatus::PtraceEvent(..) | WaitStatus::PtraceSyscall(_)) => return Waited::Stopped(None),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return Waited::Ended,
        }
        if begun.elapsed() >= longest {
            return Waited::Running;
        }
        std::thread::yield_now();
    }
}

/// The registers that a walk begins with, and all general ones.
#[cfg(target_arch = "x86_64")]
fn registers(tid: Pid) -> Option<(Registers, Vec<usize>)> {
    let all = ptrace::getregs(tid).ok()?;
    let [pc, sp, fp] = [all.rip, all.rsp, all.rbp].map(|register| register as usize);
    let general = [
        all.rdi, all.r14, all.r15, all.r13, all.r12, all.rbx, all.rsi, all.rdx, all.rcx, all.rax, all.r8, all.r9,
        all.r10, all.r11,
    ];
    let general = general.map(|register| register as usize).to_vec();
    Some((Registers { pc, sp, fp, is_on_signal_stack: false }, general))
}

/// The registers that a walk begins with, and all general ones.
#[cfg(target_arch = "aarch64")]
fn registers(tid: Pid) -> Option<(Registers, Vec<usize>)> {
    let all = ptrace::getregs(tid).ok()?;
    let general: Vec<usize> = all.regs.iter().map(|register| *register as usize).collect();
    let [fp, lr] = [29, 30].map(|register: usize| general[register]);
    Some((Registers { pc: all.pc as usize, sp: all.sp as usize, fp, lr, is_on_signal_stack: false }, general))
}
