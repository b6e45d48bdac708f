//! `wlprof top`, on a terminal whose screen another program's code keeps.

use crate::guest::{Place, fixture, output, send_signal};
use crate::running::wait_until;
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::termios::{LocalFlags, tcgetattr};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use vt100::Parser;

const ROWS: u16 = 30;
const COLUMNS: u16 = 120;

/// What came to the terminal.
struct Shown {
    screen: Parser,
    bytes: Vec<u8>,
}

/// `wlprof top` on a terminal of its own.
pub(crate) struct OnTerminal {
    child: Child,
    keyboard: File,
    /// Its end of the terminal, so that it can be looked at when the process has ended.
    terminal: File,
    shown: Arc<Mutex<Shown>>,
    reader: JoinHandle<()>,
}

impl OnTerminal {
    pub(crate) fn start<A: AsRef<OsStr>>(place: &Place, arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = place.command(["top"]);
        command.args(arguments);
        Self::run(place, &command)
    }

    /// The same of another of wlprof's commands.
    pub(crate) fn run(place: &Place, wlprof: &Command) -> Self {
        // Processes that other tests start at the same time must not have it: it would stay open.
        let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let no_ctty = OFlag::O_NOCTTY.bits();
        let slave = File::options().read(true).write(true).custom_flags(no_ctty).open(ptsname_r(&master).unwrap());
        let slave = slave.unwrap();
        let mut command = Command::new("setsid");
        // The terminal that is its standard input becomes the process's own.
        command.args(["--ctty", "sh", "-c", &format!("stty rows {ROWS} cols {COLUMNS} && exec \"$@\""), "sh"]);
        command.arg(wlprof.get_program()).args(wlprof.get_args());
        command.envs(wlprof.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(place.path("")).env("TERM", "xterm-256color");
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        let shown = Shown { screen: Parser::new(ROWS, COLUMNS, 0), bytes: Vec::new() };
        let shown = Arc::new(Mutex::new(shown));
        let keyboard = File::from(OwnedFd::from(master));
        let (mut from_child, kept) = (keyboard.try_clone().unwrap(), shown.clone());
        let read = move || {
            let mut chunk = [0; 4096];
            // With the last of its other ends closed it fails.
            while let Ok(length @ 1..) = from_child.read(&mut chunk) {
                let mut kept = kept.lock().unwrap();
                kept.screen.process(&chunk[..length]);
                kept.bytes.extend(&chunk[..length]);
            }
        };
        Self { child, keyboard, terminal: slave, shown, reader: std::thread::spawn(read) }
    }

    fn screen(&self) -> String {
        self.shown.lock().unwrap().screen.screen().contents()
    }

    pub(crate) fn press(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).unwrap();
    }

    /// Waits until something holds for what is on the screen, and gives that.
    pub(crate) fn wait_for(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let ended = |child: &mut Child| child.try_wait().unwrap();
        wait_until(what, || {
            screen = self.screen();
            let done = holds(&screen);
            assert!(done || ended(&mut self.child).is_none(), "ended without {what}: {screen}");
            done
        });
        screen
    }

    /// Waits for the end, and gives all that was written.
    pub(crate) fn written(mut self) -> String {
        self.child.wait().unwrap();
        drop((self.terminal, self.keyboard));
        self.reader.join().unwrap();
        String::from_utf8_lossy(&self.shown.lock().unwrap().bytes).into_owned()
    }

    /// Waits for the end: its code, its signal, and what is then on the screen.
    pub(crate) fn end(mut self) -> (Option<i32>, Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG), "{flags:?}");
        drop((self.terminal, self.keyboard));
        self.reader.join().unwrap();
        let shown = self.shown.lock().unwrap();
        let screen = shown.screen.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        (status.code(), status.signal(), screen.contents())
    }
}

/// The rows of the table: from the one below its head.
pub(crate) fn rows(screen: &str) -> Vec<&str> {
    let is_head = |line: &&str| line.contains("self") && line.contains("total") && !line.contains("quit");
    let rows = screen.lines().skip_while(|line| !is_head(line)).skip(1);
    rows.take_while(|line| line.contains('±')).collect()
}

/// The share that stands first in a row, and its bound.
fn share(row: &str) -> Option<(f64, f64)> {
    let mut words = row.split_whitespace();
    let percent = words.next()?.parse().ok()?;
    Some((percent, words.next()?.trim_start_matches('±').parse().ok()?))
}

#[test]
fn what_is_hot_is_shown_and_keys_do_what_they_say() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm");
    let mut top = OnTerminal::start(&place, [guest.as_os_str(), OsStr::new("100000")]);
    let hot = |screen: &str| rows(screen).first().is_some_and(|row| row.contains("heavy"));
    // It is drawn in pieces, so all of this is asked of one and the same screen.
    let is_true = |screen: &str| {
        let (percent, bound) = rows(screen).first().and_then(|row| share(row)).unwrap_or_default();
        hot(screen)
            && bound > 0.0
            && (percent - 75.0).abs() <= bound + 1.0
            && rows(screen).iter().any(|row| row.contains("light"))
    };
    let screen = top.wait_for("three quarters in heavy", is_true);
    assert!(screen.contains("c-shares.wasm 100000: runs for"), "{screen}");

    // The two are called by what has all of the time.
    let is_called = |row: &str| row.contains("heavy") || row.contains("light");
    top.press("s");
    let by_total = |screen: &str| {
        let rows = rows(screen);
        let first_called = rows.iter().position(|row| is_called(row));
        screen.contains("total ▼") && first_called.is_some_and(|first| first > 0)
    };
    top.wait_for("by total", by_total);
    top.press("s");
    top.wait_for("by self", |screen| screen.contains("self ▼") && hot(screen));

    top.press("l");
    let lines = |screen: &str| {
        let of_heavy = |row: &&&str| row.contains("heavy") && row.contains("shares.c:23");
        let is_head = |line: &str| line.contains("total") && line.trim_end().ends_with(" lines");
        hot(screen) && rows(screen).iter().filter(of_heavy).count() >= 1 && screen.lines().any(is_head)
    };
    top.wait_for("lines", lines);
    top.press("t");
    top.wait_for("threads", |screen| rows(screen).len() == 1 && rows(screen)[0].contains("mostly in heavy"));
    top.press("f");
    top.press("a");
    top.wait_for("the whole run", |screen| screen.contains("the whole run:") && hot(screen));

    top.press(" ");
    top.wait_for("frozen", |screen| screen.contains("frozen picture of"));
    top.press("w");
    top.wait_for("a profile", |screen| screen.contains("wrote profile.json"));
    let profile = std::fs::read(place.path("profile.json")).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&profile).unwrap()["threads"].is_array());
    top.press(" ");
    top.wait_for("it goes on", |screen| screen.contains("runs for"));

    top.press("q");
    let (code, signal, screen) = top.end();
    assert_eq!((code, signal, screen.trim()), (Some(0), None, ""));
    assert_eq!(place.files(), ["profile.json"]);
}

const ENDS: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\10\00\00\00\06\00\00\00")
  (data (i32.const 16) "hello\n")
  (func (export "_start")
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $exit (i32.const 7))))"#;

#[test]
fn the_guests_output_and_its_code_come_when_it_is_over() {
    let place = Place::new();
    place.file("ends.wat", ENDS);
    let mut top = OnTerminal::start(&place, ["ends.wat"]);
    let screen = top.wait_for("its end", |screen| screen.contains("ends.wat: ended with code 7"));
    assert!(!screen.contains("hello"), "{screen}");
    top.press("q");
    let (code, _, screen) = top.end();
    assert_eq!((code, screen.trim()), (Some(7), "hello"));
}

#[test]
fn signals_end_it_and_the_terminal_is_as_before() {
    let place = Place::new();
    for (key, signal) in [("\u{3}", 2), ("", 15)] {
        let mut top = OnTerminal::start(&place, [fixture("c-shares.wasm").as_os_str(), OsStr::new("100000")]);
        top.wait_for("it runs", |screen| screen.contains("c-shares.wasm") && !screen.contains("compiling"));
        if key.is_empty() {
            send_signal(top.child.id(), "TERM");
        }
        top.press(key);
        let (_, died_of, screen) = top.end();
        assert_eq!((died_of, screen.trim()), (Some(signal), ""));
    }
}

/// What has it takes no part in the test, so that it can be ended with all that it holds of the terminal.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm");
    let wlprof = place.command(["top", guest.to_str().unwrap(), "100000"]);
    let told = place.path("pid");
    let words = std::iter::once(wlprof.get_program()).chain(wlprof.get_args());
    let quoted: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    place.file("run.sh", format!("echo $$ > pid\nexec {}\n", quoted.join(" ")));
    let mut script = Command::new("script");
    script.args(["-qc", "sh run.sh", "typescript"]).current_dir(place.path(""));
    script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut script = script.spawn().unwrap();
    let pid = || std::fs::read_to_string(&told).ok().and_then(|pid| pid.trim().parse::<u32>().ok());
    let threads = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect::<Vec<_>>()
    };
    let is_drawn = |pid: u32| threads(pid).iter().any(|name| name.starts_with("wlprof screen"));
    wait_until("it draws", || pid().is_some_and(is_drawn));
    let pid = pid().unwrap();
    send_signal(script.id(), "KILL");
    script.wait().unwrap();
    // Whoever inherits it may leave it a zombie.
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let has_ended = || state().rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('Z'));
    wait_until("it has ended", has_ended);
}

#[test]
fn names_are_text_and_nothing_else() {
    let place = Place::new();
    let guest = r#"(module
      (func (export "\1b]0;title\07\1b[2J\c2\9b31m\e2\80\ae") (loop $again (br $again)))
      (func (export "_start") (call 0)))"#;
    place.file("names.wat", guest);
    let mut top = OnTerminal::start(&place, ["names.wat", "\u{1b}]0;x\u{7}\u{202e}"]);
    top.wait_for("a row", |screen| rows(screen).iter().any(|row| row.contains("title")));
    let bytes = top.shown.lock().unwrap().bytes.clone();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(!has("\u{202e}".as_bytes()));
    assert!(!has(b"\x1b]") && !has(b"\x07") && !has("\u{9b}".as_bytes()), "{}", String::from_utf8_lossy(&bytes));
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    let place = Place::new();
    let wlprof = place.command(["top", fixture("c-shares.wasm").to_str().unwrap()]);
    let mut command = Command::new("setsid");
    let ran = output(command.arg("--wait").arg(wlprof.get_program()).args(wlprof.get_args()));
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("no terminal") && ran.stderr.contains("--listen"), "{}", ran.stderr);

    let ran = place.run(["top", "-o", "x.unknown", "guest.wasm"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("its ending tells no format"), "{ran:?}");
    let ran = place.run(["top", "--sampler=off", "guest.wasm"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("leave out --sampler=off"), "{ran:?}");
}
