//! JavaScript guests and the plugin for them, a dynamic library that knows of wlprof the plugin crate alone: whole stacks
//! against what JavaScript says of them, known shares, and native code under the lines that called it.

use crate::guest::{Place, fixture, fixture_bytes, run};
use crate::library;
use crate::sampled::{measure_again_if_off, near};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use wlprof::recording::{Category, Frame, LanguageTruncation, Origin, Recording, Truncation};

const GUESTS: [&str; 2] = ["quickjs-0.16.wasm", "quickjs-0.16-stripped.wasm"];

/// The plugin's library, built on first use.
fn plugin() -> &'static str {
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.current_dir(scripts()).args(["--plugin", plugin(), "--lang", "javascript", "-o"]).arg(recording);
    command.args(["--rate", "10000", "--max-overhead", "100", "--dir", "."]).args(options).arg(guest).args(script);
    let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (ran.stdout, place.recording("x.wlprof"))
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/quickjs")
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
    assert!(incomplete * 100 <= sampled, "{guest}: {incomplete} of {sampled}: {:?}", recording.truncated);
}

#[test]
fn stacks_are_what_javascript_says_they_are() {
    for guest in GUESTS {
        let (said, recording) = profile(&fixture(guest), &["--frames", "merged"], &["stacks.js"]);
        assert!(said.ends_with("@\ndone\n"), "{said}");
        // In the innermost frame is another line of the same function.
        let innermost = |frame: &str| frame.split_once(':').map_or(frame, |(start, _)| start).to_owned();
        let mut stacks: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for stack in said.split("@\n").filter(|stack| stack.starts_with("    at spin ")) {
            let mut frames: Vec<String> =
                stack.lines().filter_map(|line| line.strip_prefix("    at ")).map(str::to_owned).collect();
            frames[0] = innermost(&frames[0]);
            stacks.insert(frames, 0);
        }
        let frames: usize = stacks.keys().map(Vec::len).sum();
        assert!(stacks.len() > 70 && frames > 300, "{} stacks, {frames} frames", stacks.len());
        for sample in recording.samples() {
            let found = recording.frames_of(sample.stack);
            let mut frames: Vec<String> = found.filter_map(|frame| javascript(&recording, frame)).collect();
            let Some(spin) = frames.iter().position(|frame| frame.starts_with("spin (")) else { continue };
            let is_cut = |frame: &Frame| frame.origin == Origin::Truncated;
            if recording.frames_of(sample.stack).any(is_cut) {
                continue;
            }
            // It calls but these.
            let natives = ["Error (native)", "get stack (native)", "now (native)", "print (native)"];
            assert!(frames[..spin].iter().all(|frame| natives.contains(&frame.as_str())), "{guest}: {frames:?}");
            frames.drain(..spin);
            frames[0] = innermost(&frames[0]);
            match stacks.get_mut(&frames) {
                Some(seen) => *seen += 1,
                None => panic!("{guest}: not a stack that there was: {frames:#?}"),
            }
        }
        assert_whole(&recording, guest);
        println!("{guest}: {} stacks, {frames} frames", stacks.len());
        let unseen: Vec<_> = stacks.iter().filter(|(_, seen)| **seen == 0).collect();
        assert!(unseen.is_empty(), "{guest}: never seen: {unseen:#?}");
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
        let (_, recording) = profile(&fixture(guest), &[], &["renamed.js", "4000"]);
        let mut seen = [0; 4];
        let mut names = BTreeSet::new();
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
        assert!(seen.iter().all(|&seen| seen > 100), "{guest}: {seen:?}");
        // 14 short ones, 14 long ones, and one in each of the other ways.
        assert_eq!(names.len(), 30, "{guest}: {names:?}");
    }
}

/// Percent of the time in which a function that is one of `names` was on the stack, of that in which any of them was.
fn shares<const N: usize>(recording: &Recording, names: [&str; N]) -> [f64; N] {
    let (mut times, mut samples) = ([0; N], 0);
    for sample in recording.samples() {
        let mut frames = recording.frames_of(sample.stack).filter_map(|frame| javascript(recording, frame));
        let place = frames.find_map(|frame| names.iter().position(|name| frame.split(' ').next() == Some(name)));
        if let Some(place) = place {
            times[place] += sample.period_ns;
            samples += 1;
        }
    }
    assert!(samples > 5000, "{samples} samples in {names:?}");
    let all: u64 = times.iter().sum();
    times.map(|time| 100.0 * time as f64 / all as f64)
}

fn all_near<const N: usize>(found: [f64; N], truth: [f64; N], guest: &str) -> Result<(), String> {
    println!("{guest}: {found:.1?}, truth {truth:.1?}");
    found.into_iter().zip(truth).try_for_each(|(found, truth)| near(guest, found, truth, 2.0))
}

#[test]
fn functions_have_their_shares() {
    for guest in GUESTS {
        measure_again_if_off(|| {
            let (_, recording) = profile(&fixture(guest), &[], &["shares.js", "loops", "300"]);
            assert_whole(&recording, guest);
            all_near(shares(&recording, ["heavy", "medium", "light"]), [60.0, 30.0, 10.0], guest)
        });
        measure_again_if_off(|| {
            let (_, recording) = profile(&fixture(guest), &[], &["shares.js", "fib", "1200"]);
            assert_whole(&recording, guest);
            all_near(shares(&recording, ["fibMost", "fibSome"]), [75.0, 25.0], guest)
        });
    }
}

/// The script's clock runs on while another program has the processor, and the profile's does not: on a busy machine the
/// script is the one that is wrong.
#[test]
fn native_code_has_the_share_that_the_script_measured() {
    let names = ["build", "encode", "decode", "scan"];
    for guest in GUESTS {
        measure_again_if_off(|| {
            let (said, recording) = profile(&fixture(guest), &[], &["json.js", "2500"]);
            assert_whole(&recording, guest);
            let truth = names.map(|name| {
                let line = said.lines().find_map(|line| line.strip_prefix("@ ")?.strip_prefix(name)).unwrap();
                line.trim().parse::<f64>().unwrap()
            });
            all_near(shares(&recording, names), truth, guest)
        });
    }
}

#[test]
fn native_code_stands_under_the_function_that_called_it() {
    let (_, recording) = profile(&fixture(GUESTS[0]), &["--frames", "merged"], &["json.js", "200"]);
    // C functions, and the JavaScript functions that they must be called from, innermost first.
    let cases: [(&str, &[&str]); 3] = [
        ("js_json_to_str", &["stringify", "encode"]),
        ("json_parse_value", &["parse", "decode"]),
        ("lre_exec", &["exec", "[Symbol.replace]", "replace", "scan"]),
    ];
    // Those without a stack of the language, in `memory.grow` say, are counted and keep the wasm stack.
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
        let ran = place.run(options.into_iter().chain([guest.to_str().unwrap(), "json.js", "100"]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        std::fs::read_to_string(place.path("x.folded")).unwrap()
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
        command.current_dir(scripts()).args(["plugins", "check", plugin(), "--dir", ".", "--guest"]);
        command.arg(fixture(guest)).args(["json.js", "40"]).stdin(Stdio::null());
        let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert_eq!(ran.code, Some(0), "{guest}: {}{}", ran.stdout, ran.stderr);
    }
}
