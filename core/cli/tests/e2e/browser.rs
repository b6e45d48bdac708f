//! The pages of `wlprof view` in Chromium: what they show is what was recorded, they load nothing from elsewhere, and they fit.

use crate::guest::{Place, fixture, sampled_stacks, tool};
use crate::view::{Viewing, view};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use wlprof::recording::Recording;

/// What a page did in the browser.
#[derive(Debug, Deserialize)]
struct Opened {
    /// What the expressions gave.
    results: Vec<Value>,
    /// The addresses that were loaded.
    requested: Vec<String>,
    /// Scripts that failed, and what the page's policy refused.
    errors: Vec<String>,
}

/// Opens a page, has it run expressions, and checks what is true of every one.
fn open(place: &Place, viewing: &Viewing, path: &str, width: u32, expressions: &[&str]) -> Vec<Value> {
    let address = viewing.address(path);
    let mut browse = Command::new(tool("browse"));
    browse
        .args([&address, &width.to_string(), "800"])
        .arg(place.path(&format!("{}-{width}.png", path.replace('/', "-"))));
    let ran = browse.arg("document.documentElement.scrollWidth").args(expressions).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{path}: {said}");
    let opened: Opened = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(opened.errors, [""; 0], "{path}");
    let elsewhere = opened.requested.iter().find(|url| !url.starts_with(&viewing.address("")));
    assert_eq!(elsewhere, None, "{path}");
    assert!(opened.results[0].as_u64().unwrap() <= u64::from(width), "{path} is wider than {width}: {opened:?}");
    opened.results[1..].to_vec()
}

/// Times of a function, itself and in all, as pages show them: of all its calls, or of those from where it is called most.
fn shown_times(recording: &Recording, function: &str, in_one_place: bool) -> [String; 2] {
    let mut places = BTreeMap::<Vec<&str>, [u64; 2]>::new();
    let mut all = 0;
    for (sample, stack) in recording.samples().zip(sampled_stacks(recording)) {
        all += sample.period_ns;
        let Some(outermost) = stack.iter().rposition(|frame| *frame == function) else { continue };
        let place = if in_one_place { stack[outermost..].to_vec() } else { Vec::new() };
        let [total, own] = places.entry(place).or_default();
        *total += sample.period_ns;
        *own += if stack[0] == function { sample.period_ns } else { 0 };
    }
    let shown = |ns: u64| format!("{:.1} % {:.3} s", 100.0 * ns as f64 / all as f64, ns as f64 / 1e9);
    places.into_values().max().unwrap_or_default().map(shown)
}

#[test]
fn pages_show_what_was_recorded_and_fit_wide_and_narrow_windows() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm").to_str().unwrap().to_owned();
    assert_eq!(place.run(["-q", "-o", "run.wlprof", &guest, "2"]).code, Some(0));
    let recording = place.recording("run.wlprof");
    let [of_all, of_one] = [false, true].map(|in_one_place| shown_times(&recording, "heavy", in_one_place));
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata");
    let viewing = view(&place, &["--source-dir", sources, "run.wlprof"]);
    for width in [1280, 400] {
        let expressions = [
            "document.querySelector('iframe').contentDocument.querySelectorAll('#frames g').length",
            "document.querySelector('iframe').getBoundingClientRect().height",
        ];
        let results = open(&place, &viewing, "", width, &expressions);
        assert!(results[0].as_u64() >= Some(4) && results[1].as_f64() > Some(500.0), "{results:?}");

        // The shortest way to it, as a user goes: all that can be opened is opened, then it is closed at its root.
        let row = "[...document.querySelectorAll('tbody tr')].find(row => row.textContent.includes('heavy '))";
        let expressions = [
            "for (let row; row = document.querySelector('[aria-expanded=false]');) row.click()",
            &format!("[...{row}.cells].slice(0, 2).map(cell => cell.textContent)"),
            &format!("{row}.cells[2].textContent"),
            "document.querySelectorAll('tbody tr').length > 2",
            "document.querySelector('tbody tr').focus()",
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}))",
            "[...document.querySelectorAll('tbody tr')].filter(row => row.getAttribute('aria-level') != '1').length",
        ];
        let results = open(&place, &viewing, "call-tree", width, &expressions);
        assert_eq!(results[1], json!(of_one));
        assert!(results[2].as_str().unwrap().starts_with("heavy c/shares.c:"), "{results:?}");
        assert_eq!((&results[3], &results[6]), (&json!(true), &json!(0)), "it was open, and is closed");

        let expressions = ["document.querySelector('tbody a').textContent", "document.querySelector('tbody a').href"];
        let results = open(&place, &viewing, "sources", width, &expressions);
        assert!(results[0].as_str().unwrap().ends_with("c/shares.c"), "{results:?}");
        assert_eq!(results[1], viewing.address("source/0"));
        let expressions =
            ["[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"];
        let lines = open(&place, &viewing, "source/0", width, &expressions).remove(0);
        // The step of the loop, which is a macro's, stands where the macro is used.
        let source = std::fs::read_to_string(format!("{sources}/c/shares.c")).unwrap();
        let source: Vec<&str> = source.lines().collect();
        let rows: Vec<&Vec<Value>> = lines.as_array().unwrap().iter().map(|row| row.as_array().unwrap()).collect();
        for row in rows.iter().filter(|row| row[2] != "…") {
            let number: usize = row[2].as_str().unwrap().parse().unwrap();
            assert_eq!(row[3], source[number - 1], "line {number}");
        }
        let worker = rows.iter().find(|row| row[3] == "WORKER(heavy, 3)").unwrap();
        assert_eq!(json!(worker[..2]), json!(of_all));
        open(&place, &viewing, "table", width, &[]);
    }
    viewing.end();
}

#[test]
fn the_flame_graph_zooms_and_searches_in_its_page() {
    let place = Place::new();
    let guest = fixture("c-shares.wasm").to_str().unwrap().to_owned();
    assert_eq!(place.run(["-q", "-o", "run.wlprof", &guest, "2"]).code, Some(0));
    let viewing = view(&place, &["run.wlprof"]);
    let graph = "const graph = document.querySelector('iframe').contentDocument; \
                 const heavy = [...graph.querySelectorAll('#frames g')]\
                     .find(g => g.querySelector('title').textContent.startsWith('heavy '));\
                 const width = () => heavy.querySelector('rect').getBoundingClientRect().width";
    let expressions = [
        graph,
        "graph.defaultView.search('light')",
        "graph.getElementById('matched').textContent",
        "const before = width()",
        "heavy.dispatchEvent(new MouseEvent('click', {bubbles: true, view: graph.defaultView}))",
        "width() / before",
    ];
    let results = open(&place, &viewing, "", 1280, &expressions);
    assert!(results[2].as_str().unwrap().starts_with("Matched: "), "{results:?}");
    assert!(results[5].as_f64() > Some(1.2), "{results:?}");
    viewing.end();
}

#[test]
fn what_a_guest_calls_its_functions_is_no_part_of_the_page() {
    let name = "<img src=x onerror=\\\"document.title='owned'\\\"></script><script>document.title='owned'</script>";
    let guest = format!(
        "(module (memory (export \"memory\") 1)
            (func $\"{name}\" (local i32)
                (loop (br_if 0 (i32.ne (i32.const 300000000) (local.tee 0 (i32.add (i32.const 1) (local.get 0)))))))
            (func (export \"_start\") (call 0)))"
    );
    let place = Place::new();
    place.file("hostile.wat", guest);
    assert_eq!(place.run(["-q", "-o", "a.wlprof", "hostile.wat"]).code, Some(0));
    let viewing = view(&place, &["a.wlprof"]);
    let name = name.replace('\\', "");
    for path in ["call-tree", "table", "", "sources"] {
        let results = open(&place, &viewing, path, 1280, &["document.title", "document.body.innerText"]);
        assert!(results[0].as_str().unwrap().ends_with("of a.wlprof – wlprof"), "{results:?}");
        if ["call-tree", "table"].contains(&path) {
            assert!(results[1].as_str().unwrap().contains(&name), "{results:?}");
        }
    }
    viewing.end();
}
