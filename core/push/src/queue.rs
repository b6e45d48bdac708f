//! Windows that wait for their server: in memory, or in files.

use crate::counts::{DropReason, PushCounts};
use crate::queue_folder::QueuedFile;
use crate::resource::Resource;
use std::collections::VecDeque;
use std::io;
use std::mem::size_of;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use wlprof_recording::{Frame, Function, HeapSite, HostCallSpan, Line, MemorySize, Recording, Sample, Stack};

/// How long ago a window may have begun: Pyroscope takes none of an hour ago.
const MAX_AGE: Duration = Duration::from_secs(55 * 60);

/// A window that waits.
pub(crate) struct QueuedWindow {
    pub(crate) resource: Arc<Resource>,
    content: Content,
    bytes: u64,
    /// When it began, by the clock of the system, as servers see it.
    began: SystemTime,
}

enum Content {
    Memory(Box<Recording>),
    File(QueuedFile),
}

impl QueuedWindow {
    /// A window in memory.
    pub(crate) fn in_memory(resource: Arc<Resource>, recording: Recording) -> Self {
        let (bytes, began) = (size(&recording), began(&recording));
        Self { resource, content: Content::Memory(Box::new(recording)), bytes, began }
    }

    /// A window in a file.
    pub(crate) fn in_file(resource: Arc<Resource>, file: QueuedFile) -> Self {
        let (bytes, began) = (file.bytes(), file.began());
        Self { resource, content: Content::File(file), bytes, began }
    }

    /// Returns whether no server will take it any more.
    pub(crate) fn is_too_old(&self) -> bool {
        // One of the future is as old as the clock was wrong.
        self.began.elapsed().is_ok_and(|age| age > MAX_AGE)
    }

    /// Returns what was sampled.
    ///
    /// # Errors
    /// Why it cannot be read: `InvalidData` if it is no window.
    pub(crate) fn read(&self) -> io::Result<Recording> {
        match &self.content {
            Content::Memory(recording) => Ok((**recording).clone()),
            Content::File(file) => file.read(),
        }
    }

    /// Removes its file, if it has one: nobody needs it any more.
    fn remove(self) {
        if let Content::File(file) = self.content {
            file.remove();
        }
    }
}

/// Windows in the order in which they came, as many as there is room for.
pub(crate) struct Queue {
    windows: VecDeque<QueuedWindow>,
    /// Those in files that the server does not take from this sender: with other credentials it may.
    not_allowed: VecDeque<QueuedWindow>,
    /// Bytes of these, for which there has to be room as well.
    not_allowed_bytes: u64,
    max_bytes: u64,
    pub(crate) counts: PushCounts,
}

impl Queue {
    /// A queue of so many bytes at most.
    pub(crate) fn new(max_bytes: u64) -> Self {
        let counts = PushCounts::default();
        Self { windows: VecDeque::new(), not_allowed: VecDeque::new(), not_allowed_bytes: 0, max_bytes, counts }
    }

    /// Adds a window, in the place of the oldest ones if there is no room.
    pub(crate) fn add(&mut self, window: QueuedWindow) {
        self.count(&window);
        self.windows.push_back(window);
        while self.counts.queued_bytes + self.not_allowed_bytes > self.max_bytes
            && let Some(oldest) = self.not_allowed.pop_front()
        {
            self.not_allowed_bytes -= oldest.bytes;
            oldest.remove();
        }
        while self.counts.queued_bytes > self.max_bytes
            && let Some(oldest) = self.pop()
        {
            self.settle(oldest, Err(DropReason::QueueFull));
        }
    }

    fn count(&mut self, window: &QueuedWindow) {
        self.counts.queued_bytes += window.bytes;
        self.counts.queued += 1;
    }

    fn discount(&mut self, window: &QueuedWindow) {
        self.counts.queued_bytes -= window.bytes;
        self.counts.queued -= 1;
    }

    /// Returns whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Takes the oldest one out. It counts as queued until it is settled or put back.
    pub(crate) fn pop(&mut self) -> Option<QueuedWindow> {
        self.windows.pop_front()
    }

    /// Puts one back that was taken out, before all others.
    pub(crate) fn put_back(&mut self, window: QueuedWindow) {
        self.windows.push_front(window);
    }

    /// Puts one back that was taken out, behind all others.
    pub(crate) fn put_behind(&mut self, window: QueuedWindow) {
        self.windows.push_back(window);
    }

    /// Puts what is left of a window that was taken out in its place.
    pub(crate) fn replace(&mut self, window: QueuedWindow, rest: Vec<QueuedWindow>) {
        self.discount(&window);
        window.remove();
        for part in rest.into_iter().rev() {
            self.count(&part);
            self.windows.push_front(part);
        }
    }

    /// Nothing more is done with a window that was taken out.
    pub(crate) fn settle(&mut self, window: QueuedWindow, outcome: Result<(), DropReason>) {
        self.discount(&window);
        match outcome {
            Ok(()) => self.counts.delivered += 1,
            Err(reason) => *self.counts.dropped.entry(reason).or_default() += 1,
        }
        match (outcome, &window.content) {
            (Err(DropReason::NotAllowed), Content::File(_)) => {
                self.not_allowed_bytes += window.bytes;
                self.not_allowed.push_back(window);
            }
            _ => window.remove(),
        }
    }

    /// Ends the queue. What is in files stays there for the next process; what is in memory is lost.
    pub(crate) fn end(&mut self) {
        self.not_allowed.clear();
        for window in std::mem::take(&mut self.windows) {
            if matches!(window.content, Content::Memory(_)) {
                self.settle(window, Err(DropReason::Ended));
            }
        }
    }
}

/// When a window began, as its recording says.
pub(crate) fn began(recording: &Recording) -> SystemTime {
    let since = Duration::from_millis(recording.meta.start_unix_ms);
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
    let calls = recording.threads.iter().map(|thread| thread.host_calls.len() * size_of::<HostCallSpan>());
    let sites = recording.stores.iter().map(|store| {
        let sites = store.heap.as_ref().map_or(0, |heap| heap.sites.len() * size_of::<HeapSite>());
        256 + sites + store.memory.len() * size_of::<MemorySize>()
    });
    let tables = functions.chain(frames).chain(labels).chain(samples).chain(calls).chain(sites).sum::<usize>();
    (tables + recording.stacks.len() * size_of::<Stack>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_folder::QueueFolder;
    use std::fs;
    use std::path::Path;
    use wlprof_recording::example;

    fn resource(instance: &str) -> Arc<Resource> {
        let mut resource = Resource::default();
        resource.set("service.name", "shop");
        resource.set("service.instance.id", instance);
        Arc::new(resource)
    }

    /// A window that began so many seconds ago.
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
        let mut queue = Queue::new(3 * each);
        (0..5).for_each(|number| queue.add(QueuedWindow::in_memory(resource("a"), window(5 - number))));
        assert_eq!((queue.counts.queued, queue.counts.queued_bytes), (3, 3 * each));
        assert_eq!(queue.counts.dropped[&DropReason::QueueFull], 2);
        let oldest = queue.pop().unwrap();
        assert!(oldest.began.elapsed().unwrap() < Duration::from_secs(4));
        queue.settle(oldest, Ok(()));
        assert_eq!((queue.counts.queued, queue.counts.delivered), (2, 1));
        queue.end();
        let PushCounts { queued, queued_bytes, dropped, .. } = &queue.counts;
        assert_eq!((dropped[&DropReason::Ended], *queued, *queued_bytes), (2, 0, 0));
    }

    #[test]
    fn windows_are_too_old_after_an_hour() {
        let is_too_old = |seconds| QueuedWindow::in_memory(resource("a"), window(seconds)).is_too_old();
        assert_eq!([3600, 60].map(is_too_old), [true, false]);
    }

    /// Adds a window to a folder, and to a queue.
    fn add(queue: &mut Queue, folder: &mut QueueFolder, resource: &Arc<Resource>, window: &Recording) {
        let file = folder.add(resource, window, began(window)).unwrap();
        queue.add(QueuedWindow::in_file(resource.clone(), file));
    }

    /// A queue of what processes have left in a folder.
    fn left_in(path: &Path) -> (Queue, QueueFolder) {
        let (mut queue, folder) = (Queue::new(1 << 30), QueueFolder::open(path).unwrap());
        folder.abandoned().into_iter().for_each(|window| queue.add(window));
        (queue, folder)
    }

    #[test]
    fn files_wait_for_the_next_process() {
        let place = tempfile::tempdir().unwrap();
        let (mut first, mut folder) = left_in(place.path());
        // It chooses no name of a folder.
        let own = resource("../first");
        (0..3).for_each(|number| add(&mut first, &mut folder, &own, &window(number)));
        // While it runs they are its own.
        assert!(left_in(place.path()).0.is_empty());
        let one = first.pop().unwrap();
        assert_eq!(one.read().unwrap().functions, example().functions);
        first.settle(one, Ok(()));
        // A part of the second one is delivered.
        let second = first.pop().unwrap();
        let part = folder.add(&own, &window(1), SystemTime::now()).unwrap();
        first.replace(second, vec![QueuedWindow::in_file(own.clone(), part)]);
        assert_eq!(first.counts.queued, 2);
        drop((first, folder));
        let (mut second, folder) = left_in(place.path());
        assert_eq!(second.counts.queued, 2);
        while let Some(window) = second.pop() {
            assert_eq!(window.resource.get("service.instance.id"), Some("../first"));
            second.settle(window, Ok(()));
        }
        drop((second, folder));
        assert!(left_in(place.path()).0.is_empty());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "empty folders go");
    }

    #[test]
    fn what_is_no_window_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let (mut queue, mut folder) = left_in(place.path());
        add(&mut queue, &mut folder, &resource("one"), &window(0));
        drop((queue, folder));
        let own = fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
        fs::write(own.join("00000000000001-000001.wlprof"), "not a recording").unwrap();
        fs::write(own.join("00000000000001-000002.unfinished"), "half").unwrap();
        fs::write(own.join("notes.txt"), "not a window").unwrap();
        fs::write(place.path().join("stray"), "").unwrap();
        let (mut queue, _folder) = left_in(place.path());
        assert_eq!(queue.counts.queued, 2);
        assert!(!own.join("00000000000001-000002.unfinished").exists());
        let broken = queue.pop().unwrap();
        assert!(broken.read().is_err());
        queue.settle(broken, Err(DropReason::Unreadable));
        assert!(queue.pop().unwrap().read().is_ok());
        assert!(own.join("notes.txt").exists() && place.path().join("stray").exists());
    }

    #[test]
    fn windows_that_are_not_allowed_are_left_where_there_is_room() {
        let place = tempfile::tempdir().unwrap();
        let (mut queue, mut folder) = left_in(place.path());
        let own = resource("one");
        add(&mut queue, &mut folder, &own, &window(9));
        queue.max_bytes = 3 * queue.counts.queued_bytes + 100;
        for number in 0..9 {
            let refused = queue.pop().unwrap();
            queue.settle(refused, Err(DropReason::NotAllowed));
            add(&mut queue, &mut folder, &own, &window(8 - number));
        }
        assert_eq!((queue.counts.queued, queue.counts.dropped[&DropReason::NotAllowed]), (1, 9));
        queue.end();
        drop((queue, folder));
        assert_eq!(left_in(place.path()).0.counts.queued, 3);
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_others_are_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().unwrap();
        let open_to_all = place.path().join("open");
        fs::create_dir(&open_to_all).unwrap();
        fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(QueueFolder::open(&open_to_all).is_err_and(|error| error.contains("nobody else")));
        let queue = place.path().join("queue");
        let mut folder = QueueFolder::open(&queue).unwrap();
        folder.add(&resource("one"), &window(0), SystemTime::now()).unwrap();
        drop(folder);
        let own = fs::read_dir(&queue).unwrap().next().unwrap().unwrap().path();
        // The user's own link is.
        let link = place.path().join("link");
        symlink(&queue, &link).unwrap();
        assert_eq!(left_in(&link).0.counts.queued, 1);
        fs::rename(&own, place.path().join("elsewhere")).unwrap();
        symlink(place.path().join("elsewhere"), &own).unwrap();
        assert!(left_in(&queue).0.is_empty(), "links are not followed");
    }
}
