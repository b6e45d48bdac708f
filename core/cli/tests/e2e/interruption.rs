//! Ctrl-C and its kin: the process dies of the signal as it would have without wlprof, and leaves a whole profile.

use crate::guest::{Place, finish, fixture, fixture_bytes, send_signal, was_seen};
use crate::running::{SAME_PRESS, Started, start, wait_until, with_default_signals};
use crate::sections::{Section, join, split};
use crate::world;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use wlprof::recording::{Recording, State, file};

const SIGNALS: [(&str, i32); 3] = [("INT", 2), ("TERM", 15), ("HUP", 1)];

#[test]
fn a_working_guest_dies_of_the_signal_and_leaves_a_profile() {
    let spin = fixture("c-spin.wasm");
    for sampler in ["signal", "epoch"] {
        for (name, number) in SIGNALS {
            let place = Place::new();
            let option = format!("--sampler={sampler}");
            let started = start(&place.command(["-o", "p.wlprof", "-o", "p.json", &option, spin.to_str().unwrap()]));
            started.wait_for_work();
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
    for (sampler, clock) in [("signal", "cpu"), ("signal", "wall"), ("epoch", "cpu")] {
        let place = Place::new();
        place.file("cat.wat", world::CAT);
        let options = [format!("--sampler={sampler}"), format!("--clock={clock}")];
        let started = start(&place.command(["-o", "p.wlprof", &options[0], &options[1], "cat.wat"]));
        started.wait_for_rest();
        started.signal("INT");
        let ran = started.end();
        assert_eq!((ran.signal, ran.stdout.as_str()), (Some(2), ""), "{sampler} {clock}: {ran:?}");
        let recording = place.recording("p.wlprof");
        let waits = recording.samples().any(|sample| sample.state == State::Blocked);
        assert_eq!(waits, clock == "wall", "{sampler} {clock}");
        assert!(!waits || was_seen(&recording, "wasi_snapshot_preview1.fd_read"), "{sampler} {clock}");
    }
}

#[test]
fn a_ctrl_c_that_a_wrapper_doubles_costs_no_profile() {
    let place = Place::new();
    let spin = fixture("c-spin.wasm");
    let started = start(&place.command(["-q", "-o", "p.wlprof", spin.to_str().unwrap()]));
    started.wait_for_work();
    // Two different signals, because the kernel joins equal ones, and by one process, which sends them within half a second.
    let pid = started.child.id();
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {pid}; kill -TERM {pid}")]).status().unwrap();
    assert!(sent.success());
    let ran = started.end();
    assert!(ran.signal.is_some(), "{ran:?}");
    assert!(was_seen(&place.recording("p.wlprof"), "spin"));
}

/// A pipe that takes no more: whoever writes a profile to it waits.
struct FullPipe {
    /// Somebody must be there who could read.
    _reader: File,
}

impl FullPipe {
    fn new(path: &Path) -> Self {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        let mut pipe = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap();
        while pipe.write(&[0; 4096]).is_ok() {}
        Self { _reader: pipe }
    }

    /// Waits until `wlprof` has started a process that makes the profile, and gives its number.
    fn child_of(&self, wlprof: u32) -> u32 {
        let mut child = None;
        wait_until("a profile is being made", || {
            let stat = std::fs::read_to_string(format!("/proc/{wlprof}/stat")).unwrap();
            assert!(!stat.rsplit_once(") ").unwrap().1.starts_with('Z'), "wlprof has ended");
            let children = std::fs::read_to_string(format!("/proc/{wlprof}/task/{wlprof}/children")).unwrap();
            child = children.split_whitespace().next().map(|child| child.parse().unwrap());
            child.is_some()
        });
        child.unwrap()
    }
}

/// The one file in `place` that is a recording and is called by no name that was asked for.
fn kept_recording(place: &Place) -> String {
    let mut kept: Vec<_> = place.files().into_iter().filter(|name| name.ends_with(".wlprof")).collect();
    assert_eq!(kept.len(), 1, "{:?}", place.files());
    kept.remove(0)
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_the_profile_and_keeps_the_recording() {
    let place = Place::new();
    let pipe = FullPipe::new(&place.path("p.folded"));
    let spin = fixture("c-spin.wasm");
    let mut started = start(&place.command(["-q", "-o", "p.folded", "-o", "p.json", spin.to_str().unwrap()]));
    // Without samples there is nothing to write to the pipe, and nothing to wait for.
    started.wait_for_work();
    started.signal("INT");
    pipe.child_of(started.child.id());
    assert!(started.child.try_wait().unwrap().is_none(), "it did not wait for the pipe");
    std::thread::sleep(SAME_PRESS);
    started.signal("INT");
    let ran = started.end();
    assert_eq!(ran.signal, Some(2));
    assert!(ran.stderr.contains("it was interrupted; what was sampled is in "), "{ran:?}");
    assert!(ran.stderr.contains("/p.json.wlprof: "), "{ran:?}");
    place.recording(&kept_recording(&place));
}

#[test]
fn a_signal_after_the_end_of_the_guest_ends_wlprof() {
    for (name, number) in SIGNALS {
        let place = Place::new();
        let pipe = FullPipe::new(&place.path("p.folded"));
        let traps = fixture("c-traps.wasm");
        let mut command =
            with_default_signals(&place.command(["-o", "p.folded", "-o", "p.wlprof", traps.to_str().unwrap()]));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        pipe.child_of(child.id());
        send_signal(child.id(), name);
        let ran = finish(child, "wlprof after its guest");
        assert_eq!((ran.signal, ran.code), (Some(number), None), "{ran:?}");
        assert!(ran.stderr.contains("what was sampled is in p.wlprof"), "{ran:?}");
        place.recording("p.wlprof");
    }
}

#[test]
fn whatever_happens_to_the_making_of_a_profile_the_recording_and_the_exit_code_remain() {
    // Of a crash that is only sent, Rust's handler makes nothing.
    for signal in ["KILL", "XCPU", "ABRT"] {
        let place = Place::new();
        let pipe = FullPipe::new(&place.path("p.folded"));
        let traps = fixture("c-traps.wasm");
        let traps = traps.to_str().unwrap();
        let mut command = place.command(["-o", "p.folded", "-o", "p.json", traps, "exit", "3"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        send_signal(pipe.child_of(child.id()), signal);
        let ran = finish(child, "wlprof without its child");
        assert_eq!((ran.code, ran.signal), (Some(3), None), "{signal}: {ran:?}");
        assert!(ran.stderr.contains("no profile could be made"), "{signal}: {ran:?}");
        let kept = kept_recording(&place);
        assert!(ran.stderr.contains(&format!("/{kept}: ")), "{signal}: {ran:?}");
        let rendered = place.run(["render", "--guest", traps, &kept, "-o", "late.folded"]);
        assert_eq!(rendered.code, Some(0), "{rendered:?}");
        let folded = std::fs::read_to_string(place.path("late.folded")).unwrap();
        assert!(folded.contains("main;work "), "{folded}");
    }
}

#[test]
fn a_killed_wlprof_leaves_a_recording() {
    let place = Place::new();
    let is_debug = |section: &Section| section.as_custom().is_some_and(|(name, _)| name.starts_with(".debug"));
    let (debug, code): (Vec<Section>, Vec<Section>) =
        split(&fixture_bytes("c-spin.wasm")).into_iter().partition(is_debug);
    place.file("spin.wasm", join(&code));
    place.file("debug.wasm", join(&debug));
    let mut started = start(&place.command(["-o", "p.wlprof", "spin.wasm"]));
    wait_until("a second of samples is there", || {
        let found = std::fs::read(place.path("p.wlprof")).ok().and_then(|bytes| file::read(&bytes).ok());
        found.is_some_and(|recording| recording.meta.duration_ns > 1_000_000_000 && recording.ticks.sampled > 50)
    });
    started.child.kill().unwrap();
    assert_eq!(started.end().signal, Some(9));
    let options = ["--guest", "spin.wasm", "--debug-file", "debug.wasm"];
    let rendered = place.run(["render", "p.wlprof", "-o", "p.folded", "-o", "named.wlprof"].iter().chain(&options));
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    assert!(rendered.stdout.contains("note: the recording is not whole: wlprof was ended"), "{rendered:?}");
    assert!(std::fs::read_to_string(place.path("p.folded")).unwrap().contains("main;spin "));
    let named = place.recording("named.wlprof");
    let spin = named.functions.iter().find(|function| function.name == "spin").unwrap();
    assert!(spin.file.as_deref().is_some_and(|file| file.ends_with("c/spin.c")), "{spin:?}");
    let other = fixture("c-traps.wasm");
    let refused = place.run(["render", "--guest", other.to_str().unwrap(), "p.wlprof"]);
    assert_eq!(refused.code, Some(125));
    assert!(refused.stderr.contains("not the program that was run"), "{refused:?}");
}

#[test]
fn a_killed_wlprof_leaves_pythons_names_and_labels() {
    ["--sampler=signal", "--sampler=epoch"].into_iter().for_each(assert_names_are_left);
}

fn assert_names_are_left(sampler: &str) {
    let place = Place::new();
    place.file("spin.py", "print(\"ready\", flush=True)\n\ndef spin():\n    while True:\n        pass\n\nspin()\n");
    let python = fixture("python-3.11.wasm");
    let library = format!("--dir={}::/usr/local/lib", fixture("python-3.11-lib").display());
    let arguments = [sampler, "-o", "p.wlprof", "--dir=.", &library, python.to_str().unwrap(), "spin.py"];
    let mut started = start(&place.command(arguments));
    let is_named = |recording: &Recording| {
        recording.functions.iter().any(|function| function.name == "spin")
            && recording.label_sets.iter().flatten().any(|(_, value)| value == "python")
    };
    wait_until("names and labels are there", || {
        let found = std::fs::read(place.path("p.wlprof")).ok().and_then(|bytes| file::read(&bytes).ok());
        found.is_some_and(|recording| is_named(&recording))
    });
    started.child.kill().unwrap();
    assert_eq!(started.end().signal, Some(9));
    let rendered = place.run(["render", "p.wlprof", "-o", "p.folded"]);
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    // Other modules are called so, too: theirs have their files behind the name.
    let folded = std::fs::read_to_string(place.path("p.folded")).unwrap();
    assert!(folded.lines().any(|line| line.contains("<module>") && line.contains(";spin ")), "{folded}");
    let recording = place.recording("p.wlprof");
    let lines = recording.frames.iter().flat_map(|frame| &frame.lines);
    let in_spin = lines.filter(|line| recording.functions[line.function as usize].name == "spin");
    let in_spin: BTreeSet<Option<u32>> = in_spin.map(|line| line.line).collect();
    assert!(in_spin.is_subset(&[Some(3), Some(4), Some(5)].into()), "{in_spin:?}");
    assert!(is_named(&recording), "{:?}", recording.label_sets);
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
        let ran = finish(child, "a guest whose signals are ignored");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!((ran.code, ran.signal, rest.as_str()), (Some(0), None, "still here"), "{name}");
        place.recording("p.wlprof");
    }
}

#[test]
fn without_a_sampler_signals_are_not_touched() {
    let place = Place::new();
    let spin = fixture("c-spin.wasm");
    let started = start(&place.command(["--sampler=off", spin.to_str().unwrap()]));
    started.signal("INT");
    let ran = started.end();
    assert_eq!((ran.signal, ran.stdout.as_str(), ran.stderr.as_str()), (Some(2), "", ""));
    assert!(place.files().is_empty());
}

/// As shells start the background jobs of scripts. It stays so, as under `nohup`, and a line says what ends the run.
#[test]
fn a_program_that_ignores_ctrl_c_says_so_and_ends_by_sigterm() {
    let place = Place::new();
    let guest = fixture("c-spin.wasm");
    let wlprof = place.command([""; 0]);
    let script = r#"trap '' INT; exec "$@""#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(wlprof.get_program()).args(["-o", "x.folded"]).arg(&guest);
    shell.current_dir(place.path("")).stdin(Stdio::null());
    let mut started = start(&shell);
    started.wait_for_work();
    started.signal("INT");
    started.wait_for_work();
    assert!(started.child.try_wait().unwrap().is_none(), "Ctrl-C was to be ignored");
    started.signal("TERM");
    let ran = started.end();
    assert_eq!(ran.signal, Some(15), "{ran:?}");
    assert!(
        ran.stderr
            .contains("note: Ctrl-C (SIGINT) is ignored, as it was when wlprof was started; SIGTERM ends the run\n"),
        "{ran:?}"
    );
    assert!(place.path("x.folded").exists());
}
