//! The table of offsets, compared with what a guest's own debug information says.

use std::ops::Range;
use wlprof_plugin::{Detection, FunctionImport, Language, Member, ModuleView};
use wlprof_quickjs::{JavaScript, Layout};

/// A module of which only custom sections are known.
struct Module {
    bytes: Vec<u8>,
    debug_info: Option<wlprof_dwarf::Layout>,
}

impl Module {
    /// A guest that `cargo xtask test-fixtures` built.
    fn fixture(name: &str) -> Self {
        let path = format!("{}/../../target/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(&path).unwrap_or_else(|_| panic!("{path}: run `cargo xtask test-fixtures`"));
        let mut module = Self { bytes, debug_info: None };
        module.debug_info = wlprof_dwarf::Layout::new(&module);
        module
    }
}

fn number(bytes: &[u8], at: &mut usize) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

impl ModuleView for Module {
    fn name(&self) -> &str {
        "test"
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        let mut at = 8;
        while at < self.bytes.len() {
            let id = self.bytes[at];
            at += 1;
            let size = number(&self.bytes, &mut at);
            let (mut start, end) = (at, at + size);
            at = end;
            if id == 0 {
                let length = number(&self.bytes, &mut start);
                if &self.bytes[start..start + length] == name.as_bytes() {
                    return Some(&self.bytes[start + length..end]);
                }
            }
        }
        None
    }

    fn function_imports(&self) -> &[FunctionImport] {
        &[]
    }

    fn function_body(&self, _: u32) -> Option<Range<u32>> {
        None
    }

    fn function_name(&self, _: u32) -> Option<&str> {
        None
    }

    fn member(&self, structure: &str, member: &str) -> Option<Member> {
        self.debug_info.as_ref()?.member(structure, member)
    }

    fn type_size(&self, name: &str) -> Option<u64> {
        self.debug_info.as_ref()?.type_size(name)
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        self.debug_info.as_ref()?.enumerator(name)
    }
}

#[test]
fn the_table_is_what_the_debug_information_says() {
    assert_eq!(Layout::from_debug_info(&Module::fixture("quickjs-0.16.wasm")), Some(Layout::NG_0_16));
    assert_eq!(Layout::from_debug_info(&Module::fixture("quickjs-0.16-stripped.wasm")), None);
}

#[test]
fn quickjs_is_told_from_others() {
    for name in ["quickjs-0.16.wasm", "quickjs-0.16-stripped.wasm"] {
        let detection = JavaScript.detect(&Module::fixture(name));
        assert_eq!(detection, Detection::Yes("QuickJS-ng 0.16.2".to_owned()), "{name}");
    }
    for name in ["c-calls.wasm", "go-bench.wasm", "python-3.13.wasm", "rust-mix.wasm"] {
        let module = Module::fixture(name);
        assert_eq!(JavaScript.detect(&module), Detection::No, "{name}");
        assert!(JavaScript.attach(&module).is_err(), "{name}");
    }
}
