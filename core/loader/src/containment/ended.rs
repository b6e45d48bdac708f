//! Programs and walkers that are kept until nobody needs anything of the process any more.

use super::{Activity, Calls};
use wlprof_plugin::abi;

/// A program or a walker that is not asked any more, and what the plugin frees it with.
#[derive(Clone, Copy)]
pub(crate) enum RetiredPart {
    Program(*mut abi::Program, unsafe extern "C" fn(*mut abi::Program)),
    Walker(*mut abi::Walker, unsafe extern "C" fn(*mut abi::Walker)),
}

// SAFETY: the ABI has programs and walkers be called from any thread, one call at a time.
unsafe impl Send for RetiredPart {}

impl RetiredPart {
    /// Has the plugin free it.
    ///
    /// # Safety
    /// No call may use it, now or later. A program must have no walkers any more.
    pub(crate) unsafe fn destroy(self, calls: &Calls) {
        match self {
            // SAFETY: no call uses the program, nor does a walker (see # Safety).
            Self::Program(program, destroy) => calls.call(Activity::Destroy, || unsafe { destroy(program) }),
            // SAFETY: no call uses the walker (see # Safety).
            Self::Walker(walker, destroy) => calls.call(Activity::Destroy, || unsafe { destroy(walker) }),
        };
    }
}
