//! Guests that run while a test looks on, and waiting for what they do: for as long as a slow or busy machine takes, and not
//! without end.

use crate::guest::{Ran, finish, send_signal};
use crate::sampled::with_ever_more_work;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Has other threads of a test end when it is dropped: also if the test fails, which would wait for them for ever.
pub(crate) struct EndOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// After this long a run counts as hung. Only failures wait for it, so it is far beyond what the busiest machine needs.
const HUNG: Duration = Duration::from_secs(30 * 60);
/// The thread that looks where the guest waits, of either sampler.
const LOOKER: &[&str] = &["wlprof drain", "wlprof ticker"];
/// Signals that end the process and come this soon after one count as the same press of a key.
pub(crate) const SAME_PRESS: Duration = Duration::from_millis(500);
/// How often a wait looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns when `holds` does.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < HUNG, "in vain: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Ends a process that hangs, so that what reads its output comes to an end.
pub(crate) struct Watchdog {
    disarm: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    pub(crate) fn of(child: &Child) -> Self {
        let (disarm, disarmed) = channel::<()>();
        let pid = child.id();
        let thread = std::thread::spawn(move || {
            let hung = disarmed.recv_timeout(HUNG) == Err(RecvTimeoutError::Timeout);
            if hung {
                send_signal(pid, "KILL");
            }
            hung
        });
        Self { disarm, thread }
    }

    /// Whether the process had to be ended.
    pub(crate) fn has_bitten(self) -> bool {
        drop(self.disarm);
        self.thread.join().unwrap()
    }
}

/// `command` with the signals that end programs as a terminal's shell leaves them: what scripts start in the background
/// has some of them ignored. Standard input is empty.
pub(crate) fn with_default_signals(command: &Command) -> Command {
    let mut wrapped = Command::new("env");
    wrapped.arg("--default-signal=HUP,INT,QUIT,TERM,TSTP").arg(command.get_program()).args(command.get_args());
    wrapped.stdin(Stdio::null());
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}

/// A guest that has said "ready".
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: BufReader<ChildStdout>,
}

pub(crate) fn start(command: &Command) -> Started {
    let mut command = with_default_signals(command);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let watchdog = Watchdog::of(&child);
    let stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(!watchdog.has_bitten(), "{command:?} does not begin");
    assert_eq!(line, "ready\n", "{command:?}");
    Started { child, stdin, stdout }
}

impl Started {
    pub(crate) fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    /// Waits until the guest has worked for a while and been sampled at it: a fifth of a second of CPU time, hundreds of
    /// samples at the usual rate.
    pub(crate) fn wait_for_work(&self) {
        let (guest, looker) = (self.thread(&["guest"]), self.thread(LOOKER));
        let (worked, looked) = (guest.cpu_ticks() + 20, looker.sleeps() + 5);
        wait_until("the guest works", || guest.cpu_ticks() >= worked && looker.sleeps() >= looked);
    }

    /// Waits until the guest waits: until it has slept while its sampler looked ten times.
    pub(crate) fn wait_for_rest(&self) {
        let (guest, looker) = (self.thread(&["guest"]), self.thread(LOOKER));
        let (mut woken, mut since) = (guest.sleeps(), looker.sleeps());
        wait_until("the guest waits", || {
            let (woken_now, now) = (guest.sleeps(), looker.sleeps());
            if !guest.is_asleep() || woken_now != woken {
                (woken, since) = (woken_now, now);
            }
            now >= since + 10
        });
    }

    fn thread(&self, names: &[&str]) -> Thread {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let mut found = None;
        wait_until(names[0], || {
            let entries = std::fs::read_dir(&tasks).unwrap().filter_map(Result::ok);
            found = entries
                .map(|entry| Thread(entry.path()))
                .find(|thread| names.contains(&thread.read("comm").trim_end()));
            found.is_some()
        });
        found.unwrap()
    }

    /// Ends its input, waits for the end and gives what it has written after its first line.
    pub(crate) fn end_of_input(mut self) -> Ran {
        drop(self.stdin);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let ran = finish(self.child, "a guest at the end of its input");
        Ran { stdout: rest, ..ran }
    }

    /// Waits for the end. What the guest was still to read is kept back until then.
    pub(crate) fn end(mut self) -> Ran {
        let mut ran = finish(self.child, "an interrupted guest");
        drop(self.stdin);
        self.stdout.read_to_string(&mut ran.stdout).unwrap();
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }
}

/// What `wlprof dump` says at first of a guest that goes on, up to an empty line. It is asked later and later, until the guest
/// has come so far that `is_it` holds, and the guest is ended each time. `dump_at` makes the command for a time in seconds.
pub(crate) fn first_of_dump(dump_at: impl Fn(&str) -> Command, is_it: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    with_ever_more_work("a guest that has begun", |times| {
        let mut command = dump_at(&(0.1 * times as f64).to_string());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::of(&child);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        assert!(!watchdog.has_bitten(), "{command:?} hung");
        child.kill().unwrap();
        child.wait().unwrap();
        text = first.join("\n");
        println!("{text}");
        is_it(&text)
    });
    text
}

/// A thread of another process, as a folder in `/proc`.
struct Thread(PathBuf);

impl Thread {
    /// A file of the folder; empty when the thread is gone.
    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap_or_default()
    }

    /// The fields of `stat` from the third on, the thread's state: the second is its name, which may hold anything.
    fn stat(&self) -> Vec<String> {
        let stat = self.read("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_ascii_whitespace().map(str::to_owned).collect()
    }

    fn is_asleep(&self) -> bool {
        self.stat().first().is_some_and(|state| state == "S")
    }

    /// CPU time, in hundredths of a second on any Linux: fields 14 and 15 of `stat`.
    fn cpu_ticks(&self) -> u64 {
        let stat = self.stat();
        let field = |number: usize| stat[number - 3].parse::<u64>().unwrap();
        field(14) + field(15)
    }

    /// How often it went to sleep.
    fn sleeps(&self) -> u64 {
        let status = self.read("status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("the thread runs").trim().parse().unwrap()
    }
}
