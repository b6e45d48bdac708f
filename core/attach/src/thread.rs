//! A thread of a process: whether it runs, how much CPU time it has had, and its registers while it stands still.

use crate::process::Process;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use wlprof_walk::Registers;

/// A thread of a process that is looked at.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tid: i32,
    state: File,
    times: File,
    /// Absent where the kernel does not show it.
    call: Option<File>,
}

/// What a thread has had of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// CPU time, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// How often it has come onto a processor.
    pub(crate) count: u64,
    /// For how long it had waited for one when it came onto one last, in nanoseconds of its life.
    pub(crate) waited_ns: u64,
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

impl Thread {
    /// Opens what the kernel shows of thread `tid` of `process`.
    pub(crate) fn open(process: &Process, tid: i32) -> io::Result<Self> {
        let file = |name| File::open(process.path(&format!("task/{tid}/{name}")));
        let call = file("syscall").ok();
        Ok(Self { tid, state: file("stat")?, times: file("schedstat")?, call })
    }

    /// What it does; `None` if it has ended.
    pub(crate) fn activity(&self) -> Option<Activity> {
        let mut buffer = [0; 1024];
        let length = self.state.read_at(&mut buffer, 0).ok().filter(|length| *length > 0)?;
        // The state stands behind the name, which is in parentheses and may have some itself. It is the third field.
        let end_of_name = buffer[..length].iter().rposition(|byte| *byte == b')')?;
        let mut fields = buffer[end_of_name + 1..length].split(u8::is_ascii_whitespace).skip(1);
        match fields.next()? {
            b"R" => {}
            // What the kernel shows of it stays until its parent has asked for it.
            b"Z" | b"X" => return None,
            _ => return Some(Activity::Blocked),
        }
        /// The number of that field, of those behind the state.
        const PROCESSOR: usize = 39 - 4;
        let processor = str::from_utf8(fields.nth(PROCESSOR)?).ok()?.parse().ok()?;
        Some(Activity::Running { processor })
    }

    /// Its time in user code and in the kernel, in ticks of the system's clock; `None` if it has ended.
    pub(crate) fn ticks(&self) -> Option<(u64, u64)> {
        let mut buffer = [0; 1024];
        let length = self.state.read_at(&mut buffer, 0).ok()?;
        let end_of_name = buffer[..length].iter().rposition(|byte| *byte == b')')?;
        /// The number of the first of them, of those behind the name.
        const USER: usize = 14 - 3;
        let fields = str::from_utf8(&buffer[end_of_name + 1..length]).ok()?.split_ascii_whitespace();
        let mut ticks = fields.skip(USER).map(str::parse);
        Some((ticks.next()?.ok()?, ticks.next()?.ok()?))
    }

    /// What it has had of processors; `None` if it has ended.
    pub(crate) fn turns(&self) -> Option<Turns> {
        let mut buffer = [0; 96];
        let length = self.times.read_at(&mut buffer, 0).ok()?;
        // CPU time, time of waiting for a processor, turns.
        let mut numbers = str::from_utf8(&buffer[..length]).ok()?.split_ascii_whitespace().map(str::parse);
        let (cpu_ns, waited_ns, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Turns { cpu_ns, count, waited_ns })
    }

    /// The registers of a thread that is blocked in a system call, as far as they are known: it need not stop for it. `None` if it is not.
    pub(crate) fn registers_in_call(&self) -> Option<Registers> {
        let mut buffer = [0; 256];
        let length = self.call.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = str::from_utf8(&buffer[..length]).ok()?;
        // One that a debugger has stopped, or a signal, is in none.
        if text.starts_with("-1 ") {
            return None;
        }
        // The number of the call, its arguments, sp and pc; or only a word for a thread that runs.
        let mut last = text.split_ascii_whitespace().rev().map(|word| {
            let digits = word.strip_prefix("0x")?;
            usize::from_str_radix(digits, 16).ok()
        });
        let (pc, sp) = (last.next()??, last.next()??);
        Some(Registers { pc, sp, ..Registers::default() })
    }
}

/// The registers that a walk begins with, and all general ones, of a thread that this one traces and that stands still.
#[cfg(target_arch = "x86_64")]
pub(crate) fn traced_registers(tid: i32) -> Option<(Registers, Vec<usize>)> {
    let all = ptrace::getregs(Pid::from_raw(tid)).ok()?;
    let [pc, sp, fp] = [all.rip, all.rsp, all.rbp].map(|register| register as usize);
    let general = [
        all.rdi, all.r14, all.r15, all.r13, all.r12, all.rbx, all.rsi, all.rdx, all.rcx, all.rax, all.r8, all.r9,
        all.r10, all.r11,
    ];
    let general = general.map(|register| register as usize).to_vec();
    Some((Registers { pc, sp, fp, is_on_signal_stack: false }, general))
}

/// The registers that a walk begins with, and all general ones, of a thread that this one traces and that stands still.
#[cfg(target_arch = "aarch64")]
pub(crate) fn traced_registers(tid: i32) -> Option<(Registers, Vec<usize>)> {
    let all = ptrace::getregs(Pid::from_raw(tid)).ok()?;
    let general: Vec<usize> = all.regs.iter().map(|register| *register as usize).collect();
    let [fp, lr] = [29, 30].map(|register: usize| general[register]);
    Some((Registers { pc: all.pc as usize, sp: all.sp as usize, fp, lr, is_on_signal_stack: false }, general))
}
