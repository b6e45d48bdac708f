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

/// How long a thread that runs on another processor takes to stop.
const SPIN: Duration = Duration::from_micros(50);

/// A thread of a process that is looked at.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    state: File,
    times: File,
    /// Absent where the kernel does not show it.
    call: Option<File>,
    /// It was asked to stop, and has not been seen to.
    is_asked: bool,
}

/// What a thread has had of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// CPU time, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// How often it has come onto a processor.
    pub(crate) count: u64,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It runs, or waits only for a processor.
    Running {
        /// Which it is on, or was last.
        processor: usize,
    },
    /// It waits in a system call or for memory.
    Blocked,
}

/// What became of a thread that was asked to stop.
pub(crate) enum Stop<T> {
    /// It stood still while this was found, for this long since it was seen to.
    Stopped(T, Duration),
    /// It has not stopped yet: it waits for a processor, or the kernel works for it.
    NotYet,
    /// It has ended.
    Ended,
}

impl Thread {
    /// Opens what the kernel shows of thread `tid` of process `pid`.
    pub(crate) fn open(pid: i32, tid: i32) -> io::Result<Self> {
        let file = |name| File::open(format!("/proc/{pid}/task/{tid}/{name}"));
        let call = file("syscall").ok();
        Ok(Self { tid, state: file("stat")?, times: file("schedstat")?, call, is_asked: false })
    }

    /// What it does; `None` if it has ended.
    pub(crate) fn activity(&self) -> Option<Activity> {
        let mut buffer = [0; 1024];
        let length = self.state.read_at(&mut buffer, 0).ok().filter(|length| *length > 0)?;
        // The state stands behind the name, which is in parentheses and may have some itself. It is the third field.
        let end_of_name = buffer[..length].iter().rposition(|byte| *byte == b')')?;
        let mut fields = buffer[end_of_name + 1..length].split(u8::is_ascii_whitespace).skip(1);
        if fields.next()? != b"R" {
            return Some(Activity::Blocked);
        }
        /// The number of that field, of those behind the state.
        const PROCESSOR: usize = 39 - 4;
        let processor = str::from_utf8(fields.nth(PROCESSOR)?).ok()?.parse().ok()?;
        Some(Activity::Running { processor })
    }

    /// What it has had of processors; `None` if it has ended.
    pub(crate) fn turns(&self) -> Option<Turns> {
        let mut buffer = [0; 96];
        let length = self.times.read_at(&mut buffer, 0).ok()?;
        // CPU time, time of waiting for a processor, turns.
        let mut numbers = str::from_utf8(&buffer[..length]).ok()?.split_ascii_whitespace().map(str::parse);
        Some(Turns { cpu_ns: numbers.next()?.ok()?, count: numbers.nth(1)?.ok()? })
    }

    /// The registers of a thread that is blocked in a system call, as far as they are known: it need not stop for it. `None` if it is not.
    pub(crate) fn registers_in_call(&self) -> Option<Registers> {
        let mut buffer = [0; 256];
        let length = self.call.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = str::from_utf8(&buffer[..length]).ok()?;
        // The number of the call, its arguments, sp and pc; or only a word for a thread that runs.
        let mut last = text.split_ascii_whitespace().rev().map(|word| {
            let digits = word.strip_prefix("0x")?;
            usize::from_str_radix(digits, 16).ok()
        });
        let (pc, sp) = (last.next()??, last.next()??);
        Some(Registers { pc, sp, ..Registers::default() })
    }

    /// Whether it was asked to stop and has not been seen to.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Asks it to stop. `false` if it has ended.
    ///
    /// # Errors
    /// If that is forbidden.
    pub(crate) fn ask(&mut self, pid: i32) -> Result<bool, AttachError> {
        let tid = Pid::from_raw(self.tid);
        match ptrace::seize(tid, ptrace::Options::empty()) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(false),
            Err(_) => return Err(AttachError::forbidden(pid)),
        }
        self.is_asked = true;
        let _ = ptrace::interrupt(tid);
        Ok(true)
    }

    /// Waits until it stops, but no longer than `longest`. Then has `read` look at it, and has it run on, whatever happens.
    pub(crate) fn stopped<T>(&mut self, longest: Duration, read: impl FnOnce(Registers, &[usize]) -> T) -> Stop<T> {
        let tid = Pid::from_raw(self.tid);
        match wait(tid, longest) {
            Waited::Stopped(signal) => {
                let begun = Instant::now();
                self.is_asked = false;
                let found = registers(tid).map(|(registers, all)| read(registers, &all));
                let stood = begun.elapsed();
                // A signal that has come meanwhile is given to it. The thread may run in place of this one from here on.
                let _ = ptrace::detach(tid, signal);
                found.map_or(Stop::Ended, |found| Stop::Stopped(found, stood))
            }
            Waited::Running => Stop::NotYet,
            Waited::Ended => Stop::Ended,
        }
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
        let waited = begun.elapsed();
        if waited >= longest {
            return Waited::Running;
        }
        // Where this thread has taken its processor, it stops once this one sleeps.
        if waited > SPIN {
            std::thread::sleep(SPIN);
        }
    }
}
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
