//! Closes a window again and again, and has it delivered.

use crate::backoff::chance;
use crate::counts::PushCounts;
use crate::push::{Push, Pusher};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wlprof_recording::{HeapGrowth, Recording};

/// How long the last windows may take, once a program ends.
pub const LAST_WINDOWS: Duration = Duration::from_secs(2);

/// How soon it is looked again whether there is something to sample.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// What is sampled, window after window.
///
/// ```
/// /// A program that does nothing.
/// struct Idle;
///
/// impl wlprof_push::Windows for Idle {
///     fn next(&mut self) -> std::io::Result<wlprof_recording::Recording> {
///         Err(std::io::Error::other("nothing is sampled"))
///     }
/// }
/// ```
pub trait Windows: Send {
    /// Begins the first window, or the next one after an error. `false` if there is nothing to sample yet: it is called again soon.
    fn begin(&mut self) -> bool {
        true
    }

    /// Returns what was sampled since it was called last, with names.
    ///
    /// # Errors
    /// Why there is nothing, now or any more.
    fn next(&mut self) -> io::Result<Recording>;
}

/// Windows that are pushed, until this is ended or dropped. Then the last one is, within two seconds.
///
/// ```no_run
/// # fn push(windows: impl wlprof_push::Windows + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let pushing = wlprof_push::Push::to("pyroscope://localhost")?.windows(windows)?;
/// // The program runs.
/// println!("{} windows delivered", pushing.end().delivered);
/// # Ok(())
/// # }
/// ```
pub struct Pushing {
    pusher: Arc<Mutex<Option<Arc<Pusher>>>>,
    /// Ends the thread that closes windows, and hears when that has ended.
    closer: Option<(Sender<()>, Receiver<()>)>,
}

impl Push {
    /// Begins to push `windows`. They are closed on a thread of its own.
    ///
    /// # Errors
    /// As of [`Push::start`].
    pub fn windows(self, mut windows: impl Windows + 'static) -> io::Result<Pushing> {
        if self.is_disabled() {
            return Ok(Pushing { pusher: Arc::default(), closer: None });
        }
        let (every, view, mut resource) = (self.every, self.view, self.resource.clone());
        if resource.get("service.name").is_none() {
            // As the conventions have it.
            let program = resource.get("process.executable.name").unwrap_or("wlprof");
            let name = format!("unknown_service:{program}");
            resource.set("service.name", &name);
        }
        let resource = Arc::new(resource);
        let pusher = Arc::new(Mutex::new(Some(Arc::new(self.start()?))));
        let ((end, ended), (over, is_over)) = (channel::<()>(), channel::<()>());
        let shared = pusher.clone();
        let close = move || {
            // It is dropped with this thread, whatever ends it.
            let _over = over;
            let is_over_within = |time: Duration| ended.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
            let mut growth = HeapGrowth::default();
            // Programs that were started together do not push together.
            let mut length = every.mul_f64(0.1 + 0.9 * chance());
            loop {
                let mut look = FIRST_LOOK;
                while !windows.begin() {
                    if is_over_within(look) {
                        return;
                    }
                    look = (2 * look).min(LONGEST_LOOK);
                }
                let is_over = is_over_within(length);
                // There is none after the last guest.
                if let Ok(window) = windows.next() {
                    let window = growth.take(window).view(view);
                    let pusher = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    if let Some(pusher) = pusher {
                        pusher.push(&resource, window);
                    }
                }
                if is_over {
                    break;
                }
                length = every.mul_f64(0.9 + 0.2 * chance());
            }
        };
        std::thread::Builder::new().name("wlprof windows".into()).spawn(close)?;
        Ok(Pushing { pusher, closer: Some((end, is_over)) })
    }
}

impl Pushing {
    /// Returns what has become of windows so far.
    pub fn counts(&self) -> PushCounts {
        self.counter()()
    }

    /// Returns a function for [`Pushing::counts`] while windows are pushed.
    pub fn counter(&self) -> impl Fn() -> PushCounts + Send + Sync + 'static {
        let pusher = self.pusher.clone();
        move || {
            let pusher = pusher.lock().unwrap_or_else(PoisonError::into_inner).clone();
            pusher.map_or_else(PushCounts::default, |pusher| pusher.counts())
        }
    }

    /// Closes the last window and sends what there is, within two seconds. Returns what has become of all windows.
    pub fn end(mut self) -> PushCounts {
        self.stop().unwrap_or_default()
    }

    fn stop(&mut self) -> Option<PushCounts> {
        let (end, is_over) = self.closer.take()?;
        let begun = Instant::now();
        // If it does not hear of it, it has ended. If it takes too long, the last window is lost.
        let _ = end.send(());
        let _ = is_over.recv_timeout(LAST_WINDOWS);
        let pusher = self.pusher.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(pusher.end(LAST_WINDOWS.saturating_sub(begun.elapsed())))
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        self.stop();
    }
}
