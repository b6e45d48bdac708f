//! Stacks of guests that are taken through their code one instruction at a time: what is read at each is what calls and returns have made of
//! the stack before.

use crate::options::Options;
use crate::process::Process;
use crate::session::Session;
use crate::stopper::Event;
use crate::thread::traced_registers;
use crate::tracer::Tracer;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use wlprof_recording::Journal;
use wlprof_walk::{FrameWord, NativePc, Registers};

/// Instructions of wasm functions at which the stack is read, and calls among them, at least.
const INSTRUCTIONS: usize = 20_000;
const CALLS: usize = 100;
/// The longest instruction.
const MAX_INSTRUCTION: usize = 15;

/// Wasmtime's Python package of some release, which runs a guest that never ends within a test.
struct Host(Child);

impl Host {
    fn start(release: &str, guest: &str) -> Self {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let package = root.join("target/tools/wasmtime-packages").join(release);
        assert!(package.exists(), "Wasmtime {release} is missing: run `cargo xtask test-tools`");
        let guest = root.join("target/fixtures").join(guest);
        assert!(guest.exists(), "{} is missing: run `cargo xtask test-fixtures`", guest.display());
        let mut command = Command::new("python3");
        command.arg(root.join("testdata/python/host.py")).arg(guest).arg("1000000").env("PYTHONPATH", package);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Looks at it once its guest runs.
    fn session(&mut self) -> Session {
        loop {
            assert_eq!(self.0.try_wait().unwrap(), None, "the host has ended");
            let process = Process::open(self.0.id() as i32).unwrap();
            let mut session = Session::new(process, Vec::new(), Journal::of_windows(), Options::default()).unwrap();
            if session.threads_in_wasm().unwrap() == 1 {
                return session;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn step(tid: i32) -> Registers {
    let thread = Pid::from_raw(tid);
    ptrace::step(thread, None).unwrap();
    let status = waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
    assert!(matches!(status, WaitStatus::Stopped(..)), "{status:?}");
    traced_registers(tid).unwrap().0
}

/// Where the callers return to on a stack whose leaf is a wasm function.
fn callers(session: &mut Session, registers: Registers) -> Vec<usize> {
    let found = session.reader.read(registers, &[]);
    assert_eq!(found.walked.end, Ok(()), "{registers:x?}");
    assert!(found.walked.is_in_wasm, "{registers:x?}");
    let pcs: Vec<NativePc> = found.words.iter().map(|word| FrameWord(*word).native_pc()).collect();
    let [NativePc::Exact(leaf), callers @ ..] = &pcs[..] else { panic!("{pcs:x?} at {registers:x?}") };
    assert_eq!(*leaf, registers.pc);
    let place = |pc: &NativePc| match pc {
        NativePc::Return(place) => *place,
        NativePc::Exact(_) => panic!("{pcs:x?}"),
    };
    callers.iter().map(place).collect()
}

/// What the instruction between two states made of the callers.
fn executed(session: &Session, before: Registers, now: Registers, callers: &mut Vec<usize>) {
    let word = |address: usize| {
        let mut word = [0; size_of::<usize>()];
        assert!(session.reader.process.read(address, &mut word));
        usize::from_ne_bytes(word)
    };
    let next = before.pc + 1..=before.pc + MAX_INSTRUCTION;
    if now.sp == before.sp - size_of::<usize>() && next.contains(&word(now.sp)) && word(now.sp) != now.pc {
        callers.insert(0, word(now.sp));
    } else if now.sp > before.sp && word(before.sp) == now.pc && !callers.is_empty() {
        // It may have taken its parameters from the stack as well.
        assert_eq!(callers.remove(0), now.pc, "a function returned to its caller");
    }
}

fn check(release: &str, guest: &str) {
    let mut host = Host::start(release, guest);
    let mut session = host.session();
    let tid = host.0.id() as i32;
    let mut tracer = Tracer::of_this_thread();
    tracer.ask(tid).unwrap();
    let _halt = loop {
        match tracer.next() {
            Some(Event::Stopped(halt)) => break halt,
            Some(event) => panic!("{event:?}"),
            None => std::thread::yield_now(),
        }
    };
    let (mut read, mut calls, mut deepest) = (0, 0, 0);
    let mut before = traced_registers(tid).unwrap().0;
    // As it has to be now, once a wasm function has been seen to run.
    let mut expected: Option<Vec<usize>> = None;
    while read < INSTRUCTIONS || calls < CALLS {
        let now = step(tid);
        let is_function = |pc| session.reader.code.origin(NativePc::Exact(pc)).is_some();
        let (was_in_function, is_in_function) = (is_function(before.pc), is_function(now.pc));
        if let Some(callers) = expected.as_mut().filter(|_| was_in_function || is_in_function) {
            let depth = callers.len();
            executed(&session, before, now, callers);
            let has_called = callers.len() > depth;
            calls += usize::from(has_called);
            // The host has called a function, on whatever stack there is then.
            expected = expected.filter(|_| was_in_function || !has_called);
        }
        if is_in_function {
            let found = callers(&mut session, now);
            read += 1;
            deepest = deepest.max(found.len());
            let expected = expected.get_or_insert_with(|| found.clone());
            assert_eq!(found, *expected, "Wasmtime {release}, instruction {read} at {now:x?} after {before:x?}");
        }
        before = now;
    }
    println!("Wasmtime {release}: {guest}: {read} instructions, {calls} calls, {deepest} callers");
}

#[test]
fn stacks_are_right_at_each_instruction() {
    for release in ["24.0.0", "36.0.0", "48.0.0", "50.0.1"] {
        for guest in ["c-calls.wasm", "cpp-shapes.wasm", "rust-mix.wasm"] {
            check(release, guest);
        }
    }
}
