//! Reads this process's own memory where it may be gone.

/// Fills `buffer` from `from`, by the kernel. `false` if not all of it is there.
pub(in crate::sampler) fn read(from: *const u8, buffer: &mut [u8]) -> bool {
    let length = buffer.len();
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
    // SAFETY: asks for no other process than this one; the kernel writes into `buffer` and checks `from`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    read == length as isize
}
