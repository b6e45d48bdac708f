//! The files that wlprof writes: which, in what format, and that they say the same.

use crate::guest::{Place, fixture, output};
use serde_json::Value;
use wlprof::export::EXPORTERS;

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
        assert_eq!((rendered.code, rendered.stdout.as_str()), (Some(0), ""));
        for ending in ["json", "folded"] {
            let (a, b) = (read(&place, &format!("a.{ending}")), read(&place, &format!("b.{ending}")));
            assert!(a == b, "{ending} differs in the {round} rendering");
        }
        assert_eq!(place.recording("a.wlprof"), place.recording("b.wlprof"));
        // The same table, but for the names of the files.
        let table = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("wrote ")).map(str::to_owned).collect()
        };
        assert_eq!(table(&ran.stderr), table(&rendered.stderr));
    }
}

#[test]
fn render_alone_prints_the_table_and_writes_nothing() {
    let place = Place::new();
    assert_eq!(place.run(["-q", "-o", "a.wlprof", &traps()]).code, Some(0));
    let ran = place.run(["render", "a.wlprof"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert!(ran.stderr.contains("work  c/traps.c:"), "{}", ran.stderr);
    assert_eq!(place.files(), ["a.wlprof"]);
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
        let ran = output(shell.args(["-o", "p.wlprof"]).arg(&guest).current_dir(place.path("")));
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
