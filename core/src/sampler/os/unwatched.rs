//! What systems have in common on which threads are neither interrupted nor looked at from outside: the epoch sampler alone
//! works there, and perf does not.

/// Reads this process's own memory where it may be gone.
pub(in crate::sampler) mod memory {
    /// Reads nothing: nobody knows what is there.
    pub(in crate::sampler) fn read(_from: *const u8, _buffer: &mut [u8]) -> bool {
        false
    }
}

/// What the sampled thread asks of the operating system.
pub(in crate::sampler) mod own_thread {
    use std::io;

    /// There is no signal to block.
    pub(in crate::sampler) struct SignalBlocked;

    impl SignalBlocked {
        pub(in crate::sampler) fn new() -> Self {
            Self
        }
    }

    /// Lowest address of the calling thread's stack: not known, and not needed without signals.
    ///
    /// # Errors
    /// None.
    pub(in crate::sampler) fn own_stack_low() -> io::Result<usize> {
        Ok(0)
    }

    /// How often the calling thread has waited: not known.
    pub(in crate::sampler) fn voluntary_waits() -> u64 {
        0
    }

    /// Has the calling thread wait, perhaps not for long.
    pub(in crate::sampler) fn pause() {
        std::thread::park();
    }

    /// Turns are as long as the system makes them.
    pub(in crate::sampler) fn take_short_turns() {}

    /// Interrupts nothing: the thread is read at its next check or host call.
    pub(in crate::sampler) fn interrupt(_tid: u32) {}
}

/// Events that signal a thread: there are none.
pub(in crate::sampler) mod cpu_event {
    use std::io;

    /// The shortest time that an event is set to, in nanoseconds.
    pub(in crate::sampler) const MIN_AFTER_NS: u64 = 50_000;

    /// An event that cannot be had.
    #[derive(Debug)]
    pub(in crate::sampler) struct CpuEvent;

    impl CpuEvent {
        /// # Errors
        /// Always.
        pub(in crate::sampler) fn new() -> io::Result<Self> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        pub(in crate::sampler) fn set(&self, _after_ns: u64) {}

        pub(in crate::sampler) fn unset(&self) {}

        pub(in crate::sampler) fn count_ns(&self) -> u64 {
            0
        }
    }
}

/// Which processors a thread may run on: not known, and not needed where threads are not looked at.
pub(in crate::sampler) mod processors {
    /// Some processors.
    pub(in crate::sampler) struct Processors;

    impl Processors {
        pub(in crate::sampler) fn own() -> Self {
            Self
        }

        pub(in crate::sampler) fn are_one(&self) -> bool {
            false
        }

        pub(in crate::sampler) fn current() -> Option<usize> {
            None
        }

        pub(in crate::sampler) fn leave(&self, _processor: usize) {}
    }
}

/// Looks at other threads: nothing is seen.
pub(in crate::sampler) mod thread_watch {
    use super::super::Activity;
    use std::io;

    /// Whether [`ThreadWatch`] sees anything.
    pub(in crate::sampler) const SEES_THREADS: bool = false;

    /// A number of the calling thread's own, as long as the process lives.
    pub(in crate::sampler) fn own_tid() -> u32 {
        use std::cell::Cell;
        use std::sync::atomic::{AtomicU32, Ordering};
        static LAST: AtomicU32 = AtomicU32::new(0);
        thread_local! {
            static OWN: Cell<u32> = const { Cell::new(0) };
        }
        if OWN.get() == 0 {
            OWN.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        OWN.get()
    }

    /// Watches another thread of this process, and sees nothing.
    pub(in crate::sampler) struct ThreadWatch;

    impl ThreadWatch {
        /// # Errors
        /// Always.
        pub(in crate::sampler) fn new(_tid: u32) -> io::Result<Self> {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }

        pub(in crate::sampler) fn cpu_ns(&self) -> Option<u64> {
            None
        }

        pub(in crate::sampler) fn voluntary_waits(&self) -> Option<u64> {
            None
        }

        pub(in crate::sampler) fn processor(&self) -> Option<usize> {
            None
        }

        pub(in crate::sampler) fn look(&self) -> (Activity, u64) {
            (Activity::Running, 0)
        }
    }
}

/// Tells perf of code: there is none.
pub(in crate::sampler) mod perf_marker {
    use std::fs::File;
    use std::io;

    /// Tells nobody.
    ///
    /// # Errors
    /// Always.
    pub fn show_to_perf(_file: &File) -> io::Result<u64> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "perf is a program of Linux"))
    }
}
