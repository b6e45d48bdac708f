//! What is said of guests whose sources are known: chains of inlined calls, names, categories.

mod module;

use module::{instructions, symbolize};
use std::collections::BTreeSet;
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{Category, ModuleView, SourceFrame, WasmFrame, testing::TestModule};

/// The line of a source that ends in a comment, from 1.
fn marked(source: &str, mark: &str) -> u32 {
    let path = format!("{}/../../testdata/{source}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().position(|line| line.ends_with(&format!("// {mark}"))).unwrap();
    u32::try_from(line + 1).unwrap()
}

/// Every distinct chain of function names at the instructions of a line, innermost first.
fn chains(module: &TestModule, source: &str, line: u32) -> BTreeSet<Vec<String>> {
    let file = format!("/testdata/{source}");
    let mut symbolizer = Symbolizer::new(module);
    let mut chains = BTreeSet::new();
    for (body, offsets) in instructions(module).iter().enumerate() {
        for &offset in offsets {
            let frames = symbolize(&mut symbolizer, module.frame(body, offset));
            if frames[0].file.as_ref() == Some(&file) && frames[0].line == Some(line) {
                assert!(frames.iter().all(|f| f.category == Category::User || f.file.as_ref() != Some(&file)));
                chains.insert(frames.into_iter().map(|frame| frame.function).collect());
            }
        }
    }
    chains
}

fn assert_chain(fixture: &str, source: &str, expected: &[&str]) {
    let module = TestModule::fixture(fixture);
    let chains = chains(&module, source, marked(source, "HOT"));
    assert!(chains.iter().any(|chain| chain == expected), "{fixture}: {chains:#?}");
}

#[test]
fn the_hot_line_is_found_through_inlined_calls() {
    assert_chain("c-inlined", "c/inlined.c", &["mix_cell", "mix_row", "mix_table"]);
    assert_chain("c-inlined-dwarf5", "c/inlined.c", &["mix_cell", "mix_row", "mix_table"]);
    assert_chain("c-inlined-O0", "c/inlined.c", &["mix_cell", "mix_row", "mix_table"]);
    assert_chain(
        "cpp-inlined",
        "cpp/inlined.cpp",
        &[
            "lab::Table<unsigned int>::mix_cell(unsigned int, unsigned int)",
            "void lab::mix_row<unsigned int>(lab::Table<unsigned int>&, unsigned int, unsigned int)",
            "lab::Table<unsigned int>::mix(unsigned int)",
        ],
    );
    assert_chain(
        "rust-inlined",
        "rust/inlined.rs",
        &[
            "inlined::lab::Table::mix_cell",
            "inlined::lab::mix::{{closure}}",
            "inlined::lab::mix_row",
            "inlined::lab::mix",
        ],
    );
}

#[test]
fn main_is_called_main() {
    for (fixture, name) in [("c-inlined", "main"), ("cpp-inlined", "main"), ("rust-mix", "mix::main")] {
        let module = TestModule::fixture(fixture);
        let mut symbolizer = Symbolizer::new(&module);
        let mut found = (0..module.bodies.len()).filter_map(|body| {
            let frame = module.frame(body, module.bodies[body].start);
            symbolize(&mut symbolizer, frame).pop().filter(|frame| frame.function == name)
        });
        let main = found.next().unwrap_or_else(|| panic!("{fixture} has no {name}"));
        assert!(main.linkage_name.is_some() && main.file.unwrap().starts_with("/testdata/"));
        assert_eq!(main.category, Category::User);
    }
}

#[test]
fn categories_of_a_whole_module() {
    let category = |fixture: &str, name: &str| {
        let module = TestModule::fixture(fixture);
        let function = module.function_named(name).unwrap_or_else(|| panic!("no {name}"));
        let frame = WasmFrame::attached(function, module.function_body(function).unwrap().start);
        symbolize(&mut Symbolizer::new(&module), frame).pop().unwrap().category
    };
    let cases = [
        ("_start", Category::Runtime),
        ("__wasm_call_ctors", Category::Runtime),
        ("emmalloc_memalign", Category::Runtime),
        ("printf_core", Category::Library),
        ("printf", Category::Library),
        ("mix_table", Category::User),
        ("cold_table", Category::User),
    ];
    for (name, expected) in cases {
        assert_eq!(category("c-inlined", name), expected, "{name}");
    }
}

/// Without DWARF there are names.
#[test]
fn names_alone() {
    let mut module = TestModule::fixture("rust-mix-v0");
    module.sections.clear();
    let mut symbolizer = Symbolizer::new(&module);
    let mut name = |frame| -> SourceFrame {
        let mut out = symbolize(&mut symbolizer, frame);
        assert_eq!(out.len(), 1);
        out.remove(0)
    };
    let mangled = |module: &TestModule| {
        let mut names = module.names.iter();
        names.find(|(_, name)| name.starts_with("_R") && name.contains("4main")).map(|(index, _)| *index)
    };
    if let Some(index) = mangled(&module) {
        let body = index as usize - module.imports.len();
        let frame = name(module.frame(body, module.bodies[body].start));
        assert!(frame.function.contains("main") && !frame.function.starts_with("_R"), "{}", frame.function);
        assert!(frame.linkage_name.unwrap().starts_with("_R") && frame.file.is_none() && frame.line.is_none());
    }
    // An import, and what no name is known of.
    let import = name(WasmFrame::attached(0, 0));
    assert_eq!(import.function, format!("{}.{}", module.imports[0].module, module.imports[0].name));
    let nothing = name(WasmFrame::attached(u32::MAX, u32::MAX));
    assert_eq!(nothing.function, "wasm-function[4294967295]");
    let mut out = Vec::new();
    symbolizer.symbolize(WasmFrame { module: 1, function: 0, code_offset: 0 }, &mut out);
    assert_eq!(out, []);
}

/// The standard library that comes with Rust has line tables and plain names; its linker's names are whole.
#[test]
fn rust_functions_have_paths_and_are_not_the_users() {
    for fixture in ["rust-mix", "rust-mix-v0", "rust-inlined"] {
        let module = TestModule::fixture(fixture);
        let mut symbolizer = Symbolizer::new(&module);
        for (body, offsets) in instructions(&module).iter().enumerate() {
            let frame = symbolize(&mut symbolizer, module.frame(body, offsets[offsets.len() / 2])).pop().unwrap();
            let name = &frame.function;
            assert!(!name.starts_with("_ZN") && !name.starts_with("_R") && !name.contains("17h"), "{fixture}: {name}");
            let standard = ["core::", "std::", "alloc::"].iter().any(|path| name.starts_with(path));
            assert!(!standard || frame.category != Category::User, "{fixture}: {frame:?}");
            assert_ne!(name, "fmt", "{fixture}");
        }
    }
}

/// What tools do that rewrite code and copy the DWARF: from some function on, all lie elsewhere. Names are those that the module has without
/// DWARF, wherever that does not fit, and untouched modules are believed as a whole.
#[test]
fn units_of_other_code_name_nothing() {
    for fixture in ["c-inlined", "c-inlined-dwarf5", "cpp-inlined", "rust-mix-v0"] {
        let untouched = TestModule::fixture(fixture);
        let mut without = untouched.clone();
        without.sections.clear();
        let mut all = Symbolizer::new(&untouched);
        let outermost = |symbolizer: &mut Symbolizer, module: &TestModule, body: usize| {
            symbolize(symbolizer, module.frame(body, module.bodies[body].start)).pop().unwrap()
        };
        let before: Vec<SourceFrame> =
            (0..untouched.bodies.len()).map(|body| outermost(&mut all, &untouched, body)).collect();
        assert!(!all.has_stale_dwarf() && before.iter().any(|frame| frame.line.is_some()), "{fixture}");
        for first in [0, before.len() / 2] {
            let mut module = untouched.clone();
            for (added, body) in (1..).zip(&mut module.bodies[first..]) {
                *body = body.start + added - 1..body.end + added;
            }
            let (mut symbolizer, mut names) = (Symbolizer::new(&module), Symbolizer::new(&without));
            for (body, frame_before) in before.iter().enumerate() {
                let frame = outermost(&mut symbolizer, &module, body);
                let name = outermost(&mut names, &untouched, body);
                let is_unchanged = body < first && frame == *frame_before;
                // The first function begins where it began.
                let is_named = frame.function == name.function && (frame.line.is_none() || body == first);
                assert!(is_unchanged || is_named, "{fixture}: {frame:?} instead of {name:?} at body {body}, {first}");
            }
            assert!(symbolizer.has_stale_dwarf(), "{fixture}");
            assert!(symbolizer.warnings()[0].contains("kept the old DWARF"), "{:?}", symbolizer.warnings());
        }
    }
}
