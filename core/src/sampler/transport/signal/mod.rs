//! The signal sampler: an event signals the guest's thread, and the handler reads the stopped guest in place.
//!
//! ```text
//! a thread's own event ──► handler on that thread ──ring──► drain, one for all ──► recorder
//! ```
//!
//! # Accuracy
//! An event happens at random instants of the thread's CPU time, whatever instruction is running. In the kernel it sends no signal: the call
//! hook finds such instants. Every stack is walked
//! from the registers or from where wasm called the host, and a chain that does not hold is labelled, not guessed. What a sample
//! stands for: [`timing`](super::super::timing).
//!
//! # Overhead
//! Nothing in the guest's code. See [`calibrate`] and [`timing`](super::super::timing) for what a signal costs and how that is bounded.
//!
//! # Security
//! The handler reads a frame only if compiled code returns to it: [`reading`](super::super::reading).

mod calibrate;
pub(in crate::sampler) mod handler;
mod previous;

use crate::sampler::configure::configure;
use crate::sampler::options::SamplerOptions;
use crate::sampler::os::cpu_event::CpuEvent;
use crate::sampler::os::own_thread;
use crate::sampler::os::thread_watch::{ThreadWatch, own_tid};
use crate::sampler::reading::Probe;
use crate::sampler::running::{ThreadSlot, Transport};
use crate::sampler::timing::{Interrupt, Timers};
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
    Ok(())
}

/// Whether events are refused here, so that another thread has to ask for samples: `kernel.perf_event_paranoid` is above 2, or a seccomp filter
/// forbids them.
pub(in crate::sampler) fn needs_ticker() -> bool {
    CpuEvent::new().is_err()
}

/// What interrupts threads so.
///
/// # Errors
/// None here.
pub(in crate::sampler) fn transport(options: &SamplerOptions, by_ticker: bool) -> wasmtime::Result<Box<dyn Transport>> {
    Ok(Box::new(SignalTransport { options: options.clone(), by_ticker, interrupt: OnceLock::new() }))
}

/// Interrupts threads by signals of their own events, a file each, or another thread's.
struct SignalTransport {
    options: SamplerOptions,
    by_ticker: bool,
    /// What a signal costs.
    interrupt: OnceLock<Interrupt>,
}

impl Transport for SignalTransport {
    fn take_up(&self) -> io::Result<Arc<ThreadSlot>> {
        handler::install()?;
        // Gives this thread Wasmtime's large alternate signal stack: a sample taken before the first wasm call would run on
        // Rust's, and overflow it.
        Engine::tls_eager_initialize();
        let event = if self.by_ticker { None } else { Some(CpuEvent::new()?) };
        let slot = Arc::new(ThreadSlot::new(Some(Timers::new(self.options.clock, event)), None)?);
        own_thread::unblock_signal()?;
        slot.make_own();
        if let Some(timers) = &slot.timers {
            let interrupt = *self.interrupt.get_or_init(|| calibrate::interrupt(timers));
            timers.start(&self.options, interrupt);
        }
        Ok(slot)
    }

    fn interrupt_ns(&self) -> u64 {
        self.interrupt.get().map_or(0, |interrupt| interrupt.cost_ns)
    }
}
