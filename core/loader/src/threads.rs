//! Takes the threads that a plugin tells of.

use super::containment::in_host;
use super::host::{Receiver, text};
use wlprof_plugin::abi;
use wlprof_plugin::{Creator, Label, ThreadStack, Truncation};

/// The most frames and labels of one that are taken, and the most of anything else that is given at once.
const MOST: usize = 1 << 20;
/// What all of them may take, in bytes of memory: there are programs with a hundred thousand goroutines.
const ROOM: usize = 512 << 20;

/// Receives threads.
#[repr(C)]
pub(super) struct HostThreads<'a> {
    pub(super) abi: abi::Threads,
    threads: Receiver<'a, ThreadStack>,
}

impl<'a> HostThreads<'a> {
    pub(super) fn new(threads: &'a mut Vec<ThreadStack>) -> Self {
        Self { abi: abi::Threads { size: size_of::<abi::Threads>(), add }, threads: Receiver::new(threads, ROOM) }
    }
}

unsafe extern "C" fn add(threads: *const abi::Threads, thread: *const abi::Thread) {
    in_host(|| {
        // SAFETY: by the ABI `threads` is what the plugin was given for the call that goes on, and the thread is there for this call with
        // all that it has.
        let (threads, thread) = unsafe { (&*threads.cast::<HostThreads<'_>>(), &*thread) };
        if thread.size < size_of::<abi::Thread>() {
            return;
        }
        // SAFETY: by the ABI a thread has as many frames and labels as it says, for this call.
        let (frames, labels) =
            unsafe { (slice(thread.frames, thread.frame_count), slice(thread.labels, thread.label_count)) };
        // SAFETY: by the ABI the texts of a thread are there for this call.
        let text = |bytes| unsafe { text(bytes) };
        let mut texts = vec![thread.name, thread.state, thread.creator];
        texts.extend(labels.iter().flat_map(|label| [label.name, label.value]));
        threads.threads.take(&texts, size_of_val(frames) + size_of_val(labels), || ThreadStack {
            name: text(thread.name),
            state: text(thread.state),
            is_running: thread.is_running != 0,
            frames: frames.iter().map(|&key| key.into()).collect(),
            walked: abi::walk_end_of(thread.end).unwrap_or(Err(Truncation::Inconsistent)),
            creator: (thread.has_creator != 0)
                .then(|| Creator { name: text(thread.creator), frame: thread.creator_frame.into() }),
            labels: labels.iter().map(|label| Label { name: text(label.name), value: text(label.value) }).collect(),
        });
    })
}

/// As many of `count` as are taken.
///
/// # Safety
/// `first` must be null, or lead to `count` values that stay unchanged for as long as `'a`.
pub(super) unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: `first` is not null, so `count` values are there and stay for as long as `'a` (see # Safety).
    unsafe { std::slice::from_raw_parts(first, count.min(MOST)) }
}
