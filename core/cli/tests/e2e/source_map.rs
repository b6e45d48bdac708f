//! Lines of guests that have a source map and no DWARF.

use crate::guest::{Place, fixture};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use wlprof::module::ModuleImage;
use wlprof::recording::Recording;
use wlprof_plugin::ModuleView;

const GUEST: &str = "(module (memory (export \"memory\") 1)
    (func $work (local i32)
        (loop (br_if 0 (i32.ne (i32.const 300000000) (local.tee 0 (i32.add (i32.const 1) (local.get 0)))))))
    (func $main (export \"_start\") (call $work)))";

const SOURCE: &str = "function work() {\n  count();\n}\n\nwork();\n";

/// A module of [`GUEST`] whose source map is at `url`.
fn module(url: &str) -> Vec<u8> {
    let mut bytes = wat::parse_str(GUEST).unwrap();
    let name = "sourceMappingURL";
    bytes.extend([0, (name.len() + url.len() + 2) as u8, name.len() as u8]);
    bytes.extend(name.bytes().chain([url.len() as u8]).chain(url.bytes()));
    bytes
}

/// A map by which `work` is at line 2 and `main` at line 5 of `src/work.ts`.
fn map() -> String {
    let image = ModuleImage::parse(module("x"), "x").unwrap();
    let start = |function| (image.code_start() + image.function_body(function).unwrap().start) as i64;
    let mut mappings = String::new();
    let (mut last, mut last_line) = (0, 0);
    for (function, line) in [(0, 2), (1, 5)] {
        let delta = [start(function) - last, 0, line - 1 - last_line, 0];
        let _ = write!(mappings, "{},", delta.map(vlq).concat());
        (last, last_line) = (start(function), line - 1);
    }
    format!(r#"{{"version":3,"sourceRoot":"src","sources":["work.ts"],"names":[],"mappings":"{mappings}"}}"#)
}

/// A number as source maps have it.
fn vlq(number: i64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rest = (number.unsigned_abs() << 1) | u64::from(number < 0);
    let mut text = String::new();
    loop {
        let digit = rest as usize & 31;
        rest >>= 5;
        text.push(DIGITS[digit | if rest > 0 { 32 } else { 0 }] as char);
        if rest == 0 {
            return text;
        }
    }
}

/// Files and lines at which a function was sampled.
fn places<'a>(recording: &'a Recording, function: &str) -> BTreeSet<(Option<&'a str>, Option<u32>)> {
    let lines = recording.samples().flat_map(|sample| recording.lines_of(sample.stack));
    let function_of = |function: u32| &recording.functions[function as usize];
    lines
        .filter(|line| function_of(line.function).name == function)
        .map(|line| (function_of(line.function).file.as_deref(), line.line))
        .collect()
}

#[test]
fn lines_are_those_of_the_map_beside_the_module() {
    let place = Place::new();
    place.file("guest.wasm", module("./guest.wasm.map"));
    place.file("guest.wasm.map", map());
    std::fs::create_dir(place.path("src")).unwrap();
    place.file("src/work.ts", SOURCE);
    let ran = place.run(["-o", "run.wlprof", "guest.wasm"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let row = ran.stderr.lines().find(|line| line.ends_with("work  src/work.ts")).unwrap_or_default();
    assert!(row.contains(" :2 ") && !ran.stderr.contains("no debug information"), "{ran:?}");
    let recording = place.recording("run.wlprof");
    assert_eq!(places(&recording, "work"), BTreeSet::from([(Some("src/work.ts"), Some(2))]));
    assert_eq!(places(&recording, "main"), BTreeSet::from([(Some("src/work.ts"), Some(5))]));
    let ran = place.run(["annotate", "--source-dir", ".", "run.wlprof", "work.ts"]);
    assert!(ran.stdout.contains("    2    count();\n"), "{ran:?}");
}

#[test]
fn maps_that_cannot_be_read_cost_lines_and_nothing_else() {
    let place = Place::new();
    place.file("guest.wasm", module("guest.map"));
    let outside = Place::new();
    outside.file("map", map());
    std::os::unix::fs::symlink(outside.path("map"), place.path("link.map")).unwrap();
    place.file("linked.wasm", module("link.map"));
    place.file("remote.wasm", module("http://127.0.0.1/guest.map"));
    place.file("hostile.wasm", module("hostile.map"));
    place.file("hostile.map", "[".repeat(1 << 20));
    place.file("other.wasm", module("other.map"));
    place.file("other.map", r#"{"version":3,"sources":["a.ts"],"names":[],"mappings":""}"#);
    for (guest, reason) in [
        ("guest.wasm", "No such file"),
        ("linked.wasm", "outside of the folder"),
        ("remote.wasm", "only files in the module's own folder are read"),
        ("hostile.wasm", "cannot be read"),
        ("other.wasm", "does not fit its code"),
    ] {
        let ran = place.run(["-o", "run.wlprof", guest]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains(reason) && ran.stderr.contains("source map"), "{guest}: {ran:?}");
        assert!(!ran.stderr.contains("compile with -g"), "{guest}: {ran:?}");
        let recording = place.recording("run.wlprof");
        assert_eq!(places(&recording, "work"), BTreeSet::from([(None, None)]), "{guest}");
    }
}

#[test]
fn the_advice_fits_the_compiler() {
    let place = Place::new();
    for (name, advice) in [
        ("work", "compile with -g"),
        ("~lib/rt/work", "asc --sourceMap"),
        ("moonbitlang/core/work", "keep the source map"),
    ] {
        place.file("guest.wat", GUEST.replace("$work", &format!("$\"{name}\"")));
        let ran = place.run(["-o", "run.wlprof", "guest.wat"]);
        assert!(ran.stderr.contains("no debug information") && ran.stderr.contains(advice), "{ran:?}");
        assert!(name == "work" || !ran.stderr.contains("compile with -g"), "{ran:?}");
    }
}

/// What Binaryen, which asc compiles with, says of its map, and the times that the guest's own counts make sure of.
#[test]
fn lines_of_assemblyscript_are_those_that_binaryen_reads() {
    let place = Place::new();
    place.folder("guest", &fixture("assemblyscript"));
    let ran = place.run(["-o", "run.wlprof", "guest/shares.wasm"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let recording = place.recording("run.wlprof");
    let text = std::fs::read_to_string(place.path("guest/shares.wat")).unwrap();
    let mut function = "";
    let mut lines = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("(func $") {
            function = rest.split(' ').next().unwrap();
        } else if let Some(at) = line.strip_prefix(";;@ ") {
            let (file, at) = at.split_once(':').unwrap();
            let (line, _) = at.split_once(':').unwrap();
            lines.insert((function, file, line.parse::<u32>().unwrap()));
        }
    }
    for name in ["shares/step", "shares/heavy", "shares/light", "shares/_start"] {
        let seen = places(&recording, name);
        // Before its first place in the map a function has no line.
        let seen: Vec<_> = seen.into_iter().filter_map(|(file, line)| Some((file?, line?))).collect();
        assert!(!seen.is_empty(), "{name}: {:?}", recording.meta);
        for (file, line) in seen {
            assert!(lines.contains(&(name, file.rsplit('/').next().unwrap(), line)), "{name} {line:?} {lines:?}");
        }
    }
    let time_of = |function: &str| -> u64 {
        let named = |sample: &wlprof::recording::Sample| {
            recording.lines_of(sample.stack).any(|line| recording.functions[line.function as usize].name == function)
        };
        recording.samples().filter(named).map(|sample| sample.period_ns).sum()
    };
    let (heavy, light) = (time_of("shares/heavy") as f64, time_of("shares/light") as f64);
    let share = heavy / (heavy + light);
    assert!((0.65..0.85).contains(&share), "{share}");
}
