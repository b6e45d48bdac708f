//! Takes pictures of a guest that runs: windows of its run, named in a process of their own.

use crate::live_guest::{LiveGuest, LiveWindow};
use crate::output::Target;
use crate::window_profiles::{WindowOutput, WindowProfiles};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wlprof::sampler::Activity;
use wlprof_export::{EXPORTERS, Exporter};
use wlprof_recording::{Clock, Recording, View, file};

/// What is "now".
const RECENT: Duration = Duration::from_secs(5);
/// How often there is a picture, at most.
const PERIOD: Duration = Duration::from_secs(1);
/// How long is waited between two of them, in times of what one takes: it is to leave the guest the machine.
const REST: u32 = 4;
/// How soon the guest's beginning is looked for again.
const BEGINNING: Duration = Duration::from_millis(5);

/// What the viewer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Pictures of the whole run, or of its last seconds.
    Whole(bool),
    /// No more pictures, or pictures again.
    Freeze(bool),
    /// A profile of the whole run.
    Write,
    /// The guest has ended.
    Ended,
}

/// What the viewer is told.
pub(super) enum News {
    Picture(Box<Picture>),
    /// A line for the user.
    Said(String),
    /// How the guest has ended.
    Ended(String),
    /// There is nobody to look at pictures any more.
    Quit,
}

/// A guest at a moment.
pub(super) struct Picture {
    pub(super) recording: Recording,
    /// Whether it is of the whole run.
    pub(super) is_whole: bool,
    /// What the run has come to.
    pub(super) activity: Activity,
}

/// What takes them.
pub(super) struct Snapshots {
    pub(super) guest: Arc<dyn LiveGuest>,
    pub(super) profiles: WindowProfiles,
    pub(super) view: View,
    pub(super) clock: Clock,
    /// Where profiles are written to, and how.
    pub(super) output: PathBuf,
    pub(super) exporter: &'static dyn Exporter,
    pub(super) news: Sender<News>,
}

/// What is wanted.
#[derive(Default)]
struct Request {
    whole: bool,
    frozen: bool,
    ended: bool,
}

impl Snapshots {
    /// Takes pictures until there is nobody to order any.
    pub(super) fn run(self, orders: &Receiver<Order>) {
        let mut early = VecDeque::new();
        let Some(whole) = self.begin(orders, &mut early) else {
            // Of such a guest there is nothing to see.
            orders
                .iter()
                .filter(|order| *order == Order::Write)
                .for_each(|_| self.tell(News::Said("there are no samples to write".to_owned())));
            return;
        };
        let mut recent = VecDeque::new();
        let mut last = None;
        let mut memory_bytes = 0;
        let mut wanted = Request::default();
        let mut next = Instant::now() + PERIOD;
        loop {
            let order = match early.pop_front() {
                Some(order) => Ok(order),
                None if wanted.frozen || wanted.ended => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => orders.recv_timeout(next.saturating_duration_since(Instant::now())),
            };
            match order {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Write) => {
                    let of = last.clone().map_or_else(|| whole.unnamed(), |(last, _)| Ok(last));
                    let written = of.map_err(|error| error.to_string()).and_then(|recording| self.write(&recording));
                    self.tell(News::Said(written.unwrap_or_else(|error| error)));
                    continue;
                }
                Ok(Order::Freeze(frozen)) => {
                    wanted.frozen = frozen && !wanted.ended;
                    // What goes by meanwhile is not of the last seconds when it goes on.
                    recent.clear();
                }
                Ok(Order::Whole(is_whole)) => wanted.whole = is_whole,
                Ok(Order::Ended) => {
                    // From here on time goes by in which there is no guest.
                    // The store may have gone with its memory.
                    let activity = self.guest.activity();
                    let activity = Activity { memory_bytes: activity.memory_bytes.max(memory_bytes), ..activity };
                    last = whole.unnamed().ok().map(|recording| (recording, activity));
                    wanted = Request { ended: true, whole: true, frozen: false };
                    recent.clear();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if wanted.frozen && order.is_ok() {
                continue;
            }
            let began = Instant::now();
            let seen = match &last {
                Some(last) => Ok(last.clone()),
                None => {
                    let activity = self.guest.activity();
                    memory_bytes = activity.memory_bytes;
                    self.recording(&*whole, &mut recent, wanted.whole).map(|recording| (recording, activity))
                }
            };
            match seen.and_then(|(recording, activity)| self.picture(&recording, activity, wanted.whole)) {
                Ok(picture) => self.tell(News::Picture(Box::new(picture))),
                Err(error) => self.tell(News::Said(format!("no picture: {error}"))),
            }
            next = began + PERIOD.max(began.elapsed() * REST);
        }
    }

    /// The window of the whole run, once that has begun, and the orders that came before.
    fn begin(&self, orders: &Receiver<Order>, early: &mut VecDeque<Order>) -> Option<Box<dyn LiveWindow>> {
        loop {
            // It may begin while it refuses a window because it has not.
            let had_begun = self.guest.has_begun();
            match self.guest.window_of(self.clock) {
                Ok(window) => return Some(window),
                Err(_) if !had_begun => match orders.recv_timeout(BEGINNING) {
                    Ok(Order::Ended) => return None,
                    Ok(order) => early.push_back(order),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return None,
                },
                Err(reason) => {
                    self.tell(News::Said(reason));
                    return None;
                }
            }
        }
    }

    fn recording(
        &self,
        whole: &dyn LiveWindow,
        recent: &mut VecDeque<Box<dyn LiveWindow>>,
        is_whole: bool,
    ) -> io::Result<Vec<u8>> {
        let window = self.guest.window_of(self.clock).map_err(io::Error::other)?;
        recent.push_back(window);
        while recent.get(1).is_some_and(|second| second.elapsed() >= RECENT) {
            recent.pop_front();
        }
        // One that has just begun has nothing in it.
        let has_begun = |window: &&dyn LiveWindow| window.elapsed() >= PERIOD;
        let recent = recent.front().map(|window| &**window).filter(has_begun).filter(|_| !is_whole);
        recent.unwrap_or(whole).unnamed()
    }

    fn picture(&self, recording: &[u8], activity: Activity, is_whole: bool) -> io::Result<Picture> {
        let exporter = EXPORTERS.iter().find(|exporter| exporter.is_recording()).ok_or(io::ErrorKind::Unsupported)?;
        let named = self.profiles.make(recording, &self.guest.images(), &WindowOutput::File(*exporter), None)?;
        let recording = file::read(&named).map_err(io::Error::other)?.view(self.view);
        Ok(Picture { recording, is_whole, activity })
    }

    /// Writes a profile, and gives a line for the user.
    fn write(&self, recording: &[u8]) -> Result<String, String> {
        let profile = self.profiles.make(recording, &self.guest.images(), &WindowOutput::File(self.exporter), None);
        let profile = profile.map_err(|error| error.to_string())?;
        let target = Target::open(&self.output, self.exporter).map_err(|failure| failure.message)?;
        let written = target.destination().file.write_all(&profile);
        written.map_err(|error| format!("cannot write {}: {error}", self.output.display()))?;
        target.put_in_place().map_err(|failure| failure.message)
    }

    fn tell(&self, news: News) {
        // Nobody listens when the user has seen enough.
        let _ = self.news.send(news);
    }
}
