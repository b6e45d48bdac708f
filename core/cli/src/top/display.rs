//! What shows a guest that runs: a thread that takes pictures of it, and one that draws them and hears keys.

use super::keys::Viewer;
use super::screen::Heading;
use super::snapshots::{News, Order, Snapshots};
use super::terminal::Screen;
use crate::failure::{FAILED, Failure};
use crate::live_guest::LiveGuest;
use crate::window_profiles::{GuestView, WindowProfiles};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use wlprof_export::Exporter;
use wlprof_recording::Clock;

/// Ends the run for the reason given: a signal, or [`ENOUGH`](super::ENOUGH).
pub(super) type Quit = Arc<dyn Fn(i32) + Send + Sync>;

/// What is shown of a guest, and what the key w writes.
pub(super) struct Subject {
    pub(super) guest: Arc<dyn LiveGuest>,
    pub(super) heading: Heading,
    pub(super) clock: Clock,
    pub(super) shown: GuestView,
    pub(super) output: (PathBuf, &'static dyn Exporter),
}

/// A display that runs.
pub(super) struct Display {
    worker: JoinHandle<()>,
    viewer: JoinHandle<io::Result<()>>,
    orders: Sender<Order>,
    news: Sender<News>,
}

impl Display {
    /// Shows a guest on `screen` until the user has seen enough. Then `quit` is called, unless the guest has ended before.
    pub(super) fn start(subject: Subject, screen: Screen, quit: Quit) -> Result<Self, Failure> {
        let Subject { guest, heading, clock, shown, output: (output, exporter) } = subject;
        let view = shown.view;
        let (news, heard) = channel();
        let (orders, ordered) = channel();
        let profiles = WindowProfiles::new(shown);
        let snapshots = Snapshots { guest, profiles, view, clock, output, exporter, news: news.clone() };
        let worker = spawn("wlprof snapshots", move || snapshots.run(&ordered))?;
        let viewer = Viewer { heading, view, orders: orders.clone(), news: heard, quit: quit.clone() };
        // Without a screen nobody can end the run.
        let show = move || viewer.run(screen).inspect_err(|_| quit(super::ENOUGH));
        let viewer = spawn("wlprof screen", show)?;
        Ok(Self { worker, viewer, orders, news })
    }

    /// The guest has ended, in that way: the display stays until the user has seen enough.
    pub(super) fn guest_has_ended(&self, how: String) {
        // Both are there until the viewer has ended.
        let _ = self.news.send(News::Ended(how));
        let _ = self.orders.send(Order::Ended);
    }

    /// Ends the display.
    pub(super) fn quit(&self) {
        let _ = self.news.send(News::Quit);
    }

    /// Whether the screen has been given back.
    pub(super) fn is_over(&self) -> bool {
        self.viewer.is_finished()
    }

    /// Waits until the screen has been given back; `also` is done then, before what may take its time.
    ///
    /// # Errors
    /// If there was none any more.
    pub(super) fn end(self, also: impl FnOnce()) -> io::Result<()> {
        let shown = self.viewer.join().unwrap_or_else(|_| Err(io::Error::other("the screen failed")));
        drop(self.orders);
        also();
        // It panics only if what it does panics, which has been printed then.
        let _ = self.worker.join();
        shown
    }
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>, Failure> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(|error| Failure::new(FAILED, error))
}
