//! Processes that are looked at while they are sampled: `wlprof attach --listen` and `wlprof top --pid`.

use crate::attach::{Host, POINTS, SCRIPT, check_python};
use crate::guest::{Place, fixture, send_signal};
use crate::http::{Answer, get};
use crate::live::listening_at;
use crate::pprof::times_by_pprof;
use crate::running::{wait_until, with_default_signals};
use crate::sampled::{Shares, innermost_functions};
use crate::top::{OnTerminal, rows};
use std::process::{Child, Stdio};
use wlprof::recording::{Recording, file};

/// `wlprof attach --listen` of a host.
pub(crate) struct Listener {
    wlprof: Child,
    pub(crate) address: String,
}

impl Listener {
    pub(crate) fn start(place: &Place, host: &Host, options: &[&str]) -> Self {
        let pid = host.pid().to_string();
        let arguments = ["attach", "--listen=0"].iter().chain(options).copied().chain([&*pid]);
        let mut command = with_default_signals(&place.command(arguments));
        let mut wlprof =
            command.current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let address = listening_at(&mut wlprof);
        Self { wlprof, address }
    }

    fn get(&self, path: &str) -> Answer {
        get(&self.address, path)
    }

    fn body(&self, path: &str) -> Vec<u8> {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.body
    }

    /// A window with some hundred samples.
    fn recording(&self, query: &str) -> Recording {
        for doubled in 0..10 {
            let recording = file::read(&self.body(&format!("/wlprof?seconds={}{query}", 1 << doubled))).unwrap();
            assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
            if recording.ticks.sampled > 400 {
                return recording;
            }
        }
        panic!("the host has hardly run");
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn end(mut self) {
        send_signal(self.wlprof.id(), "INT");
        assert_eq!(self.wlprof.wait().unwrap().code(), Some(0));
    }
}

/// It may not be left to itself when its test has failed.
impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.wlprof.kill();
        let _ = self.wlprof.wait();
    }
}

const FAST: &[&str] = &["--rate=500", "--max-overhead=100"];

#[test]
fn windows_of_a_process_are_to_be_had_while_it_is_sampled() {
    let place = Place::new();
    let host = Host::of(&place, fixture("c-shares.wasm").to_str().unwrap());
    let listener = Listener::start(&place, &host, FAST);
    let recording = listener.recording("");
    let shares = Shares::of(innermost_functions(&recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    let weights: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    assert_eq!(weights, recording.meta.cpu_ns);
    let times = times_by_pprof(&place.file("cpu.pb.gz", listener.body("/debug/pprof/profile?seconds=2")));
    assert!(times["heavy"].0 > 0 && times["main"].1 > 0, "{times:?}");
    let page = String::from_utf8(listener.body("/?seconds=1")).unwrap();
    assert!(page.contains("heavy  c/shares.c:"), "{page}");
    let stacks = String::from_utf8(listener.body("/debug/pprof/threads?debug=2")).unwrap();
    assert!(stacks.contains("[running]:") && stacks.contains("main(...)\n\t"), "{stacks}");
    // What it samples has no waits in it.
    let waits = listener.get("/wlprof?seconds=1&clock=wall");
    assert!(waits.status == 409 && waits.text().contains("--clock=wall"), "{}", waits.text());
    let metrics = String::from_utf8(listener.body("/metrics")).unwrap();
    let samples = metrics.lines().find_map(|line| line.strip_prefix("wlprof_samples_total ")).unwrap();
    assert!(samples.parse::<u64>().unwrap() >= recording.ticks.sampled, "{metrics}");
    listener.end();
    assert!(place.files() == ["cpu.pb.gz"], "{:?}", place.files());
    let before = host.cpu_ticks();
    wait_until("the host runs on", || host.cpu_ticks() > before + 2);
}

#[test]
fn windows_of_python_have_its_names_and_so_has_what_is_left_when_wlprof_is_killed() {
    let place = Place::new();
    place.file("script.py", SCRIPT);
    let guest = fixture("python-3.11.wasm");
    let arguments = ["--sampler=off", "-q", "--lang=python", "--dir=.", guest.to_str().unwrap(), "script.py"];
    let host = Host::start(&mut place.command(arguments));
    let compiled = host.cpu_ticks();
    wait_until("the script runs", || host.cpu_ticks() > compiled + 300);
    let mut listener = Listener::start(&place, &host, &[FAST, &["-o", "x.wlprof"]].concat());
    check_python(&listener.recording(""));
    wait_until("names have been written", || {
        let recording = std::fs::read(place.path("x.wlprof")).ok().and_then(|bytes| file::read(&bytes).ok());
        let has = |name: &str| {
            let named = |recording: &Recording| recording.functions.iter().any(|function| function.name == name);
            recording.as_ref().is_some_and(named)
        };
        ["work", "heavy", "light", "<module>"].into_iter().all(has)
    });
    send_signal(listener.wlprof.id(), "KILL");
    listener.wlprof.wait().unwrap();
    check_python(&place.recording("x.wlprof"));
}

#[test]
fn a_process_is_shown_on_the_terminal_and_runs_on() {
    let place = Place::new();
    let host = Host::of(&place, fixture("c-shares.wasm").to_str().unwrap());
    let pid = host.pid().to_string();
    let mut top = OnTerminal::start(&place, ["--pid", &*pid]);
    let screen = top.wait_for("what is hot", |screen| {
        let rows = rows(screen);
        rows.first().is_some_and(|row| row.contains("heavy")) && rows.iter().any(|row| row.contains("light"))
    });
    assert!(screen.contains(&format!("process {pid}: sampled for")), "{screen}");
    top.press("w");
    top.wait_for("a profile", |screen| screen.contains("wrote profile.json"));
    top.press("q");
    let (code, signal, screen) = top.end();
    assert_eq!((code, signal, screen.trim()), (Some(0), None, ""));
    let before = host.cpu_ticks();
    wait_until("the host runs on", || host.cpu_ticks() > before + 2);
    // It stays when the process has ended.
    let mut top = OnTerminal::start(&place, ["--pid", &*pid]);
    top.wait_for("what is hot", |screen| rows(screen).iter().any(|row| row.contains("heavy")));
    drop(host);
    top.wait_for("the end", |screen| screen.contains("has ended"));
    top.press("q");
    assert_eq!(top.end().0, Some(0));
}

#[test]
fn options_of_a_run_are_refused_beside_a_process() {
    let place = Place::new();
    for option in ["--dir=.", "-Wfuel=3", "-Scli", "--lang=go", "--invoke=main", "--debug-file=x", "--sampler=epoch"] {
        let ran = place.run(["top", "--pid=1", option]);
        let says = "the argument '--pid <PID>' cannot be used with '";
        assert!(ran.code == Some(125) && ran.stderr.contains(says), "{option}: {ran:?}");
    }
}

#[test]
fn others_may_look_at_a_process_while_it_is_sampled() {
    let place = Place::new();
    let host = Host::of(&place, fixture("go-goroutines-1.27.wasm").to_str().unwrap());
    let pid = host.pid().to_string();
    let listener = Listener::start(&place, &host, &[]);
    for _ in 0..10 {
        let ran = place.run(["ps"]);
        let row = ran.stdout.lines().map(|row| row.split_whitespace().collect::<Vec<_>>()).find(|row| row[0] == pid);
        // Release, images, threads in wasm, language, guest.
        let row = row.unwrap_or_else(|| panic!("{ran:?}"));
        assert_eq!(row[1..6], ["48", "1", "1", "go", "go-goroutines-1.27.wasm"], "{ran:?}");
        let dump = place.run(["dump", "--threads", "--pid", &pid]);
        assert!(dump.code == Some(0) && dump.stdout.contains("goroutine "), "{dump:?}");
    }
    assert!(listener.recording("").ticks.sampled > 0);
    listener.end();
}
