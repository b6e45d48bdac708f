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

// SAFETY: the mapping is this value's own, belongs to no thread, and is what both pointers lead into.
unsafe impl Send for StackRoom {}

impl StackRoom {
    /// Room for `capacity` frames, zeroed.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: `sysconf` takes no pointer, and changes nothing.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let size = capacity * size_of::<StackFrame>();
        let writable = size.next_multiple_of(page);
        let mapped = writable + page;
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel maps new memory at a place that it chooses, and no other memory is touched.
        let mapping = unsafe { libc::mmap(null_mut(), mapped, protection, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let room = Self { frames: mapping.wrapping_byte_add(writable - size).cast(), capacity, mapping, mapped };
        // SAFETY: this is the last page of the new mapping, which nothing uses yet.
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
        // SAFETY: `capacity` frames are mapped there and aligned. Their fields are numbers, which may have any value that the plugin
        // writes.
        unsafe { std::slice::from_raw_parts(self.frames, self.capacity) }
    }
}

impl Drop for StackRoom {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and references into it borrow this value, which goes now.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}
