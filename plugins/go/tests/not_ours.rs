//! What Go's own compiler did not write, or not for WASI, is told apart: another plugin names it, or the user is told.
//!
//! `go-js` is real. The others are module sections written here: TinyGo as its LLVM writes them (its debug info says C, so
//! that debuggers show variables, and its `llvm.ident` becomes `processed-by`), and releases for which there is no pin.

use std::collections::HashMap;
use wlprof_go::Go;
use wlprof_plugin::{Detection, FunctionImport, Language, testing::TestModule};

/// A field of a `producers` section, with names and versions.
type Field = (&'static str, &'static [(&'static str, &'static str)]);

/// A `producers` section.
fn producers(fields: &[(&str, &[(&str, &str)])]) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.push(text.len() as u8);
        out.extend(text.as_bytes());
    };
    let mut section = vec![fields.len() as u8];
    for (field, values) in fields {
        text(&mut section, field);
        section.push(values.len() as u8);
        for (name, version) in *values {
            text(&mut section, name);
            text(&mut section, version);
        }
    }
    section
}

/// A module that imports from `import`, with these custom sections.
fn module(import: &str, sections: &[(&str, Vec<u8>)]) -> TestModule {
    TestModule {
        imports: vec![FunctionImport { module: import.to_owned(), name: "fd_write".to_owned() }],
        sections: sections.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect(),
        ..TestModule::default()
    }
}

const WASI: &str = "wasi_snapshot_preview1";

fn detect_release(import: &str, version: &str) -> Detection {
    let section = producers(&[("language", &[("Go", version)]), ("processed-by", &[("Go cmd/compile", version)])]);
    Go.detect(&module(import, &[("producers", section), ("go:buildid", b"\xff Go build ID".to_vec())]))
}

/// TinyGo's functions are on the wasm stack and in DWARF; pclntab, g and Go's stack in memory do not exist. To say yes,
/// or to say that it is unsupported, would take it away from the plugin that shows all of it.
#[test]
fn tinygo_is_left_to_dwarf() {
    let said: [&[Field]; 4] = [
        &[("language", &[("C99", "")]), ("processed-by", &[("TinyGo", "0.39.0")])],
        &[("language", &[("C11", "")]), ("processed-by", &[("clang", "15.0.0"), ("TinyGo", "0.28.1")])],
        // Older releases do not name themselves.
        &[("language", &[("C11", "")]), ("processed-by", &[("clang", "10.0.0")])],
        // Should it ever own up to the language, too.
        &[("language", &[("Go", "go1.24.0")]), ("processed-by", &[("TinyGo", "0.39.0")])],
    ];
    for fields in said {
        let section = producers(fields);
        // It targets both WASI and browsers, for which it has imports of the same names as Go.
        for import in [WASI, "gojs"] {
            let sections = [("producers", section.clone()), (".debug_info", vec![0; 16])];
            assert_eq!(Go.detect(&module(import, &sections)), Detection::No, "{fields:?} {import}");
        }
    }
    assert_eq!(Go.detect(&module(WASI, &[])), Detection::No);
}

#[test]
fn go_for_js_is_named_and_not_attached_to() {
    let real = TestModule::fixture("go-js");
    assert!(real.imports.iter().any(|import| import.module == "gojs"));
    let expected = Detection::Unsupported {
        found: "Go 1.27.3 for GOOS=js".to_owned(),
        supported: "Go 1.21 to 1.27 for GOOS=wasip1".to_owned(),
    };
    assert_eq!(Go.detect(&real), expected);
    // Without the producers section, the build id and the imports still tell.
    let mut stripped = real;
    stripped.sections.remove("producers");
    let Detection::Unsupported { found, .. } = Go.detect(&stripped) else { panic!("taken for something else") };
    assert_eq!(found, "Go for GOOS=js");
    // Until 1.20 the imports were called `go`.
    let Detection::Unsupported { found, .. } = detect_release("go", "go1.20.14") else { panic!("not told apart") };
    assert_eq!(found, "Go 1.20.14 for GOOS=js");
}

#[test]
fn releases_before_the_first_with_wasi_are_named() {
    for (version, found) in [("go1.20.14", "Go 1.20.14"), ("go1.11", "Go 1.11"), ("devel go1.20-abcdef", "Go 1.20")] {
        let supported = "Go 1.21 to 1.27 for GOOS=wasip1".to_owned();
        assert_eq!(
            detect_release(WASI, version),
            Detection::Unsupported { found: found.to_owned(), supported },
            "{version}"
        );
    }
}

#[test]
fn supported_and_later_releases_are_ours_with_and_without_a_producers_section() {
    for (version, found) in [("go1.21.0", "Go 1.21.0"), ("go1.27.3", "Go 1.27.3"), ("go1.28rc1", "Go 1.28")] {
        assert_eq!(detect_release(WASI, version), Detection::Yes(found.to_owned()), "{version}");
    }
    let only_build_id = module(WASI, &[("go:buildid", Vec::new())]);
    assert_eq!(Go.detect(&only_build_id), Detection::Yes("Go".to_owned()));
    // Broken sections say nothing.
    for broken in [vec![], vec![0xff; 64], vec![1, 8], b"\x01\x08language\xff\xff\xff\xff\x0f".to_vec()] {
        assert_eq!(Go.detect(&module(WASI, &[("producers", broken)])), Detection::No);
    }
}

#[test]
fn attaching_to_what_is_not_go_says_what_was_found() {
    let mut module = module(WASI, &[]);
    module.bytes = b"\0asm\x01\0\0\0".to_vec();
    module.sections = HashMap::new();
    let error = Go.attach(&module).err().unwrap().to_string();
    assert!(error.contains("no table of its 0 functions"), "{error}");
}
