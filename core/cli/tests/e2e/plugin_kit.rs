//! What comes with wlprof for those who write plugins: new ones compile and pass, and checks find what is wrong.

use crate::guest::{Place, Ran, run};
use crate::library;
use crate::misbehaving::misbehaving;
use crate::sampled::fixture;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn testdata(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// Runs a program in a folder; it must succeed and have nothing to say against what it compiles.
fn build(folder: &Path, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    // Its own, and not that of these tests.
    command.args(arguments).current_dir(folder).env_remove("CARGO_TARGET_DIR");
    let built = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(built.code == Some(0) && !built.stderr.contains("warning"), "{program}: {built:?}");
}

#[test]
fn new_plugins_compile_and_pass() {
    let place = Place::new();
    for (language, program, arguments, library) in [
        ("c", "make", &["CFLAGS=-O2 -Wall -Wextra -Wpedantic -Werror"][..], "libparrot_c.so"),
        ("rust", env!("CARGO"), &["build", "--release", "--offline"][..], "target/release/libparrot_rust.so"),
    ] {
        let name = format!("parrot_{language}");
        let made = place.run(["plugins", "new", &name, "--language", language]);
        assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{}", made.stderr);
        assert!(made.stderr.contains(&format!("wlprof plugins check {library}")), "{}", made.stderr);
        build(&place.path(&name), program, arguments);
        let checked = place.run(["plugins", "check", &format!("{name}/{library}")]);
        assert_eq!(checked.code, Some(0), "{}", checked.stdout);
        assert!(checked.stdout.contains(&format!("... ok ({name} 0.1.0, ABI 1.0)")), "{}", checked.stdout);
        assert!(checked.stdout.contains("check walks a guest ... skipped"), "{}", checked.stdout);
        let readme = std::fs::read_to_string(place.path(&name).join("README.md")).unwrap();
        assert!(!readme.contains("LANGUAGE") && !readme.contains("LIBRARY"), "{readme}");
    }
    // What is there stays.
    let again = place.run(["plugins", "new", "parrot_c", "--language", "c"]);
    assert_eq!(again.code, Some(125));
    assert!(again.stderr.contains("parrot_c is there already; take another name"), "{}", again.stderr);
    for name in ["../x", "Lua", "5", "", "a b", "-"] {
        let refused = place.run(["plugins", "new", "--", name]);
        assert_eq!(refused.code, Some(125), "{name}: {refused:?}");
    }
}

/// Compiles the plugin for the tiny language.
fn tiny_library(place: &Place) -> PathBuf {
    library::from_c("tiny/tiny_plugin.c", place.path("libtiny.so"), &[])
}

/// Checks a library with a guest that it knows.
fn check(place: &Place, library: &Path, guest: &str) -> Ran {
    let mut command = place.command(["plugins", "check"]);
    command.arg(library).arg("--guest").arg(fixture(guest));
    if guest == "tiny.wasm" {
        command.arg("--dir").arg(format!("{}::.", testdata("tiny").display())).arg("demo.tiny");
    }
    run(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[test]
fn a_plugin_that_works_passes() {
    let place = Place::new();
    let checked = check(&place, &tiny_library(&place), "tiny.wasm");
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
    assert!(checked.stdout.contains("check names its frames ... ok ("), "{}", checked.stdout);
    assert!(checked.stdout.contains("check walks its stacks while it waits ... ok ("), "{}", checked.stdout);
    let hash = "the SHA-256 of its code is ";
    let digits = checked.stdout.split(hash).nth(1).unwrap().split(')').next().unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{digits}");
    assert!(checked.stdout.ends_with("check result: ok. 13 passed; 0 failed\n"), "{}", checked.stdout);
}

/// The guest prints its own stack, and wlprof does where it writes that: the same functions and lines.
#[test]
fn a_dump_at_an_import_says_what_the_guest_says_of_itself() {
    let place = Place::new();
    let program =
        ": leaf trace ;\n: twice\n leaf\n\n leaf ;\n: deep dup 0 < if else\n 1 - deep\n then leaf ;\ntwice\n3 deep\n";
    place.file("traced.tiny", program);
    let library = tiny_library(&place);
    let dump = |options: &[&str]| {
        let mut command = place.command(["dump", "--at-import", "wasi_snapshot_preview1.fd_write"]);
        command.args(options).arg("--plugin").arg(&library).args(["--dir", "."]);
        command.arg(fixture("tiny.wasm")).arg("traced.tiny");
        run(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    let ran = dump(&[]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // `  at leaf traced.tiny:1`, up to the program itself.
    let said: Vec<String> = ran.stdout.lines().map(|line| line.trim_start_matches("  at ").to_owned()).collect();
    let is_last = |frame: &String| frame.starts_with("program ");
    let said: Vec<&[String]> = said.split_inclusive(is_last).collect();
    assert_eq!(said.len(), 7, "{}", ran.stdout);
    // `leaf(...)`, and below it `\ttraced.tiny:1`.
    let lines: Vec<&str> = ran.stderr.lines().collect();
    let of_tiny = |pair: &[&str]| {
        let place = pair[1].strip_prefix('\t').filter(|place| place.starts_with("traced.tiny:"))?;
        Some(format!("{} {place}", pair[0].trim_end_matches("(...)")))
    };
    let seen: Vec<String> = lines.windows(2).filter_map(of_tiny).collect();
    // The C library may write one trace in several calls.
    let mut seen: Vec<&[String]> = seen.split_inclusive(is_last).collect();
    let written = seen.len();
    seen.dedup();
    assert_eq!(seen, said);
    let calls = |text: &str| text.matches(", wasi_snapshot_preview1.fd_write:\nmain [running]:\n").count();
    assert_eq!(calls(&ran.stderr), written, "{}", ran.stderr);
    let limited = dump(&["--at-import-limit", "2"]);
    assert_eq!(calls(&limited.stderr), 2, "{}", limited.stderr);
    let note = format!("note: {} more of these calls are not shown; --at-import-limit has them shown\n", written - 2);
    assert!(limited.stderr.ends_with(&note) && limited.stdout == ran.stdout, "{}", limited.stderr);
    let guest = fixture("tiny.wasm");
    let never = place.run(["dump", "--at-import", "fd_seek", guest.to_str().unwrap(), "missing.tiny"]);
    assert!(never.stderr.contains("note: the guest did not call fd_seek\n"), "{}", never.stderr);
    let unknown = place.run(["dump", "--at-import", "fd_right", guest.to_str().unwrap()]);
    assert!(unknown.code == Some(125) && unknown.stdout.is_empty(), "{unknown:?}");
    assert!(unknown.stderr.contains("wlprof: --at-import fd_right: tiny.wasm imports "), "{}", unknown.stderr);
}

#[test]
fn what_is_wrong_is_found() {
    let crashed = "crashed in walk: it used an address that is not its own (SIGSEGV)";
    let cases = [
        ("NO_DETECT", "check is a plugin ... FAILED (one of its languages has no `detect`)"),
        (
            "NOTHING",
            "check leaves other languages alone ... FAILED (misbehaving takes a module for its own that is in no language: (module))",
        ),
        ("CRASHES_IN_DETECT", "check leaves other languages alone ... FAILED (plugin misbehaving crashed in detect"),
        ("CRASHES_IN_ATTACH", "check walks its stacks while it runs ... FAILED (plugin misbehaving crashed in attach"),
        ("CRASHES_IN_WALK", "check walks its stacks while it runs ... FAILED (plugin misbehaving crashed in walk"),
        ("LOOPS_IN_WALK", "did not come back from walk within 2 s"),
        ("OVERRUNS", crashed),
        ("WILD_END", "check walks its stacks while it runs ... FAILED (no stack has a frame of its own"),
        ("FAILS", "check walks its stacks while it runs ... FAILED (no stack has a frame of its own"),
        (
            "UNSTABLE",
            "check says the same of the same moment ... FAILED (two walkers at one moment: frame 0 is the key 0x",
        ),
        ("NAMELESS", "FAILED (symbolize is missing, or adds nothing for the frame with key 0x1)"),
        (
            "SHORT_FRAME",
            "FAILED (symbolize gives [a wlprof_source_frame_t with a size of 8 instead of 72] for the frame",
        ),
        ("CRASHES_IN_DESTROY", "FAILED (plugin misbehaving crashed in destroy"),
        (
            "CRASHES_IN_WALKER",
            "check walks its stacks while it runs ... FAILED (plugin misbehaving crashed in walker: it used an address",
        ),
        ("SHORT_LATER_WALKER", "FAILED (plugin misbehaving failed in walker"),
        (
            "OTHER_NAMES_AFTER_WALKERS",
            "check has walkers for other instances ... FAILED (once walkers are destroyed, frames or labels have other",
        ),
        ("NO_LENGTH", "is `length` set where frames are written?)"),
        (
            "ABORTS",
            "check walks its stacks while it runs ... FAILED (plugin misbehaving crashed in walk: it called abort",
        ),
        ("CRASHES_IN_SYMBOLIZE", "plugin misbehaving crashed in symbolize: it used an address"),
        ("TRUSTING", "check survives damaged memory ... FAILED (damage"),
        ("GREEDY_OF_STACK", "check needs little stack ... FAILED (plugin misbehaving crashed in walk"),
        ("ENDLESS_TEXT", "check survives damaged memory ... FAILED (damage"),
        ("NULL_GLOBALS", "the plugin's program wants 1 globals at 0x0 (supported: up to 4096, not at null)"),
        ("SLOW", "check takes little time ... FAILED ("),
    ];
    let place = Place::new();
    for (wrong, message) in cases {
        let checked = check(&place, &misbehaving(&place, wrong), "c-frames.wasm");
        assert!(checked.stdout.contains(message), "{wrong}: {}", checked.stdout);
        assert_eq!(checked.code, Some(1), "{wrong}: {checked:?}");
        assert!(checked.stdout.contains("check result: FAILED. "), "{wrong}: {}", checked.stdout);
    }
    // What the ABI allows is not wrong.
    let names = check(&place, &misbehaving(&place, "ONLY_NAMES"), "c-frames.wasm");
    assert!(names.stdout.contains("check walks its stacks while it runs ... skipped (its program has"), "{names:?}");
    assert!(names.stdout.contains("check survives damaged modules ... ok ("), "{names:?}");
    let other = check(&place, &tiny_library(&place), "c-calls.wasm");
    assert_eq!(other.code, Some(1));
    assert!(
        other
            .stdout
            .contains("check knows the guest ... FAILED (detect says no to c-calls.wasm; the SHA-256 of its code is "),
        "{other:?}"
    );
    // Wrong options are no plugin's failures.
    for (options, message) in [
        (
            &["script.lua", "--guest", "x.wasm"][..],
            "wlprof: `script.lua --guest x.wasm` is for a guest, and there is none",
        ),
        (&["--guest", "x.wasm", "--dir", "missing"], "wlprof: --dir missing: cannot open it: No such file"),
    ] {
        let ran = place.run(["plugins", "check", "missing.so"].iter().chain(options));
        assert!(ran.code == Some(125) && ran.stderr.starts_with(message) && ran.stdout.is_empty(), "{ran:?}");
    }
    let missing = place.run(["plugins", "check", "missing.so"]);
    assert!(missing.code == Some(1) && missing.stdout.contains("No such file"), "{missing:?}");
}
