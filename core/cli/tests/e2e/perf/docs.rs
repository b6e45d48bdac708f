//! `docs/perf.md`: its commands are run, and print what it says they do.

use super::{remove_perf_map, shell};
use crate::guest::{Place, fixture, fixture_bytes};
use crate::page::{Example, examples, words};
use crate::sections;
use std::path::Path;

#[test]
fn the_commands_print_what_the_page_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = Place::new();
    std::fs::copy(root.join("testdata/demo/demo.wasm"), place.path("demo.wasm")).unwrap();
    std::fs::copy(root.join("testdata/python/shop.py"), place.path("script.py")).unwrap();
    place.file("python.wasm", fixture_bytes("python-3.11.wasm"));
    place.folder("python-lib", &fixture("python-3.11-lib"));
    place.file("server.wasm", sections::strip(&fixture_bytes("go-bench.wasm")));

    let page = std::fs::read_to_string(root.join("docs/perf.md")).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let section = readme.split("\n## perf\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let block = section.split("```").nth(1).unwrap();
    assert!(page.contains(block), "the README shows what the page does not:\n{block}");
    let examples = examples(&page);
    assert!(examples.len() >= 10, "{}", examples.len());
    for Example { command, shown } in examples {
        let ran = shell(&place, &command);
        assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
        if command.contains("perfmap") {
            // Needed by the commands that follow, and gone with the machine's `/tmp` if they fail.
            place.file("perfmap.txt", &ran.stderr);
        }
        for line in shown {
            let expected = words(&line);
            let is_there = ran.stdout.lines().any(|printed| words(printed) == expected);
            assert!(is_there, "{command}\ndoes not print\n{line}\nbut\n{}", ran.stdout);
        }
    }
    remove_perf_map(&std::fs::read_to_string(place.path("perfmap.txt")).unwrap());
}
