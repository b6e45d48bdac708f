//! The signals by which a call is left: those of crashes, and the watchdog's own.

use super::{AbortReason, BACK_FROM_HOST, CURRENT, IN_HOST, LEAVING, processor};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::{null, null_mut, slice_from_raw_parts};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// Signals of a crash.
const CRASHES: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// Their handlers before this one's.
static BEFORE: [OnceLock<libc::sigaction>; CRASHES.len()] = [const { OnceLock::new() }; CRASHES.len()];

/// The watchdog's signal: a real-time one, which nothing sends by itself, that nobody handles. The first ones are in use by
/// libraries. 0 if there is none; calls that do not come back are not left then.
static INTERRUPTION: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// What this thread does, if it is to be said where that ends the process: it loads a library, with its constructors.
    static LAST_WORDS: Cell<*const [u8]> = const { Cell::new(slice_from_raw_parts(null(), 0)) };
}

/// What the process does at a signal.
pub(super) fn action_of(signal: i32) -> Option<libc::sigaction> {
    let mut current = MaybeUninit::uninit();
    // SAFETY: without a new action `sigaction` changes nothing. If it succeeds it has filled `current`.
    unsafe { (libc::sigaction(signal, null(), current.as_mut_ptr()) == 0).then(|| current.assume_init()) }
}

fn free_signal() -> Option<i32> {
    let is_free = |signal: &i32| action_of(*signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL);
    (libc::SIGRTMIN() + 11..=libc::SIGRTMAX()).find(is_free)
}

/// Installs the handlers, once in the life of the process.
///
/// Whoever handles crashes already (Rust for stack overflows, Wasmtime for traps) is asked about those that are no plugin's.
/// Those who install theirs later do the same, as Wasmtime does.
pub(in super::super) fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        super::ends::watch_copies();
        for (signal, before) in CRASHES.iter().zip(&BEFORE) {
            if let Some(current) = action_of(*signal) {
                let _ = before.set(current);
                install(*signal);
            }
        }
        if let Some(signal) = free_signal() {
            install(signal);
            INTERRUPTION.store(signal, Ordering::Relaxed);
        }
    });
}

fn install(signal: i32) {
    // SAFETY: an all-zero `sigaction` is a valid one, with an empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe. If it cannot be installed, calls are not contained.
    unsafe { libc::sigaction(signal, &action, null_mut()) };
}

/// The calling thread's number, as the kernel has it. Asked for once: it is a system call.
pub(in super::super) fn thread_id() -> i32 {
    thread_local! { static ID: std::cell::Cell<i32> = const { std::cell::Cell::new(0) } }
    if ID.get() == 0 {
        // SAFETY: `gettid` takes no pointer, and changes nothing.
        ID.set(unsafe { libc::syscall(libc::SYS_gettid) } as i32);
    }
    ID.get()
}

/// What a plugin has done whose crash raised `signal`.
pub(in super::super) fn crash(signal: i32) -> String {
    let what = match signal {
        libc::SIGSEGV => "it used an address that is not its own (SIGSEGV)",
        libc::SIGBUS => "it used an address that is not its own (SIGBUS)",
        libc::SIGFPE => "it divided by zero (SIGFPE)",
        libc::SIGILL => "it ran into an illegal instruction (SIGILL)",
        libc::SIGABRT => "it called abort, or what it did made a library do so (SIGABRT)",
        libc::SIGTRAP => "it ran into a breakpoint (SIGTRAP)",
        libc::SIGSYS => "the system forbids a call that it made (SIGSYS)",
        _ => return format!("signal {signal}"),
    };
    what.to_owned()
}

/// Makes a thread look whether it is to leave its call.
pub(in super::super) fn interrupt(thread: i32) {
    let signal = INTERRUPTION.load(Ordering::Relaxed);
    if signal == 0 {
        return;
    }
    // A plugin may have taken it.
    install(signal);
    // SAFETY: the handler is installed, and does nothing in a thread that is in no call.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// Whether a thread blocks the watchdog's signal.
pub(in super::super) fn is_out_of_reach(thread: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let signal = INTERRUPTION.load(Ordering::Relaxed);
    signal != 0 && blocked >> (signal - 1) & 1 != 0
}

/// Runs `run`; if that ends the process, it is said how, and then `message`.
pub(super) fn saying_if_it_ends<T>(message: &str, run: impl FnOnce() -> T) -> T {
    let before = LAST_WORDS.replace(message.as_bytes());
    let result = run();
    LAST_WORDS.set(before);
    result
}

/// Says how this thread ends the process, if it does what is to be said then.
pub(super) fn say_last_words(how: &str) {
    let message = LAST_WORDS.replace(slice_from_raw_parts(null(), 0));
    if !message.is_empty() {
        for text in [std::ptr::from_ref(how.as_bytes()), message] {
            // SAFETY: `how` lives for the call, and `message` is there while it is set (see `saying_if_it_ends`). Nothing can be done if it
            // cannot be written.
            unsafe { libc::write(libc::STDERR_FILENO, text.cast(), text.len()) };
        }
    }
}

/// Whether a crash's signal is one of the code that was interrupted, and nobody else's doing.
fn is_own(signal: i32, info: &libc::siginfo_t) -> bool {
    if signal == libc::SIGABRT {
        // `abort` sends it to its own thread.
        // SAFETY: the kernel gives the sender's id with every signal that `tgkill` has sent; `getpid` takes no pointer.
        return info.si_code == libc::SI_TKILL && unsafe { info.si_pid() == libc::getpid() };
    }
    info.si_code > 0
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let call = CURRENT.get();
    let is_crash = CRASHES.contains(&signal);
    // SAFETY: `info` is the second argument of this handler, which was installed with `SA_SIGINFO`.
    let is_own = is_own(signal, unsafe { &*info });
    if call.is_null() || (is_crash && (!is_own || LEAVING.replace(true))) {
        if is_crash {
            say_last_words("wlprof: crashed");
            pass_on(signal, info, context);
        }
        return;
    }
    // SAFETY: `context` is the third argument of this `SA_SIGINFO` handler. `call` is this thread's innermost call, which does not end
    // before the handler does.
    let (call, pc) = unsafe { (&*call, processor::interrupted_pc(context)) };
    if !is_crash {
        // SAFETY: `slot` and `code` are borrowed by the function that makes the call, until the call has ended.
        let (slot, code) = unsafe { (&*call.slot, &*call.code) };
        let may_be_left = match call.place.load(Ordering::Relaxed) {
            IN_HOST => false,
            BACK_FROM_HOST => true,
            _ => slot.is_out_of_patience() || code.iter().any(|range| range.contains(&pc)),
        };
        if !may_be_left || !slot.is_condemned() {
            return;
        }
    }
    call.left.set(Some(if is_crash { AbortReason::Crash(signal) } else { AbortReason::TooLong }));
    // SAFETY: `context` is the third argument of this `SA_SIGINFO` handler, and `call` is the call that this thread is in.
    unsafe { processor::leave_interrupted(context, call) };
}

/// Has a crash that is no plugin's handled as it would have been.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = CRASHES.iter().position(|crash| *crash == signal).and_then(|index| BEFORE[index].get());
    let Some(before) = before else { return };
    if before.sa_sigaction == libc::SIG_IGN {
        return;
    }
    if before.sa_sigaction == libc::SIG_DFL {
        // The instruction crashes again when this handler returns, and `abort` goes on to the end. What was sent is sent again.
        // SAFETY: `before` is an action that was installed, and `info` is the second argument of the `SA_SIGINFO` handler that is running.
        unsafe {
            libc::sigaction(signal, before, null_mut());
            if (*info).si_code <= 0 {
                libc::raise(signal);
            }
        }
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: `SA_SIGINFO` says that it was installed as a handler of that type.
        unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context) }
    } else {
        // SAFETY: without `SA_SIGINFO` it was installed as a handler that takes only the signal.
        unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(before.sa_sigaction)(signal) }
    }
}
