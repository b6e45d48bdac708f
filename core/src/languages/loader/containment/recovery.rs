//! Leaves a call from a signal handler: what `siglongjmp` does, for Linux on x86-64.

use super::watchdog::Slot;
use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::path::Path;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering, compiler_fence};

/// A call that is going on. The first two fields are where the machine goes on when it is left.
#[repr(C)]
struct Call {
    stack_pointer: usize,
    resume: usize,
    slot: *const Slot,
    code: *const [Range<usize>],
    /// The signal in whose handler it was left.
    signal: Cell<i32>,
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
}

thread_local! {
    /// What is said if this thread crashes in a constructor of a library that it loads.
    static LOADING: Cell<*const [u8]> = const { Cell::new(std::ptr::slice_from_raw_parts(null(), 0)) };
}

/// Signals of a crash.
const CRASHES: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Their handlers before this one's.
static BEFORE: [OnceLock<libc::sigaction>; CRASHES.len()] = [const { OnceLock::new() }; CRASHES.len()];

/// The watchdog's signal: a real-time one, which nothing sends by itself, that nobody handles. The first ones are in use by
/// libraries. 0 if there is none; calls that do not come back are not left then.
static INTERRUPTION: AtomicI32 = AtomicI32::new(0);

fn free_signal() -> Option<i32> {
    (libc::SIGRTMIN() + 11..=libc::SIGRTMAX()).find(|signal| {
        // SAFETY: an all-zero one is a place for the system to write to.
        let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only asks.
        unsafe { libc::sigaction(*signal, null(), &mut current) == 0 && current.sa_sigaction == libc::SIG_DFL }
    })
}

/// Installs the handlers, once in the life of the process.
///
/// Whoever handles crashes already (Rust for stack overflows, Wasmtime for traps) is asked about those that are no plugin's.
/// Those who install theirs later do the same, as Wasmtime does.
pub(super) fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        for (signal, before) in CRASHES.iter().zip(&BEFORE) {
            // SAFETY: an all-zero one is a place for the system to write to.
            let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: only asks.
            if unsafe { libc::sigaction(*signal, null(), &mut current) } == 0 {
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
    // SAFETY: an all-zero action is one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler is async-signal-safe. If it cannot be installed, calls are not contained.
    unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Makes a thread look whether it is to leave its call.
pub(super) fn interrupt(thread: i32) {
    let signal = INTERRUPTION.load(Ordering::Relaxed);
    // SAFETY: the handler is installed, and does nothing in a thread that is in no call. Signal 0 is none.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// Calls `run`; the signal, if it was left.
pub(super) fn call<T, F: FnOnce() -> T>(slot: &Slot, code: &[Range<usize>], run: F) -> Result<T, i32> {
    struct Data<F, T>(Option<F>, Option<T>);
    extern "C" fn run_data<T, F: FnOnce() -> T>(data: *mut c_void) {
        // SAFETY: it is what `call` gave, and nobody else's meanwhile.
        let Data(run, result) = unsafe { &mut *data.cast::<Data<F, T>>() };
        if let Some(run) = run.take() {
            *result = Some(run());
        }
    }
    let mut data = Data(Some(run), None);
    let mut call =
        Call { stack_pointer: 0, resume: 0, slot, code, signal: Cell::new(0), place: AtomicU8::new(IN_PLUGIN) };
    let call = &raw mut call;
    let outer = CURRENT.replace(call);
    // SAFETY: the function gets what it needs, and `call` lives until it is over.
    unsafe { call_until_left(run_data::<T, F>, (&raw mut data).cast(), call) };
    CURRENT.set(outer);
    // SAFETY: as above.
    let signal = unsafe { (*call).signal.get() };
    data.1.ok_or(signal)
}

/// Runs `load`, which loads the library at `path` with the constructors in it. A crash there ends the process, since the
/// system's loader cannot be left, but not without a word.
pub(in super::super) fn loading<T>(path: &Path, load: impl FnOnce() -> T) -> T {
    prepare();
    let message = format!("wlprof: crashed while it loaded the plugin {}\n", path.display());
    let before = LOADING.replace(message.as_bytes());
    let loaded = load();
    LOADING.set(before);
    loaded
}

/// Runs what a plugin asks wlprof for in a call. Anything that may allocate, lock or take long is to be run so: a call that
/// takes too long is not left in it, but at its end. What it gives owns nothing.
pub(in super::super) fn in_host<T: Copy>(run: impl FnOnce() -> T) -> T {
    let call = CURRENT.get();
    if call.is_null() {
        return run();
    }
    // SAFETY: this thread's innermost call, which goes on while this runs.
    let (place, slot) = unsafe { (&(*call).place, &*(*call).slot) };
    place.store(IN_HOST, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = run();
    compiler_fence(Ordering::SeqCst);
    if slot.is_condemned() {
        // A plugin may spend nearly all of its time in here, where the watchdog does not reach it.
        place.store(BACK_FROM_HOST, Ordering::Relaxed);
        slot.interrupt();
    }
    place.store(IN_PLUGIN, Ordering::Relaxed);
    result
}

/// Calls `run` with `data`. Comes back when that does, or when a signal handler sets stack and instruction pointer to what it
/// wrote into `call`: there it takes back the registers that belong to its caller, and returns as if `run` had.
///
/// # Safety
/// The frames below, which are given up then, must own nothing.
#[unsafe(naked)]
unsafe extern "C" fn call_until_left(run: extern "C" fn(*mut c_void), data: *mut c_void, call: *mut Call) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        // The stack is aligned to 16 bytes at calls.
        "sub rsp, 8",
        "mov [rdx], rsp",
        "lea rax, [rip + 2f]",
        "mov [rdx + 8], rax",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "2:",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let call = CURRENT.get();
    let is_crash = CRASHES.contains(&signal);
    // SAFETY: of a SA_SIGINFO handler. What somebody sends is no crash of the code that was interrupted.
    let was_sent = unsafe { (*info).si_code } <= 0;
    if call.is_null() || (is_crash && was_sent) {
        if is_crash {
            let message = LOADING.replace(std::ptr::slice_from_raw_parts(null(), 0));
            if !message.is_empty() {
                // SAFETY: it is there while it is set. Nothing can be done if it cannot be written.
                unsafe { libc::write(libc::STDERR_FILENO, message.cast(), message.len()) };
            }
            pass_on(signal, info, context);
        }
        return;
    }
    // SAFETY: the context is that of a SA_SIGINFO handler, of this thread, which is in that call.
    let (call, registers) = unsafe { (&*call, &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs) };
    if !is_crash {
        let pc = registers[libc::REG_RIP as usize] as usize;
        // SAFETY: both live as long as the call.
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
    call.signal.set(signal);
    const DIRECTION: i64 = 0x400;
    registers[libc::REG_RSP as usize] = call.stack_pointer as i64;
    registers[libc::REG_RIP as usize] = call.resume as i64;
    // Code may count on it to be clear.
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}

/// Has a crash that is no plugin's handled as it would have been.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = CRASHES.iter().position(|crash| *crash == signal).and_then(|index| BEFORE[index].get());
    let Some(before) = before else { return };
    if [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        // The instruction crashes again when this handler returns.
        // SAFETY: what was installed before.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: the flag says that it is of that type.
        unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context) }
    } else {
        // SAFETY: without the flag it is of this type.
        unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(before.sa_sigaction)(signal) }
    }
}

/// The code of the loaded library that `address` is in.
pub(super) fn code_around(address: usize) -> Vec<Range<usize>> {
    struct Search {
        address: usize,
        code: Vec<Range<usize>>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> i32 {
        // SAFETY: the loader's own account of a library, and what `code_around` gave.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: as above.
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
    // SAFETY: the function is as the loader calls it, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.code
}
