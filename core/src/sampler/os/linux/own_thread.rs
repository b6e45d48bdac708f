//! What the sampled thread asks of the operating system: its signal mask and its stack.

use std::io;

/// The signal that interrupts the guest. `SIGPROF` is what profilers use, and nothing else in wlprof does.
pub(in crate::sampler) const SIGNAL: libc::c_int = libc::SIGPROF;

/// Keeps the sampling signal from this thread; what arrives meanwhile is handled at the end. The whole mask is put back then:
/// a plugin that was called in between may have changed it.
pub(in crate::sampler) struct SignalBlocked(Option<libc::sigset_t>);

impl SignalBlocked {
    pub(in crate::sampler) fn new() -> Self {
        // It fails for an invalid request only.
        Self(mask(libc::SIG_BLOCK).ok())
    }
}

impl Drop for SignalBlocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: `before` is a whole set, which the system has filled and which is borrowed for the call.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

/// Has the sampling signal come to this thread.
///
/// # Errors
/// If the system refuses.
pub(in crate::sampler) fn unblock_signal() -> io::Result<()> {
    mask(libc::SIG_UNBLOCK).map(|_| ())
}

/// Blocks or unblocks the sampling signal on this thread, and gives the mask before.
pub(in crate::sampler) fn mask(how: libc::c_int) -> io::Result<libc::sigset_t> {
    let (mut set, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
    // SAFETY: sigemptyset initializes the set that sigaddset and pthread_sigmask then use, which initializes the other.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        match libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr()) {
            0 => Ok(before.assume_init()),
            failed => Err(io::Error::from_raw_os_error(failed)),
        }
    }
}

/// Lowest address of the calling thread's stack.
///
/// # Errors
/// If the system does not say.
pub(in crate::sampler) fn own_stack_low() -> io::Result<usize> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np initializes the attributes, which are read and then destroyed.
    let failed = unsafe {
        match libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) {
            0 => {
                let failed = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
                libc::pthread_attr_destroy(attributes.as_mut_ptr());
                failed
            }
            failed => failed,
        }
    };
    if failed == 0 { Ok(low as usize) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// How often the calling thread has waited for something else than a processor. Async-signal-safe.
pub(in crate::sampler) fn voluntary_waits() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: one system call, which fills the structure; zeroes are a valid one should it fail.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw as u64
    }
}

/// Has the calling thread wait until a signal comes. Async-signal-safe.
pub(in crate::sampler) fn pause() {
    // SAFETY: `pause` takes no pointer: it waits for a signal, and does nothing else.
    unsafe { libc::pause() };
}

/// Has a thread of this process handle [`SIGNAL`], if it is there.
pub(in crate::sampler) fn interrupt(tid: u32) {
    // SAFETY: plain system call. If the thread has ended there is none of that number in this process, or a new one, whose
    // handler does nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGNAL) };
}

/// Has the calling thread get a processor soon after it wakes, as it runs for moments only. Since Linux 6.12 a thread that asks for short turns
/// may come before one whose turn is not over; earlier releases ignore the length of turns.
pub(in crate::sampler) fn take_short_turns() {
    /// The shortest that the kernel gives.
    const TURN_NS: u64 = 100_000;
    /// `struct sched_attr` of `linux/sched/types.h`, its first version.
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        turn_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const BYTES: u32 = 48;
    const _: () = assert!(size_of::<SchedAttr>() == BYTES as usize);
    let mut scheduling = SchedAttr::default();
    // SAFETY: the kernel writes `BYTES` bytes, which there are; 0 is the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut scheduling, BYTES, 0) };
    if known == 0 && scheduling.policy == libc::SCHED_OTHER as u32 {
        scheduling.size = BYTES;
        scheduling.turn_ns = TURN_NS;
        // SAFETY: the kernel reads as many bytes as `size` says. Should it refuse, the thread has the turns that it had.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const scheduling, 0) };
    }
}
