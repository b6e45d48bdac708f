//! The signal sampler: timers signal the guest's thread, and the handler reads the stopped guest in place.
//!
//! ```text
//! a thread's own timers ──► handler on that thread ──ring──► drain, one for all ──► recorder
//! ```
//!
//! # Accuracy
//! A timer hits whatever instruction is running; up to the rate of the kernel's ticks it does so at these. Every stack is walked
//! from the registers or from where wasm called the host, and a chain that does not hold is labelled, not guessed. What a sample
//! stands for: [`timing`](super::super::timing).
//!
//! # Overhead
//! Nothing in the guest's code. See [`calibrate`] and [`timing`](super::super::timing) for what a signal costs and how that is bounded.
//!
//! # Security
//! The handler reads a frame only if compiled code returns to it: [`reading`](super::super::reading).

mod calibrate;
mod handler;
mod previous;

use crate::sampler::configure::configure;
use crate::sampler::options::SamplerOptions;
use crate::sampler::os::own_thread;
use crate::sampler::os::thread_watch::{ThreadWatch, own_tid};
use crate::sampler::reading::Probe;
use crate::sampler::running::{ThreadSlot, Transport};
use crate::sampler::timing::{Pace, Timers};
use std::io;
use std::sync::{Arc, OnceLock};
use wasmtime::{Config, Engine, error::Context as _};

/// Tries what the sampler relies on: Wasmtime's internals, and looking at a thread from outside.
///
/// # Errors
/// What does not work.
pub(in crate::sampler) fn check() -> wasmtime::Result<()> {
    let mut config = Config::new();
    configure(&mut config);
    Probe::new(&Engine::new(&config)?).context("the self-check of Wasmtime's internals failed")?;
    ThreadWatch::new(own_tid()).context("a thread cannot be watched through /proc")?;
    Pace::new().context("a thread has no timers here")?;
    Ok(())
}

/// What interrupts threads so.
///
/// # Errors
/// None here.
pub(in crate::sampler) fn transport(options: &SamplerOptions) -> wasmtime::Result<Box<dyn Transport>> {
    Ok(Box::new(SignalTransport { options: options.clone(), interrupt_ns: OnceLock::new() }))
}

/// Interrupts threads by signals of their own timers.
struct SignalTransport {
    options: SamplerOptions,
    /// What a signal costs.
    interrupt_ns: OnceLock<u64>,
}

impl Transport for SignalTransport {
    fn take_up(&self) -> io::Result<Arc<ThreadSlot>> {
        handler::install()?;
        // Gives this thread Wasmtime's large alternate signal stack: a sample taken before the first wasm call would run on
        // Rust's, and overflow it.
        Engine::tls_eager_initialize();
        let slot = Arc::new(ThreadSlot::new(Some(Timers::new(self.options.clock)?), None)?);
        own_thread::unblock_signal()?;
        slot.make_own();
        if let Some(timers) = &slot.timers {
            let interrupt_ns = *self.interrupt_ns.get_or_init(|| calibrate::interrupt_cost_ns(timers));
            timers.start(&self.options, interrupt_ns);
        }
        Ok(slot)
    }

    fn interrupt_ns(&self) -> u64 {
        self.interrupt_ns.get().copied().unwrap_or(0)
    }
}
