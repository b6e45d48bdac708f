//! Why a process cannot be profiled from outside.

use std::fs;
use std::{error, fmt, io};

/// The reason why a process cannot be profiled from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// There is no process of this number.
    NoProcess(i32),
    /// The system does not allow it.
    Forbidden {
        /// The process.
        pid: i32,
        /// What forbids it, and what to do.
        reason: String,
    },
    /// Another program traces it.
    Traced {
        /// The process.
        pid: i32,
        /// The program's process.
        tracer: i32,
    },
    /// It cannot be read.
    Unreadable {
        /// The process.
        pid: i32,
        /// What the system says.
        reason: String,
    },
}

impl AttachError {
    pub(crate) fn opening(pid: i32, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NoProcess(pid),
            io::ErrorKind::PermissionDenied => Self::forbidden(pid, pid),
            _ => Self::Unreadable { pid, reason: error.to_string() },
        }
    }

    /// What forbids to trace thread `tid` of process `pid`.
    pub(crate) fn forbidden(pid: i32, tid: i32) -> Self {
        if let Some(tracer) = tracer(pid, tid) {
            return Self::Traced { pid, tracer };
        }
        if pid == std::process::id() as i32 {
            let reason = "the system hides its memory from itself, as of a process that has changed its user or forbidden core dumps; have it \
                          call prctl(PR_SET_DUMPABLE, 1) before";
            return Self::Forbidden { pid, reason: reason.to_owned() };
        }
        let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        let reason = match scope.trim() {
            "3" => {
                "kernel.yama.ptrace_scope is 3: nothing can be attached to until this machine is started again without it"
            }
            "1" | "2" => {
                "kernel.yama.ptrace_scope allows it for root only: run `sudo wlprof attach`, or set it to 0 with \
                 `sudo sysctl kernel.yama.ptrace_scope=0`"
            }
            _ => {
                "it belongs to another user, or runs with more rights: run wlprof as the same user, with sudo, or with the capabilities \
                 SYS_PTRACE and DAC_READ_SEARCH (in a container: `docker run --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH`)"
            }
        };
        Self::Forbidden { pid, reason: reason.to_owned() }
    }
}

/// The process that traces thread `tid` of process `pid`.
fn tracer(pid: i32, tid: i32) -> Option<i32> {
    let number = |path: String, field: &str| {
        let status = fs::read_to_string(path).ok()?;
        status.lines().find_map(|line| line.strip_prefix(field))?.trim().parse::<i32>().ok()
    };
    let thread = number(format!("/proc/{pid}/task/{tid}/status"), "TracerPid:").filter(|tracer| *tracer != 0)?;
    // It may have ended by now.
    Some(number(format!("/proc/{thread}/status"), "Tgid:").unwrap_or(thread))
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(pid) => write!(f, "there is no process {pid}; `wlprof ps` lists those that run Wasmtime"),
            Self::Forbidden { pid, reason } => write!(f, "process {pid} may not be read: {reason}"),
            Self::Traced { pid, tracer } => {
                write!(f, "process {pid} is traced by process {tracer}, such as a debugger; end that first")
            }
            Self::Unreadable { pid, reason } => write!(f, "process {pid} cannot be read: {reason}"),
        }
    }
}

impl error::Error for AttachError {}
