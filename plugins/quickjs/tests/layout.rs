//! The table of offsets, compared with what a guest's own debug information says.

use std::ops::Range;
use wlprof_plugin::testing::{TestModule, check_walkers_are_cheap};
use wlprof_plugin::{Detection, FunctionImport, Language, Member, ModuleView};
use wlprof_quickjs::{JavaScript, Layout};

/// A module with what wlprof's DWARF plugin says of it.
struct Module {
    module: TestModule,
    debug_info: Option<wlprof_dwarf::Layout>,
}

impl Module {
    fn fixture(name: &str) -> Self {
        let module = TestModule::fixture(name);
        let debug_info = wlprof_dwarf::Layout::new(&module);
        Self { module, debug_info }
    }
}

impl ModuleView for Module {
    fn name(&self) -> &str {
        self.module.name()
    }

    fn bytes(&self) -> &[u8] {
        self.module.bytes()
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        self.module.custom_section(name)
    }

    fn function_imports(&self) -> &[FunctionImport] {
        self.module.function_imports()
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.module.function_body(index)
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        self.module.function_name(index)
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
    assert_eq!(Layout::from_debug_info(&Module::fixture("quickjs-0.16")), Some(Layout::NG_0_16));
    assert_eq!(Layout::from_debug_info(&Module::fixture("quickjs-0.16-stripped")), None);
}

#[test]
fn quickjs_is_told_from_others() {
    for name in ["quickjs-0.16", "quickjs-0.16-stripped"] {
        let detection = JavaScript.detect(&Module::fixture(name));
        assert_eq!(detection, Detection::Yes("QuickJS-ng 0.16.2".to_owned()), "{name}");
    }
    for name in ["c-calls", "go-bench", "python-3.11", "rust-mix"] {
        let module = Module::fixture(name);
        assert_eq!(JavaScript.detect(&module), Detection::No, "{name}");
        assert!(JavaScript.attach(&module).is_err(), "{name}");
    }
}

#[test]
fn a_walker_costs_next_to_nothing() {
    let module = TestModule::fixture("quickjs-0.16-stripped");
    check_walkers_are_cheap(|| JavaScript.attach(&module).unwrap(), 300);
}
