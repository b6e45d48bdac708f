//! What every exporter writes of an example recording, byte by byte: `golden/` has the files.
//!
//! Whether a format is right, its readers say in other tests. This one shows every change of it, also in what no guest of the
//! tests does.

use super::EXPORTERS;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use wlprof_recording::example;

/// Set by `cargo xtask goldens --bless`: the files are written, and not compared.
const BLESS: &str = "WLPROF_BLESS_GOLDENS";

/// What all exporters write, by the names of the files.
fn exported() -> BTreeMap<String, Vec<u8>> {
    let recording = example();
    let mut files = BTreeMap::new();
    for exporter in EXPORTERS {
        let name = format!("example.{}", exporter.extensions()[0]);
        let path = Path::new("/profiles").join(&name);
        let export = || {
            let mut contents = Vec::new();
            let companion = exporter.export(&recording, &path, &mut contents).unwrap();
            (contents, companion)
        };
        let (contents, companion) = export();
        assert!(export() == (contents.clone(), companion.clone()), "{name} is not the same twice");
        assert_eq!(companion.is_some(), exporter.companion_ending().is_some(), "{name}");
        if let (Some(companion), Some(ending)) = (companion, exporter.companion_ending()) {
            files.insert(format!("{name}{ending}"), companion);
        }
        let is_new = files.insert(name, contents).is_none();
        assert!(is_new, "two formats have the ending .{}", exporter.extensions()[0]);
    }
    files
}

#[test]
fn every_exporter_writes_its_golden_files() {
    const REMEDY: &str = "if that is meant, run `cargo xtask goldens --bless` and look at what has changed";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden");
    let exported = exported();
    if std::env::var_os(BLESS).is_some() {
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir(&folder).unwrap();
        exported.iter().for_each(|(name, contents)| fs::write(folder.join(name), contents).unwrap());
    }
    for (name, contents) in &exported {
        let golden = fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}; {REMEDY}"));
        let same = golden.iter().zip(contents).take_while(|(golden, written)| golden == written).count();
        let sizes = (golden.len(), contents.len());
        assert!(golden == *contents, "{name} has other bytes from {same} on (golden, now: {sizes:?}); {REMEDY}");
    }
    let count = fs::read_dir(&folder).map_or(0, Iterator::count);
    assert_eq!(count, exported.len(), "{} has files that no exporter writes; {REMEDY}", folder.display());
}
