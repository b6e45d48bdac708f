//! Plugins that do what none should: the guest runs to its end, the profile is written, and the user is told.

use crate::guest::{Place, Ran, output, was_seen};
use crate::library;
use crate::sampled::fixture;
use crate::tested::is_x86_64;
use std::path::PathBuf;
use std::sync::LazyLock;
use wlprof::recording::{Recording, file};

/// Compiles `testdata/plugins/misbehaving.c` to do `wrong`.
pub(crate) fn misbehaving(place: &Place, wrong: &str) -> PathBuf {
    let options = [&format!("-DWRONG={wrong}"), "-Wno-infinite-recursion"];
    library::from_c("plugins/misbehaving.c", place.path(&format!("{wrong}.so")), &options)
}

/// What the guest prints without a plugin.
fn truth() -> &'static str {
    static TRUTH: LazyLock<String> =
        LazyLock::new(|| Place::new().run(["-q", "--sampler=off", fixture("c-frames.wasm").to_str().unwrap()]).stdout);
    &TRUTH
}

/// Runs a guest with a plugin that does `wrong`.
fn profile(wrong: &str) -> (Ran, Recording) {
    let place = Place::new();
    let library = misbehaving(&place, wrong);
    // Where a signal is dear, under emulation above all, what is allowed by default leaves this short guest few samples.
    let ran = place.run([
        "--rate=5000",
        "--max-overhead=100",
        "--plugin",
        library.to_str().unwrap(),
        "-o",
        "x.wlprof",
        "-o",
        "x.json",
        fixture("c-frames.wasm").to_str().unwrap(),
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), truth()), "{wrong}: {}", ran.stderr);
    let recording = file::read(&std::fs::read(place.path("x.wlprof")).unwrap()).unwrap();
    assert!(recording.ticks.balanced() && recording.ticks.sampled > 50, "{wrong}: {:?}", recording.ticks);
    (ran, recording)
}

/// Frames are native, at least from some time on, and there is a `message`.
fn costs_its_frames_alone(wrong: &str, message: &str) {
    let (ran, recording) = profile(wrong);
    assert!(ran.stderr.contains(message), "{wrong}: {}", ran.stderr);
    assert!(was_seen(&recording, "evaluate"), "{wrong}: no native frames");
    assert!(!was_seen(&recording, "one"), "{wrong}: named by a plugin that failed");
}

const DROPPED: &str = "it is not asked any more, and stacks are wasm frames from then on";

#[test]
fn one_that_works_is_believed() {
    let (ran, recording) = profile("NOTHING");
    assert!(was_seen(&recording, "one") && !was_seen(&recording, "evaluate"), "{}", ran.stderr);
    let (_, recording) = profile("FROM_THE_FUTURE");
    assert!(was_seen(&recording, "one"), "additions to the ABI");
}

#[test]
fn the_user_is_told_even_with_quiet() {
    let place = Place::new();
    let library = misbehaving(&place, "CRASHES_IN_WALK");
    let guest = fixture("c-frames.wasm");
    let ran = place.run(["-q", "--plugin", library.to_str().unwrap(), "-o", "x.folded", guest.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("note: plugin misbehaving crashed in walk"), "{}", ran.stderr);
}

#[test]
fn one_that_does_not_come_back_is_left() {
    for wrong in ["LOOPS_IN_WALK", "LOOPS_IN_READ", "SLEEPS_IN_WALK"] {
        let message = format!("plugin misbehaving did not come back from walk within 2 s; {DROPPED}");
        costs_its_frames_alone(wrong, &message);
    }
}

#[test]
fn one_that_does_not_come_back_from_attach_is_left() {
    let reason = "plugin misbehaving did not come back from attach within 15 s; it is not asked any more";
    costs_its_frames_alone("LOOPS_IN_ATTACH", &format!("misbehaving 1 in c-frames.wasm: {reason}"));
}

/// In Rust, through `export_plugin!`. Each panic prints its own message, so these runs are not looked through for panics.
#[test]
fn one_that_panics_is_told_of() {
    let library = library::with_cargo(&["wlprof-plugin", "--example", "panicking"], "examples/libpanicking.so");
    let profile = |panics_in: &str| {
        let place = Place::new();
        let mut command = place.command(["--lang=panicking", "-o", "x.wlprof", "--plugin"]);
        let ran = output(command.arg(&library).arg(fixture("c-frames.wasm")).env("PANICS_IN", panics_in));
        let Ran { code, stdout, stderr: errors, .. } = ran;
        if code == Some(0) {
            assert_eq!(stdout, truth(), "{panics_in}");
        }
        (code, errors, place)
    };
    let (_, errors, place) = profile("nothing");
    assert!(was_seen(&place.recording("x.wlprof"), "one"), "{errors}");
    for (activity, code, panics, message, frame) in [
        ("detect", 125, 1, "plugin wlprof-plugin failed in detect (in Rust: by a panic)", ""),
        ("attach", 126, 1, "panicking 1 in c-frames.wasm: the plugin panicked; leave out --lang", ""),
        ("walk", 0, 3, "plugin wlprof-plugin failed in 3 walks (in Rust: by a panic)", "evaluate"),
        // Asked in the run and where the profile is made.
        ("walker", 0, 2, "labels, threads, heaps or warnings (1 times); what it did not say is missing", "evaluate"),
        (
            "symbolize",
            0,
            3,
            "labels, threads, heaps or warnings (3 times); what it did not say is missing",
            "[unknown frame 0x",
        ),
        ("categorize", 0, 3, "labels, threads, heaps or warnings (3 times); what it did not say is missing", "one"),
        ("labels", 0, 1, "labels, threads, heaps or warnings (1 times); what it did not say is missing", "one"),
        // Asked in the run and where the profile is made.
        ("warnings", 0, 2, "labels, threads, heaps or warnings (1 times); what it did not say is missing", "one"),
    ] {
        let (found, errors, place) = profile(activity);
        assert!(found == Some(code) && errors.contains(message), "{activity}: {found:?} {errors}");
        assert_eq!(errors.matches(&format!("asked to, in {activity}")).count(), panics, "{errors}");
        if code == 0 {
            let recording = place.recording("x.wlprof");
            let names: Vec<&str> = recording.functions.iter().map(|function| function.name.as_str()).collect();
            assert!(
                names.iter().any(|name| name.starts_with(frame)) && names.contains(&"one") == (frame == "one"),
                "{activity}: {names:?}"
            );
        }
    }
}

#[test]
fn one_that_crashes_is_left() {
    let address = "it used an address that is not its own (SIGSEGV)";
    for (wrong, activity, how) in [
        ("CRASHES_IN_WALK", "walk", address),
        ("OVERRUNS", "walk", address),
        ("ILLEGAL_INSTRUCTION", "walk", "it ran into an illegal instruction (SIGILL)"),
        ("CRASHES_IN_ATTACH", "attach", address),
    ] {
        let dropped = if activity == "walk" { DROPPED } else { "it is not asked any more; frames will be native only" };
        costs_its_frames_alone(wrong, &format!("plugin misbehaving crashed in {activity}: {how}; {dropped}"));
    }
    // To the other's processor that is 0.
    if is_x86_64() {
        let message = format!("plugin misbehaving crashed in walk: it divided by zero (SIGFPE); {DROPPED}");
        costs_its_frames_alone("DIVIDES_BY_ZERO", &message);
    }
    let (ran, _) = profile("CRASHES_IN_DESTROY");
    assert_eq!(ran.stderr.matches("plugin misbehaving crashed in destroy").count(), 1, "{}", ran.stderr);
}

/// Where constructors run nothing can be contained.
#[test]
fn one_that_crashes_when_it_is_loaded_is_named() {
    let place = Place::new();
    misbehaving(&place, "CRASHES_WHEN_LOADED");
    let ran = place.run(["--plugin", "CRASHES_WHEN_LOADED.so", fixture("c-frames.wasm").to_str().unwrap()]);
    assert!(ran.signal.is_some() && ran.stdout.is_empty(), "{ran:?}");
    let message = "wlprof: crashed while it loaded the plugin /";
    assert!(ran.stderr.starts_with(message) && ran.stderr.contains("CRASHES_WHEN_LOADED.so\n"), "{}", ran.stderr);
}

/// While the guest runs, for dumps; `threads` gives what it found to wlprof, whose allocator must not be left in the middle.
#[test]
fn one_that_fails_in_a_dump_is_left() {
    let place = Place::new();
    for (wrong, message) in [
        ("CRASHES_IN_THREADS", "plugin misbehaving crashed in threads"),
        ("LOOPS_IN_THREADS", "plugin misbehaving did not come back from threads within 2 s; it is not asked any more"),
    ] {
        let library = misbehaving(&place, wrong);
        // More than once, as an emulated guest may take its time to begin. Whoever failed is not asked again.
        let times = ["--dump-at=0.05", "--dump-at=0.5", "--dump-at=2", "--dump-at=4"];
        let dump = [&["dump", "--goroutines"], &times[..], &["--lang=misbehaving", "--plugin"]].concat();
        let guest = [library.to_str().unwrap(), fixture("c-frames.wasm").to_str().unwrap()].map(str::to_owned);
        let ran = place.run(dump.into_iter().map(str::to_owned).chain(guest));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), truth()), "{wrong}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches(message).count(), 1, "{wrong}: {}", ran.stderr);
    }
}

/// A plugin that does not know a release, or cannot walk a guest, does not take it away from another that can.
#[test]
fn another_of_the_same_language_is_asked() {
    let place = Place::new();
    let works = misbehaving(&place, "NOTHING");
    let guest = fixture("c-frames.wasm");
    for wrong in ["UNSUPPORTED", "DOES_NOT_KNOW", "CRASHES_IN_ATTACH", "CRASHES_IN_DETECT"] {
        let library = misbehaving(&place, wrong);
        for choice in ["--lang=auto", "--lang=misbehaving"] {
            let mut command = place.command([choice, "-o", "x.wlprof", "--plugin"]);
            let Ran { code, stderr: errors, .. } =
                output(command.arg(&library).arg("--plugin").arg(&works).arg(&guest));
            assert_eq!(code, Some(0), "{wrong}: {errors}");
            assert!(was_seen(&place.recording("x.wlprof"), "one"), "{wrong} {choice}: {errors}");
            assert!(!errors.contains("native only"), "{wrong}: {errors}");
        }
    }
    let library = misbehaving(&place, "UNSUPPORTED");
    let ran = place.run(["--plugin", library.to_str().unwrap(), guest.to_str().unwrap()]);
    let message = "note: unsupported misbehaving 0 in c-frames.wasm (supported: 1); frames will be native only";
    assert!(ran.code == Some(0) && ran.stderr.contains(message), "{ran:?}");
}

/// Whoever names a language wants its frames, and not a long run without them.
#[test]
fn a_language_asked_for_by_name_is_walked_or_the_guest_does_not_run() {
    let place = Place::new();
    for (wrong, code, message) in [
        ("UNSUPPORTED", 126, "wlprof: unsupported misbehaving 0 in c-frames.wasm (supported: 1); leave out --lang"),
        ("DOES_NOT_KNOW", 126, "wlprof: c-frames.wasm does not look like a misbehaving program; leave out --lang"),
        ("CRASHES_IN_ATTACH", 125, "wlprof: plugin misbehaving crashed in attach: "),
    ] {
        let library = misbehaving(&place, wrong);
        let guest = fixture("c-frames.wasm");
        let ran = place.run(["--lang=misbehaving", "--plugin", library.to_str().unwrap(), guest.to_str().unwrap()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{wrong}: {ran:?}");
        assert!(ran.stderr.starts_with(message), "{wrong}: {ran:?}");
    }
}

#[test]
fn one_that_is_named_and_does_not_know_the_guest_is_told_of() {
    let place = Place::new();
    let library = misbehaving(&place, "DOES_NOT_KNOW");
    let plugin = ["--plugin", library.to_str().unwrap()];
    let guest = fixture("c-frames.wasm");
    let note = "DOES_NOT_KNOW.so is not used: it does not know c-frames.wasm (its languages: misbehaving)";
    for (options, is_told) in [(&[][..], true), (&["-q"], false), (&["--lang=native"], false)] {
        let ran = place.run([options, &plugin, &[guest.to_str().unwrap()]].concat());
        assert!(ran.code == Some(0) && ran.stderr.contains(note) == is_told, "{options:?}: {ran:?}");
    }
}

/// Not chosen then, as if it did not know the guest.
#[test]
fn one_that_crashes_in_detect_is_left_out() {
    let place = Place::new();
    let library = misbehaving(&place, "CRASHES_IN_DETECT");
    let ran = place.run([
        "--plugin",
        library.to_str().unwrap(),
        "-o",
        "x.wlprof",
        fixture("c-frames.wasm").to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("plugin misbehaving crashed in detect: "), "{}", ran.stderr);
    assert!(was_seen(&place.recording("x.wlprof"), "evaluate"));
    // Asked for by name it cannot be had.
    let ran = place.run([
        "--plugin",
        library.to_str().unwrap(),
        "--lang=misbehaving",
        fixture("c-frames.wasm").to_str().unwrap(),
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("plugin misbehaving crashed in detect: "), "{}", ran.stderr);
}

/// The stacks have been sampled by then.
#[test]
fn one_that_fails_to_name_its_frames_leaves_them_unknown() {
    let (_, recording) = profile("SHORT_FRAME");
    assert!(
        was_seen(&recording, "[a wlprof_source_frame_t with a size of 8 instead of 72]"),
        "{:?}",
        recording.functions
    );
    for wrong in ["CRASHES_IN_SYMBOLIZE", "OVERFLOWS_STACK_IN_SYMBOLIZE"] {
        let (ran, recording) = profile(wrong);
        assert!(ran.stderr.contains("plugin misbehaving crashed in symbolize"), "{wrong}: {}", ran.stderr);
        assert!(was_seen(&recording, "[unknown frame 0x1]"), "{wrong}");
    }
}

#[test]
fn one_that_says_what_cannot_be_is_not_believed() {
    for wrong in ["WILD_COUNT", "WILD_END"] {
        costs_its_frames_alone(wrong, "language: inconsistent");
    }
    costs_its_frames_alone("WILD_INDEX", "language: inconsistent");
    costs_its_frames_alone("WILD_KIND", "language: inconsistent");
    costs_its_frames_alone("FAILS", "plugin misbehaving failed in 3 walks");
}

#[test]
fn one_that_says_too_much_is_cut() {
    let (_, recording) = profile("GIANT_TEXT");
    let longest = recording.functions.iter().map(|function| function.name.len()).max().unwrap();
    assert!((4000..5000).contains(&longest), "{longest}");
    let (_, recording) = profile("IMPOSSIBLE_TEXT");
    assert!(was_seen(&recording, "[a text of 18446744073709551615 bytes]"));
    let (_, recording) = profile("NO_TEXT");
    assert!(was_seen(&recording, "[unknown function]"), "{:?}", recording.functions);
    let (_, recording) = profile("ENDLESS_FRAMES");
    assert!(was_seen(&recording, "one"));
}

#[test]
fn one_that_is_not_whole_is_refused() {
    let cases = [
        ("NO_DETECT", 125, "NO_DETECT.so: one of its languages has no `detect`"),
        ("NAMED_AUTO", 125, "NAMED_AUTO.so: what it says of itself cannot be: `auto` means something else to --lang"),
        ("NO_LANGUAGES", 125, "NO_LANGUAGES.so: what it says of itself cannot be: it has 1 languages at 0x0"),
        (
            "SHORT_PLUGIN",
            125,
            "SHORT_PLUGIN.so: what it says of itself cannot be: a wlprof_plugin_t with a size of 8 instead of 72",
        ),
        ("WILD_NAME", 125, "plugin WILD_NAME.so crashed in its description: it used an address that is not its own"),
        ("NULL_GLOBALS", 0, "the plugin's program wants 1 globals at 0x0 (supported: up to 4096, not at null); frames"),
        ("MANY_GLOBALS", 0, "the plugin's program wants 1152921504606846976 globals at 0x0 (supported: up to 4096"),
        ("WILD_PROGRAM", 0, "plugin misbehaving crashed in attach: it used an address that is not its own"),
        ("WILD_WALKER", 0, "plugin misbehaving crashed in walker: it used an address that is not its own"),
        ("SHORT_PROGRAM", 0, "misbehaving 1 in c-frames.wasm: a wlprof_program_t with a size of 16 instead of 88 (set"),
        ("SHORT_WALKER", 0, "misbehaving 1 in c-frames.wasm: a wlprof_walker_t with a size of 16 instead of 48 (set"),
        ("NO_WALK", 0, "the plugin's walker has no `walk`; frames will be native only"),
    ];
    let place = Place::new();
    for (wrong, code, message) in cases {
        let library = misbehaving(&place, wrong);
        let ran = place.run(["--plugin", library.to_str().unwrap(), fixture("c-frames.wasm").to_str().unwrap()]);
        assert!(ran.code == Some(code) && ran.stderr.contains(message), "{wrong}: {ran:?}");
    }
}
