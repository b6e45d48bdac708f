//! The files that wlprof writes: which, in what format, and that they say the same.

use crate::guest::{Place, fixture, fixture_bytes, output, run};
use crate::running::start;
use crate::sampled::innermost_functions;
use crate::sections::strip;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use wlprof::export::EXPORTERS;
use wlprof::recording::Recording;

fn traps() -> String {
    fixture("c-traps.wasm").to_str().unwrap().to_owned()
}

fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn without_a_name_the_profile_goes_to_the_current_folder() {
    for (option, file) in
        [("--rate=1000", "profile.json"), ("--format=folded", "profile.folded"), ("--format=wlprof", "profile.wlprof")]
    {
        let place = Place::new();
        let ran = place.run([option, &traps()]);
        assert_eq!(ran.code, Some(0));
        assert_eq!(place.files(), [file]);
        assert!(ran.stderr.contains(&format!("wrote {file}: ")), "{ran:?}");
    }
}

#[test]
fn a_rendered_recording_is_what_the_run_would_have_written() {
    let place = Place::new();
    let ran = place.run(["-o", "a.wlprof", "-o", "a.json", "-o", "a.folded", &traps()]);
    assert_eq!(ran.code, Some(0));
    for round in ["first", "second"] {
        let rendered = place.run(["render", "a.wlprof", "-o", "b.wlprof", "-o", "b.json", "-o", "b.folded"]);
        assert_eq!(rendered.code, Some(0), "{rendered:?}");
        // Where no guest runs, its output is the table.
        assert!(rendered.stderr.lines().all(|line| line.starts_with("wrote ")), "{}", rendered.stderr);
        for ending in ["json", "folded"] {
            let (a, b) = (read(&place, &format!("a.{ending}")), read(&place, &format!("b.{ending}")));
            assert!(a == b, "{ending} differs in the {round} rendering");
        }
        assert_eq!(place.recording("a.wlprof"), place.recording("b.wlprof"));
        // The same table, but for the names of the files, and what was said before the guest began.
        let table = |text: &str| -> Vec<String> {
            let table = text.lines().skip_while(|line| !line.contains(" samples in "));
            table.filter(|line| !line.starts_with("wrote ")).map(str::to_owned).collect()
        };
        assert_eq!(table(&ran.stderr), table(&rendered.stdout));
    }
}

#[test]
fn render_alone_prints_the_table_and_writes_nothing() {
    let place = Place::new();
    assert_eq!(place.run(["-q", "-o", "a.wlprof", &traps()]).code, Some(0));
    let ran = place.run(["render", "a.wlprof"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.contains("work  c/traps.c:"), "{}", ran.stdout);
    assert_eq!(place.files(), ["a.wlprof"]);
    let of_callers = place.run(["render", "--callers-of=work", "a.wlprof"]);
    assert!(
        of_callers.stderr.is_empty() && of_callers.stdout.contains("callers, the function, callees"),
        "{of_callers:?}"
    );
    let diffed = place.run(["diff", "a.wlprof", "a.wlprof"]);
    assert!(diffed.stderr.is_empty() && diffed.stdout.contains("no difference above chance"), "{diffed:?}");
    // Nobody reads it to its end.
    let mut command = place.command(["render", "a.wlprof"]);
    let ran = run(command.stdout(std::io::pipe().unwrap().1).stderr(Stdio::piped()));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    // A file that takes standard output leaves the table the other.
    let folded = place.run(["render", "--format=folded", "-o", "/dev/stdout", "a.wlprof"]);
    assert!(folded.stdout.lines().all(|line| line.rsplit(' ').next().unwrap().parse::<u64>().is_ok()), "{folded:?}");
    assert!(folded.code == Some(0) && folded.stderr.contains("work  c/traps.c:"), "{folded:?}");
}

#[test]
fn quiet_is_quiet() {
    let place = Place::new();
    let ran = place.run(["-q", &traps()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let rendered = place.run(["-q", "--format=wlprof", "-o", "a", &traps()]);
    assert_eq!((rendered.code, rendered.stderr.as_str()), (Some(0), ""));
    let rendered = place.run(["render", "-q", "a", "-o", "b.folded"]);
    assert_eq!((rendered.code, rendered.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_ending_or_the_option_tells_the_format() {
    let place = Place::new();
    // With one file the option wins; with several it is for those whose ending tells nothing.
    assert_eq!(place.run(["-q", "--format=wlprof", "-o", "one.json", &traps()]).code, Some(0));
    place.recording("one.json");
    let ran = place.run(["-q", "--format=wlprof", "-o", "two", "-o", "two.folded", &traps()]);
    assert_eq!(ran.code, Some(0));
    place.recording("two");
    assert!(read(&place, "two.folded").lines().any(|line| line.contains(";work ")));

    let unknown = place.run(["-o", "x.profile", &traps()]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(125), ""), "the guest ran for nothing");
    for part in ["x.profile: its ending tells no format", ".json (firefox)", ".folded (folded)", "--format"] {
        assert!(unknown.stderr.contains(part), "{unknown:?}");
    }
    let unknown = place.run(["--format=gif", &traps()]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(125), ""));
    let known: Vec<_> = EXPORTERS.iter().map(|exporter| exporter.name()).collect();
    assert!(unknown.stderr.contains(&format!("possible values: {}", known.join(", "))), "{unknown:?}");
}

#[test]
fn standard_output_has_the_profile_only_if_asked_for() {
    let place = Place::new();
    let ran = place.run(["-q", "--format=folded", "-o", "/dev/stdout", &traps()]);
    assert_eq!(ran.code, Some(0));
    let mut lines = ran.stdout.lines();
    assert!(lines.next().unwrap().starts_with("traps "));
    assert_eq!(lines.next(), Some("ended normally"));
    assert!(lines.any(|line| line.contains("main;work ")), "{ran:?}");
    assert!(place.files().is_empty());
}

#[test]
fn an_older_file_is_replaced_and_so_is_a_link() {
    let place = Place::new();
    let old = "old ".repeat(100_000);
    place.file("real.folded", &old);
    place.file("older.folded", &old);
    std::os::unix::fs::symlink("real.folded", place.path("link.folded")).unwrap();
    let ran = place.run(["-o", "link.folded", "-o", "older.folded", &traps()]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(ran.stderr.matches("(in place of an older one)").count(), 2, "{ran:?}");
    assert!(!place.path("link.folded").is_symlink());
    for name in ["link.folded", "older.folded"] {
        let text = read(&place, name);
        assert!(text.contains(";work ") && !text.contains("old"), "{text}");
    }
    assert_eq!(read(&place, "real.folded"), old);
}

#[test]
fn a_file_that_is_open_already_keeps_what_is_in_it() {
    let place = Place::new();
    let script = r#"echo before >&3; "$0" -q --format=folded -o /dev/fd/3 "$1"; echo after >>log; "$0" --format=folded -o /dev/stdout "$1" >>log"#;
    let mut shell = std::process::Command::new("sh");
    let commands = format!("exec 3>>log; {script}");
    shell.args(["-c", &commands, env!("CARGO_BIN_EXE_wlprof"), &traps()]).current_dir(place.path(""));
    let ran = output(&mut shell);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("standard output is the guest's"), "{ran:?}");
    let log = read(&place, "log");
    assert!(log.starts_with("before\n") && log.ends_with("after\n") && log.contains(";work "), "{log}");
}

#[test]
fn a_recording_that_may_not_grow_any_more_is_read_up_to_there() {
    let place = Place::new();
    let guest = fixture("c-calls.wasm");
    let mut is_told = 0;
    // In blocks of 512 bytes, from what must be there before a run: each time something else does not fit.
    for blocks in (129..149).step_by(4) {
        let script = format!(r#"ulimit -f {blocks}; exec "$0" "$@""#);
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_wlprof"), "-q", "--rate=50000", "--max-overhead=100"]);
        let ran = output(shell.args(["-o", "p.wlprof"]).arg(&guest).arg("8").current_dir(place.path("")));
        is_told += u32::from(ran.stderr.contains("not all of what was sampled could be written: File too large"));
        let rendered = place.run(["render", "p.wlprof", "-o", "p.folded"]);
        assert_eq!(rendered.code, Some(0), "{blocks}: {ran:?} {rendered:?}");
        assert!(!read(&place, "p.folded").is_empty(), "{blocks}: {ran:?}");
    }
    assert!(is_told > 0, "the guest's recording is too small for this test");
}

#[test]
fn a_recording_that_was_asked_for_is_not_kept_twice() {
    let place = Place::new();
    let ran = place.run(["-q", "--format=folded", "-o", "p.wlprof", "-o", "/dev/full", &traps()]);
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("cannot write /dev/full") && !ran.stderr.contains("what was sampled"), "{ran:?}");
    assert_eq!(place.files(), ["p.wlprof"]);
    place.recording("p.wlprof");
}

#[test]
fn a_pipe_that_nobody_reads_any_more_is_told() {
    let place = Place::new();
    let pipe = place.path("p.folded");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || drop(std::fs::File::open(pipe).unwrap()))
    };
    let mut command = place.command(["-q", "-o", "p.folded", &traps()]);
    let ran = output(command.env("TMPDIR", place.path("")));
    reader.join().unwrap();
    assert_eq!(ran.code, Some(125), "{ran:?}");
    assert!(ran.stderr.contains("cannot write p.folded: ") && ran.stderr.contains("what was sampled is in"), "{ran:?}");
}

/// The front end checks nothing, so this does: columns as long as their tables, and indices within them.
#[test]
fn tables_of_the_firefox_profile_fit_together() {
    let place = Place::new();
    let hosty = fixture("c-hosty.wasm");
    let ran = place.run(["-q", "-o", "p.json", "-o", "p.wlprof", "--clock=wall", hosty.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0));
    let recording = place.recording("p.wlprof");
    let profile: Value = serde_json::from_str(&read(&place, "p.json")).unwrap();
    let shared = &profile["shared"];
    let thread = &profile["threads"][0];
    assert_eq!(profile["threads"].as_array().unwrap().len(), 1);

    let tables = shared.as_object().unwrap().iter().chain(thread.as_object().unwrap());
    let mut checked = 0;
    for (name, table) in tables.filter(|(_, table)| table.get("length").is_some()) {
        for (column, values) in table.as_object().unwrap() {
            if let Some(values) = values.as_array() {
                assert_eq!(values.len() as u64, table["length"], "{name}.{column}");
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "{checked}");

    let within = |table: &str, column: &str, target: u64| {
        let values = shared[table][column].as_array().unwrap();
        assert!(values.iter().all(|value| value.is_null() || value.as_u64().unwrap() < target), "{table}.{column}");
    };
    let length = |table: &str| shared[table]["length"].as_u64().unwrap();
    let strings = shared["stringArray"].as_array().unwrap().len() as u64;
    within("stackTable", "frame", length("frameTable"));
    within("frameTable", "func", length("funcTable"));
    within("frameTable", "nativeSymbol", length("nativeSymbols"));
    within("frameTable", "category", profile["meta"]["categories"].as_array().unwrap().len() as u64);
    within("funcTable", "name", strings);
    within("funcTable", "resource", length("resourceTable"));
    within("funcTable", "source", length("sources"));
    within("nativeSymbols", "name", strings);
    within("sources", "filename", strings);
    for (row, prefix) in shared["stackTable"]["prefix"].as_array().unwrap().iter().enumerate() {
        assert!(prefix.is_null() || prefix.as_u64().unwrap() < row as u64, "a caller after its callee");
    }

    assert_eq!(thread["samples"]["length"], recording.ticks.sampled);
    let times: Vec<f64> =
        thread["samples"]["time"].as_array().unwrap().iter().map(|time| time.as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "samples out of order");
    assert_eq!(thread["markers"]["length"].as_u64().unwrap() as usize, recording.threads[0].host_calls.len());
}

/// Production runs a stripped program, and its symbols are elsewhere.
#[test]
fn symbols_can_be_added_to_the_recording_of_a_stripped_guest() {
    let place = Place::new();
    let full = fixture_bytes("c-shares.wasm");
    place.file("full.wasm", &full);
    place.file("bare.wasm", strip(&full));
    place.file("other.wasm", strip(&fixture_bytes("c-traps.wasm")));
    assert_eq!(place.run(["-q", "-o", "with.folded", "-o", "with.wlprof", "full.wasm"]).code, Some(0));
    let ran = place.run(["-o", "bare.wlprof", "bare.wasm"]);
    assert!(ran.code == Some(0) && ran.stderr.contains("or give --debug-file)"), "{ran:?}");
    let names = ["--guest=bare.wasm", "--debug-file=full.wasm"];
    let run = |arguments: &[&str]| {
        let ran = place.run([arguments, &names].concat());
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
        assert!(!ran.stdout.contains("wasm-function[") && !ran.stdout.contains("--debug-file"), "{}", ran.stdout);
        ran.stdout
    };
    let table = run(&["render", "bare.wlprof", "-o", "named.wlprof", "-o", "named.folded"]);
    assert!(table.contains("  heavy  c/shares.c:"), "{table}");
    // Names, files and lines are those of a run with them.
    let [with, named] = ["with.wlprof", "named.wlprof"].map(|name| place.recording(name));
    let places = |recording: &Recording| -> BTreeSet<_> {
        let hot = innermost_functions(recording).filter(|(name, _)| ["heavy", "light"].contains(name));
        let hot: BTreeSet<&str> = hot.map(|(name, _)| name).collect();
        let functions = recording.functions.iter().filter(|function| hot.contains(&*function.name));
        functions.map(|function| (function.name.clone(), function.file.clone(), function.line)).collect()
    };
    assert_eq!((places(&named), places(&with).len()), (places(&with), 2));
    assert!(!named.meta.notes.iter().any(|note| note.contains("no debug information")), "{:?}", named.meta.notes);
    assert!(run(&["annotate", "bare.wlprof", "heavy"]).starts_with("heavy\n"));
    run(&["diff", "with.wlprof", "bare.wlprof", "-o", "both.folded"]);
    let both = std::fs::read_to_string(place.path("both.folded")).unwrap();
    let in_both = |line: &str| line.contains(";heavy ") && line.rsplit(' ').take(2).all(|time| time != "0");
    assert!(both.lines().any(in_both), "{both}");
    assert!(run(&["merge", "-o", "all.wlprof", "with.wlprof", "bare.wlprof"]).contains("  heavy  c/shares.c:"));
    for command in
        [&["render"][..], &["annotate"], &["diff", "bare.wlprof"], &["merge", "-o", "x.wlprof", "bare.wlprof"]]
    {
        let refused = place.run([&command[..1], &["--guest=other.wasm"], &command[1..], &["bare.wlprof"]].concat());
        assert_eq!(refused.code, Some(125), "{command:?}: {refused:?}");
        assert!(refused.stderr.contains("not the program that was run"), "{refused:?}");
    }
}

/// A recording has the arguments of its guest in it, as perf.data has, which perf writes for its owner.
#[test]
fn what_is_kept_and_what_is_perfs_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let ran = place.run(["-q", "-o", "x.perf.data", &traps(), "secret"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for name in ["x.perf.data", "x.perf.data.elf"] {
        assert_eq!(mode(&place.path(name)), 0o600, "{name}");
    }
    // As perf does it, if it is here.
    if let Ok(perf) = Command::new("perf").args(["record", "-q", "-o"]).arg(place.path("perfs")).arg("true").output()
        && perf.status.success()
    {
        assert_eq!(mode(&place.path("perfs")), 0o600);
    }
    // The folder of the profile is gone at the end, so that the recording is kept where everybody can look.
    for file in ["gone/x.folded", "gone/x.wlprof"] {
        let shared = Place::new();
        std::fs::create_dir(place.path("gone")).unwrap();
        let mut command = place.command(["-q", "-o", file, fixture("c-spin.wasm").to_str().unwrap(), "secret"]);
        command.env("TMPDIR", shared.path(""));
        let started = start(&command);
        started.wait_for_work();
        std::fs::remove_dir_all(place.path("gone")).unwrap();
        started.signal("TERM");
        let ran = started.end();
        let kept = shared.files();
        assert_eq!(kept.len(), 1, "{ran:?}");
        assert_eq!(mode(&shared.path(&kept[0])), 0o600);
        assert!(shared.recording(&kept[0]).ticks.sampled > 0);
    }
}

/// Their readers fail where there is no thread at all.
#[test]
fn a_run_without_samples_has_a_profile_with_an_empty_thread() {
    let place = Place::new();
    place.file("nothing.wat", "(module (func (export \"_start\")))");
    place.file("trap.wat", "(module (func (export \"_start\") unreachable))");
    for (guest, code) in [("nothing.wat", 0), ("trap.wat", 134)] {
        let ran = place.run(["-q", "-o", "x.json", "-o", "x.speedscope.json", guest]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let json = |name: &str| -> Value { serde_json::from_str(&read(&place, name)).unwrap() };
        let firefox = json("x.json");
        let threads = firefox["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 1, "{guest}: {firefox}");
        assert!(threads[0]["samples"]["length"].is_u64() && threads[0]["isMainThread"] == true, "{firefox}");
        assert_eq!(json("x.speedscope.json")["profiles"].as_array().unwrap().len(), 1, "{guest}");
    }
}
