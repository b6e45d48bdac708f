//! Texts of sources: Firefox profiles have those that the user named folders for, and `wlprof annotate` prints them with the time
//! of each line.

use crate::guest::{Place, fixture};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// The texts in a Firefox profile, by the names of their files.
fn texts(place: &Place, profile: &str) -> BTreeMap<String, String> {
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(place.path(profile)).unwrap()).unwrap();
    let (strings, sources) = (&profile["shared"]["stringArray"], &profile["shared"]["sources"]);
    let rows = sources["filename"].as_array().unwrap().iter().zip(sources["content"].as_array().unwrap());
    let text = |(name, text): (&Value, &Value)| {
        let name = strings[name.as_u64().unwrap() as usize].as_str().unwrap();
        Some((name.to_owned(), text.as_str()?.to_owned()))
    };
    rows.filter_map(text).collect()
}

#[test]
fn firefox_profiles_have_the_sources_of_named_folders_alone() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm");
    let guest = guest.to_str().unwrap();
    let folder = format!("--source-dir={}", testdata("").display());
    let ran = place.run(["-q", &folder, "-o", "with.json", "-o", "x.wlprof", guest, "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let with = texts(&place, "with.json");
    let own = std::fs::read_to_string(testdata("c/shares.c")).unwrap();
    let (_, text) = with.iter().find(|(name, _)| name.ends_with("c/shares.c")).unwrap();
    assert_eq!(*text, own);

    for options in [&["render", "-q", "-o", "later.json", "x.wlprof"][..], &["-q", "-o", "later.json", guest, "1"]] {
        let ran = place.run(options);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert_eq!(texts(&place, "later.json"), BTreeMap::new(), "nobody named a folder");
    }
    let ran = place.run(["render", "-q", &folder, "-o", "later.json", "x.wlprof"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(texts(&place, "later.json"), with);
    let ran = place.run(["-q", "--source-dir=nowhere", guest, "1"]);
    assert_eq!(ran.code, Some(125));
    assert!(ran.stderr.contains("--source-dir=nowhere") && ran.stderr.contains("name a folder"), "{}", ran.stderr);
}

#[test]
fn scripts_are_found_in_the_folders_that_the_interpreter_is_given() {
    let place = Place::new();
    let script = "def work():\n    return sum(i * i for i in range(20000))\n\nfor _ in range(100):\n    work()\n";
    std::fs::create_dir(place.path("scripts")).unwrap();
    place.file("scripts/work.py", script);
    let library = format!("--dir={}::/usr/local/lib", fixture("python-3.11-lib").display());
    let python = fixture("python-3.11.wasm");
    let guest = [python.to_str().unwrap(), "/app/work.py"];
    let ran =
        place.run([&["-q", "--lang=python", "--dir=scripts::/app", &library, "-o", "p.json"][..], &guest].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let texts = texts(&place, "p.json");
    assert_eq!(texts.get("/app/work.py").map(String::as_str), Some(script), "{:?}", texts.keys());
}

/// A module that says that its one function is in the file `path`: DWARF, as small as it comes, in the text format.
fn claiming(path: &str) -> String {
    let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>();
    let with_size = |body: Vec<u8>| [&(body.len() as u32).to_le_bytes()[..], &body].concat();
    // A unit and one function in it: the code of `spin`, 23 bytes from the second byte of the code section on.
    let abbreviations = [
        &[1, 0x11, 1, 0x10, 0x17, 0x11, 1, 0x12, 6, 3, 8, 0, 0][..],
        &[2, 0x2e, 0, 3, 8, 0x11, 1, 0x12, 6, 0x3a, 0x0b, 0x3b, 0x0b, 0, 0],
        &[0],
    ]
    .concat();
    let unit = [
        &[4, 0, 0, 0, 0, 0, 4][..],
        &[1, 0, 0, 0, 0, 2, 0, 0, 0, 23, 0, 0, 0],
        b"unit\0",
        &[2],
        b"spin\0",
        &[2, 0, 0, 0, 23, 0, 0, 0, 1, 1],
        &[0],
    ]
    .concat();
    let header = [
        &[1, 1, 1, 0xfb, 14, 13][..],
        &[0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1],
        &[0],
        path.as_bytes(),
        &[0, 0, 0, 0],
        &[0],
    ]
    .concat();
    // All of it is line 1.
    let program = [0, 5, 2, 2, 0, 0, 0, 1, 2, 23, 0, 1, 1];
    let lines = [&[4, 0][..], &(header.len() as u32).to_le_bytes(), &header, &program].concat();
    format!(
        r#"(module
            (func $spin (export "_start") (local i32)
                (loop (br_if 0 (i32.ne (i32.const 300000000) (local.tee 0 (i32.add (local.get 0) (i32.const 1)))))))
            (@custom ".debug_abbrev" "{}") (@custom ".debug_info" "{}") (@custom ".debug_line" "{}"))"#,
        escaped(&abbreviations),
        escaped(&with_size(unit)),
        escaped(&with_size(lines)),
    )
}

#[test]
fn a_guest_cannot_name_files_of_the_users_into_a_profile() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("sources/.git")).unwrap();
    let secret = place.file("secret.txt", "of the user\n");
    place.file("sources/.git/config", "of the user\n");
    place.file("sources/own.c", "int own;\n");
    std::os::unix::fs::symlink(&secret, place.path("sources/link.c")).unwrap();
    let named = |path: &str| -> BTreeMap<String, String> {
        place.file("claims.wat", claiming(path));
        let ran = place.run(["-q", "--source-dir=sources", "--dir=sources::/", "-o", "p.json", "claims.wat"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let profile = std::fs::read_to_string(place.path("p.json")).unwrap();
        assert!(profile.contains("spin") && profile.contains(path), "the guest's claim was not heard: {profile}");
        texts(&place, "p.json")
    };
    assert_eq!(named("own.c").into_values().collect::<Vec<_>>(), ["int own;\n"]);
    let above = format!("../{}", secret.file_name().unwrap().to_str().unwrap());
    for path in [secret.to_str().unwrap(), "/etc/passwd", &above, "secret.txt", "link.c", ".git/config", "/.git/config"]
    {
        assert_eq!(named(path), BTreeMap::new(), "{path}");
    }
}

#[test]
fn annotate_prints_the_time_of_lines() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm");
    let ran = place.run(["-q", "-o", "x.wlprof", guest.to_str().unwrap(), "1"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let folder = format!("--source-dir={}", testdata("").display());
    let printed = |arguments: &[&str]| {
        let ran = place.run([&["annotate", &folder, "x.wlprof"][..], arguments].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    let share = |text: &str, code: &str| -> f64 {
        let line =
            text.lines().find(|line| line.contains(code) && line.contains('%')).unwrap_or_else(|| panic!("{text}"));
        let (before_bound, _) = line.rsplit_once(" ±").unwrap();
        before_bound.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let main = printed(&["main"]);
    // What it says is what the recording says.
    let recording = place.recording("x.wlprof");
    let all: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let source = std::fs::read_to_string(testdata("c/shares.c")).unwrap();
    let number = 1 + source.lines().position(|line| line.contains("state = heavy(state);")).unwrap() as u32;
    let is_there = |sample: &wlprof::recording::Sample| {
        recording.lines_of(sample.stack).any(|line| {
            let function = &recording.functions[line.function as usize];
            line.line == Some(number) && function.file.as_deref().is_some_and(|file| file.ends_with("c/shares.c"))
        })
    };
    let there: u64 = recording.samples().filter(is_there).map(|sample| sample.period_ns).sum();
    let expected = 100.0 * there as f64 / all as f64;
    let found = share(&main, "state = heavy(state);");
    assert!((found - expected).abs() < 0.06, "{found} and {expected}: {main}");
    assert!(printed(&[]).contains("state = heavy(state);"), "the hottest file");
    assert_eq!(printed(&["shares.c"]), printed(&["c/shares.c"]));

    let without = place.run(["annotate", "x.wlprof", "main"]);
    assert!(without.stdout.contains("--source-dir") && without.stdout.contains('%'), "{}", without.stdout);
    let unknown = place.run(["annotate", "x.wlprof", "no such thing"]);
    assert_eq!(unknown.code, Some(125));
    assert!(unknown.stderr.contains("no such thing; hot ones are "), "{}", unknown.stderr);
}
