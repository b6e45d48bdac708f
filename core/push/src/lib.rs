//! Delivers windows of profiles to the engines that store and query them: Pyroscope, Parca, and OpenTelemetry collectors.
//!
//! ```no_run
//! # fn push(windows: impl wlprof_push::Windows + 'static) -> Result<(), Box<dyn std::error::Error>> {
//! let pushing = wlprof_push::Push::to("pyroscope://localhost:4040")?.service("shop").windows(windows)?;
//! // The program runs, and a window is pushed every 15 s.
//! pushing.end();
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here makes a guest wait. A window that is closed goes into a queue with a bound, and one thread sends it until its server has it.
#![forbid(unsafe_code)]

mod answer;
mod backoff;
mod client;
mod counts;
mod delivery;
mod environment;
mod headers;
mod messages;
mod push;
mod queue;
mod queue_folder;
mod request;
mod resource;
mod target;
mod windows;

pub use backoff::chance;
pub use counts::{DropReason, PushCounts};
pub use environment::is_disabled;
pub use push::{Push, Pusher};
pub use resource::{AttributesError, Resource};
pub use target::{Protocol, Target};
pub use windows::{LAST_WINDOWS, Pushing, Windows};
