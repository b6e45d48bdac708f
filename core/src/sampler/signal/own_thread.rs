//! What the sampled thread asks of the operating system: its signal mask and its stack.

use std::io;

/// The signal that interrupts the guest. `SIGPROF` is what profilers use, and nothing else in wlprof does.
pub(super) const SIGNAL: libc::c_int = libc::SIGPROF;

/// Keeps the sampling signal from this thread; what arrives meanwhile is handled at the end.
pub(super) struct SignalBlocked;

impl SignalBlocked {
    pub(super) fn new() -> Self {
        // It fails for an invalid request only.
        let _ = mask(libc::SIG_BLOCK);
        Self
    }
}

impl Drop for SignalBlocked {
    fn drop(&mut self) {
        let _ = mask(libc::SIG_UNBLOCK);
    }
}

/// Blocks or unblocks the sampling signal on this thread.
pub(super) fn mask(how: libc::c_int) -> io::Result<()> {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the set that sigaddset and pthread_sigmask then use.
    let failed = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

/// Lowest address of the calling thread's stack.
pub(super) fn own_stack_low() -> io::Result<usize> {
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
