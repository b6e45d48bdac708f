//! Modules that run but whose debug information or names are broken or hostile: the guest is not disturbed, and the
//! profile has what can be had.

use crate::guest::{Place, fixture_bytes, was_seen};
use crate::sections::{Section, join, split, unsigned, with_custom};
use crate::world;

/// Runs the module and checks that it was profiled as whatever it is.
fn profile(place: &Place, module: &[u8], what: &str) -> wlprof::recording::Recording {
    place.file("guest.wasm", module);
    let ran = place.run(["--no-cache", "-o", "p.wlprof", "-o", "p.json", "guest.wasm", "exit", "7"]);
    assert_eq!(ran.code, Some(7), "{what}: {ran:?}");
    assert!(ran.stdout.starts_with("traps "), "{what}: {ran:?}");
    let json = std::fs::read(place.path("p.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&json).unwrap();
    place.recording("p.wlprof")
}

#[test]
fn damaged_debug_sections_cost_lines_and_nothing_else() {
    let sections = split(&fixture_bytes("c-traps.wasm"));
    let names: Vec<&str> = sections
        .iter()
        .filter_map(|section| Some(section.as_custom()?.0))
        .filter(|n| n.starts_with(".debug"))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    type Damage = fn(&[u8]) -> Vec<u8>;
    let damages: [(&str, Damage); 4] = [
        ("cut in half", |content| content[..content.len() / 2].to_vec()),
        ("empty", |_| Vec::new()),
        ("zeroed", |content| vec![0; content.len()]),
        ("full of ones", |content| vec![0xff; content.len()]),
    ];
    let place = Place::new();
    for name in &names {
        for (how, damage) in damages {
            let recording = profile(&place, &with_custom(&sections, name, damage), name);
            assert!(was_seen(&recording, "work"), "{name} {how}: the name section still has the name");
        }
    }
}

#[test]
fn without_debug_information_there_are_names_and_a_note() {
    let sections = split(&fixture_bytes("c-traps.wasm"));
    let is_debug = |section: &Section| section.as_custom().is_some_and(|(name, _)| name.starts_with(".debug"));
    let stripped: Vec<Section> = sections.iter().filter(|section| !is_debug(section)).cloned().collect();
    let place = Place::new();
    let recording = profile(&place, &join(&stripped), "stripped");
    assert!(was_seen(&recording, "work"));
    assert!(recording.meta.notes.iter().any(|note| note.contains("no debug information")), "{:?}", recording.meta);

    // What was stripped, in a file of its own.
    let debug_only: Vec<Section> = sections.iter().filter(|section| is_debug(section)).cloned().collect();
    place.file("debug.wasm", join(&debug_only));
    let ran = place.run(["-q", "-o", "d.wlprof", "--debug-file", "debug.wasm", "guest.wasm"]);
    assert_eq!(ran.code, Some(0));
    let recording = place.recording("d.wlprof");
    let work = recording.functions.iter().find(|function| function.name == "work").unwrap();
    assert!(work.file.as_deref().is_some_and(|file| file.ends_with("c/traps.c")), "{work:?}");
}

#[test]
fn broken_name_sections_cost_names_and_nothing_else() {
    let sections: Vec<Section> =
        split(&fixture_bytes("c-traps.wasm")).into_iter().filter(|section| section.id != 0).collect();
    let with_names = |content: &[u8]| {
        let mut sections = sections.clone();
        sections.push(Section::custom("name", content));
        join(&sections)
    };
    // Subsection 1, function names: one naming, of a function with a body.
    let one_name = |name: &[u8]| {
        let naming = [&[1, 20][..], &unsigned(name.len()), name].concat();
        [&[1][..], &unsigned(naming.len()), &naming].concat()
    };
    let megabyte = vec![b'x'; 1 << 20];
    let cases: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("subsection beyond its end", vec![1, 0x7f]),
        ("more namings than bytes", vec![1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("invalid UTF-8", one_name(b"\xff\xfe\xc0")),
        ("name of a megabyte", one_name(&megabyte)),
        ("name of no function", vec![1, 7, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]),
    ];
    let place = Place::new();
    for (what, content) in cases {
        let recording = profile(&place, &with_names(&content), what);
        assert!(was_seen(&recording, "_start"), "{what}: exports are names too");
        assert!(recording.functions.iter().all(|function| function.name.len() < 10_000), "{what}");
    }
}

/// For a terminal, in the text format.
pub(crate) const HOSTILE_NAME: &str = "\\1b[31mred\\1b]0;title\\07\\0a\\0dforged line\\u{202e}\\u{9b}2J";

#[test]
fn names_cannot_write_to_the_terminal() {
    let place = Place::new();
    place.file("guest.wat", world::with_function_named(HOSTILE_NAME));
    let ran = place.run(["-o", "p.json", "-o", "p.folded", "-o", "p.wlprof", "guest.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("\\u{1b}[31mred"), "{}", ran.stderr);
    assert!(ran.stderr.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{:?}", ran.stderr);
    assert!(!ran.stderr.lines().any(|line| line.starts_with("forged")));

    // Formats that programs read keep the name as it is, in their own quoting.
    let name = "\x1b[31mred\x1b]0;title\x07\n\rforged line\u{202e}\u{9b}2J";
    assert!(was_seen(&place.recording("p.wlprof"), name));
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("p.json")).unwrap()).unwrap();
    let strings = json["shared"]["stringArray"].as_array().unwrap();
    assert!(strings.iter().any(|string| string == name));
    let folded = std::fs::read_to_string(place.path("p.folded")).unwrap();
    for line in folded.lines() {
        let (_, count) = line.rsplit_once(' ').unwrap();
        assert!(count.parse::<u64>().is_ok(), "{line:?}");
    }
    assert!(!folded.chars().any(|c| c.is_control() && c != '\n'), "{folded:?}");
}

#[test]
fn imports_and_traps_are_escaped_too() {
    let place = Place::new();
    place.file("import.wat", r#"(module (import "\1b[2J\0awlprof: " "x\07" (func)) (func (export "_start")))"#);
    place.file("trap.wat", r#"(module (func (@name "\1b[2J") (export "_start") unreachable))"#);
    place.file("export.wat", r#"(module (func (export "\1b[2J")))"#);
    for (name, code) in [("import.wat", 126), ("trap.wat", 134), ("export.wat", 0)] {
        let ran = place.run([name]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains("\\u{1b}[2J"), "{name}: {ran:?}");
        assert!(ran.stderr.chars().all(|c| c == '\n' || !c.is_control()), "{name}: {ran:?}");
        assert!(name != "import.wat" || ran.stderr.lines().count() == 1, "{ran:?}");
    }
}

#[test]
fn a_name_of_a_megabyte_in_the_export_section_is_shortened() {
    let name = "y".repeat(90_000);
    let place = Place::new();
    place.file("guest.wat", world::with_function_named(&name));
    let ran = place.run(["-o", "p.wlprof", "guest.wat"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let recording = place.recording("p.wlprof");
    let longest = recording.functions.iter().map(|function| function.name.len()).max().unwrap();
    assert!(
        (3..5000).contains(&longest) && recording.functions.iter().any(|function| function.name.starts_with("yyy"))
    );
    // Where there is no terminal, the table has names as long as they are.
    assert!(ran.stderr.lines().all(|line| line.chars().count() < longest + 200), "{ran:?}");
}
