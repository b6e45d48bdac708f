//! An event that signals a thread when it has run for so long: the kernel counts, and nothing happens while the thread sleeps.
//!
//! # Accuracy
//! A high-resolution timer that the scheduler starts and stops with the thread: it is in step with nothing. Where it expires in
//! the kernel no signal is sent, and it expires again after the same time. The handler has it
//! rest first ([`CpuEvent::rest_sender`]): one that took longer than the time between two would otherwise come to no end.
//!
//! # Overhead
//! An interrupt and a signal each time: 5 to 60 µs, by the machine. Setting it is a system call.

use super::own_thread::SIGNAL;
use super::thread_watch::own_tid;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_CPU_CLOCK`, flags and requests of `linux/perf_event.h`.
const TYPE_SOFTWARE: u32 = 1;
const COUNT_CPU_CLOCK: u64 = 0;
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const PERIOD: libc::c_ulong = 0x4008_2404;
/// `F_SETSIG`, `F_SETOWN_EX`, `F_OWNER_TID` of `asm-generic/fcntl.h`.
const SET_SIGNAL: libc::c_int = 10;
const SET_OWNER: libc::c_int = 15;
const OWNER_THREAD: libc::c_int = 0;
/// `POLL_IN` of `asm-generic/siginfo.h`.
const POLL_IN: libc::c_int = 1;

/// The shortest time that an event is set to, in nanoseconds: in the kernel it expires as often, and each time costs an interrupt.
pub(in crate::sampler) const MIN_AFTER_NS: u64 = 50_000;

/// The size of `struct perf_event_attr` up to `config2`, its second version: all that is used here.
const ATTRIBUTES_BYTES: u32 = 72;

/// The beginning of `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
}

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_BYTES as usize);

/// `struct f_owner_ex`.
#[repr(C)]
struct Owner {
    kind: libc::c_int,
    pid: libc::pid_t,
}

/// The files of all events of this process, a bit each, by which their signals are known. Files beyond are not.
static FILES: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// An event of the thread that made it.
///
/// It is not one that rests by itself once it has happened (`PERF_EVENT_IOC_REFRESH`): some releases of Linux 6.16 and 6.17 hang where the
/// last of so many is a cpu-clock's.
#[derive(Debug)]
pub(in crate::sampler) struct CpuEvent(File);

impl CpuEvent {
    /// An event for the calling thread, which is not set.
    ///
    /// # Errors
    /// If the system refuses it: `kernel.perf_event_paranoid` is above 2, or a seccomp filter forbids it, as those of containers do.
    pub(in crate::sampler) fn new() -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: ATTRIBUTES_BYTES,
            config: COUNT_CPU_CLOCK,
            sample_period: u64::MAX >> 1,
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
            wakeup_events: 1,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads as many bytes as `size` says, and the process is this one's thread.
        let file =
            unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, FLAG_CLOSE_ON_EXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the file has just been opened, and nothing else has it.
        let event = Self(unsafe { File::from_raw_fd(file as libc::c_int) });
        let owner = Owner { kind: OWNER_THREAD, pid: own_tid() as libc::pid_t };
        let file = event.0.as_raw_fd();
        // SAFETY: these set who is signalled by a file that is open; `owner` is read during the call.
        let is_set = unsafe {
            libc::fcntl(file, SET_SIGNAL, SIGNAL) == 0
                && libc::fcntl(file, SET_OWNER, &raw const owner) == 0
                && libc::fcntl(file, libc::F_SETFL, libc::O_ASYNC) == 0
        };
        if !is_set {
            return Err(io::Error::last_os_error());
        }
        if let Some((bits, bit)) = bit_of(file) {
            bits.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(event)
    }

    /// Has the event happen when the thread has run for `after_ns`, or for [`MIN_AFTER_NS`] if that is longer, and again and again.
    /// Async-signal-safe, from any thread.
    pub(in crate::sampler) fn set(&self, after_ns: u64) {
        let after_ns = after_ns.max(MIN_AFTER_NS);
        self.control(PERIOD, &raw const after_ns as libc::c_ulong);
        self.control(ENABLE, 0);
    }

    /// Has the event not happen. A signal may be on its way. Async-signal-safe, from any thread.
    pub(in crate::sampler) fn unset(&self) {
        self.control(DISABLE, 0);
    }

    /// How long the thread has run while the event was set, in nanoseconds: what it goes by. The thread's CPU time is more by what it takes
    /// to give a thread a processor and take it away. Async-signal-safe.
    pub(in crate::sampler) fn count_ns(&self) -> u64 {
        let mut count = 0_u64;
        // SAFETY: the kernel writes one number of 8 bytes, for which there is room.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
        if read == size_of::<u64>() as isize { count } else { 0 }
    }

    fn control(&self, request: libc::c_ulong, argument: libc::c_ulong) {
        control(self.0.as_raw_fd(), request, argument);
    }

    /// Whether this is the event of a signal that [`CpuEvent::rest_sender`] has identified.
    pub(in crate::sampler) fn is(&self, sender: Option<Sender>) -> bool {
        sender.is_some_and(|Sender(file)| file == self.0.as_raw_fd())
    }

    /// The event of this process that sent the signal that `info` is of, if one did. It rests until it is set again. Async-signal-safe.
    ///
    /// # Safety
    /// `info` must be the second argument of a signal handler installed with `SA_SIGINFO`.
    pub(in crate::sampler) unsafe fn rest_sender(info: *const libc::siginfo_t) -> Option<Sender> {
        // SAFETY: `info` is what the kernel gave the handler that is running.
        let file = unsafe { file_of_signal(info) }?;
        let (bits, bit) = bit_of(file)?;
        let is_known = bits.load(Ordering::Relaxed) & bit != 0;
        is_known.then(|| {
            control(file, DISABLE, 0);
            Sender(file)
        })
    }
}

/// Which event sent a signal.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Sender(libc::c_int);

fn control(file: libc::c_int, request: libc::c_ulong, argument: libc::c_ulong) {
    // SAFETY: the file is an event's, and what `argument` points to, if anything, lives as long as the call.
    unsafe { libc::ioctl(file, request as _, argument) };
}

impl Drop for CpuEvent {
    fn drop(&mut self) {
        if let Some((bits, bit)) = bit_of(self.0.as_raw_fd()) {
            bits.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn bit_of(file: libc::c_int) -> Option<(&'static AtomicU64, u64)> {
    let file = usize::try_from(file).ok()?;
    Some((FILES.get(file / 64)?, 1 << (file % 64)))
}

/// The file whose event sent a signal; `None` if none did. No other process can send one that looks like it: the kernel lets them
/// have no such code.
///
/// # Safety
/// As for [`CpuEvent::rest_sender`].
unsafe fn file_of_signal(info: *const libc::siginfo_t) -> Option<libc::c_int> {
    /// Where `si_fd` is in `siginfo_t` of 64-bit Linux: behind three numbers, what aligns the next, and `si_band`.
    const FILE_AT: usize = 24;
    // SAFETY: `info` points to a whole `siginfo_t`, of 128 bytes, which the kernel has filled.
    unsafe { ((*info).si_code == POLL_IN).then(|| info.byte_add(FILE_AT).cast::<libc::c_int>().read()) }
}
