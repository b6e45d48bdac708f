//! What is printed on a terminal fits it: nothing is broken at its edge.

use crate::guest::{Place, fixture};
use crate::python;
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use vt100::Parser;

const ROWS: u16 = 500;
const COLUMNS: u16 = 80;

/// Waits for a quarter of a second in one call.
const SLEEPS: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "\01")
    (data (i32.const 24) "\80\b2\e6\0e")
    (func (export "_start") (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

/// What `wlprof` leaves on a terminal of 80 columns.
fn shown(place: &Place, arguments: &[&str]) -> String {
    let master = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let no_ctty = OFlag::O_NOCTTY.bits();
    let terminal = File::options().read(true).write(true).custom_flags(no_ctty).open(ptsname_r(&master).unwrap());
    let terminal = terminal.unwrap();
    let wlprof = place.command(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("stty rows {ROWS} cols {COLUMNS} && exec \"$@\""), "sh"]);
    command.arg(wlprof.get_program()).args(wlprof.get_args()).current_dir(place.path(""));
    let end = || Stdio::from(terminal.try_clone().unwrap());
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop((command, terminal));
    let mut screen = Parser::new(ROWS, COLUMNS, 0);
    let (mut from_child, mut chunk) = (File::from(OwnedFd::from(master)), [0; 4096]);
    // With the last of its other ends closed it fails.
    while let Ok(length @ 1..) = from_child.read(&mut chunk) {
        screen.process(&chunk[..length]);
    }
    let screen = screen.screen();
    let text = screen.contents();
    println!("{arguments:?}\n{text}");
    assert!(child.wait().unwrap().success(), "{arguments:?}: {text}");
    let wrapped = (0..ROWS).find(|row| screen.row_wrapped(*row));
    assert!(wrapped.is_none(), "{arguments:?}: row {wrapped:?} is too long: {text}");
    text
}

#[test]
fn nothing_that_is_printed_is_wider_than_the_terminal() {
    let place = Place::new();
    place.file("sleeps.wat", SLEEPS);
    let of = |name: &str| fixture(name).to_str().unwrap().to_owned();
    let scripts = format!("--dir={}/../../testdata/python::/scripts", env!("CARGO_MANIFEST_DIR"));
    let (library, python) = (python::library("3.11"), of("python-3.11.wasm"));
    let (shares, heap, cpp, rust) =
        (of("c-shares.wasm"), of("c-heap.wasm"), of("cpp-inlined.wasm"), of("rust-mix.wasm"));
    let go = of("go-work-1.27.wasm");
    let runs: &[&[&str]] = &[
        &["--verbose", "-o", "a.wlprof", &shares, "1"],
        &["-o", "b.wlprof", &shares, "1"],
        &["--callers-of=main", &shares, "1"],
        &["--verbose", "--sampler=epoch", &cpp],
        &[&rust],
        &[&go, "channels", "2"],
        &[&library, &scripts, &python, "/scripts/shares.py", "200"],
        &["--frames=merged", &library, &scripts, &python, "/scripts/shares.py", "200"],
        &["--clock=wall", "sleeps.wat"],
        &["--off-cpu", "sleeps.wat"],
        &["--memory", "-o", "c.wlprof", &heap, "2000"],
        &["--memory", "--memory-rate=1", "-o", "d.wlprof", &heap, "3000"],
        &["--memory", "--show=allocated", "-o", "p.json", &library, &scripts, &python, "/scripts/shares.py", "20"],
        &["render", "--verbose", "a.wlprof", "-o", "x.folded"],
        &["diff", "a.wlprof", "b.wlprof"],
        &["diff", "--show=allocated", "c.wlprof", "d.wlprof"],
    ];
    for arguments in runs {
        let text = shown(&place, arguments);
        assert!([" function", " line", " place"].iter().any(|rows| text.contains(rows)), "{arguments:?}: {text}");
    }
    let text = shown(&place, &["sleeps.wat"]);
    assert!(text.contains("\nnote: waited ") && text.contains(" s: --off-cpu shows where"), "{text}");
}
