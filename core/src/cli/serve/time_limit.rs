//! `-W timeout` of a server: how long a request may take, and what its guest does when that has answered.
//!
//! # Overhead
//! Guests have checks compiled into them, as those of `wasmtime serve -W timeout` have, at which they let others run.

use std::io;
use std::time::Duration;
use wasmtime::{Engine, Store};

/// The longest that a guest runs before others may.
const MAX_TURN: Duration = Duration::from_millis(50);
/// The shortest: an epoch is a wake-up of a thread.
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

/// Has the guest of `store` let others run when its turn is over, so that somebody can see that its time is.
pub(super) fn share_time<T: 'static>(store: &mut Store<T>) {
    store.epoch_deadline_async_yield_and_update(1);
    store.set_epoch_deadline(1);
}
