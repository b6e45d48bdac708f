//! Where a plugin writes a stack: behind the last frame that there is room for, writing is a crash and not the end of
//! something else.

use std::io;
use std::ops::Deref;
use std::ptr::null_mut;
use wlprof_plugin::abi::StackFrame;

/// Room for frames, with a page behind it that cannot be written.
pub(super) struct StackRoom {
    frames: *mut StackFrame,
    capacity: usize,
    mapping: *mut libc::c_void,
    mapped: usize,
}

// SAFETY: the memory is its own.
unsafe impl Send for StackRoom {}

impl StackRoom {
    /// Room for `capacity` frames, zeroed.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = capacity * size_of::<StackFrame>();
        let writable = size.next_multiple_of(page);
        let mapped = writable + page;
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps new memory.
        let mapping = unsafe { libc::mmap(null_mut(), mapped, protection, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let room = Self { frames: mapping.wrapping_byte_add(writable - size).cast(), capacity, mapping, mapped };
        // SAFETY: the last page of it.
        if unsafe { libc::mprotect(mapping.byte_add(writable), page, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(room)
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut StackFrame {
        self.frames
    }
}

impl Deref for StackRoom {
    type Target = [StackFrame];

    fn deref(&self) -> &[StackFrame] {
        // SAFETY: as many are mapped, aligned, and numbers whatever was written.
        unsafe { std::slice::from_raw_parts(self.frames, self.capacity) }
    }
}

impl Drop for StackRoom {
    fn drop(&mut self) {
        // SAFETY: its own, and not used any more.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}
