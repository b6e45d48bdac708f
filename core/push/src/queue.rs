//! Windows that wait for their server: in memory, or in files.

use crate::counts::{DropReason, PushCounts};
use crate::queue_folder::{QueueFolder, QueuedFile};
use crate::resource::Resource;
use std::collections::VecDeque;
use std::mem::size_of;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use wlprof_recording::{Frame, Function, HeapSite, Line, Recording, Sample, Stack};

/// How old a window may be: Pyroscope takes none that ended an hour ago.
const MAX_AGE: Duration = Duration::from_secs(55 * 60);

/// A window that waits.
pub(crate) struct QueuedWindow {
    pub(crate) resource: Arc<Resource>,
    content: Content,
    bytes: u64,
    /// When it ended, by the clock of the system, as servers see it.
    ended: SystemTime,
}

enum Content {
    Memory(Box<Recording>),
    File(QueuedFile),
}

impl QueuedWindow {
    /// Returns whether no server will take it any more.
    pub(crate) fn is_too_old(&self) -> bool {
        // One of the future is as old as the clock was wrong.
        self.ended.elapsed().is_ok_and(|age| age > MAX_AGE)
    }

    /// Returns what was sampled.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) fn read(&self) -> Result<Recording, String> {
        match &self.content {
            Content::Memory(recording) => Ok((**recording).clone()),
            Content::File(file) => file.read(),
        }
    }

    /// Removes its file, if it has one: nobody needs it any more.
    pub(crate) fn remove(self) {
        if let Content::File(file) = self.content {
            file.remove();
        }
    }
}

/// Windows in the order in which they came, as many as there is room for.
pub(crate) struct Queue {
    windows: VecDeque<QueuedWindow>,
    max_bytes: u64,
    folder: Option<QueueFolder>,
    pub(crate) counts: PushCounts,
}

impl Queue {
    /// A queue of so many bytes at most.
    pub(crate) fn in_memory(max_bytes: u64) -> Self {
        Self { windows: VecDeque::new(), max_bytes, folder: None, counts: PushCounts::default() }
    }

    /// A queue in files below `path`, with what processes have left there that have gone.
    ///
    /// # Errors
    /// If there can be no such folder.
    pub(crate) fn in_folder(path: &Path, max_bytes: u64) -> Result<Self, String> {
        let folder = QueueFolder::open(path)?;
        let mut queue = Self::in_memory(max_bytes);
        for (resource, file) in folder.abandoned() {
            let (bytes, ended) = (file.bytes(), file.ended());
            queue.add(QueuedWindow { resource, content: Content::File(file), bytes, ended });
        }
        queue.folder = Some(folder);
        Ok(queue)
    }

    /// Adds a window, in the place of the oldest ones if there is no room. Returns why it is in memory, if it should be in a file.
    pub(crate) fn push(&mut self, resource: &Arc<Resource>, recording: Recording) -> Option<String> {
        let ended = ended(&recording);
        let filed = self.folder.as_mut().map(|folder| folder.add(resource, &recording, ended));
        let (content, bytes, problem) = match filed {
            Some(Ok(file)) => {
                let bytes = file.bytes();
                (Content::File(file), bytes, None)
            }
            Some(Err(error)) => (memory(recording), 0, Some(error)),
            None => (memory(recording), 0, None),
        };
        let bytes = if let Content::Memory(recording) = &content { size(recording) } else { bytes };
        self.add(QueuedWindow { resource: resource.clone(), content, bytes, ended });
        problem
    }

    fn add(&mut self, window: QueuedWindow) {
        self.counts.queued_bytes += window.bytes;
        self.counts.queued += 1;
        self.windows.push_back(window);
        while self.counts.queued_bytes > self.max_bytes
            && let Some(oldest) = self.pop()
        {
            self.settle(oldest, Err(DropReason::QueueFull));
        }
    }

    /// Takes the oldest one out. It counts as queued until it is settled.
    pub(crate) fn pop(&mut self) -> Option<QueuedWindow> {
        self.windows.pop_front()
    }

    /// Puts one back that was taken out, before all others.
    pub(crate) fn put_back(&mut self, window: QueuedWindow) {
        self.windows.push_front(window);
    }

    /// Nothing more is done with a window that was taken out.
    pub(crate) fn settle(&mut self, window: QueuedWindow, outcome: Result<(), DropReason>) {
        self.counts.queued -= 1;
        self.counts.queued_bytes -= window.bytes;
        match outcome {
            Ok(()) => self.counts.delivered += 1,
            Err(reason) => *self.counts.dropped.entry(reason).or_default() += 1,
        }
        window.remove();
    }

    /// Ends the queue. What is in files stays there for the next process; what is in memory is lost.
    pub(crate) fn end(&mut self) {
        for window in std::mem::take(&mut self.windows) {
            if matches!(window.content, Content::Memory(_)) {
                self.settle(window, Err(DropReason::Ended));
            }
        }
    }
}

fn memory(recording: Recording) -> Content {
    Content::Memory(Box::new(recording))
}

fn ended(recording: &Recording) -> SystemTime {
    let meta = &recording.meta;
    let since = Duration::from_millis(meta.start_unix_ms).saturating_add(Duration::from_nanos(meta.duration_ns));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or_else(SystemTime::now)
}

/// Bytes that a recording takes in memory, for the most part.
fn size(recording: &Recording) -> u64 {
    let texts = |texts: [Option<&str>; 3]| texts.into_iter().flatten().map(|text| 8 + text.len()).sum::<usize>();
    let functions = recording.functions.iter().map(|function| {
        size_of::<Function>()
            + texts([Some(&function.name), function.linkage_name.as_deref(), function.file.as_deref()])
    });
    let frames = recording.frames.iter().map(|frame| size_of::<Frame>() + frame.lines.len() * size_of::<Line>());
    let labels = recording.label_sets.iter().flatten().map(|(name, value)| 64 + texts([Some(name), Some(value), None]));
    let samples = recording.threads.iter().map(|thread| 128 + thread.samples.iter().count() * size_of::<Sample>());
    let sites = recording
        .stores
        .iter()
        .map(|store| 256 + store.heap.as_ref().map_or(0, |heap| heap.sites.len() * size_of::<HeapSite>()));
    let tables = functions.chain(frames).chain(labels).chain(samples).chain(sites).sum::<usize>();
    (tables + recording.stacks.len() * size_of::<Stack>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use wlprof_recording::example;

    fn resource(instance: &str) -> Arc<Resource> {
        let mut resource = Resource::default();
        resource.set("service.name", "shop");
        resource.set("service.instance.id", instance);
        Arc::new(resource)
    }

    /// A window that ended so many seconds ago.
    fn window(seconds: u64) -> Recording {
        let mut recording = example();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        recording.meta.duration_ns = 0;
        recording.meta.start_unix_ms = (now - Duration::from_secs(seconds)).as_millis() as u64;
        recording
    }

    #[test]
    fn the_oldest_windows_make_room() {
        let each = size(&window(1));
        let mut queue = Queue::in_memory(3 * each);
        (0..5).for_each(|number| assert_eq!(queue.push(&resource("a"), window(5 - number)), None));
        assert_eq!((queue.counts.queued, queue.counts.queued_bytes), (3, 3 * each));
        assert_eq!(queue.counts.dropped[&DropReason::QueueFull], 2);
        let oldest = queue.pop().unwrap();
        assert!(oldest.ended.elapsed().unwrap() < Duration::from_secs(4));
        queue.settle(oldest, Ok(()));
        assert_eq!((queue.counts.queued, queue.counts.delivered), (2, 1));
        queue.end();
        assert_eq!(
            (queue.counts.dropped[&DropReason::Ended], queue.counts.queued, queue.counts.queued_bytes),
            (2, 0, 0)
        );
    }

    #[test]
    fn windows_are_too_old_after_an_hour() {
        let mut queue = Queue::in_memory(u64::MAX);
        queue.push(&resource("a"), window(3600));
        queue.push(&resource("a"), window(60));
        assert_eq!([queue.pop(), queue.pop()].map(|window| window.unwrap().is_too_old()), [true, false]);
    }

    #[test]
    fn files_wait_for_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Queue::in_folder(folder.path(), 1 << 30).unwrap();
        (0..3).for_each(|number| assert_eq!(first.push(&resource("first"), window(number)), None));
        // While it runs they are its own.
        assert_eq!(Queue::in_folder(folder.path(), 1 << 30).unwrap().counts.queued, 0);
        let one = first.pop().unwrap();
        assert_eq!(one.read().unwrap().functions, example().functions);
        first.settle(one, Ok(()));
        drop(first);
        let mut second = Queue::in_folder(folder.path(), 1 << 30).unwrap();
        assert_eq!(second.counts.queued, 2);
        while let Some(window) = second.pop() {
            assert_eq!(window.resource.get("service.instance.id"), Some("first"));
            second.settle(window, Ok(()));
        }
        drop(second);
        let third = Queue::in_folder(folder.path(), 1 << 30).unwrap();
        assert_eq!(third.counts.queued, 0);
        drop(third);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "empty folders go");
    }

    #[test]
    fn what_is_no_window_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut queue = Queue::in_folder(folder.path(), 1 << 30).unwrap();
        queue.push(&resource("one"), window(0));
        drop(queue);
        let own = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        fs::write(own.join("00000000000001-000001.wlprof"), "not a recording").unwrap();
        fs::write(own.join("notes.txt"), "not a window").unwrap();
        fs::write(folder.path().join("stray"), "").unwrap();
        let mut queue = Queue::in_folder(folder.path(), 1 << 30).unwrap();
        assert_eq!(queue.counts.queued, 2);
        let broken = queue.pop().unwrap();
        assert!(broken.read().is_err());
        queue.settle(broken, Err(DropReason::Unreadable));
        assert!(queue.pop().unwrap().read().is_ok());
        assert!(own.join("notes.txt").exists() && folder.path().join("stray").exists());
    }
}
