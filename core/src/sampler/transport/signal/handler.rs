//! The signal handler: has the guest of an interrupted thread read. On threads that run no guest it does nothing but give signals
//! that are none of wlprof's to the handler that was there before.

use super::previous;
use crate::sampler::os::clock::own_cpu_ns;
use crate::sampler::os::cpu_event::CpuEvent;
use crate::sampler::os::own_thread::SIGNAL;
use crate::sampler::running::{Place, Snapshot, collect};
use crate::sampler::running::{StoreState, ThreadSlot};
use crate::sampler::timing::{Due, Timers, add};
use std::io;
use std::sync::OnceLock;
use wlprof_walk::Registers;

/// Installs the handler, once in the life of the process.
///
/// # Errors
/// Whatever the system says.
pub(in crate::sampler) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED.get_or_init(|| try_install().map_err(|error| error.to_string())).clone().map_err(io::Error::other)
}

fn try_install() -> io::Result<()> {
    previous::keep()?;
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // ONSTACK: the guest's own stack may be almost used up. Wasmtime gives its threads an alternate stack of 256 KiB, but
    // only when told so early (`Engine::tls_eager_initialize`): Rust's own is too small.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and the handler is async-signal-safe.
    if unsafe { libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `__errno_location` gives the address of this thread's errno, which lives as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: this is a handler of this thread, which does not keep the slot when it returns and does not give it up meanwhile.
    let slot = unsafe { ThreadSlot::own() };
    // SAFETY: `info` is the second argument of this handler, which was installed with `SA_SIGINFO`.
    let sender = unsafe { CpuEvent::rest_sender(info) };
    if let Some((slot, timers)) = slot.and_then(|slot| Some((slot, slot.timers.as_ref()?))) {
        let is_events = timers.event().is_some_and(|event| event.is(sender));
        // SAFETY: `context` is the third argument of this handler, which was installed with `SA_SIGINFO`.
        let registers = unsafe { Registers::interrupted(context) };
        // SAFETY: this is the handler, on the thread of `slot`, and it has interrupted these registers.
        unsafe { answer(slot, timers, is_events, registers) };
    }
    if sender.is_none() && !slot.is_some_and(ThreadSlot::takes_signal) {
        // SAFETY: these are the arguments of this handler, which was installed with `SA_SIGINFO`.
        unsafe { previous::forward(signal, info, context) };
    }
    // SAFETY: errno is this thread's own; interrupted code must not see a changed errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Answers a signal that interrupted this thread, whose slot this is, with these registers. `is_events` says whether the thread's event sent it.
///
/// # Safety
/// Call this in the handler only, with the slot of its thread and the registers that it has interrupted.
unsafe fn answer(slot: &ThreadSlot, timers: &Timers, is_events: bool, registers: Registers) {
    slot.handler_begins();
    let mut in_guest = false;
    if slot.is_stopped() || timers.calibrates() {
        // Nothing is sampled any more, or yet.
    } else if let Some(store) = slot.interrupted_store(registers) {
        let is_wasm = store.shared.code.contains(registers.pc);
        in_guest = is_wasm && store.runs_wasm_on(slot);
        if is_wasm && !in_guest {
            // Of a store that is not sampled, which a host call of this one runs: the stack is not this store's, nor is its walker free.
            pass_over(slot, timers, is_events);
        } else {
            // SAFETY: this is the handler, on the thread that runs the store, and it has interrupted these registers. Compiled code is the store's
            // own, as was just seen.
            unsafe { sample(slot, timers, store, is_events, registers, in_guest) };
        }
        // Anyone may send this signal. It counts if a dump or a halt waits for it.
        if in_guest && !is_events {
            let began_ns = own_cpu_ns();
            // SAFETY: this is the handler, in compiled code: nobody else has the walker.
            if unsafe { store.dump_interrupted(registers) } {
                slot.leave_out(began_ns);
            }
        }
    } else {
        if !slot.current().is_null() {
            // It has been suspended here, which the call hook does not see.
            slot.enter(std::ptr::null(), false);
        }
        pass_over(slot, timers, is_events);
    }
    slot.handler_ends();
    if in_guest {
        // In compiled code the thread holds no lock of the host's.
        slot.stay_if_halted();
    }
}

/// Takes no sample, whatever the signal calls for. Call this in the handler.
fn pass_over(slot: &ThreadSlot, timers: &Timers, is_events: bool) {
    let asked = slot.take_asked(false);
    if is_events || asked > 0 {
        slot.pass_over_signalled(timers, asked);
    }
}

/// Takes a sample, if the signal calls for one.
///
/// # Safety
/// Call this in the handler only, on the thread that runs `store`, with the registers that it has interrupted.
unsafe fn sample(
    slot: &ThreadSlot,
    timers: &Timers,
    store: &StoreState,
    is_events: bool,
    registers: Registers,
    in_guest: bool,
) {
    let asked = slot.take_asked(in_guest);
    if !is_events && asked == 0 {
        return;
    }
    let cpu_ns = own_cpu_ns();
    slot.count_time(cpu_ns);
    let due = timers.on_signal(asked, cpu_ns, slot.in_stores_ns(cpu_ns), in_guest);
    let due = due.map(|due| timers.with_wait(due, cpu_ns, || slot.take_queued()));
    let place = if in_guest { Place::InWasm(registers) } else { Place::InHost(registers) };
    if let Some(Due { weight_ns, used_ns, period_ns }) = due {
        // SAFETY: this is the handler, and what it interrupted does not push meanwhile: the call hook blocks the signal.
        if !unsafe { collect(&Snapshot { place, cpu_ns, weight_ns, used_ns, period_ns }, store, &slot.ring) } {
            add(&slot.ring_full, 1);
        }
        slot.charge(cpu_ns, store.has_walk_panicked());
    }
    // SAFETY: this is the handler, on the slot's own thread.
    unsafe { slot.goes_on(cpu_ns) };
}
