//! Stops threads of this process by a signal whose handler waits until their stacks have been read.
//!
//! A thread cannot trace others of its own process. The handler does as a tracer's stop: it says which registers it has interrupted, and waits.
//! It waits for a bounded time: who reads the stack may wait for a lock that the thread holds.

use crate::stopper::{Event, Halt};
use nix::errno::Errno;
use nix::libc;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wlprof_walk::Registers;

/// Threads that can be asked to stop at a time.
const MAX_ASKED: usize = 1024;

/// How long the handler waits at most.
const LONGEST_HALT: Duration = Duration::from_millis(10);

static LONGEST_WAIT: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: LONGEST_HALT.subsec_nanos() as i64 };

/// As often it is looked whether a thread that was asked is still there, and takes the signal.
const PATIENCE: Duration = Duration::from_millis(10);

/// General registers that the handler keeps: a pointer to the instance that runs is in one of them, or on the stack.
const GENERAL: usize = if cfg!(target_arch = "x86_64") { 14 } else { 31 };

/// A request to a thread to stop. It has a number, which is another one for each request, and a phase.
struct Request {
    /// The number in the upper bits, one of the phases in the lower three. A thread that stands still waits for it to change.
    state: AtomicU32,
    special: [AtomicUsize; 4],
    general: [AtomicUsize; GENERAL],
}

/// Nobody is asked.
const FREE: u32 = 0;
/// A thread was sent the signal.
const ASKED: u32 = 1;
/// It is in the handler, which keeps its registers.
const KEEPING: u32 = 2;
/// It waits in the handler, and its registers are there.
const HALTED: u32 = 3;
/// It has waited for too long and runs on.
const RAN_ON: u32 = 4;
/// The bits of a phase, and the difference of two numbers.
const PHASES: u32 = 7;
const NEXT: u32 = 8;

static REQUESTS: [Request; MAX_ASKED] = [const {
    Request {
        state: AtomicU32::new(FREE),
        special: [const { AtomicUsize::new(0) }; 4],
        general: [const { AtomicUsize::new(0) }; GENERAL],
    }
}; MAX_ASKED];

/// A request that is under way: its place among [`REQUESTS`], and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    place: usize,
    /// The state without the phase.
    number: u32,
}

impl Ticket {
    /// Takes a place that is free.
    fn new() -> Option<Self> {
        REQUESTS.iter().enumerate().find_map(|(place, request)| {
            let number = request.state.load(Ordering::Relaxed) & !PHASES;
            let taken = request.state.compare_exchange(number, number | ASKED, Ordering::Relaxed, Ordering::Relaxed);
            taken.ok().map(|_| Self { place, number })
        })
    }

    /// What the handler is given.
    fn value(self) -> usize {
        self.number as usize * MAX_ASKED + self.place
    }

    fn of_value(value: usize) -> Self {
        Self { place: value % MAX_ASKED, number: (value / MAX_ASKED) as u32 & !PHASES }
    }

    fn request(self) -> &'static Request {
        &REQUESTS[self.place]
    }

    fn is_halted(self) -> bool {
        self.request().state.load(Ordering::Acquire) == self.number | HALTED
    }

    fn has_run_on(self) -> bool {
        self.request().state.load(Ordering::Acquire) == self.number | RAN_ON
    }

    fn go(self, from: u32, to: u32) -> bool {
        let state = &self.request().state;
        state.compare_exchange(self.number | from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// What the thread has been interrupted with. It waits in the handler.
    pub(crate) fn registers(self) -> (Registers, Vec<usize>) {
        let request = self.request();
        let [pc, sp, fp, lr] = [0, 1, 2, 3].map(|index: usize| request.special[index].load(Ordering::Relaxed));
        let general = request.general.iter().map(|register| register.load(Ordering::Relaxed)).collect();
        #[cfg(target_arch = "aarch64")]
        return (Registers { pc, sp, fp, lr, is_on_signal_stack: false }, general);
        #[cfg(target_arch = "x86_64")]
        {
            let _ = lr;
            (Registers { pc, sp, fp, is_on_signal_stack: false }, general)
        }
    }

    /// Has the thread run on. Returns whether it has stood still until now.
    pub(crate) fn release(self) -> bool {
        let next = self.number.wrapping_add(NEXT);
        loop {
            if self.go(HALTED, next | FREE) {
                let state = self.request().state.as_ptr();
                // SAFETY: the kernel takes the address of a static to find who waits there, and reads and writes nothing.
                unsafe { libc::syscall(libc::SYS_futex, state, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
                return true;
            }
            // A signal that comes later finds another number.
            if self.go(ASKED, next | FREE) || self.go(RAN_ON, next | FREE) {
                return false;
            }
            // It is about to be there, on this processor maybe.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// What this thread has asked to stop.
pub(crate) struct Signaller {
    signal: i32,
    asked: HashMap<i32, Asked>,
    /// Threads that do not block the signal. The kernel would keep each that is sent to another.
    hearing: HashSet<i32>,
    /// When it was last seen that no thread stands still.
    none_stood: Instant,
}

/// A thread that was asked to stop.
struct Asked {
    ticket: Ticket,
    since: Instant,
    /// When it was last looked whether it can.
    looked: Instant,
}

impl Signaller {
    /// Installs the handler, if it is not yet.
    ///
    /// # Errors
    /// If all signals that may be used are taken.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { signal: signal()?, asked: HashMap::new(), hearing: HashSet::new(), none_stood: Instant::now() })
    }

    /// Asks thread `tid` of this process to stop.
    ///
    /// # Errors
    /// `ESRCH` if it has ended, `EAGAIN` if it blocks the signal or too many have been asked and do not stop, `EBUSY` if the signal has
    /// another handler by now.
    pub(crate) fn ask(&mut self, tid: i32) -> Result<(), Errno> {
        // The default action would end the process.
        if installed(self.signal) != Some(handler as *const () as usize) {
            return Err(Errno::EBUSY);
        }
        if !self.hearing.contains(&tid) {
            if blocks(tid, self.signal) {
                return Err(Errno::EAGAIN);
            }
            self.hearing.insert(tid);
        }
        let ticket = Ticket::new().ok_or(Errno::EAGAIN)?;
        // SAFETY: an all-zero `siginfo_t` is a valid one.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        info.si_signo = self.signal;
        info.si_code = libc::SI_QUEUE;
        let pid = std::process::id() as libc::pid_t;
        // SAFETY: what the kernel calls `_rt` begins behind the three numbers with the sender and its user, and then has the value. It is
        // within the 128 bytes that a `siginfo_t` has.
        unsafe {
            let fields = (&raw mut info).byte_add(mem::offset_of!(Queued, pid)).cast::<libc::pid_t>();
            fields.write(pid);
            (&raw mut info).byte_add(mem::offset_of!(Queued, value)).cast::<usize>().write(ticket.value());
        }
        let arguments = (libc::SYS_rt_tgsigqueueinfo, pid, tid, self.signal, &raw const info);
        // SAFETY: the kernel only reads `info`, which is complete.
        let sent = unsafe { libc::syscall(arguments.0, arguments.1, arguments.2, arguments.3, arguments.4) };
        if sent < 0 {
            let error = Errno::last();
            ticket.release();
            return Err(error);
        }
        let now = Instant::now();
        self.asked.insert(tid, Asked { ticket, since: now, looked: now });
        Ok(())
    }

    pub(crate) fn is_asked(&self, tid: i32) -> bool {
        self.asked.contains_key(&tid)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.asked.is_empty()
    }

    pub(crate) fn forget(&mut self, tid: i32) {
        self.hearing.remove(&tid);
        if let Some(asked) = self.asked.remove(&tid) {
            asked.ticket.release();
        }
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let now = Instant::now();
        let halted = self.asked.iter().find(|(_, asked)| asked.ticket.is_halted());
        if let Some((&tid, &Asked { ticket, since, .. })) = halted {
            self.asked.remove(&tid);
            return Some(Event::Stopped(Halt::signalled(tid, ticket, since.max(self.none_stood))));
        }
        self.none_stood = now;
        let (mut event, signal) = (None, self.signal);
        for (&tid, asked) in &mut self.asked {
            if asked.ticket.has_run_on() {
                event = Some(Event::RanOn { tid, stood: LONGEST_HALT });
            } else if now.duration_since(asked.looked) > PATIENCE {
                asked.looked = now;
                if !is_there(tid) {
                    event = Some(Event::Ended(tid));
                } else if blocks(tid, signal) {
                    self.hearing.remove(&tid);
                    event = Some(Event::RanOn { tid, stood: Duration::ZERO });
                }
            }
            if event.is_some() {
                break;
            }
        }
        if let Some(Event::RanOn { tid, .. } | Event::Ended(tid)) = event {
            self.asked.remove(&tid).into_iter().for_each(|asked| _ = asked.ticket.release());
        }
        event
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        self.asked.values().for_each(|asked| _ = asked.ticket.release());
    }
}

fn is_there(tid: i32) -> bool {
    // SAFETY: the kernel is asked about a number, and no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, 0) == 0 }
}

/// Whether thread `tid` of this process blocks a signal.
fn blocks(tid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    blocked.is_some_and(|signals| signals >> (signal - 1) & 1 != 0)
}

/// The beginning of a `siginfo_t` of a signal that was queued with a value (`include/uapi/asm-generic/siginfo.h`, 64 bits).
#[repr(C)]
struct Queued {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
}

/// The signal whose handler is ours, which is installed when it is first asked for.
fn signal() -> io::Result<i32> {
    static SIGNAL: OnceLock<Option<i32>> = OnceLock::new();
    let is_free = |signal: &i32| installed(*signal) == Some(libc::SIG_DFL);
    let chosen = SIGNAL.get_or_init(|| {
        let signal = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(is_free)?;
        install(signal).then_some(signal)
    });
    chosen.ok_or_else(|| io::Error::other("all real-time signals have handlers of others: leave wlprof one"))
}

/// The handler of a signal.
fn installed(signal: i32) -> Option<usize> {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: without a new action `sigaction` changes nothing, and writes the installed one into `action`.
    (unsafe { libc::sigaction(signal, ptr::null(), &mut action) } == 0).then_some(action.sa_sigaction)
}

fn install(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // ONSTACK: the guest's own stack may be almost used up.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the mask is a part of `action`, a variable of this function. With these signals in it no handler of the host's runs while this
    // one waits.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // SAFETY: the action is complete, and the handler is async-signal-safe.
    unsafe { libc::sigaction(signal, &action, ptr::null_mut()) == 0 }
}

extern "C" fn handler(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler that was installed with `SA_SIGINFO` a whole `siginfo_t`, which is 128 bytes long and as aligned.
    let queued = unsafe { &*info.cast::<Queued>() };
    // Anyone may send the signal, and another process numbers of its own.
    if queued.code != libc::SI_QUEUE || queued.pid != std::process::id() as libc::pid_t {
        return;
    }
    let ticket = Ticket::of_value(queued.value);
    let request = ticket.request();
    if !ticket.go(ASKED, ticket.number | KEEPING) {
        return;
    }
    // SAFETY: the kernel gives such a handler a whole `ucontext_t` as its third argument, which lives as long as the handler runs.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let (special, general) = registers(machine);
    request.special.iter().zip(special).for_each(|(place, register)| place.store(register, Ordering::Relaxed));
    request.general.iter().zip(general).for_each(|(place, register)| place.store(register, Ordering::Relaxed));
    request.state.store(ticket.number | HALTED, Ordering::Release);
    // SAFETY: `__errno_location` gives the address of this thread's errno, which lives as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    wait(ticket);
    // SAFETY: errno is this thread's own; interrupted code must not see a changed errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Waits in the handler until the stack has been read.
fn wait(ticket: Ticket) {
    let state = ticket.request().state.as_ptr();
    let halted = ticket.number | HALTED;
    let command = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    while ticket.is_halted() {
        // SAFETY: the kernel reads the word at the address of a static, and a time that nothing changes.
        let waited = unsafe { libc::syscall(libc::SYS_futex, state, command, halted, &raw const LONGEST_WAIT) };
        // SAFETY: `__errno_location` gives the address of this thread's errno, which lives as long as the thread.
        if waited < 0 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT {
            let _ = ticket.go(HALTED, ticket.number | RAN_ON);
        }
    }
}

/// Program counter, stack pointer, frame pointer and link register; and the general registers.
#[cfg(target_arch = "x86_64")]
fn registers(machine: &libc::mcontext_t) -> ([usize; 4], [usize; GENERAL]) {
    let of = |register: i32| machine.gregs[register as usize] as usize;
    let general = [
        libc::REG_RDI,
        libc::REG_R14,
        libc::REG_R15,
        libc::REG_R13,
        libc::REG_R12,
        libc::REG_RBX,
        libc::REG_RSI,
        libc::REG_RDX,
        libc::REG_RCX,
        libc::REG_RAX,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
    ];
    ([of(libc::REG_RIP), of(libc::REG_RSP), of(libc::REG_RBP), 0], general.map(of))
}

/// Program counter, stack pointer, frame pointer and link register; and the general registers.
#[cfg(target_arch = "aarch64")]
fn registers(machine: &libc::mcontext_t) -> ([usize; 4], [usize; GENERAL]) {
    let general = machine.regs.map(|register| register as usize);
    ([machine.pc as usize, machine.sp as usize, general[29], general[30]], general)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::SigSet;
    use nix::unistd::gettid;
    use std::hint::{black_box, spin_loop};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// A thread that counts.
    struct Counter {
        tid: i32,
        count: Arc<AtomicU64>,
    }

    impl Counter {
        fn start() -> Self {
            let (count, (sender, receiver)) = (Arc::new(AtomicU64::new(0)), std::sync::mpsc::channel());
            let counted = count.clone();
            std::thread::spawn(move || {
                sender.send(gettid().as_raw()).unwrap();
                // Until nobody looks any more.
                while Arc::strong_count(&counted) > 1 {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            Self { tid: receiver.recv().unwrap(), count }
        }

        fn count(&self) -> u64 {
            self.count.load(Ordering::Relaxed)
        }
    }

    /// Asks a thread to stop, once it takes the signal: not while it is still in the handler of the last one.
    fn ask(signaller: &mut Signaller, tid: i32) {
        loop {
            match signaller.ask(tid) {
                Err(Errno::EAGAIN) => std::thread::yield_now(),
                asked => return asked.unwrap(),
            }
        }
    }

    fn next(signaller: &mut Signaller) -> Event {
        loop {
            if let Some(event) = signaller.next() {
                return event;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_stands_still_while_it_is_read_and_runs_on() {
        let counter = Counter::start();
        let mut signaller = Signaller::new().unwrap();
        let mut still = 0;
        while still < 100 {
            let before = counter.count();
            ask(&mut signaller, counter.tid);
            let Event::Stopped(halt) = next(&mut signaller) else { continue };
            let Some((registers, general)) = halt.registers() else { panic!("it is there") };
            let count = counter.count();
            assert!(count >= before && registers.pc != 0 && registers.sp != 0);
            // What it counts in is in one of its registers, or on its stack.
            black_box(general);
            let later = counter.count();
            // One that has waited for too long has run on.
            if halt.release() {
                assert_eq!(count, later);
                still += 1;
            }
        }
        let now = counter.count();
        while counter.count() == now {
            spin_loop();
        }
        assert!(signaller.is_done());
    }

    #[test]
    fn a_thread_whose_stack_is_not_read_runs_on() {
        let counter = Counter::start();
        let mut signaller = Signaller::new().unwrap();
        let halt = loop {
            ask(&mut signaller, counter.tid);
            if let Event::Stopped(halt) = next(&mut signaller) {
                break halt;
            }
        };
        let now = counter.count();
        while counter.count() == now {
            spin_loop();
        }
        assert!(!halt.release());
        // One that has done so before anybody has looked.
        ask(&mut signaller, counter.tid);
        let ticket = signaller.asked[&counter.tid].ticket;
        while !ticket.has_run_on() {
            spin_loop();
        }
        assert!(matches!(next(&mut signaller), Event::RanOn { tid, stood } if tid == counter.tid && !stood.is_zero()));
    }

    #[test]
    fn what_was_not_asked_for_changes_nothing() {
        let mut signaller = Signaller::new().unwrap();
        // From nobody, and of a request that is over.
        // SAFETY: a signal that has a handler is sent to this thread.
        assert_eq!(unsafe { libc::raise(signaller.signal) }, 0);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let is_over = &is_over;
            scope.spawn(move || {
                let _ = SigSet::all().thread_block();
                sender.send(gettid().as_raw()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                let _ = SigSet::all().thread_unblock();
            });
            let tid = receiver.recv().unwrap();
            assert_eq!((signaller.ask(tid), signaller.is_asked(tid)), (Err(Errno::EAGAIN), false));
            // As one that has blocked it since it was looked at. It has one to take then, and is not sent more.
            signaller.hearing.insert(tid);
            signaller.ask(tid).unwrap();
            assert!(
                matches!(next(&mut signaller), Event::RanOn { tid: deaf, stood } if deaf == tid && stood.is_zero())
            );
            assert_eq!((signaller.ask(tid), signaller.is_asked(tid)), (Err(Errno::EAGAIN), false));
            is_over.store(true, Ordering::Relaxed);
        });
        let tickets = [(); 3].map(|()| Ticket::new().unwrap());
        tickets.iter().for_each(|ticket| assert_eq!(Ticket::of_value(ticket.value()), *ticket));
        tickets.into_iter().for_each(|ticket| assert!(!ticket.release()));
    }

    #[test]
    fn a_thread_that_has_ended_is_said_to() {
        let mut signaller = Signaller::new().unwrap();
        let tid = std::thread::spawn(|| gettid().as_raw()).join().unwrap();
        while is_there(tid) {
            std::thread::yield_now();
        }
        assert_eq!(signaller.ask(tid), Err(Errno::ESRCH));
        assert!(signaller.is_done());
    }
}
