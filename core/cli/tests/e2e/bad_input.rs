//! What is not a guest, not a recording, not a place to write to: a message that says what was found, what would do,
//! and an exit code of wlprof's own.

use crate::guest::{Place, Ran, fixture, fixture_bytes};
use crate::sections;
use std::io::sink;
use std::path::Path;
use wlprof::export::EXPORTERS;
use wlprof::recording::{Totals, file};

/// The guest did not run, `code` says whose fault it is, and the message holds all of `parts`.
fn assert_refused(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("wlprof: ") || ran.stderr.starts_with("error: "), "{ran:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
    }
}

#[test]
fn files_of_other_kinds_are_told_apart() {
    let kinds: [(&[u8], &str); 10] = [
        (b"", "an empty file"),
        (b"\x7fELF\x02\x01\x01\0", "a native program (ELF)"),
        (b"#!/bin/sh\n", "a script"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
        (b"\x1f\x8b\x08\0", "a gzip file; decompress it first"),
        (b"!<arch>\n", "a static library; link it first"),
        (b"fn main() {}\n", "a text file"),
        (b"\xff\xfe\0\x01", "data of some other kind"),
        (b"\0as", "cut short"),
        (b"wlprof\r\n\x01\0\0\0", "a recording; show it with `wlprof render`"),
    ];
    for (bytes, found) in kinds {
        let place = Place::new();
        place.file("guest.wasm", bytes);
        let ran = place.run(["guest.wasm"]);
        assert_refused(&ran, 126, &["guest.wasm: not WebAssembly but ", found, "(supported: modules and components"]);
        assert_eq!(place.files(), ["guest.wasm"], "a profile of nothing");
    }
}

#[test]
fn paths_that_cannot_be_read() {
    let place = Place::new();
    assert_refused(&place.run(["nothing.wasm"]), 127, &["nothing.wasm: No such file", "give the path of a .wasm"]);
    assert_refused(&place.run(["."]), 126, &[".: Is a directory"]);
    std::os::unix::fs::symlink("loop.wasm", place.path("loop.wasm")).unwrap();
    assert_refused(&place.run(["loop.wasm"]), 126, &["loop.wasm: ", "symbolic links"]);
}

#[test]
fn components_without_a_main_function_are_recognized() {
    let place = Place::new();
    place.file("component.wasm", b"\0asm\x0d\0\x01\0");
    place.file("component.wat", "(component)");
    for name in ["component.wasm", "component.wat"] {
        assert_refused(&place.run([name]), 126, &[name, "the component exports no `wasi:cli/run`"]);
    }
}

#[test]
fn text_that_does_not_parse_shows_where() {
    let place = Place::new();
    place.file("bad.wat", "(module\n  (fnuc))");
    assert_refused(&place.run(["bad.wat"]), 126, &["bad.wat:2:4", "(fnuc)"]);
}

#[test]
fn a_module_that_does_not_validate_is_refused_by_the_engine() {
    let place = Place::new();
    place.file("invalid.wat", r#"(module (func (export "_start") i32.const 1))"#);
    assert_refused(&place.run(["invalid.wat"]), 126, &["invalid.wat: Wasmtime cannot compile it", "at offset"]);
}

#[test]
fn a_module_cut_anywhere_is_refused() {
    let whole = fixture_bytes("c-traps.wasm");
    // Where a section ends, a shorter module may be a good one.
    let mut ends = vec![8];
    for section in sections::split(&whole) {
        ends.push(ends[ends.len() - 1] + 1 + sections::unsigned(section.payload.len()).len() + section.payload.len());
    }
    let place = Place::new();
    for part in 1..64 {
        let end = whole.len() * part / 64;
        assert!(!ends.contains(&end), "choose other parts");
        place.file("cut.wasm", &whole[..end]);
        let ran = place.run(["--no-cache", "cut.wasm"]);
        assert_refused(&ran, 126, &["cut.wasm: malformed or truncated WebAssembly", "at offset"]);
    }
}

#[test]
fn missing_imports_are_listed_with_what_is_there() {
    let place = Place::new();
    place.file(
        "imports.wat",
        r#"(module (import "env" "log" (func)) (import "env" "table" (table 1 funcref)) (import "env" "log" (func (param i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))) (func (export "_start")))"#,
    );
    let ran = place.run(["imports.wat"]);
    assert_refused(
        &ran,
        126,
        &["imports.wat: ", "env.log, env.table (provided: WASI preview 1)", "built for WASI preview 1"],
    );
    let many: String = (0..100).map(|index| format!(r#"(import "env" "f{index}" (func))"#)).collect();
    place.file("many.wat", format!(r#"(module {many} (func (export "_start")))"#));
    assert_refused(&place.run(["many.wat"]), 126, &["env.f7 and 92 more"]);
}

/// Their code is not valid, which compiling them would have shown.
#[test]
fn what_is_in_the_way_is_told_before_the_guest_is_compiled() {
    let place = Place::new();
    let wasi = r#"import "wasi_snapshot_preview1""#;
    let cases: [(&str, &[&str], &[&str]); 15] = [
        (r#"(import "env" "log" (func))"#, &[], &["env.log (provided: WASI preview 1)", "--target wasm32-wasip1"]),
        // It has that target already.
        (
            r#"(import "env" "log: func(text: string) -> list<u8>" (func))
               (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))"#,
            &[],
            &[
                "does not provide: env.log (provided",
                "built for WASI preview 1 and a host of its own: profile it in that host",
            ],
        ),
        (
            r#"(import "rb-js-abi-host" "eval-js: func(code: string) -> variant { success(handle<js-abi-value>) }" (func))
               (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))"#,
            &[],
            &["does not provide: rb-js-abi-host.eval-js (provided", "it is Ruby for a JavaScript host"],
        ),
        (r#"(import "gojs" "runtime.wasmExit" (func (param i32)))"#, &[], &["Go for a JavaScript host", "GOOS=wasip1"]),
        (r#"(import "env" "emscripten_resize_heap" (func))"#, &[], &["Emscripten", "-sSTANDALONE_WASM"]),
        (r#"(import "./app_bg.js" "__wbindgen_throw" (func))"#, &[], &["wasm-bindgen", "wasm32-wasip1"]),
        (r#"(import "env" "abort" (func (param i32 i32 i32 i32)))"#, &[], &["AssemblyScript", "wasi-shim"]),
        (r#"(import "wasi" "thread-spawn" (func))"#, &[], &["wasi-threads", "one thread"]),
        (r#"(import "env" "memory" (memory 1 1 shared))"#, &[], &["memory for several threads", "one thread"]),
        (r#"(memory 1 1 shared)"#, &[], &["memory for several threads", "one thread"]),
        (&format!(r#"({wasi} "fd_close" (func))"#), &[], &["fd_close as a function () -> ()", "(i32) -> (i32)"]),
        (&format!(r#"({wasi} "fd_close" (global i32))"#), &[], &["wasi_snapshot_preview1.fd_close (provided"]),
        (r#"(func (export "_initialize") (param i32))"#, &[], &["`_initialize` as a function (i32) -> ()"]),
        ("", &["--invoke=run"], &["no function `run`", "_start", "--invoke NAME"]),
        (r#"(func (export "run") (param i32))"#, &["--invoke=run"], &["takes 1 arguments (i32), 0 were given"]),
    ];
    for (part, options, message) in cases {
        place.file("guest.wat", format!(r#"(module {part} (func (export "_start") i32.const 1))"#));
        for command in [&[][..], &["dump"]] {
            let ran = place.run(command.iter().chain(options).chain(&["guest.wat"]));
            assert_refused(&ran, 126, &["guest.wat: "]);
            assert!(message.iter().all(|part| ran.stderr.contains(part)), "{part}: {ran:?}");
        }
    }
    assert_eq!(place.files(), ["guest.wat"], "a profile of nothing");
}

#[test]
fn a_module_that_is_compiled_already_is_recognized() {
    let place = Place::new();
    let compiled = wasmtime::Engine::default().precompile_module(b"(module)").unwrap();
    place.file("guest.cwasm", compiled);
    assert_refused(&place.run(["guest.cwasm"]), 126, &["compiled already (.cwasm); give the .wasm"]);
}

/// As under `wasmtime run`, which says nothing; wlprof adds a note.
#[test]
fn a_module_without_a_main_function_ends_at_once_and_says_what_could_be_called() {
    let place = Place::new();
    place.file("reactor.wat", r#"(module (func (export "_initialize")) (func (export "fib")) (func (export "fac")))"#);
    place.file("library.wat", r#"(module (func (export "fib")))"#);
    place.file("none.wat", "(module)");
    for (name, note) in [
        (
            "reactor.wat",
            "reactor.wat is a reactor: `_initialize` alone is called; choose a function with --invoke NAME (it exports: fib, fac); or profile them in their own host",
        ),
        (
            "library.wat",
            "library.wat has no `_start`: nothing that it exports is called; choose a function with --invoke NAME (it exports: fib); or profile them in their own host",
        ),
        (
            "none.wat",
            "none.wat has no `_start`: nothing that it exports is called; choose a function with --invoke NAME (it exports: none)",
        ),
    ] {
        let ran = place.run([name]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.stderr.contains(note), "{name}: {ran:?}");
        let ran = place.run(["-q", name]);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
    }
    assert!(!place.run(["--invoke=fib", "reactor.wat"]).stderr.contains("is a reactor"));
}

#[test]
fn the_epoch_sampler_is_not_asked_where_guests_wait() {
    let place = Place::new();
    place.file("f.wat", r#"(module (func (export "_start")))"#);
    let run = |command: &[&str]| place.run([command, &["--sampler=epoch", "--clock=wall", "f.wat"]].concat());
    for command in [&[][..], &["top"]] {
        assert_refused(&run(command), 125, &["--clock=wall needs the signal sampler"]);
    }
}

#[test]
fn functions_that_cannot_be_called() {
    let place = Place::new();
    place.file(
        "f.wat",
        r#"(module (func (export "f") (param i32 v128)) (func (export "g") (param i32))
            (func (export "_start") (param i64)))"#,
    );
    let invoke = |name: &str, arguments: &[&str]| place.run([&["--invoke", name, "f.wat"], arguments].concat());
    assert_refused(&invoke("h", &[]), 126, &["no function `h`", "f, g, _start", "--invoke NAME"]);
    assert_refused(&invoke("g", &[]), 126, &["takes 1 arguments (i32), 0 were given; they come after GUEST"]);
    assert_refused(&invoke("g", &["x"]), 126, &[r#"argument "x" is no i32"#]);
    assert_refused(&invoke("g", &["99999999999"]), 126, &[r#"argument "99999999999" is no i32"#]);
    assert_refused(&invoke("f", &["1", "2"]), 126, &["arguments of type v128"]);
    assert_refused(&place.run(["f.wat"]), 126, &["takes 1 arguments (i64), 0 were given"]);
}

#[test]
fn folders_and_debug_files_are_checked_before_the_guest_runs() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    let traps = traps.to_str().unwrap();
    place.file("file", "text");
    assert_refused(&place.run(["--dir", "nothing", traps]), 125, &["--dir nothing: cannot open it", "No such file"]);
    assert_refused(&place.run(["--dir", "file", traps]), 125, &["--dir file: cannot open it"]);
    assert_refused(&place.run(["--dir", "::/x", traps]), 125, &["expected HOST or HOST::GUEST"]);
    assert_refused(&place.run(["--debug-file", "nothing", traps]), 125, &["debug file nothing: No such file"]);
    assert_refused(&place.run(["--debug-file", "file", traps]), 125, &["debug file file: not WebAssembly but a text"]);
    place.file("empty.wat", "(module)");
    assert_refused(
        &place.run(["--debug-file", "empty.wat", traps]),
        125,
        &["neither a .debug_info section nor a name section", "build it with -g"],
    );
    // It has DWARF, of other code.
    let shares = fixture("c-shares.wasm");
    let refused = place.run(["--debug-file", shares.to_str().unwrap(), traps]);
    let facts =
        ["c-shares.wasm is of another program or build: it has ", " bytes of code with the hash ", ", the guest "];
    assert_refused(&refused, 125, &facts);
}

#[test]
fn outputs_that_cannot_be_written_are_told_before_the_guest_is_compiled() {
    let place = Place::new();
    // Nothing is said of this guest, which no engine takes.
    place.file("invalid.wat", r#"(module (func (export "_start") i32.const 1))"#);
    place.file("file", "text");
    std::fs::create_dir(place.path("folder.json")).unwrap();
    let refused = |output: &str, parts: &[&str]| {
        assert_refused(&place.run(["-o", "p.wlprof", "-o", output, "invalid.wat"]), 125, parts);
        assert_eq!(place.files(), ["file", "folder.json", "invalid.wat"], "{output}");
    };
    refused("no/folder.json", &["cannot write no/folder.json: No such file", "make the folder first"]);
    refused("file/x.json", &["cannot write file/x.json: Not a directory"]);
    refused("folder.json", &["cannot write folder.json: it is a folder"]);
    refused("/proc/x.json", &["cannot write /proc/x.json: "]);
    refused("-", &["-o -: standard output is the guest's"]);
}

/// A file system of its own, as small as that, for a command.
fn with_full_disk(place: &Place, command: &str) -> Ran {
    let mount = format!(
        "mkdir full && mount -t tmpfs -o size=64k none full && head -c 60000 /dev/zero > full/filler && {command}"
    );
    let inner = place.command([""; 0]);
    let mut outer = std::process::Command::new("unshare");
    outer.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount]).current_dir(place.path(""));
    outer.env("WLPROF", inner.get_program()).env("GUEST", fixture("c-traps.wasm"));
    outer.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    crate::guest::run(&mut outer)
}

#[test]
fn a_full_disk_is_told_before_the_guest_is_compiled() {
    let place = Place::new();
    place.file("invalid.wat", r#"(module (func (export "_start") i32.const 1))"#);
    let ran = with_full_disk(&place, r#""$WLPROF" -o full/p.json invalid.wat"#);
    assert_refused(&ran, 125, &["cannot write full/p.json: No space left", "make room"]);
}

#[test]
fn what_is_no_recording_is_not_rendered() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    let cases = [
        (traps.to_str().unwrap(), "not a wlprof recording (make one with `wlprof -o x.wlprof GUEST`)"),
        ("nothing.wlprof", "No such file"),
        (".", "Is a directory"),
        ("newer.wlprof", "format version 4294967295 (supported: "),
        ("short.wlprof", "corrupt recording: it ends within its header"),
    ];
    place.file("newer.wlprof", b"wlprof\r\n\xff\xff\xff\xff");
    place.file("short.wlprof", b"wlprof\r\n\x01");
    for (path, message) in cases {
        assert_refused(&place.run(["render", path]), 125, &[path, message]);
    }
}

#[test]
fn a_damaged_recording_is_refused_or_rendered_and_never_a_panic() {
    let place = Place::new();
    let traps = fixture("c-traps.wasm");
    assert_eq!(place.run(["-q", "-o", "p.wlprof", traps.to_str().unwrap()]).code, Some(0));
    let whole = std::fs::read(place.path("p.wlprof")).unwrap();
    let mut told = 0;
    for part in 0..32 {
        place.file("cut.wlprof", &whole[..whole.len() * part / 32]);
        let ran = place.run(["render", "cut.wlprof", "-o", "cut.json"]);
        // Cut just where the samples end, it has all of them, and no names.
        let labels = ["note: the recording is not whole", "note: functions have numbers instead of names"];
        let is_told = ran.code == Some(0) && labels.iter().any(|label| ran.stdout.contains(label));
        assert!(is_told || ran.code == Some(125), "{ran:?}");
        assert!(ran.code == Some(0) || !place.path("cut.json").exists());
        told += usize::from(is_told);
    }
    assert!(told > 8, "{told} of 32 parts of a recording can be read");
    let mut rendered = 0;
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let Some(damaged) = damage(&whole, at, flip) else { continue };
            let Ok(recording) = file::read(&damaged) else { continue };
            rendered += 1;
            Totals::of(&recording);
            for exporter in EXPORTERS {
                exporter.export(&recording, Path::new("/profile"), &mut sink()).unwrap();
            }
        }
    }
    assert!(rendered > 0, "every damage was refused: nothing was tried");
}

/// The recording with the byte at `at` changed, and with the checksum that makes it be believed. `None` where the byte is
/// no block's content.
fn damage(recording: &[u8], at: usize, flip: u8) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let number = |at: usize| u32::from_le_bytes(recording[at..at + 4].try_into().unwrap()) as usize;
    let mut block = HEADER;
    while block < recording.len() {
        let (start, end) = (block + 8, block + 8 + number(block));
        if (start..end).contains(&at) {
            let mut damaged = recording.to_vec();
            damaged[at] ^= flip;
            let checksum = crc32fast::hash(&damaged[start..end]);
            damaged[block + 4..start].copy_from_slice(&checksum.to_le_bytes());
            return Some(damaged);
        }
        block = end;
    }
    None
}
