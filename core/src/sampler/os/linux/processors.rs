//! Which processors a thread may run on.

/// The processors that the calling thread may have, as they were when this was made.
pub(in crate::sampler) struct Processors(libc::cpu_set_t);

impl Processors {
    /// Those of the calling thread.
    pub(in crate::sampler) fn own() -> Self {
        // SAFETY: `cpu_set_t` is an array of bits: zeroes are a set of no processors.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes no more than the size of the set; 0 is the calling thread. If it refuses, the set stays empty.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
        Self(set)
    }

    /// Whether there is one only, or nobody knows.
    pub(in crate::sampler) fn are_one(&self) -> bool {
        // SAFETY: `CPU_COUNT` only reads the set, which is borrowed for the call.
        unsafe { libc::CPU_COUNT(&self.0) <= 1 }
    }

    /// The one that the calling thread is on; `None` if nobody knows.
    pub(in crate::sampler) fn current() -> Option<usize> {
        // SAFETY: `sched_getcpu` takes no pointer, and changes nothing.
        usize::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    /// Has the calling thread, if it is on `processor`, run on the others from here on.
    pub(in crate::sampler) fn leave(&self, processor: usize) {
        if Self::current() != Some(processor) || processor >= libc::CPU_SETSIZE as usize || self.are_one() {
            return;
        }
        let mut others = self.0;
        // SAFETY: the number is within the set, which the kernel reads; should it refuse, the thread stays where it is.
        unsafe {
            libc::CPU_CLR(processor, &mut others);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const others);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_leaves_the_processor_that_it_is_on() {
        std::thread::spawn(|| {
            let processors = Processors::own();
            let count = |of: &Processors| {
                // SAFETY: `CPU_COUNT` only reads the set, which is borrowed for the call.
                unsafe { libc::CPU_COUNT(&of.0) }
            };
            let one_fewer = if processors.are_one() { 0 } else { 1 };
            // The system may move it in between. An emulator may not say where it is.
            while let Some(left) = Processors::current() {
                processors.leave(left);
                if count(&Processors::own()) == count(&processors) - one_fewer {
                    assert!(one_fewer == 0 || Processors::current() != Some(left));
                    break;
                }
            }
        })
        .join()
        .unwrap();
    }
}
