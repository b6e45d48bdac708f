//! `--listen`: shows the guest while it runs, to `go tool pprof`, browsers and what gathers metrics.
//!
//! Every answer is a window of the run, begun when it is asked for: the guest is sampled while anybody waits for one, once for all
//! of them, and runs unsampled otherwise.
//!
//! # Overhead
//! While nobody asks, what the call hook does at each host call: some nanoseconds. While somebody does, that of a profile at the
//! same rate, and the process that makes the answer, on another processor if there is one.
//!
//! # Security
//! Profiles are made by another process with limits, as those of a run are ([`super::finish`], which says where not); stacks of one moment
//! are named in this one, as `wlprof dump` does. What comes from the guest is escaped. Only this machine can ask, unless the user gives an
//! address that others can reach; whoever can ask sees the guest's arguments, its names, lines and stacks, and the texts of sources in
//! folders of `--source-dir`.

mod metrics;
mod pages;
mod stacks;
mod state;
mod windows;

use super::failure::{FAILED, Failure};
use super::http::{ListenAddress, Server};
use super::live_guest::LiveGuest;
use super::pushing::PushCounter;
use super::say;
use super::window_profiles::GuestView;
use state::State;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long answers that are due when the guest ends may take.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// A server that runs.
pub(super) struct Live {
    server: Server,
    is_over: watch::Sender<bool>,
}

/// Begins to listen. Nobody is answered before the guest runs.
pub(super) fn listen(address: ListenAddress) -> Result<TcpListener, Failure> {
    address.bind().map_err(|message| Failure::new(FAILED, format!("--listen: {message}")))
}

impl Live {
    /// Shows a guest that has been started with `command`, at `listener`.
    pub(super) fn start(
        listener: TcpListener,
        guest: Arc<dyn LiveGuest>,
        command: Vec<String>,
        shown: GuestView,
        pushed: Option<PushCounter>,
        is_quiet: bool,
    ) -> Result<Self, Failure> {
        let (over, is_over) = watch::channel(false);
        let state = State::new(guest, command, shown, pushed, is_over);
        let server = Server::start(listener, pages::router(Arc::new(state)), &pages::contents());
        let server = server.map_err(|error| Failure::new(FAILED, format!("--listen: {error}")))?;
        if !is_quiet {
            say::line(format_args!("listening at http://{}/", server.address()));
        }
        Ok(Self { server, is_over: over })
    }

    /// The guest has ended: whoever waits is given what there is, and nobody is answered any more.
    pub(super) fn end(self) {
        // Nobody listens to it if nobody waits.
        let _ = self.is_over.send(true);
        self.server.stop_within(LAST_ANSWERS);
    }
}
