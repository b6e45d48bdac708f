//! The command line as people meet it: help, mistakes, names that look like commands.

use crate::guest::{Place, fixture, output, run};
use crate::world;
use std::process::{Command, Stdio};
use wlprof::export::EXPORTERS;

#[test]
fn without_arguments_it_says_how_to_be_used() {
    let ran = Place::new().run::<&str>([]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""));
    for part in ["Usage: wlprof", "GUEST", "--help", "wlprof view run.wlprof", "Commands: render, diff, "] {
        assert!(ran.stderr.contains(part), "{ran:?}");
    }
    assert!(ran.stderr.lines().count() < 15 && !ran.stderr.contains("make-profile"), "{}", ran.stderr);
    assert!(widest(&ran.stderr) <= 80, "{}", ran.stderr);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let place = Place::new();
    let version = place.run(["--version"]);
    assert_eq!((version.code, version.stderr.as_str()), (Some(0), ""));
    assert_eq!(version.stdout, format!("wlprof {} (Wasmtime {})\n", env!("CARGO_PKG_VERSION"), locked_wasmtime()));
    let help = place.run(["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    let options =
        ["-o, --output", "--format", "--rate", "--clock", "--sampler", "--dir", "--env", "--invoke", "render"];
    for part in options.iter().chain(&["Exit codes:", "[default: 1000 in the first second", "profile.json"]) {
        assert!(words(&help.stdout).contains(part), "no {part} in {}", help.stdout);
    }
    assert_describes_formats(&help.stdout);
}

#[test]
fn short_help_fits_a_screen() {
    let help = Place::new().run(["-h"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.lines().count() <= 60, "{}", help.stdout);
    assert!(widest(&help.stdout) <= 80, "{}", help.stdout);
    for option in ["--output", "--rate", "--clock", "--memory", "--listen", "--lang", "--dir"] {
        assert!(help.stdout.contains(option), "no {option} in {}", help.stdout);
    }
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
}

#[test]
fn help_is_no_wider_than_100_columns() {
    let place = Place::new();
    for command in ["", "render", "annotate", "view", "bench", "top", "dump", "serve", "plugins check"] {
        let help = place.run(command.split_whitespace().chain(["--help"])).stdout;
        assert!(widest(&help) <= 100, "{command}: {help}");
    }
}

/// The version of Wasmtime in Cargo.lock.
fn locked_wasmtime() -> String {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
    let (_, entry) = lock.split_once("name = \"wasmtime\"\nversion = \"").unwrap();
    entry.split('"').next().unwrap().to_owned()
}

/// What bash completes the last of `words` to, by the script that wlprof gives for it.
fn completed_by_bash(place: &Place, words: &[&str]) -> String {
    let script = place.run(["completions", "bash"]);
    assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""));
    let script = place.file("wlprof.bash", script.stdout);
    let complete = r#". "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _wlprof wlprof "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"; echo "${COMPREPLY[*]}""#;
    let mut bash = Command::new("bash");
    let completed = output(bash.args(["--norc", "-c", complete, "bash"]).arg(script).args(words));
    assert_eq!((completed.code, completed.stderr.as_str()), (Some(0), ""));
    completed.stdout.trim().to_owned()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    let place = Place::new();
    assert_eq!(completed_by_bash(&place, &["wlprof", "ann"]), "annotate");
    assert_eq!(completed_by_bash(&place, &["wlprof", "--samp"]), "--sampler");
    assert_eq!(completed_by_bash(&place, &["wlprof", "--sampler", "s"]), "signal");
    assert_eq!(completed_by_bash(&place, &["wlprof", "plugins", "che"]), "check");
    // What wlprof starts itself as is nothing for people, and options that it refuses are not proposed.
    assert_eq!(completed_by_bash(&place, &["wlprof", "make"]), "");
    for command in [&["wlprof", "--rec"][..], &["wlprof", "serve", "--rec"]] {
        assert_eq!(completed_by_bash(&place, command), "", "{command:?}");
    }
}

#[test]
fn every_shell_has_a_script_and_a_closed_pipe_is_no_failure() {
    let place = Place::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.run(["completions", shell]);
        assert_eq!((script.code, script.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(script.stdout.contains("annotate") && script.stdout.contains("max-overhead"), "{shell}");
        assert!(!script.stdout.contains("make-profile"), "{shell}");
    }
    let unknown = place.run(["completions", "sh"]);
    assert_eq!(unknown.code, Some(125));
    assert!(unknown.stderr.contains("bash, elvish, fish, powershell, zsh"), "{unknown:?}");
    let mut command = place.command(["completions", "bash"]);
    let closed = std::io::pipe().unwrap().1;
    let ran = run(command.stdout(closed).stderr(Stdio::piped()));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn man_pages_have_all_commands_and_options_of_the_help() {
    let place = Place::new();
    let written = place.run(["man-pages", "share/man1"]);
    assert_eq!((written.code, written.stdout.as_str(), written.stderr.as_str()), (Some(0), "", ""));
    let pages =
        ["", "render", "diff", "merge", "annotate", "view", "bench", "top", "dump", "serve", "plugins", "plugins new"];
    for command in pages {
        let page = format!("share/man1/{}.1", ["wlprof", command].join(" ").trim().replace(' ', "-"));
        let page = std::fs::read_to_string(place.path(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        let page = page.replace('\\', "");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
            assert!(page.contains(&format!(".SH {section}\n")), "no {section} in the page of {command}");
        }
        let help = place.run(command.split_whitespace().chain(["--help"])).stdout;
        let options = help.lines().filter_map(|line| {
            line.split_once("--").filter(|(before, _)| before.trim().len() < 4).map(|(_, rest)| rest)
        });
        let mut count = 0;
        for option in options.map(|rest| rest.split([' ', '[', '=']).next().unwrap()) {
            assert!(page.contains(&format!("--{option}")), "no --{option} in the page of {command}:\n{page}");
            count += 1;
        }
        assert!(count > 0, "{help}");
    }
    assert!(!place.path("share/man1/wlprof-make-profile.1").exists());
    let page = std::fs::read_to_string(place.path("share/man1/wlprof.1")).unwrap();
    for part in ["EXIT STATUS", "134 if it trapped", "EXAMPLES", "wlprof\\-annotate(1)"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    place.file("in-the-way", "");
    let refused = place.run(["man-pages", "in-the-way"]);
    assert_eq!(refused.code, Some(125));
    assert!(refused.stderr.contains("cannot write man pages into in-the-way"), "{refused:?}");
}

/// The text on one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_describes_formats(help: &str) {
    for exporter in EXPORTERS {
        let described = format!("- {}: {}", exporter.name(), exporter.description());
        assert!(words(help).contains(&words(&described)), "no {described} in {help}");
        let ending = format!(".{} ({})", exporter.extensions()[0], exporter.name());
        assert!(words(help).contains(&ending), "no {ending} in {help}");
    }
}

#[test]
fn the_help_of_render_speaks_of_recordings() {
    let help = Place::new().run(["render", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for part in ["-o, --output", "the recording here, in another format", "merged"] {
        assert!(words(&help.stdout).contains(part), "no {part} in {}", help.stdout);
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

/// What turns the direction of the text around it, clears a terminal or sets its title.
#[test]
fn what_was_typed_is_escaped_in_errors_about_it() {
    let place = Place::new();
    let hostile = "\u{9b}2J\u{202e}\u{1b}]0;x\u{7}\n";
    let with = |before: &str| format!("{before}{hostile}");
    for arguments in [
        vec![with("--")],
        vec![with("--rate=")],
        vec![with("--sampler=")],
        vec![format!("--dir=::{hostile}"), "guest.wasm".to_owned()],
        vec!["render".to_owned(), with("--format=")],
        vec!["view".to_owned(), "a".to_owned(), with("b")],
        vec!["plugins".to_owned(), with("")],
        vec![with("")],
    ] {
        let ran = place.run(&arguments);
        assert!([125, 126, 127].contains(&ran.code.unwrap()), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains("\\u{9b}2J\\u{202e}\\u{1b}]0;x\\u{7}"), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{:?}", ran.stderr);
    }
}

#[test]
fn misspelt_commands_are_answered_with_the_right_ones() {
    let place = Place::new();
    for (typed, meant) in [("rendr", "render"), ("veiw", "view"), ("anotate", "annotate")] {
        let ran = place.run([typed, "x.wlprof"]);
        assert_eq!(ran.code, Some(127), "{ran:?}");
        assert!(ran.stderr.contains(&format!("there is a command `wlprof {meant}`")), "{ran:?}");
    }
    for (typed, meant) in [(&["help", "rendr"][..], "render"), (&["plugins", "help", "chek"], "check")] {
        let ran = place.run(typed);
        assert_eq!(ran.code, Some(125), "{ran:?}");
        assert!(ran.stderr.contains(&format!("a similar subcommand exists: '{meant}'")), "{ran:?}");
    }
    let other = place.run(["app", "x.wlprof"]);
    assert!(other.code == Some(127) && other.stderr.contains("give the path of a .wasm or .wat file"), "{other:?}");
}

#[test]
fn options_behind_the_guest_are_pointed_out_where_the_guest_fails() {
    let place = Place::new();
    let exit = |code: u32| {
        format!(
            "(module (import \"wasi_snapshot_preview1\" \"proc_exit\" (func $exit (param i32))) (memory (export \"memory\") 1)
                (func (export \"_start\") (call $exit (i32.const {code}))))"
        )
    };
    place.file("fails.wat", exit(2));
    place.file("ends.wat", exit(0));
    for (arguments, options) in [
        (&["fails.wat", "-o", "x.json"][..], "-o stands"),
        (&["fails.wat", "--output=x.json"], "--output stands"),
        (&["fails.wat", "--memory", "--lang=python", "--dir", "."], "--memory, --lang, --dir stand"),
        (&["ends.wat", "-o", "x.json"], ""),
        (&["fails.wat", "--", "-o"], ""),
        (&["-o", "x.json", "fails.wat", "-o", "y"], ""),
        (&["fails.wat"], ""),
    ] {
        let ran = place.run(arguments);
        let note = format!("note: {options} behind the guest; options of wlprof come before the guest\n");
        assert_eq!(ran.stderr.contains("behind the guest"), !options.is_empty(), "{arguments:?}: {ran:?}");
        assert!(options.is_empty() || ran.stderr.contains(&note), "{arguments:?}: {ran:?}");
    }
    let ran = place.run(["serve", "ends.wat", "-o", "s.wlprof"]);
    let message = "wlprof: -o stands behind the guest; options of wlprof come before the guest\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(125), message));
}

#[test]
fn a_recording_is_written_with_the_command_that_shows_it() {
    let place = Place::new();
    let ran = place.run(["-o", "run.wlprof", fixture("c-traps.wasm").to_str().unwrap()]);
    assert!(ran.stderr.ends_with("wrote run.wlprof: wlprof view run.wlprof\n"), "{ran:?}");
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

/// Graph renderers and interpreters that others drive have a `_start` that does next to nothing.
#[test]
fn functions_that_were_not_called_are_named_where_the_main_function_does_little() {
    let place = Place::new();
    let module = |work: &str| {
        format!(
            "(module (memory (export \"memory\") 1) (func $luaV_execute) (func (export \"render\") call $luaV_execute)
                (func (export \"malloc\")) (func (export \"layout\")) (func (export \"_start\") (local i32) {work}))"
        )
    };
    place.file("little.wat", module(""));
    place.file(
        "much.wat",
        module("(loop (br_if 0 (i32.ne (i32.const 300000000) (local.tee 0 (i32.add (i32.const 1) (local.get 0))))))"),
    );
    let note = "exports functions that were not called (render, layout): choose one with --invoke NAME, or profile them in their own host";
    let interpreter = "is an interpreter of Lua, and there is no plugin that walks Lua's stacks";
    for (guest, options, is_told) in
        [("little.wat", &[][..], true), ("much.wat", &[], false), ("little.wat", &["--invoke=render"], false)]
    {
        let ran = place.run([&["-o", "x.wlprof"], options, &[guest]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.stderr.contains(note), is_told, "{guest} {options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(interpreter), "{}", ran.stderr);
    }
}
