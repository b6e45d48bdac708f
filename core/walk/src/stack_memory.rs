//! How a walk reads a stack: in place, or as the kernel gives it.

/// Memory that has the stacks of a stopped thread.
///
/// ```
/// use wlprof_walk::StackMemory;
///
/// /// A copy of the upper end of a stack, which begins at `address`.
/// struct Copied {
///     address: usize,
///     words: Vec<usize>,
/// }
///
/// impl StackMemory for Copied {
///     unsafe fn word(&self, address: usize) -> Option<usize> {
///         self.words.get(address.checked_sub(self.address)? / size_of::<usize>()).copied()
///     }
/// }
///
/// let copied = Copied { address: 0x1000, words: vec![7, 8, 9] };
/// // SAFETY: this reads at no address.
/// assert_eq!(unsafe { copied.word(0x1008) }, Some(8));
/// ```
pub trait StackMemory {
    /// Reads the word at `address`; `None` if it cannot be read.
    ///
    /// # Safety
    /// If the memory is read in place, `address` must be that of an aligned word on a stack that is mapped and stands still.
    unsafe fn word(&self, address: usize) -> Option<usize>;

    /// Returns whether each word takes as much as a system call. A walk then reads no more frames than it gives, and leaves those at the root
    /// out if there are more.
    fn is_slow(&self) -> bool {
        false
    }
}

/// The stack of this thread, for tests.
#[cfg(test)]
pub(crate) struct OwnStack;

#[cfg(test)]
impl StackMemory for OwnStack {
    unsafe fn word(&self, address: usize) -> Option<usize> {
        // SAFETY: `address` is that of an aligned word of a live variable (see # Safety of the trait's method).
        Some(unsafe { (address as *const usize).read_volatile() })
    }
}
