//! Turns of guests: at checks compiled into their code they let others run, as under `wasmtime serve`, and end in a trap once
//! `-W timeout` is over.
//!
//! Whoever yields leaves the thread: it is sampled there no more, and its time ends, until it goes on there or on another thread.
//!
//! # Overhead
//! Guests have checks compiled into them with `-W timeout`, as those of `wasmtime serve -W timeout` have, and with the epoch
//! sampler. Others run until they wait for something.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wasmtime::{Engine, Store, Trap, UpdateDeadline};
use wlprof::profiler::StoreHandle;

/// How often guests come to their checks, at least: a turn, unless a guest waits before.
const TURN: Duration = Duration::from_millis(10);
/// The shortest time between two checks that look whether a guest's time is over: each wakes a thread.
const MIN_TURN: Duration = Duration::from_millis(1);
/// Checks that come sooner, as they do for the epoch sampler, end no turn.
const MIN_YIELD: Duration = Duration::from_millis(5);

/// Has guests of `engine` come to their checks in time for turns and for such a limit, as long as the engine is there.
///
/// # Errors
/// If no thread can be started.
pub(super) fn begin(engine: &Engine, limit: Option<Duration>) -> io::Result<()> {
    let (engine, turn) = (engine.weak(), limit.unwrap_or(TURN).clamp(MIN_TURN, TURN));
    let advance = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(turn);
        }
    };
    std::thread::Builder::new().name("wlprof epochs".into()).spawn(advance).map(drop)
}

/// Has the guest of `store`, whose code has checks, yield to others after each turn, and end in a trap at its `deadline`.
pub(super) fn take_turns<T: 'static>(store: &mut Store<T>, attached: Option<StoreHandle>, deadline: Option<Deadline>) {
    let since = Arc::new(Mutex::new(Instant::now()));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        // Before it yields: whoever samples at checks does it here.
        attached.iter().for_each(StoreHandle::reaches_check);
        if deadline.as_ref().is_some_and(Deadline::is_over) {
            return Err(Trap::Interrupt.into());
        }
        if locked(&since).elapsed() < MIN_YIELD {
            return Ok(UpdateDeadline::Continue(1));
        }
        let (attached, since) = (attached.clone(), since.clone());
        let others_run = async move {
            attached.iter().for_each(StoreHandle::suspends);
            // Those that wait for the network come before it.
            tokio::task::yield_now().await;
            *locked(&since) = Instant::now();
        };
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(others_run)))
    });
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
        *locked(&self.until) = until;
        until.unwrap_or(now + NEVER)
    }

    fn is_over(&self) -> bool {
        locked(&self.until).is_some_and(|until| Instant::now() >= until)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
