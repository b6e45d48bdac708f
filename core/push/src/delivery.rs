//! Delivers windows: one thread, which takes them from the queue one after the other and sends each until its server has it.

use crate::answer::{Answer, Verdict};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::counts::{DropReason, PushCounts};
use crate::queue::{Queue, QueuedWindow, began};
use crate::queue_folder::QueueFolder;
use crate::request::Request;
use crate::resource::Resource;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::sleep;
use wlprof_export::KeptLabels;
use wlprof_recording::Recording;

/// Says something to the user.
pub(crate) type Say = Box<dyn Fn(&str) + Send + Sync>;

/// The longest pause that a server may ask for. After it a window is too old.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// How often a window is halved that a server finds too large. One that takes no such part takes none.
const MAX_HALVINGS: u32 = 7;

/// Answers that ask for another attempt, before a window stands back for others.
const MAX_ANSWERS: u32 = 5;

/// Attempts at the end: nobody is to wait for a server that is not there.
const MAX_LAST_ATTEMPTS: u32 = 2;

/// What the thread that delivers shares with those that have windows.
struct Shared {
    queue: Mutex<Queue>,
    /// Where windows are kept in files. Locked while one is written, and without the queue.
    folder: Option<Mutex<QueueFolder>>,
    /// Rings when there is a window, or when it is to end.
    bell: Notify,
    /// When to be over, once that is wanted.
    end: Mutex<Option<Instant>>,
    /// The user has been warned that files cannot be written.
    has_said_full: AtomicBool,
    say: Say,
}

/// A thread that delivers windows, until it is ended or dropped.
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How windows are sent.
pub(crate) struct Sending {
    pub(crate) client: Client,
    pub(crate) kept: KeptLabels,
    /// How long a request may take.
    pub(crate) timeout: Duration,
}

impl Delivery {
    /// # Errors
    /// If there can be no such thread.
    pub(crate) fn start(sending: Sending, queue: Queue, folder: Option<QueueFolder>, say: Say) -> io::Result<Self> {
        let (queue, folder, bell) = (Mutex::new(queue), folder.map(Mutex::new), Notify::new());
        let has_said_full = AtomicBool::new(false);
        let shared = Arc::new(Shared { queue, folder, bell, end: Mutex::default(), has_said_full, say });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            // It stays: where no thread can be started any more, looking up a name would panic.
            .thread_keep_alive(Duration::MAX)
            .thread_name("wlprof push name")
            .build()?;
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("wlprof push".into()).spawn(move || {
            let mut worker =
                Worker { shared: own, sending, backoff: Backoff::default(), is_failing: false, has_said_full: false };
            runtime.block_on(worker.run());
            // Does not wait for a name that is still looked up.
            runtime.shutdown_background();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a window. It never waits for a server.
    pub(crate) fn add(&self, resource: &Arc<Resource>, mut window: Recording) {
        if window.samples().next().is_none() && !window.has_heaps() {
            self.shared.queue().counts.empty += 1;
            return;
        }
        // No server is sent these, which may be secrets.
        window.meta.arguments.clear();
        window.meta.requests.clear();
        let window = self.shared.hold(resource, window);
        self.shared.queue().add(window);
        self.shared.bell.notify_one();
    }

    pub(crate) fn counts(&self) -> PushCounts {
        self.shared.queue().counts.clone()
    }

    /// Sends what there is, for so long at most, and returns what has become of all windows.
    pub(crate) fn end(&self, patience: Duration) -> PushCounts {
        self.stop(patience);
        self.counts()
    }

    fn stop(&self, patience: Duration) {
        if let Some(thread) = lock(&self.thread).take() {
            let now = Instant::now();
            *lock(&self.shared.end) = Some(now.checked_add(patience).unwrap_or(now));
            self.shared.bell.notify_one();
            // If it panicked, that has been said, and it has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    /// Puts a window where it waits: in a file, or in memory.
    fn hold(&self, resource: &Arc<Resource>, window: Recording) -> QueuedWindow {
        let Some(folder) = &self.folder else { return QueuedWindow::in_memory(resource.clone(), window) };
        match lock(folder).add(resource, &window, began(&window)) {
            Ok(file) => {
                self.has_said_full.store(false, Ordering::Relaxed);
                QueuedWindow::in_file(resource.clone(), file)
            }
            Err(error) => {
                if !self.has_said_full.swap(true, Ordering::Relaxed) {
                    (self.say)(&format!("windows wait in memory and not on disk: {error}"));
                }
                QueuedWindow::in_memory(resource.clone(), window)
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// How much time is left, once it is to end.
    fn left(&self) -> Option<Duration> {
        lock(&self.end).map(|end| end.saturating_duration_since(Instant::now()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of an attempt to deliver a window.
enum Outcome {
    Settled(Result<(), DropReason>),
    /// There was no time left for these parts; none if all of it is left.
    Unfinished(Vec<Recording>),
    /// The server does not take it now, and others wait.
    Later,
}

/// The thread.
struct Worker {
    shared: Arc<Shared>,
    sending: Sending,
    backoff: Backoff,
    /// Whether the last request failed, of which the user has been warned.
    is_failing: bool,
    has_said_full: bool,
}

impl Worker {
    async fn run(&mut self) {
        loop {
            if self.shared.left() == Some(Duration::ZERO) {
                break;
            }
            let next = self.shared.queue().pop();
            let Some(window) = next else {
                if self.shared.left().is_some() {
                    break;
                }
                self.shared.bell.notified().await;
                continue;
            };
            match self.deliver(&window).await {
                Outcome::Settled(outcome) => self.shared.queue().settle(window, outcome),
                Outcome::Later => self.shared.queue().put_behind(window),
                Outcome::Unfinished(rest) => {
                    let rest: Vec<_> = rest.into_iter().map(|part| self.shared.hold(&window.resource, part)).collect();
                    match rest.is_empty() {
                        true => self.shared.queue().put_back(window),
                        false => self.shared.queue().replace(window, rest),
                    }
                    break;
                }
            }
        }
        self.shared.queue().end();
    }

    /// Sends a window until its server has all of it.
    async fn deliver(&mut self, window: &QueuedWindow) -> Outcome {
        if window.is_too_old() {
            return Outcome::Settled(Err(DropReason::TooOld));
        }
        let whole = match window.read() {
            Ok(whole) => whole,
            Err(error) if [ErrorKind::InvalidData, ErrorKind::NotFound].contains(&error.kind()) => {
                return Outcome::Settled(Err(DropReason::Unreadable));
            }
            // This process may have too many files open.
            Err(error) => {
                self.fails(&format!("a window cannot be read yet: {error}"));
                let pause = self.backoff.next();
                self.pause(pause).await;
                return Outcome::Later;
            }
        };
        // Each with how often it was halved.
        let mut parts = VecDeque::from([(whole, 0)]);
        let mut outcome = Ok(());
        let mut is_whole = true;
        while let Some((part, halvings)) = parts.pop_front() {
            let protocol = self.sending.client.target().protocol();
            let sent = match Request::of(protocol, &window.resource, &part, &self.sending.kept) {
                Ok(request) => self.send(window, &request, is_whole).await,
                Err(_) => Sent::TooLarge("it has more rows than servers take".to_owned()),
            };
            if self.sending.kept.is_full() && !self.has_said_full {
                self.has_said_full = true;
                self.say("--push-labels has too many values: more are sent as [other]");
            }
            match sent {
                Sent::Delivered => {}
                Sent::TooLarge(why) => match split(&part).filter(|_| halvings < MAX_HALVINGS) {
                    Some([first, second]) => {
                        parts.push_front((second, halvings + 1));
                        parts.push_front((first, halvings + 1));
                    }
                    None => {
                        self.fails(&format!("the server finds a small part of a window too large: {why}"));
                        return Outcome::Settled(Err(DropReason::TooLarge));
                    }
                },
                Sent::Dropped(reason) => outcome = Err(reason),
                Sent::Later => return Outcome::Later,
                Sent::Unfinished if is_whole => return Outcome::Unfinished(Vec::new()),
                Sent::Unfinished => {
                    parts.push_front((part, halvings));
                    return Outcome::Unfinished(parts.into_iter().map(|(part, _)| part).collect());
                }
            }
            is_whole = false;
        }
        Outcome::Settled(outcome)
    }

    /// Sends a request until it is taken or refused, or until others that wait should be sent first, if it is a whole window.
    async fn send(&mut self, window: &QueuedWindow, request: &Request, is_whole: bool) -> Sent {
        let (mut last_attempts, mut answers) = (0, 0);
        loop {
            let left = self.shared.left();
            last_attempts += u32::from(left.is_some());
            if left == Some(Duration::ZERO) || last_attempts > MAX_LAST_ATTEMPTS {
                return Sent::Unfinished;
            }
            self.shared.queue().counts.sent_bytes += request.body.len() as u64;
            let verdict = match self.answer(request).await {
                Ok(answer) => {
                    answers += 1;
                    answer.verdict(self.sending.client.target().protocol())
                }
                Err(why) => Verdict::Retry(why, None),
            };
            match verdict {
                Verdict::Delivered(partly) => {
                    self.backoff = Backoff::default();
                    if std::mem::take(&mut self.is_failing) {
                        self.say("the server takes windows again");
                    }
                    if let Some(partly) = partly {
                        self.say(&partly);
                    }
                    return Sent::Delivered;
                }
                Verdict::TooLarge(why) => return Sent::TooLarge(why),
                Verdict::Refused(why) => {
                    self.fails(&format!("the server refuses a window: {why}"));
                    return Sent::Dropped(DropReason::Refused);
                }
                Verdict::NotAllowed(why) => {
                    self.fails(&format!("the server takes no windows there, or not from here: {why}"));
                    // It may be so for a moment, in which not all that waits is to be lost.
                    let pause = self.backoff.next();
                    self.pause(pause).await;
                    return Sent::Dropped(DropReason::NotAllowed);
                }
                Verdict::Retry(why, after) => {
                    self.shared.queue().counts.failed_requests += 1;
                    self.fails(&format!("a window is not delivered yet: {why}"));
                    // The server's own wish comes first, unless it is for less.
                    let pause = self.backoff.next().max(after.unwrap_or_default().min(MAX_PAUSE));
                    self.pause(pause).await;
                    if window.is_too_old() {
                        return Sent::Dropped(DropReason::TooOld);
                    }
                    // It may be this one that the server does not bear.
                    if is_whole && answers >= MAX_ANSWERS && !self.shared.queue().is_empty() {
                        return Sent::Later;
                    }
                }
            }
        }
    }

    /// Sends `request` and waits for the answer, but not beyond the end.
    async fn answer(&self, request: &Request) -> Result<Answer, String> {
        let begun = Instant::now();
        let mut sending = pin!(self.sending.client.send(request));
        loop {
            let left = self.sending.timeout.saturating_sub(begun.elapsed());
            let left = left.min(self.shared.left().unwrap_or(Duration::MAX));
            tokio::select! {
                answer = &mut sending => return answer,
                () = sleep(left) => return Err(format!("no answer within {:.1?}", begun.elapsed())),
                // It may be to end.
                () = self.shared.bell.notified() => {}
            }
        }
    }

    /// Waits so long, or until there is little time left.
    async fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            let pause = until.saturating_duration_since(Instant::now());
            match self.shared.left() {
                // At the end there is time for some attempts, whatever the pause.
                Some(left) => return sleep(pause.min(left).min(Duration::from_millis(300))).await,
                None if pause.is_zero() => return,
                // New windows ring as well.
                None => tokio::select! { () = sleep(pause) => return, () = self.shared.bell.notified() => {} },
            }
        }
    }

    /// Says that requests fail, once until one does not.
    fn fails(&mut self, what: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            self.say(what);
        }
    }

    fn say(&self, what: &str) {
        (self.shared.say)(&format!("{}: {what}", self.sending.client.target()));
    }
}

/// Splits what a server finds too large. What is too large of it may be its time or its heaps.
fn split(part: &Recording) -> Option<[Recording; 2]> {
    part.time_and_heaps().or_else(|| part.halves())
}

/// What came of sending a request.
enum Sent {
    Delivered,
    TooLarge(String),
    Later,
    Dropped(DropReason),
    Unfinished,
}
