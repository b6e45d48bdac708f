//! Ctrl-C and its kin: the process dies of the signal as it would have without wlprof, and leaves a whole profile.

use crate::guest::{Place, Ran, finish, fixture, send_signal, was_seen};
use crate::world;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Long enough for hundreds of ticks, on a busy machine for dozens.
const SOME_WORK: Duration = Duration::from_millis(500);

/// A guest that has said "ready".
struct Started {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

fn start(command: &mut Command) -> Started {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Started { child, stdin, stdout }
}

impl Started {
    fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    /// Waits for the end. What the guest was still to read is kept back until then.
    fn end(mut self) -> Ran {
        let mut ran = finish(self.child, "an interrupted guest");
        drop(self.stdin);
        std::io::Read::read_to_string(&mut self.stdout, &mut ran.stdout).unwrap();
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        ran
    }
}

const SIGNALS: [(&str, i32); 3] = [("INT", 2), ("TERM", 15), ("HUP", 1)];

#[test]
fn a_working_guest_dies_of_the_signal_and_leaves_a_profile() {
    let spin = fixture("c-spin.wasm");
    for sampler in ["signal", "epoch"] {
        for (name, number) in SIGNALS {
            let place = Place::new();
            let option = format!("--sampler={sampler}");
            let started =
                start(&mut place.command(["-o", "p.wlprof", "-o", "p.json", &option, spin.to_str().unwrap()]));
            std::thread::sleep(SOME_WORK);
            started.signal(name);
            let ran = started.end();
            assert_eq!((ran.signal, ran.code), (Some(number), None), "{sampler} {name}: {ran:?}");
            assert_eq!(ran.stdout, "", "wlprof wrote to the guest's output");
            assert!(ran.stderr.contains("c-spin.wasm: "), "no summary: {ran:?}");
            assert!(was_seen(&place.recording("p.wlprof"), "spin"), "{sampler} {name}");
            assert_eq!(place.files(), ["p.json", "p.wlprof"]);
            let json = std::fs::read(place.path("p.json")).unwrap();
            serde_json::from_slice::<serde_json::Value>(&json).unwrap();
        }
    }
}

#[test]
fn a_guest_that_waits_dies_of_the_signal_too() {
    for sampler in ["signal", "epoch"] {
        for clock in ["cpu", "wall"] {
            let place = Place::new();
            place.file("cat.wat", world::CAT);
            let options = [format!("--sampler={sampler}"), format!("--clock={clock}")];
            let started = start(&mut place.command(["-o", "p.wlprof", &options[0], &options[1], "cat.wat"]));
            std::thread::sleep(SOME_WORK);
            started.signal("INT");
            let ran = started.end();
            assert_eq!((ran.signal, ran.stdout.as_str()), (Some(2), ""), "{sampler} {clock}: {ran:?}");
            let recording = place.recording("p.wlprof");
            let in_read = was_seen(&recording, "wasi_snapshot_preview1.fd_read");
            assert_eq!(in_read, sampler == "signal" && clock == "wall", "{sampler} {clock}");
        }
    }
}

#[test]
fn a_ctrl_c_that_a_wrapper_doubles_costs_no_profile() {
    let place = Place::new();
    let spin = fixture("c-spin.wasm");
    let started = start(&mut place.command(["-q", "-o", "p.wlprof", spin.to_str().unwrap()]));
    std::thread::sleep(SOME_WORK);
    // Two different signals, because the kernel joins equal ones.
    started.signal("INT");
    started.signal("TERM");
    let ran = started.end();
    assert!(ran.signal.is_some(), "{ran:?}");
    assert!(was_seen(&place.recording("p.wlprof"), "spin"));
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_the_profile() {
    let place = Place::new();
    // Nobody reads from it, so that writing the profile takes forever.
    assert!(Command::new("mkfifo").arg(place.path("p.wlprof")).status().unwrap().success());
    let spin = fixture("c-spin.wasm");
    let mut started = start(&mut place.command(["-q", "-o", "p.wlprof", spin.to_str().unwrap()]));
    started.signal("INT");
    std::thread::sleep(2 * SOME_WORK);
    assert!(started.child.try_wait().unwrap().is_none(), "it did not try to write the profile");
    started.signal("INT");
    assert_eq!(started.end().signal, Some(2));
}

#[test]
fn signals_that_were_ignored_stay_ignored() {
    for (name, _) in SIGNALS {
        let place = Place::new();
        place.file("cat.wat", world::CAT);
        let inner = place.command(["-q", "-o", "p.wlprof", "cat.wat"]);
        let mut command = Command::new("sh");
        command.args(["-c", r#"trap "" "$0"; exec "$@""#, name]).arg(inner.get_program()).args(inner.get_args());
        let mut started = start(command.current_dir(inner.get_current_dir().unwrap()));
        started.signal(name);
        started.stdin.write_all(b"still here").unwrap();
        let Started { child, stdin, mut stdout } = started;
        drop(stdin);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
        let status = child.wait_with_output().unwrap().status;
        assert_eq!((status.code(), status.signal(), rest.as_str()), (Some(0), None, "still here"), "{name}");
        place.recording("p.wlprof");
    }
}

#[test]
fn without_a_sampler_signals_are_not_touched() {
    let place = Place::new();
    let spin = fixture("c-spin.wasm");
    let started = start(&mut place.command(["--sampler=off", spin.to_str().unwrap()]));
    started.signal("INT");
    let ran = started.end();
    assert_eq!((ran.signal, ran.stdout.as_str(), ran.stderr.as_str()), (Some(2), "", ""));
    assert!(place.files().is_empty());
}

#[test]
fn a_profile_that_cannot_be_written_does_not_change_the_end() {
    let place = Place::new();
    let spin = fixture("c-spin.wasm");
    let started = start(&mut place.command(["-q", "-o", "no/such/folder.json", spin.to_str().unwrap()]));
    started.signal("TERM");
    let ran = started.end();
    assert_eq!(ran.signal, Some(15));
    assert!(ran.stderr.contains("cannot write no/such/folder.json"), "{}", ran.stderr);
}
