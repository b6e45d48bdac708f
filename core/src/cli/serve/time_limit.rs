//! `-W timeout` of a server: how long a request may take, and what its guest does when that has answered.
//!
//! A guest that waits is given up where it waits. One that runs comes to a check in its code, and ends there in a trap. It is not made to let
//! others run at such checks, as under `wasmtime serve`: Wasmtime tells nobody of that, and samples have to be of whoever runs.
//!
//! # Overhead
//! Guests have checks compiled into them, as those of `wasmtime serve -W timeout` have.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wasmtime::{Engine, Store, Trap, UpdateDeadline};

/// The longest time between two checks that look whether it is over.
const MAX_TURN: Duration = Duration::from_millis(50);
/// The shortest: each wakes a thread.
const MIN_TURN: Duration = Duration::from_millis(1);

/// Has guests of `engine` come to their checks in time for such a limit, as long as the engine is there.
///
/// # Errors
/// If no thread can be started.
pub(super) fn begin(engine: &Engine, limit: Duration) -> io::Result<()> {
    let (engine, turn) = (engine.weak(), limit.clamp(MIN_TURN, MAX_TURN));
    let advance = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(turn);
        }
    };
    std::thread::Builder::new().name("wlprof epochs".into()).spawn(advance).map(drop)
}

/// When the guest of a store has to be done.
#[derive(Clone)]
pub(super) struct Deadline {
    limit: Duration,
    /// `None` for never: in more years than there are.
    until: Arc<Mutex<Option<Instant>>>,
}

impl Deadline {
    /// In so much time from now.
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, until: Arc::new(Mutex::new(Instant::now().checked_add(limit))) }
    }

    /// Begins anew: a request has come. Gives when it is over.
    pub(super) fn begin_anew(&self) -> Instant {
        const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        let now = Instant::now();
        let until = now.checked_add(self.limit);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        until.unwrap_or(now + NEVER)
    }

    /// Has the guest of `store`, whose code has checks, end in a trap when it is over.
    pub(super) fn end_guest_of<T: 'static>(&self, store: &mut Store<T>) {
        let until = self.until.clone();
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(move |_| {
            let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
            match until.is_some_and(|until| Instant::now() >= until) {
                true => Err(Trap::Interrupt.into()),
                false => Ok(UpdateDeadline::Continue(1)),
            }
        });
    }
}
