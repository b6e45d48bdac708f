//! Walkers behind the C ABI, as the rest of wlprof sees them.

use super::containment::{Activity, Calls, OwnStack, RetiredPart, fetch};
use super::heap::HostBuckets;
use super::host::HostGuest;
use super::program::Handle;
use super::size_fits;
use super::stack_room::StackRoom;
use super::threads::HostThreads;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wlprof_plugin::abi;
use wlprof_plugin::{AttachError, FrameSink, GuestMemory, HeapBucket, ThreadStack, Truncation, Walker, WasmFrame};

/// What a plugin says of a new walker, read once.
pub(super) struct ReadWalker {
    walker: *mut abi::Walker,
    abi: abi::Walker,
}

impl ReadWalker {
    /// # Safety
    /// `walker` must be one that the plugin has made and not destroyed, or this must run in `Calls::call`, which contains a crash.
    pub(super) unsafe fn read(walker: *mut abi::Walker, abi_minor: u32) -> Result<Self, AttachError> {
        // SAFETY: `walker` points to a walker, which begins with its size, or a crash is contained (see # Safety). The rest is believed to
        // be there only if the size says so.
        let size = unsafe { (*walker).size };
        size_fits::<abi::Walker>(size, abi_minor, "wlprof_walker_t").map_err(AttachError)?;
        let mut abi = MaybeUninit::<abi::Walker>::zeroed();
        // SAFETY: the walker has at least the size of an `abi::Walker` (checked), or a crash is contained (see # Safety).
        unsafe { walker.copy_to_nonoverlapping(abi.as_mut_ptr(), 1) };
        // SAFETY: the fields are numbers and functions that may be missing: what was copied is valid for them.
        let abi = unsafe { abi.assume_init() };
        if abi.walk.is_none() {
            return Err(AttachError("the plugin's walker has no `walk`".to_owned()));
        }
        Ok(Self { walker, abi })
    }
}

/// Bytes of a walker, and of the room for frames, that nearly every walk needs.
const FETCHED: usize = 256;

/// A walker of a loaded plugin.
pub(super) struct ForeignWalker {
    walker: *mut abi::Walker,
    /// A copy of what it is, that nobody changes.
    abi: abi::Walker,
    /// Room for one walk, so that it allocates nothing.
    frames: StackRoom,
    calls: Calls,
    /// What made it, which stays for as long.
    program: Arc<Handle>,
}

// SAFETY: the ABI has a walker be called from any thread, one call at a time.
unsafe impl Send for ForeignWalker {}

impl ForeignWalker {
    pub(super) fn new(ReadWalker { walker, abi }: ReadWalker, program: &Arc<Handle>) -> Result<Self, AttachError> {
        let frames = StackRoom::new(FrameSink::CAPACITY).map_err(|error| AttachError(error.to_string()))?;
        let stack = OwnStack::new().map_err(|error| AttachError(error.to_string()))?;
        let calls = Calls::new(program.library.clone()).with_stack(stack);
        Ok(Self { walker, abi, frames, calls, program: program.clone() })
    }
}

impl Drop for ForeignWalker {
    fn drop(&mut self) {
        if let Some(destroy) = self.abi.destroy {
            // SAFETY: this owns the walker and is about to go; calls into it borrow this.
            unsafe { self.program.library.is_over(RetiredPart::Walker(self.walker, destroy)) };
        }
    }
}

impl Walker for ForeignWalker {
    fn walks_without_allocating(&self) -> bool {
        self.abi.flags & abi::WALKER_WALKS_WITHOUT_ALLOCATING != 0
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let walk = self.abi.walk.ok_or(Truncation::NoStack)?;
        // Since the last walk the guest has had the processor's caches.
        fetch(self.walker, FETCHED);
        fetch(self.frames.as_ptr(), FETCHED);
        let mut label_keys = [0; FrameSink::LABEL_CAPACITY - 1];
        let mut stack = abi::Stack {
            size: size_of::<abi::Stack>(),
            frames: self.frames.as_mut_ptr(),
            capacity: self.frames.len(),
            length: 0,
            labels: 0,
            has_labels: 0,
            may_allocate: out.may_allocate(),
            label_keys: label_keys.as_mut_ptr(),
            label_capacity: label_keys.len(),
            label_count: 0,
        };
        let guest = HostGuest::new(guest);
        if out.may_allocate() {
            self.calls.ready();
        }
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, frames and all that `stack`
        // points to live until the call has ended.
        let ask = || unsafe { walk(self.walker, &guest.abi, wasm.as_ptr(), wasm.len(), &mut stack) };
        let end = self.calls.call(Activity::Walk, ask).ok_or(Truncation::Failed)?;
        self.program.failed_walks.fetch_add(u32::from(end == abi::WALK_END_FAILED), Ordering::Relaxed);
        // An end or a length that cannot be says that nothing else is to be believed.
        let (frames, label_keys) = (self.frames.get(..stack.length), label_keys.get(..stack.label_count));
        let (Some(walked), Some(frames), Some(label_keys)) = (abi::walk_end_of(end), frames, label_keys) else {
            return Err(Truncation::Inconsistent);
        };
        if walked.is_err_and(|reason| !reason.keeps_frames()) {
            return walked;
        }
        for frame in frames {
            match frame.kind {
                abi::FRAME_KIND_OWN => out.push(frame.value)?,
                abi::FRAME_KIND_WASM if frame.value < wasm.len() as u64 => out.push_wasm(frame.value as usize)?,
                abi::FRAME_KIND_ELIDED => out.push_elided()?,
                // No kind of frame, or none of the stack's.
                _ => {
                    out.clear();
                    return Err(Truncation::Inconsistent);
                }
            }
        }
        if stack.has_labels != 0 {
            out.set_labels(stack.labels);
        }
        // There is room: for the one above and as many as it was told of.
        let _ = label_keys.iter().all(|&key| out.add_labels(key));
        walked
    }

    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let Some(threads) = self.abi.threads else { return };
        let (guest, receiver) = (HostGuest::new(guest), HostThreads::new(out));
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, frames and receiver live until
        // the call has ended.
        let ask = || unsafe { threads(self.walker, &guest.abi, wasm.as_ptr(), wasm.len(), &receiver.abi) };
        self.calls.call(Activity::Threads, ask);
    }

    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        let Some(heap_profile) = self.abi.heap_profile else { return Ok(0) };
        let (guest, receiver, mut rate) = (HostGuest::new(guest), HostBuckets::new(out), 0);
        // SAFETY: the walker is not destroyed before `self` goes, and no other call borrows `self`. Guest, receiver and `rate` live until
        // the call has ended.
        let ask = || unsafe { heap_profile(self.walker, &guest.abi, &receiver.abi, &mut rate) };
        let end = self.calls.call(Activity::HeapProfile, ask).ok_or(Truncation::Failed)?;
        if receiver.is_short() {
            return Err(Truncation::TooDeep);
        }
        abi::walk_end_of(end).unwrap_or(Err(Truncation::Inconsistent)).map(|()| rate)
    }
}
