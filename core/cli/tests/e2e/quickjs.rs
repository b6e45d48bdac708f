//! JavaScript guests and the plugin for them, a dynamic library that knows of wlprof the plugin crate alone: whole stacks
//! against what JavaScript says of them, known shares, and native code under the lines that called it.

use crate::attach::{self, Host};
use crate::guest::{Place, fixture, fixture_bytes, run};
use crate::heap_profile::by_line;
use crate::library;
use crate::sampled::{Luck, Shares, are_few, measure_again_if_off, profile_until, with_ever_more_work};
use crate::tested::wlprof;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use wlprof::recording::{Category, Frame, HeapPart, LanguageTruncation, Origin, Recording, Truncation, View};

/// The luck of measurements for shares of time.
const LUCK: Luck = Luck { why: "the script's clock runs on while another program has the processor", off: 0, of: 32 };

const GUESTS: [&str; 2] = ["quickjs-0.16.wasm", "quickjs-0.16-stripped.wasm"];

/// The plugin's library, built on first use.
pub(crate) fn plugin() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = library::with_cargo(&["wlprof-quickjs"], "libwlprof_quickjs.so");
        library.into_os_string().into_string().unwrap()
    })
}

/// Runs a script, and gives what it printed and the recording that was made of it.
fn profile(guest: &Path, options: &[&str], script: &[&str]) -> (String, Recording) {
    let place = Place::new();
    let recording = place.path("x.wlprof");
    let mut command = wlprof();
    command.current_dir(scripts()).args(["--plugin", plugin(), "--lang", "javascript", "-o"]).arg(recording);
    command.args(["--rate", "10000", "--max-overhead", "100", "--dir", "."]).args(options).arg(guest).args(script);
    let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (ran.stdout, place.recording("x.wlprof"))
}

#[test]
fn without_the_plugin_a_note_says_what_would_show_the_script() {
    let place = Place::new();
    for guest in GUESTS {
        let guest = fixture(guest);
        let run = |options: &[&str]| place.run([options, &[guest.to_str().unwrap(), "-e", "0"]].concat());
        let without = run(&["-o", "x.wlprof"]);
        assert!(without.stderr.contains("is QuickJS: --plugin with"), "{without:?}");
        let with = run(&["-o", "x.wlprof", "--plugin", plugin()]);
        assert_eq!(with.code, Some(0), "{with:?}");
        assert!(!with.stderr.contains("is QuickJS: --plugin with"), "{with:?}");
    }
}

/// Of three units of work below `heavy` to one below `light`.
pub(crate) const SCRIPT: &str = "
    function work(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) & 0xffff; return s }
    function heavy() { return work(30000) }
    function light() { return work(10000) }
    for (;;) { heavy(); light() }
";

#[test]
fn scripts_of_a_process_that_runs_already_are_read() {
    let place = Place::new();
    place.file("work.js", SCRIPT);
    let guest = fixture(GUESTS[0]);
    let arguments = ["--sampler=off", "-q", "--dir=.", guest.to_str().unwrap(), "work.js"];
    let host = Host::start(&mut place.command(arguments));
    attach::check_script(&attach::recording(&place, &host, &["--plugin", plugin()]), "<anonymous>");
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/quickjs")
}

/// As [`profile`], of a script that is told by its last argument how much to do: `times` much, and more until there are
/// samples enough.
fn profile_enough(guest: &Path, options: &[&str], script: &[&str], times: u64) -> (String, Recording) {
    const SAMPLES: u64 = 5_000;
    let mut said = String::new();
    let recording = profile_until(SAMPLES, |more| {
        let (printed, recording) = profile(guest, options, &[script, &[&(times * more).to_string()]].concat());
        said = printed;
        recording
    });
    (said, recording)
}

/// A JavaScript frame as `new Error().stack` prints it.
fn javascript(recording: &Recording, frame: &Frame) -> Option<String> {
    let (Origin::Language { .. }, [line]) = (frame.origin, frame.lines.as_slice()) else { return None };
    let function = &recording.functions[line.function as usize];
    let place = match (&function.file, line.line, line.column) {
        (Some(file), Some(line), Some(column)) => format!("{file}:{line}:{column}"),
        (None, None, None) => "native".to_owned(),
        unknown => format!("{unknown:?}"),
    };
    Some(format!("{} ({place})", function.name))
}

/// The name of a wasm frame's function.
fn wasm<'a>(recording: &'a Recording, frame: &Frame) -> Option<&'a str> {
    let Origin::Wasm { .. } = frame.origin else { return None };
    Some(&recording.functions[frame.lines.last()?.function as usize].name)
}

/// Checks that hardly any stack is cut, and for known reasons alone.
fn assert_whole(recording: &Recording, guest: &str) {
    let incomplete: u64 = recording.truncated.iter().map(|(_, count)| *count).sum();
    let sampled = recording.ticks.sampled;
    println!("{guest}: {sampled} samples, {incomplete} incomplete: {:?}", recording.truncated);
    let is_known = |reason: &Truncation| {
        use LanguageTruncation::{InHostCode, Inconsistent, NoStack};
        matches!(reason, Truncation::Language(NoStack | InHostCode | Inconsistent))
    };
    assert!(recording.truncated.iter().all(|(reason, _)| is_known(reason)), "{guest}: {:?}", recording.truncated);
    assert!(are_few(incomplete, sampled, 0.01), "{guest}: {incomplete} of {sampled}: {:?}", recording.truncated);
}

/// The stacks that `stacks.js` printed, each with how often it was seen. In the innermost frame is another line of the same
/// function.
fn printed_stacks(said: &str) -> BTreeMap<Vec<String>, usize> {
    assert!(said.ends_with("@\ndone\n"), "{said}");
    let stacks = said.split("@\n").filter(|stack| stack.starts_with("    at spin "));
    let frames = |stack: &str| {
        let lines = stack.lines().filter_map(|line| line.strip_prefix("    at "));
        let mut frames: Vec<String> = lines.map(str::to_owned).collect();
        frames[0] = without_line(&frames[0]);
        frames
    };
    stacks.map(|stack| (frames(stack), 0)).collect()
}

fn without_line(frame: &str) -> String {
    frame.split_once(':').map_or(frame, |(start, _)| start).to_owned()
}

/// Counts the samples of each stack. There may be no others.
fn count_stacks(recording: &Recording, stacks: &mut BTreeMap<Vec<String>, usize>, guest: &str) {
    for sample in recording.samples() {
        let found = recording.frames_of(sample.stack);
        let mut frames: Vec<String> = found.filter_map(|frame| javascript(recording, frame)).collect();
        let Some(spin) = frames.iter().position(|frame| frame.starts_with("spin (")) else { continue };
        let is_cut = |frame: &Frame| frame.origin == Origin::Truncated;
        if recording.frames_of(sample.stack).any(is_cut) {
            continue;
        }
        // It calls but these.
        let natives = ["Error (native)", "get stack (native)", "now (native)", "print (native)"];
        assert!(frames[..spin].iter().all(|frame| natives.contains(&frame.as_str())), "{guest}: {frames:?}");
        frames.drain(..spin);
        frames[0] = without_line(&frames[0]);
        match stacks.get_mut(&frames) {
            Some(seen) => *seen += 1,
            None => panic!("{guest}: not a stack that there was: {frames:#?}"),
        }
    }
}

#[test]
fn stacks_are_what_javascript_says_they_are() {
    for guest in GUESTS {
        let mut stacks = BTreeMap::new();
        // Each is there for some milliseconds, in which a busy machine may not let a sample be taken.
        with_ever_more_work("all stacks", |_| {
            let (said, recording) = profile(&fixture(guest), &["--frames", "merged"], &["stacks.js"]);
            for (stack, _) in printed_stacks(&said) {
                stacks.entry(stack).or_insert(0);
            }
            count_stacks(&recording, &mut stacks, guest);
            assert_whole(&recording, guest);
            let frames: usize = stacks.keys().map(Vec::len).sum();
            let unseen: Vec<_> = stacks.iter().filter(|(_, seen)| **seen == 0).collect();
            println!("{guest}: {} stacks, {frames} frames, not seen: {unseen:#?}", stacks.len());
            assert!(stacks.len() > 70 && frames > 300);
            unseen.is_empty()
        });
    }
}

/// In what way `renamed.js` made a function, and of which kind its frame says that it is: by its name, by its file or by
/// the line at which it loops. `None` if it is not yet there.
fn made(frame: &str) -> Option<(usize, &str)> {
    let (name, place) = frame.split_once(" (").unwrap();
    match name {
        "madeOfFile" if place.contains("///") => Some((2, "Betaa")),
        "madeOfFile" => Some((2, "Alpha")),
        "madeOfLines" => match place.split(':').nth(1).unwrap().parse().unwrap() {
            15 => Some((3, "Alpha")),
            17 => Some((3, "Betaa")),
            line => (line > 14).then_some((3, "none")),
        },
        _ => Some((usize::from(name.len() > 300), &name[name.len() - 6..name.len() - 1])),
    }
}

#[test]
fn functions_that_took_the_places_of_others_are_told_apart() {
    for guest in GUESTS {
        let mut seen = [0; 4];
        let mut names = BTreeSet::new();
        // 14 short ones, 14 long ones, and one in each of the other ways.
        with_ever_more_work("all functions", |times| {
            let (_, recording) = profile(&fixture(guest), &[], &["renamed.js", &(4000 * times).to_string()]);
            for sample in recording.samples() {
                let frames: Vec<String> =
                    recording.frames_of(sample.stack).filter_map(|frame| javascript(&recording, frame)).collect();
                for pair in frames.windows(2).filter(|pair| pair[0].starts_with("made")) {
                    let Some((way, kind)) = made(&pair[0]) else { continue };
                    assert!(pair[1].starts_with(&format!("call{kind} ")), "{guest}: {frames:?}");
                    seen[way] += 1;
                    names.extend(pair[0].split(' ').next().map(str::to_owned));
                }
            }
            assert_whole(&recording, guest);
            println!("{guest}: {seen:?}, {} names", names.len());
            names.len() >= 30 && seen.iter().all(|&seen| seen > 100)
        });
        assert_eq!(names.len(), 30, "{guest}: {names:?}");
    }
}

/// The time in which each of `names` was on the stack, of that in which any of them was.
fn shares<'n>(recording: &Recording, names: &[&'n str]) -> Shares<&'n str> {
    Shares::of(recording.samples().filter_map(|sample| {
        let mut frames = recording.frames_of(sample.stack).filter_map(|frame| javascript(recording, frame));
        let name = frames.find_map(|frame| names.iter().find(|name| frame.split(' ').next() == Some(name)).copied())?;
        Some((name, sample.period_ns))
    }))
}

/// Whether `names` have these shares, in percent, but for what chance and a point explain: the functions are alike, and
/// where their data lies is not.
fn all_near(recording: &Recording, truths: &[(&str, f64)]) -> Result<(), String> {
    let names: Vec<&str> = truths.iter().map(|(name, _)| *name).collect();
    let shares = shares(recording, &names);
    truths.iter().try_for_each(|&(name, truth)| shares.near(name, truth, 1.0))
}

#[test]
fn functions_have_their_shares() {
    for guest in GUESTS {
        let (_, recording) = profile_enough(&fixture(guest), &[], &["shares.js", "loops"], 300);
        assert_whole(&recording, guest);
        all_near(&recording, &[("heavy", 60.0), ("medium", 30.0), ("light", 10.0)]).unwrap();
        let (_, recording) = profile_enough(&fixture(guest), &[], &["shares.js", "fib"], 1200);
        assert_whole(&recording, guest);
        all_near(&recording, &[("fibMost", 75.0), ("fibSome", 25.0)]).unwrap();
    }
}

/// The script's clock runs on while another program has the processor, and the profile's does not: on a busy machine the
/// script is the one that is wrong.
#[test]
fn native_code_has_the_share_that_the_script_measured() {
    for guest in GUESTS {
        measure_again_if_off(LUCK, || {
            let (said, recording) = profile_enough(&fixture(guest), &[], &["json.js"], 2000);
            assert_whole(&recording, guest);
            let truths = ["build", "encode", "decode", "scan"].map(|name| {
                let line = said.lines().find_map(|line| line.strip_prefix("@ ")?.strip_prefix(name)).unwrap();
                (name, line.trim().parse::<f64>().unwrap())
            });
            all_near(&recording, &truths)
        });
    }
}

#[test]
fn native_code_stands_under_the_function_that_called_it() {
    let (_, recording) = profile_enough(&fixture(GUESTS[0]), &["--frames", "merged"], &["json.js"], 800);
    // C functions, and the JavaScript functions that they must be called from, innermost first.
    let cases: [(&str, &[&str]); 3] = [
        ("js_json_to_str", &["stringify", "encode"]),
        ("json_parse_value", &["parse", "decode"]),
        ("lre_exec", &["exec", "[Symbol.replace]", "replace", "scan"]),
    ];
    // Those without a stack of the language are counted and keep the wasm stack.
    let in_host = Truncation::Language(LanguageTruncation::InHostCode);
    let in_host = recording.truncated.iter().find(|(reason, _)| *reason == in_host).map_or(0, |(_, count)| *count);
    let mut without = 0;
    for (c, callers) in cases {
        let mut seen = 0;
        for sample in recording.samples() {
            let frames: Vec<&Frame> = recording.frames_of(sample.stack).collect();
            if frames.iter().any(|frame| frame.origin == Origin::Truncated) {
                continue;
            }
            let Some(at) = frames.iter().rposition(|frame| wasm(&recording, frame) == Some(c)) else { continue };
            if frames.iter().all(|frame| javascript(&recording, frame).is_none()) {
                without += 1;
                continue;
            }
            let found = frames[at..].iter().filter_map(|frame| javascript(&recording, frame));
            let found: Vec<String> = found.take(callers.len()).collect();
            let names: Vec<&str> = found.iter().filter_map(|frame| Some(frame.rsplit_once(" (")?.0)).collect();
            assert_eq!(names, callers, "{c}");
            seen += 1;
        }
        println!("{seen} samples under {c}");
        assert!(seen > 20, "{seen} samples under {c}");
    }
    assert!(without <= in_host, "{without} samples without JavaScript: {:?}", recording.truncated);
    let category = |name: &str| {
        recording.functions.iter().find(|function| function.name == name).map(|function| function.category)
    };
    assert_eq!(category("JS_CallInternal"), Some(Category::Interpreter));
    assert_eq!(category("js_json_to_str"), Some(Category::Library));
    assert_eq!((category("stringify"), category("encode")), (Some(Category::Library), Some(Category::User)));
}

#[test]
fn frames_tells_whose_are_shown() {
    let of = |frames: &str| {
        let place = Place::new();
        let script = scripts().join("json.js");
        place.file("json.js", std::fs::read(script).unwrap());
        let guest = fixture(GUESTS[0]);
        let options = ["--plugin", plugin(), "--frames", frames, "--rate", "5000", "-o", "x.folded", "--dir", "."];
        let mut text = String::new();
        with_ever_more_work("a script", |times| {
            let turns = (100 * times).to_string();
            let ran = place.run(options.into_iter().chain([guest.to_str().unwrap(), "json.js", &turns]));
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            text = std::fs::read_to_string(place.path("x.folded")).unwrap();
            text.lines().count() > 100
        });
        text
    };
    let (guest, merged, native) = (of("guest"), of("merged"), of("native"));
    let lines =
        |text: &str, with: &[&str]| text.lines().filter(|line| with.iter().all(|name| line.contains(name))).count();
    assert!(lines(&guest, &["encode;", "js_json_to_str"]) > 0 && lines(&guest, &["encode;", "JS_CallInternal"]) == 0);
    assert!(lines(&merged, &["encode;", "JS_CallInternal"]) > 0);
    assert!(lines(&native, &["JS_CallInternal"]) > 0 && lines(&native, &["encode;"]) == 0);
}

/// The version is what the interpreter says of itself; changed there, the module still runs. Debug information tells the
/// layout all the same.
#[test]
fn a_release_that_is_not_supported_is_named() {
    for (guest, is_supported) in GUESTS.into_iter().zip([true, false]) {
        let mut bytes = fixture_bytes(guest);
        let version = b"\x000.16.2\0";
        let found = bytes.windows(version.len()).position(|window| window == version).unwrap();
        bytes[found + 1..][..6].copy_from_slice(b"0.12.3");
        let place = Place::new();
        place.file("other.wasm", bytes);
        place.file("x.js", "let sum = 0;\nfor (let i = 0; i < 300000; i++) sum += i;\n");
        let ran = place.run(["--plugin", plugin(), "-o", "x.folded", "--dir", ".", "other.wasm", "x.js"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let expected = "unsupported QuickJS-ng 0.12.3 in other.wasm (supported: QuickJS-ng 0.16, others with DWARF)";
        assert_eq!(ran.stderr.contains(expected), !is_supported, "{}", ran.stderr);
        let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
        assert_eq!(folded.contains("<anonymous>"), is_supported, "{folded}");
    }
}

#[test]
fn the_plugin_passes_what_plugins_are_checked_for() {
    for guest in GUESTS {
        let mut command = wlprof();
        command.current_dir(scripts()).args(["plugins", "check", plugin(), "--dir", ".", "--guest"]);
        command.arg(fixture(guest)).args(["json.js", "40"]).stdin(Stdio::null());
        let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(ran.code, Some(0), "{guest}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("check has walkers for other instances ... ok ("), "{guest}: {}", ran.stdout);
    }
}

/// How many blocks an object takes is as QuickJS was compiled: what is inlined is not seen.
#[test]
fn what_a_script_allocates_is_on_its_line() {
    let allocated = |count: u32| {
        let place = Place::new();
        let script = format!(
            "let kept = [];\nfunction fill() {{\n  for (let i = 0; i < {count}; i++)\n    kept.push({{ name: 'number ' + i }});\n}}\nfill();"
        );
        place.file("script.js", script);
        let guest = fixture(GUESTS[0]);
        let ran = place.run([
            "--memory",
            "--memory-rate=1",
            "--sampler=off",
            "--lang=javascript",
            "--plugin",
            plugin(),
            "--dir=.",
            "-o",
            "x.wlprof",
            guest.to_str().unwrap(),
            "script.js",
        ]);
        assert!(ran.code == Some(0) && ran.stderr.contains("compilers inline that in places"), "{}", ran.stderr);
        let recording = place.recording("x.wlprof").view(View::Guest);
        let heap = recording.stores[0].heap.as_ref().unwrap();
        assert_eq!(heap.total(HeapPart::Held).blocks, 0.0, "QuickJS frees all that it has");
        by_line(&recording, "script.js")[&4].allocated.blocks
    };
    let (few, many) = (allocated(1000), allocated(3000));
    let each = (many - few) / 2000.0;
    // The array itself grows a few times.
    assert!((3.99..4.01).contains(&each), "{few} blocks of 1000 objects, {many} of 3000");
}
