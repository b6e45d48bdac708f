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
mod windows;

use super::http::{ListenAddress, Server};
use super::window_profiles::{Shown, WindowProfiles};
use super::{FAILED, Failure, say};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use wlprof::profiler::Profiler;
use wlprof_module::ModuleImage;
use wlprof_symbols::Symbols;

/// Answers that are made at a time: each takes a processor and the memory of a profile.
const MAKERS: usize = 2;
/// Windows that are open at a time. Some connections are left for what is answered at once.
const WINDOWS: usize = 48;

/// How long answers that are due when the guest ends may take.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// What answers are made of.
struct State {
    profiler: Profiler,
    /// The guest's name and its arguments.
    command: Vec<String>,
    profiles: WindowProfiles,
    images: Vec<Arc<ModuleImage>>,
    /// Made when stacks are first asked for.
    symbols: Mutex<Option<Symbols>>,
    windows: Arc<Semaphore>,
    /// For what reads the guest: one at a time.
    readers: Arc<Semaphore>,
    /// For what only counts.
    counters: Arc<Semaphore>,
    makers: Arc<Semaphore>,
    /// What the guest allocates is profiled.
    profiles_memory: bool,
    /// Turns true when the guest has ended.
    is_over: watch::Receiver<bool>,
}

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
        profiler: Profiler,
        command: Vec<String>,
        shown: Shown,
        is_quiet: bool,
    ) -> Result<Self, Failure> {
        let (over, is_over) = watch::channel(false);
        let state = State {
            images: shown.images.clone(),
            profiles_memory: shown.profiles_memory,
            profiles: WindowProfiles::new(shown),
            profiler,
            command,
            symbols: Mutex::new(None),
            windows: Arc::new(Semaphore::new(WINDOWS)),
            readers: Arc::new(Semaphore::new(1)),
            counters: Arc::new(Semaphore::new(1)),
            makers: Arc::new(Semaphore::new(MAKERS)),
            is_over,
        };
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
