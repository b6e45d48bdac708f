//! Takes the threads that a plugin tells of.

use super::host::text;
use wlprof_plugin::abi;
use wlprof_plugin::{Creator, Label, ThreadStack, WalkEnd};

/// The most threads that are taken, and frames and labels of one.
const MOST: usize = 1 << 20;

/// Receives threads.
#[repr(C)]
pub(super) struct HostThreads<'a> {
    pub(super) abi: abi::Threads,
    threads: std::cell::RefCell<&'a mut Vec<ThreadStack>>,
}

impl<'a> HostThreads<'a> {
    pub(super) fn new(threads: &'a mut Vec<ThreadStack>) -> Self {
        Self { abi: abi::Threads { size: size_of::<abi::Threads>(), add }, threads: threads.into() }
    }
}

unsafe extern "C" fn add(threads: *const abi::Threads, thread: *const abi::Thread) {
    // SAFETY: the plugin gives back what it was given, and a thread that is there for this call with all that it has.
    let (threads, thread) = unsafe { (&*threads.cast::<HostThreads<'_>>(), &*thread) };
    let mut threads = threads.threads.borrow_mut();
    if threads.len() >= MOST || thread.size < size_of::<abi::Thread>() {
        return;
    }
    // SAFETY: as above.
    let (frames, labels) =
        unsafe { (slice(thread.frames, thread.frame_count), slice(thread.labels, thread.label_count)) };
    // SAFETY: as above.
    let text = |bytes| unsafe { text(bytes) };
    threads.push(ThreadStack {
        name: text(thread.name),
        state: text(thread.state),
        is_running: thread.is_running,
        frames: frames.iter().map(|&key| key.into()).collect(),
        end: abi::walk_end_of(thread.end).unwrap_or(WalkEnd::Inconsistent),
        creator: thread.has_creator.then(|| Creator { name: text(thread.creator), frame: thread.creator_frame.into() }),
        labels: labels.iter().map(|label| Label { name: text(label.name), value: text(label.value) }).collect(),
    });
}

/// # Safety
/// There are as many.
unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, count.min(MOST)) }
}
