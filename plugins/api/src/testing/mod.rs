//! A module and a stopped guest for tests of a plugin, built in the test or read from files. They take the place of wlprof.
//!
//! No released plugin needs them, so they are behind the feature `testing`:
//!
//! ```toml
//! [dev-dependencies]
//! wlprof-plugin = { path = "wlprof-plugin", features = ["testing"] }
//! ```
//!
//! A [`TestModule`] is the input of [`Language::detect`](crate::Language::detect) and [`Language::attach`](crate::Language::attach).
//! Walks read a [`Frozen`] guest, whose memory a test may fill with anything. A [`Snapshot`] has the part of a real guest's memory that
//! one walk needs, and is small enough to be kept in a file. [`check_walkers`] checks what [`Program::walker`](crate::Program::walker) promises.
//!
//! ```
//! use wlprof_plugin::GuestMemory;
//! use wlprof_plugin::ModuleView;
//! use wlprof_plugin::testing::{Frozen, TestModule};
//!
//! let module = TestModule { bodies: vec![2..9], names: [(0, "loop".to_owned())].into(), ..TestModule::default() };
//! assert_eq!(module.function_named("loop"), Some(0));
//!
//! let guest = Frozen { memory: vec![7; 64], globals: [(0, 48)].into(), ..Frozen::default() };
//! assert_eq!(guest.read_u8(guest.global(0).unwrap()), Ok(7));
//! assert!(guest.read_u32(61).is_err());
//! assert_eq!(guest.reads.get(), 2);
//! ```

mod binary;
mod guest;
mod module;
mod snapshot;
mod walkers;

pub use guest::Frozen;
pub use module::TestModule;
pub use snapshot::{ReplayedGuest, Snapshot};
pub use walkers::{Moment, check_walkers, check_walkers_are_cheap};
