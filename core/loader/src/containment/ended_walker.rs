//! Walkers that are kept until nobody needs anything of the process any more.

use super::{Activity, Calls};
use wlprof_plugin::abi;

/// A walker that is not asked any more.
pub(crate) struct EndedWalker {
    walker: *mut abi::Walker,
    destroy: unsafe extern "C" fn(*mut abi::Walker),
}

// SAFETY: the ABI has a walker be called from any thread, one call at a time.
unsafe impl Send for EndedWalker {}

impl EndedWalker {
    /// `destroy` is what the plugin frees `walker` with.
    ///
    /// # Safety
    /// No call may use the walker, now or later.
    pub(crate) unsafe fn new(walker: *mut abi::Walker, destroy: unsafe extern "C" fn(*mut abi::Walker)) -> Self {
        Self { walker, destroy }
    }

    /// Has the plugin free it.
    pub(crate) fn destroy(self, calls: &Calls) {
        let Self { walker, destroy } = self;
        // SAFETY: no call uses the walker, as `new` demands. It is freed once, since this value is gone then.
        calls.call(Activity::Destroy, || unsafe { destroy(walker) });
    }
}
