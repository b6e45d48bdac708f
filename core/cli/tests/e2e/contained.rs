//! What is left of a run with a plugin that does what none should: as the table in docs/plugin-abi.md says, row by row. And
//! that no plugin changes what the guest computes.

use crate::guest::{Place, Ran, run, was_seen};
use crate::library;
use crate::misbehaving::misbehaving;
use crate::sampled::fixture;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use wlprof::recording::{Frame, Origin, file};
use wlprof_plugin::abi;

/// A row: what the plugin does, when, and what is left then.
struct Row {
    wrong: String,
    when: String,
    left: String,
}

fn table() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugin-abi.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &["", wrong, when, _, left, ""] = &cells[..] else { return None };
        let is_name = !wrong.is_empty() && wrong.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        is_name.then(|| Row { wrong: wrong.to_owned(), when: when.to_owned(), left: left.to_owned() })
    });
    rows.collect()
}

/// Computes for a few tenths of a second and gives the last number.
const GUEST: &str = r#"(module
    (memory (export "memory") 1)
    (func $step (param i64) (result i64)
        (i64.xor (local.get 0) (i64.shl (local.get 0) (i64.const 13))))
    (func (export "run") (result i64) (local $left i32) (local $state i64)
        (local.set $left (i32.const 150000000))
        (local.set $state (i64.const 1))
        (loop $again
            (local.set $state (i64.add (i64.const 7) (call $step (local.get $state))))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
        (local.get $state)))"#;

/// What is asked in memory profiles alone.
const OF_HEAPS: [&str; 3] = ["allocators", "switch_heap_profiler_on", "heap_profile"];

/// What is left of a run with a plugin that does what `row` says, in the words of the table.
fn left_of(row: &Row) -> String {
    let wrong = &*row.wrong;
    let place = Place::new();
    let library = misbehaving(&place, wrong);
    let guest = place.file("guest.wat", GUEST);
    // As most runs are: a language that is asked for by name must be there.
    let mut command = place.command(["--lang=auto", "-o", "x.wlprof", "--invoke", "run"]);
    command.args(OF_HEAPS.contains(&&*row.when).then_some("--memory")).arg("--plugin");
    command.arg(library).arg(guest).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = run(&mut command);
    println!("{wrong}: {ran:?}");
    let names = ["plugin misbehaving", "misbehaving 1 in guest.wat: ", &format!("{wrong}.so")];
    let is_told = names.iter().any(|name| ran.stderr.contains(name));
    if ran.code != Some(0) {
        let recording = std::fs::read(place.path("x.wlprof")).ok().and_then(|bytes| file::read(&bytes).ok());
        let has_samples = recording.is_some_and(|recording| recording.samples().next().is_some());
        return match (is_told, has_samples) {
            (true, _) if ran.code == Some(125) && ran.stdout.is_empty() => "refused",
            (true, true) => "the profile until then",
            (true, false) => "its name",
            (false, _) => "what is on disk",
        }
        .to_owned();
    }
    let recording = place.recording("x.wlprof");
    assert_eq!(ran.stdout, *truth(), "{wrong}");
    let is_own = |frame: &Frame| matches!(frame.origin, Origin::Language { .. });
    let own = recording.frames.iter().any(is_own);
    let is_unnamed = was_seen(&recording, "[unknown frame 0x1]");
    match (own, is_unnamed) {
        (true, false) => "everything",
        (true, true) if is_told => "unnamed frames",
        (false, _) if is_told || !recording.truncated.is_empty() => "wasm frames",
        _ => "unsaid",
    }
    .to_owned()
}

/// What the guest says without a plugin.
fn truth() -> &'static String {
    static TRUTH: OnceLock<String> = OnceLock::new();
    TRUTH.get_or_init(|| {
        let place = Place::new();
        let guest = place.file("guest.wat", GUEST);
        place.run(["--sampler=off", "--invoke", "run", guest.to_str().unwrap()]).stdout
    })
}

fn is_as_the_table_says(when: &[&str]) {
    let rows: Vec<Row> = table().into_iter().filter(|row| when.contains(&row.when.as_str())).collect();
    assert!(!rows.is_empty());
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            let left = left_of(row);
            let is_listed = row.left.split(", or ").any(|listed| listed == left);
            (!is_listed).then(|| format!("{}: {left} instead of {}", row.wrong, row.left))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn when_it_is_loaded_it_is_as_the_table_says() {
    is_as_the_table_says(&["loaded"]);
}

#[test]
fn before_the_run_it_is_as_the_table_says() {
    is_as_the_table_says(&["detect", "attach", "walker"]);
}

#[test]
fn in_walks_it_is_as_the_table_says() {
    is_as_the_table_says(&["walk"]);
}

#[test]
fn of_heaps_it_is_as_the_table_says() {
    is_as_the_table_says(&OF_HEAPS);
}

#[test]
fn after_the_run_it_is_as_the_table_says() {
    is_as_the_table_says(&["symbolize", "destroy", "end"]);
}

#[test]
fn the_table_has_forty_rows_and_the_test_knows_when() {
    let known = ["loaded", "detect", "attach", "walker", "walk", "symbolize", "destroy", "end"];
    let rows = table();
    assert!(rows.len() >= 40, "{}", rows.len());
    for row in rows {
        assert!(known.iter().chain(&OF_HEAPS).any(|when| *when == row.when), "{}: {}", row.wrong, row.when);
    }
}

/// A product too small for a normal number, which is 0 where those are not wanted. Then it traps, if it is asked to.
const SMALL: &str = r#"(module
    (global $small (mut f64) (f64.const 1e-300))
    (func (export "small") (result f64) (f64.mul (global.get $small) (f64.const 1e-10)))
    (func (export "trap") unreachable))"#;

/// Runs a function of the guest with these options.
fn call(place: &Place, function: &str, options: &[&str]) -> Ran {
    let guest = place.file("small.wat", SMALL);
    place.run(options.iter().copied().chain(["-q", "--invoke", function, guest.to_str().unwrap()]))
}

/// Whether the number that the guest printed is not 0.
fn is_small(ran: &Ran) -> bool {
    ran.stdout.trim().parse::<f64>().is_ok_and(|number| number > 0.0 && !number.is_normal())
}

/// As the compiler's fast mathematics do it, in the library's own constructors.
fn fast(place: &Place) -> String {
    let options = ["-DWRONG=NOTHING", "-Wno-infinite-recursion", "-Ofast"];
    library::from_c("plugins/misbehaving.c", place.path("fast.so"), &options).to_str().unwrap().to_owned()
}

#[test]
fn results_are_the_guests_own() {
    let place = Place::new();
    let expected = call(&place, "small", &["--sampler=off"]);
    assert!(expected.code == Some(0) && is_small(&expected), "{expected:?}");
    let mut libraries = vec![fast(&place)];
    for wrong in ["ROUNDS_OTHERWISE_WHEN_LOADED", "ROUNDS_OTHERWISE_IN_ATTACH"] {
        libraries.push(misbehaving(&place, wrong).to_str().unwrap().to_owned());
    }
    for library in &libraries {
        for option in ["--lang=auto", "--lang=misbehaving", "--lang=native", "--sampler=off", "--sampler=epoch"] {
            let ran = call(&place, "small", &["-o", "x.folded", option, "--plugin", library]);
            assert_eq!(
                (ran.code, ran.stdout),
                (Some(0), expected.stdout.clone()),
                "{library} {option}: {}",
                ran.stderr
            );
        }
    }
}

/// In host calls' walks, too, which run on the guest's thread as it is.
#[test]
fn a_walk_leaves_the_guest_its_rounding() {
    let place = Place::new();
    let library = misbehaving(&place, "ROUNDS_OTHERWISE_IN_WALK");
    // Sleeps in the host, so that the walk is made when that returns, and computes then.
    let guest = place.file(
        "sleeps.wat",
        r#"(module
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (global $small (mut f64) (f64.const 1e-300))
            (func (export "small") (result f64)
                ;; A subscription to the monotonic clock, 100 ms from now.
                (i32.store (i32.const 16) (i32.const 1))
                (i64.store (i32.const 24) (i64.const 100000000))
                (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
                (f64.mul (global.get $small) (f64.const 1e-10))))"#,
    );
    let arguments = ["-q", "--clock=wall", "--lang=misbehaving", "-o", "x.wlprof", "--invoke", "small", "--plugin"];
    let mut command = place.command(arguments);
    command.arg(library).arg(guest).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = run(&mut command);
    assert!(ran.code == Some(0) && is_small(&ran), "{ran:?}");
    assert!(was_seen(&place.recording("x.wlprof"), "one"), "it was not asked");
}

/// A trap is a signal: one that is blocked ends the process, and one that is ignored never ends.
#[test]
fn signals_are_wlprofs_own() {
    let place = Place::new();
    let expected = call(&place, "trap", &["--sampler=off"]);
    for wrong in [
        "TAKES_SIGNALS_WHEN_LOADED",
        "TAKES_SIGNALS_IN_ATTACH",
        "BLOCKS_SIGNALS_WHEN_LOADED",
        "BLOCKS_SIGNALS_IN_ATTACH",
    ] {
        let library = misbehaving(&place, wrong);
        let ran = call(&place, "trap", &["-o", "x.folded", "--plugin", library.to_str().unwrap()]);
        assert_eq!((ran.code, &ran.stderr), (expected.code, &expected.stderr), "{wrong}");
    }
}

/// Nothing of a plugin runs that the guest does not need.
#[test]
fn a_plugin_that_is_not_needed_is_not_opened() {
    let place = Place::new();
    std::fs::create_dir(place.path("plugins")).unwrap();
    let library = misbehaving(&place, "SPEAKS_WHEN_LOADED");
    std::fs::rename(&library, place.path("plugins/speaks.so")).unwrap();
    let guest = fixture("c-traps.wasm");
    let is_opened = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("WLPROF_PLUGIN_PATH", place.path("plugins")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = run(&mut command);
        (ran.stderr.contains("I was opened"), ran)
    };
    let guest = guest.to_str().unwrap();
    for (arguments, expected) in [
        (&["-o", "x.folded", guest][..], true),
        (&["-o", "x.folded", "--lang=misbehaving", guest], true),
        (&["-o", "x.folded", "--lang=native", guest], false),
        (&["-o", "x.folded", "--frames=native", guest], false),
        (&["--sampler=off", guest], false),
        (&["-o", "x.folded", "--lang=python", guest], false),
        (&["--lang=native", "--plugin", "plugins/speaks.so", guest], false),
        (&["plugins"], false),
    ] {
        let (opened, ran) = is_opened(arguments);
        assert_eq!(opened, expected, "{arguments:?}: {}", ran.stderr);
    }
    let (_, listed) = is_opened(&["plugins"]);
    let row = format!("misbehaving\t1.0\t{}.{}\tmisbehaving\t", abi::ABI_MAJOR, abi::ABI_MINOR);
    assert!(listed.stdout.contains(&row), "{}", listed.stdout);
    // A name that is not opened is known.
    let (_, unknown) = is_opened(&["--lang=parrot", guest]);
    assert!(unknown.stderr.contains("unknown language parrot (known: auto, native, misbehaving, "), "{unknown:?}");
}

#[test]
fn checks_say_what_a_plugin_changes() {
    let place = Place::new();
    let rounding = "changes how the processor rounds (MXCSR or the x87 control word; does it link crtfastmath?)";
    let blocked = "changes which signals the thread blocks";
    let handlers = "changes who handles a signal";
    fast(&place);
    for (wrong, check, what) in [
        ("", "names itself and its languages", format!("a constructor {rounding}")),
        ("ROUNDS_OTHERWISE_WHEN_LOADED", "names itself and its languages", format!("a constructor {rounding}")),
        ("TAKES_SIGNALS_WHEN_LOADED", "names itself and its languages", format!("a constructor {handlers}")),
        ("BLOCKS_SIGNALS_WHEN_LOADED", "names itself and its languages", format!("a constructor {blocked}")),
        ("ROUNDS_OTHERWISE_IN_ATTACH", "walks its stacks while it runs", format!("attach {rounding}")),
        ("TAKES_SIGNALS_IN_ATTACH", "walks its stacks while it runs", format!("attach {handlers}")),
        ("BLOCKS_SIGNALS_IN_ATTACH", "walks its stacks while it runs", format!("attach {blocked}")),
        ("ROUNDS_OTHERWISE_IN_WALK", "walks its stacks while it runs", format!("walk {rounding}")),
        ("BLOCKS_SIGNALS_IN_WALK", "walks its stacks while it runs", format!("walk {blocked}")),
    ] {
        let library = if wrong.is_empty() { place.path("fast.so") } else { misbehaving(&place, wrong) };
        let mut command = place.command(["plugins", "check"]);
        command.arg(library).arg("--guest").arg(fixture("c-frames.wasm"));
        let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let line = format!("check {check} ... FAILED ({what}");
        assert!(ran.code == Some(1) && ran.stdout.contains(&line), "{wrong}: {}", ran.stdout);
    }
}
