//! The command line as people meet it: help, mistakes, names that look like commands.

use crate::guest::{Place, fixture, run};
use crate::world;
use std::process::Stdio;
use wlprof::export::EXPORTERS;

#[test]
fn without_arguments_it_says_how_to_be_used() {
    let ran = Place::new().run::<&str>([]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""));
    for part in ["Usage: wlprof", "GUEST", "--help"] {
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let place = Place::new();
    let version = place.run(["--version"]);
    assert_eq!((version.code, version.stderr.as_str()), (Some(0), ""));
    assert_eq!(version.stdout, format!("wlprof {}\n", env!("CARGO_PKG_VERSION")));
    let help = place.run(["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    let options =
        ["-o, --output", "--format", "--rate", "--clock", "--sampler", "--dir", "--env", "--invoke", "render"];
    for part in options.iter().chain(&["Exit codes:", "[default: 1000 in the first second", "profile.json"]) {
        assert!(help.stdout.contains(part), "no {part} in {}", help.stdout);
    }
    assert_describes_formats(&help.stdout);
}

fn assert_describes_formats(help: &str) {
    for exporter in EXPORTERS {
        let described = format!("- {}: ", exporter.name());
        let line = help.lines().find_map(|line| line.trim().strip_prefix(&described));
        assert_eq!(line.map(str::trim), Some(exporter.description()), "{help}");
        let ending = format!(".{} ({})", exporter.extensions()[0], exporter.name());
        assert!(help.contains(&ending), "no {ending} in {help}");
    }
}

#[test]
fn the_help_of_render_speaks_of_recordings() {
    let help = Place::new().run(["render", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for part in ["-o, --output", "the recording here, in another format", "merged"] {
        assert!(help.stdout.contains(part), "no {part} in {}", help.stdout);
    }
    assert_describes_formats(&help.stdout);
    for part in ["A run", "a guest that runs", "perfmap", "jitdump", "--lang"] {
        assert!(!help.stdout.contains(part), "{part} in {}", help.stdout);
    }
    assert!(help.stdout.contains("native:"), "{}", help.stdout);
}

#[test]
fn misspelt_options_are_answered_with_the_right_ones() {
    let place = Place::new();
    let ran = place.run(["--rat=5", "guest.wasm"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""));
    assert!(ran.stderr.contains("a similar argument exists: '--rate'"), "{ran:?}");
    for (option, message) in [
        ("--rate=0", "expected 1 to 100000"),
        ("--rate=nan", "expected 1 to 100000"),
        ("--max-overhead=101", "expected 0.01 to 100"),
        ("--sampler=perf", "[possible values: auto, signal, epoch, off]"),
        ("--clock=user", "[possible values: cpu, wall]"),
    ] {
        let ran = place.run([option, "guest.wasm"]);
        assert_eq!(ran.code, Some(125), "{option}");
        assert!(ran.stderr.contains(message), "{option}: {ran:?}");
    }
}

#[test]
fn what_other_tools_call_running_is_answered() {
    let place = Place::new();
    for word in ["run", "record"] {
        let ran = place.run([word, "guest.wasm"]);
        assert_eq!(ran.code, Some(127));
        assert!(ran.stderr.contains("wlprof [OPTIONS] GUEST [ARGS]"), "{ran:?}");
    }
}

#[test]
fn a_guest_may_be_named_like_a_command() {
    let place = Place::new();
    for name in ["render", "help", "run"] {
        place.file(name, world::print_arguments());
        let ran = place.run(["-q", &format!("./{name}"), "x"]);
        assert_eq!((ran.code, ran.stdout), (Some(0), format!("{name}\0x\0")), "{}", ran.stderr);
    }
    // A file of that name makes it no guest's name: what a command is must not depend on the folder.
    assert_eq!(place.run(["render", "nothing"]).code, Some(125));
}

#[test]
fn text_is_run_like_binary() {
    let place = Place::new();
    let tail_calls = fixture("wat-tail-calls.wat");
    let text = std::fs::read_to_string(&tail_calls).unwrap();
    place.file("a.wasm", wat::parse_str(&text).unwrap());
    // Text without the ending of text files.
    place.file("b", text);
    let runs = [tail_calls.to_str().unwrap(), "a.wasm", "b"]
        .map(|guest| place.run(["-q", "--sampler=off", "--invoke=run", guest, "100"]));
    assert_eq!(runs[0].code, Some(0), "{:?}", runs[0]);
    assert!(!runs[0].stdout.is_empty());
    assert!(runs.iter().all(|ran| ran.stdout == runs[0].stdout), "{runs:?}");
}

#[test]
fn the_cache_can_be_left_out() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    let ran = place.run(["-q", "--no-cache", traps.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    // Nor is there one where there is no home to keep it in.
    let mut command = place.command(["-q", traps.to_str().unwrap()]);
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME");
    let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}
