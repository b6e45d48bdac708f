//! Leaves a call from wherever the plugin is: what `siglongjmp` does, for Linux.

mod ends;
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
mod processor;
mod signals;
mod stack;
mod surroundings;

pub(in super::super) use ends::end_process;
pub(super) use ends::{end_stuck_process, watch_thread, watch_thread_at_times};
pub(super) use signals::{crash, interrupt, is_out_of_reach, prepare, thread_id};
pub(in super::super) use stack::{OwnStack, fetch};
pub(super) use surroundings::{Changes, Handlers, SavedContext, keeping};

use super::AbortReason;
use super::slot::Slot;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::ptr::null;
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// A call that is going on. The first two fields are where the machine goes on when it is left.
#[repr(C)]
struct Call {
    stack_pointer: usize,
    resume: usize,
    slot: *const Slot,
    code: *const [Range<usize>],
    /// Why it was left.
    left: Cell<Option<AbortReason>>,
    /// Where it is: [`IN_PLUGIN`], [`IN_HOST`] or [`BACK_FROM_HOST`].
    place: AtomicU8,
}

/// In the plugin, or what it calls that is not wlprof's.
const IN_PLUGIN: u8 = 0;
/// In a function that wlprof gave the plugin, which may hold a lock of wlprof's or the allocator's.
const IN_HOST: u8 = 1;
/// At the end of such a function, where nothing is held.
const BACK_FROM_HOST: u8 = 2;

thread_local! {
    /// This thread's innermost call. Without a destructor, so that signal handlers may ask for it.
    static CURRENT: Cell<*const Call> = const { Cell::new(null()) };
    /// It is being left because of a crash. Another one before that is done is wlprof's: the plugin has overwritten what it
    /// goes on with.
    static LEAVING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `run`, on `stack` where the thread is in a signal handler; why, if it was left.
pub(super) fn call<T, F: FnOnce() -> T>(
    slot: &Slot,
    code: &[Range<usize>],
    stack: Option<&OwnStack>,
    run: F,
) -> Result<T, AbortReason> {
    struct Data<'a, F, T> {
        run: Option<F>,
        result: Option<T>,
        stack: Option<&'a OwnStack>,
    }
    // An exception goes through it, to `personality`.
    extern "C-unwind" fn run_data<T, F: FnOnce() -> T>(data: *mut c_void) {
        // SAFETY: `data` points to a local variable of `call`, which nobody else uses until this returns or is left.
        let data = unsafe { &mut *data.cast::<Data<'_, F, T>>() };
        if let Some(stack) = data.stack {
            stack.take_signals();
        }
        if let Some(run) = data.run.take() {
            data.result = Some(run());
        }
    }
    let stack = stack.filter(|_| stack::on_signal_stack());
    if let Some(stack) = stack {
        stack.fetch();
    }
    let mut data = Data { run: Some(run), result: None, stack };
    let mut call =
        Call { stack_pointer: 0, resume: 0, slot, code, left: Cell::new(None), place: AtomicU8::new(IN_PLUGIN) };
    let call = &raw mut call;
    let outer = CURRENT.replace(call);
    let top = stack.map_or(0, OwnStack::top);
    // SAFETY: `run_data` takes what `data` points to, which lives until this returns, as `call` does. What is left owns nothing (see
    // `Calls::call`). Calls that share `stack` never overlap, so nobody else is on it.
    unsafe { processor::call_until_left(run_data::<T, F>, (&raw mut data).cast(), call, top) };
    CURRENT.set(outer);
    LEAVING.set(false);
    ends::stop_if_copy();
    // SAFETY: `call` points to a local variable of this function, and the call in which others used it is over.
    data.result.ok_or_else(|| unsafe { (*call).left.get() }.unwrap_or(AbortReason::TooLong))
}

/// Runs `load`, which loads the library at `path` with the constructors in it. A crash there ends the process, since the
/// system's loader cannot be left, but not without a word. What they change of the process is put back.
pub(super) fn loading<T>(path: &Path, load: impl FnOnce() -> T) -> (T, Changes) {
    watch_thread();
    let message = format!(" while it loaded the plugin {}\n", path.display());
    signals::saying_if_it_ends(&message, || keeping(SavedContext::Handlers, load))
}

/// Runs what a plugin asks wlprof for in a call. Anything that may allocate, lock or take long is to be run so: a call that
/// takes too long is not left in it, but at its end. What it gives owns nothing.
pub(in super::super) fn in_host<T: Copy>(run: impl FnOnce() -> T) -> T {
    let call = CURRENT.get();
    if call.is_null() {
        return run();
    }
    // SAFETY: `call` is this thread's innermost call, which goes on while this runs and borrows `slot` for as long.
    let (place, slot) = unsafe { (&(*call).place, &*(*call).slot) };
    place.store(IN_HOST, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = run();
    compiler_fence(Ordering::SeqCst);
    if slot.is_condemned() {
        // A plugin may spend nearly all of its time in here, where the watchdog does not reach it.
        place.store(BACK_FROM_HOST, Ordering::Relaxed);
        // This thread looks whether it is to leave the call.
        interrupt(slot.thread());
    }
    place.store(IN_PLUGIN, Ordering::Relaxed);
    result
}

/// Leaves this thread's call, from a function that the plugin, or what it uses, has called.
///
/// # Safety
/// `call` must be this thread's innermost call, and must be going on.
unsafe fn leave(call: *const Call, left: AbortReason) -> ! {
    // SAFETY: `call` is this thread's and goes on (see # Safety), so it lives, and `call_until_left` has written where to go on.
    unsafe {
        (*call).left.set(Some(left));
        processor::go_on(call)
    }
}

/// The code of the loaded library that `address` is in.
pub(super) fn code_around(address: usize) -> Vec<Range<usize>> {
    struct Search {
        address: usize,
        code: Vec<Range<usize>>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> i32 {
        // SAFETY: `info` is the loader's account of a library, which lives for this call. `search` is what `code_around` gave, and nobody
        // else uses it.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader gives the address and the number of the program headers, which stay for this call.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            (start..start + header.p_memsz as usize, header.p_flags & libc::PF_X != 0)
        });
        let segments: Vec<_> = segments.collect();
        if !segments.iter().any(|(range, _)| range.contains(&search.address)) {
            return 0;
        }
        search.code.extend(segments.into_iter().filter(|(_, is_code)| *is_code).map(|(range, _)| range));
        1
    }
    let mut search = Search { address, code: Vec::new() };
    // SAFETY: `look` has the signature that the loader calls and keeps nothing. `search` lives until this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.code
}
