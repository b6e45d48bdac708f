//! Where a plugin writes a stack, on systems that it is not loaded on: without the page behind it that cannot be written.

use std::io;
use std::ops::Deref;
use wlprof_plugin::abi::StackFrame;

/// Room for frames.
pub(super) struct StackRoom(Vec<StackFrame>);

impl StackRoom {
    /// Room for `capacity` frames, zeroed.
    ///
    /// # Errors
    /// None.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self(vec![StackFrame { kind: 0, reserved: 0, value: 0 }; capacity]))
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut StackFrame {
        self.0.as_mut_ptr()
    }
}

impl Deref for StackRoom {
    type Target = [StackFrame];

    fn deref(&self) -> &[StackFrame] {
        &self.0
    }
}
