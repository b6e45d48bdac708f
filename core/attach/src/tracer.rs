//! Stops threads of other processes by `ptrace`, and has them run on.
//!
//! The kernel ties a traced thread to the thread that traces it. When that ends, in whatever way, all that it traces runs on.

use crate::stopper::{Event, Halt};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ptr;
use std::time::Instant;

/// What this thread traces.
pub(crate) struct Tracer {
    /// The threads that have been asked to stop and have not yet, and when they were asked.
    asked: HashMap<i32, Instant>,
    /// When it was last seen that no thread stands still.
    none_stood: Instant,
    /// Another thread does not trace them.
    not_send: PhantomData<*const ()>,
}

impl Tracer {
    pub(crate) fn of_this_thread() -> Self {
        Self { asked: HashMap::new(), none_stood: Instant::now(), not_send: PhantomData }
    }

    /// Asks thread `tid` to stop.
    ///
    /// # Errors
    /// `ESRCH` if it has ended, `EPERM` if it may not be traced or is ending, or another of the kernel's reasons.
    pub(crate) fn ask(&mut self, tid: i32) -> Result<(), Errno> {
        ptrace::seize(Pid::from_raw(tid), ptrace::Options::empty())?;
        self.asked.insert(tid, Instant::now());
        // If it has just ended, `next` says so.
        let _ = ptrace::interrupt(Pid::from_raw(tid));
        Ok(())
    }

    /// Returns whether `tid` was asked to stop and has not yet.
    pub(crate) fn is_asked(&self, tid: i32) -> bool {
        self.asked.contains_key(&tid)
    }

    /// Returns whether all threads have stopped that were asked to.
    pub(crate) fn is_done(&self) -> bool {
        self.asked.is_empty()
    }

    /// Waits no longer for `tid`.
    pub(crate) fn forget(&mut self, tid: i32) {
        self.asked.remove(&tid);
    }

    /// Returns the next event of those that have happened.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            let (now, mut status) = (Instant::now(), 0);
            let options = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
            // SAFETY: `status` is a variable of this function, and nothing else is written.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, options) };
            if tid <= 0 {
                self.none_stood = now;
                // Nothing is traced: where another thread has begun a new program, the kernel has ended the others without an event.
                let lost = self.asked.keys().next().copied().filter(|_| tid < 0)?;
                self.asked.remove(&lost);
                return Some(Event::Ended(lost));
            }
            let asked = self.asked.remove(&tid);
            if !libc::WIFSTOPPED(status) {
                if asked.is_some() {
                    return Some(Event::Ended(tid));
                }
                continue;
            }
            // A stop without a signal has the event that it is in the upper half.
            let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
            let since = asked.map_or(now, |asked| asked.max(self.none_stood));
            let stopped = Halt::traced(tid, signal, since);
            // Nobody has asked the main thread of a process in which another thread has begun a new program: it has that one's number from
            // then on, and its tracer. It runs on at once.
            if asked.is_some() {
                return Some(Event::Stopped(stopped));
            }
        }
    }
}

/// Has a traced thread run on, with the signal that it was about to get.
pub(crate) fn detach(tid: i32, signal: i32) {
    let signal = ptr::without_provenance_mut::<libc::c_void>(signal as usize);
    // The signal is any of the kernel's numbers, of which nix knows no real-time ones. This fails only if the thread was killed.
    // SAFETY: detaching reads and writes no memory of this process.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, tid, ptr::null_mut::<libc::c_void>(), signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::Duration;

    /// A shell that prints a line for each real-time signal that it gets, and for each that it reads.
    struct Shell(Child, BufReader<ChildStdout>);

    impl Shell {
        fn start() -> Self {
            let script = "trap 'echo signal' RTMIN+3; echo ready; while :; do read line && echo $line; done";
            let mut command = Command::new("bash");
            let mut child = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap());
            let mut shell = Self(child, lines);
            assert_eq!(shell.line(), "ready\n");
            shell
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.1.read_line(&mut line).unwrap();
            line
        }

        fn tid(&self) -> i32 {
            self.0.id() as i32
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn wait(tracer: &mut Tracer) -> Event {
        loop {
            if let Some(event) = tracer.next() {
                return event;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_real_time_signal_is_passed_on() {
        let mut shell = Shell::start();
        let tid = shell.tid();
        let tracing = std::thread::spawn(move || {
            let mut tracer = Tracer::of_this_thread();
            // As if the signal had come just after it was seized.
            ptrace::seize(Pid::from_raw(tid), ptrace::Options::empty()).unwrap();
            tracer.asked.insert(tid, Instant::now());
            assert!(Command::new("kill").args(["-s", "RTMIN+3", &tid.to_string()]).status().unwrap().success());
            let Event::Stopped(stopped) = wait(&mut tracer) else { panic!("it has ended") };
            assert!(tracer.is_done() && stopped.tid == tid, "{stopped:?}");
        });
        tracing.join().unwrap();
        assert_eq!(shell.line(), "signal\n");
    }

    #[test]
    fn threads_run_on_when_their_tracer_ends() {
        let mut shell = Shell::start();
        let tid = shell.tid();
        for panics in [false, true] {
            let tracing = std::thread::spawn(move || {
                let mut tracer = Tracer::of_this_thread();
                tracer.ask(tid).unwrap();
                let _stopped = panics.then(|| wait(&mut tracer));
                assert!(!panics, "while a thread stands still");
            });
            assert_eq!(tracing.join().is_err(), panics);
            shell.0.stdin.as_ref().unwrap().write_all(b"on\n").unwrap();
            assert_eq!(shell.line(), "on\n");
        }
    }

    #[test]
    fn a_thread_that_ends_is_said_to() {
        let shell = Shell::start();
        let tid = shell.tid();
        let tracing = std::thread::spawn(move || {
            let mut tracer = Tracer::of_this_thread();
            tracer.ask(tid).unwrap();
            drop(wait(&mut tracer));
            tracer.ask(tid).unwrap();
            assert!(Command::new("kill").args(["-s", "KILL", &tid.to_string()]).status().unwrap().success());
            loop {
                match wait(&mut tracer) {
                    Event::Ended(ended) | Event::RanOn { tid: ended, .. } => return ended,
                    Event::Stopped(stopped) => {
                        drop(stopped);
                        match tracer.ask(tid) {
                            Ok(()) => {}
                            // It is ending.
                            Err(error) => {
                                assert!([Errno::ESRCH, Errno::EPERM].contains(&error), "{error}");
                                return tid;
                            }
                        }
                    }
                }
            }
        });
        assert_eq!(tracing.join().unwrap(), tid);
    }
}
