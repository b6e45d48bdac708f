//! Detection and attaching, on the interpreters that `cargo xtask test-fixtures` builds.

use wlprof_cpython::Python;
use wlprof_plugin::testing::{TestModule, check_walkers_are_cheap};
use wlprof_plugin::{Detection, Language};

#[test]
fn a_release_is_recognised_stripped_or_not() {
    check_detection("3.11", "CPython 3.11.2");
}

#[test]
fn every_other_release_is_recognised_stripped_or_not() {
    check_detection("3.13", "CPython 3.13.5");
}

fn check_detection(release: &str, version: &str) {
    for (suffix, merges) in [("", true), ("-stripped", false)] {
        let module = TestModule::fixture(&format!("python-{release}{suffix}"));
        assert_eq!(Python.detect(&module), Detection::Yes(version.to_owned()), "{release}{suffix}");
        assert_eq!(Python.attach_program(&module).unwrap().merges(), merges, "{release}{suffix}");
    }
}

#[test]
fn debug_information_says_where_the_loop_is() {
    check_loop("3.11");
}

#[test]
fn debug_information_says_where_the_loop_is_in_every_other_release() {
    check_loop("3.13");
}

fn check_loop(release: &str) {
    let mut module = TestModule::fixture(&format!("python-{release}"));
    module.names.clear();
    assert!(Python.attach_program(&module).unwrap().merges(), "{release}");
}

/// Replaces every occurrence in a module's data.
fn replace(module: &mut TestModule, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let mut at = 0;
    while let Some(found) = module.bytes[at..].windows(from.len()).position(|window| window == from) {
        module.bytes[at + found..][..from.len()].copy_from_slice(to);
        at += found + from.len();
    }
}

#[test]
fn releases_that_are_not_supported_are_refused_by_name() {
    check_refusal("3.11", 0x030b_02f0, ("cpython-310", 0x030a_0df0, "3.10.13"));
}

#[test]
fn releases_that_are_not_supported_are_refused_by_name_made_of_every_other_release() {
    check_refusal("3.13", 0x030d_05f0, ("cpython-315", 0x030f_00f0, "3.15.0"));
}

/// A release's fixture with another one's tag, hexadecimal version and version.
fn check_refusal(release: &str, own: u32, (tag, hexadecimal, version): (&str, u32, &str)) {
    let mut module = TestModule::fixture(&format!("python-{release}-stripped"));
    let own_tag = format!("cpython-{}\0", release.replace('.', ""));
    replace(&mut module, own_tag.as_bytes(), format!("{tag}\0").as_bytes());
    replace(&mut module, &own.to_le_bytes(), &hexadecimal.to_le_bytes());
    let refused = Detection::Unsupported { found: format!("CPython {version}"), supported: "3.11–3.14".to_owned() };
    assert_eq!(Python.detect(&module), refused);
    assert!(Python.attach(&module).is_err());
}

#[test]
fn other_programs_are_not_python() {
    for fixture in ["c-shares", "rust-mix", "go-bench"] {
        let module = TestModule::fixture(fixture);
        assert_eq!(Python.detect(&module), Detection::No, "{fixture}");
        assert!(Python.attach(&module).is_err(), "{fixture}");
    }
    let bytes = b"\0asm\x01\0\0\0cpython-311\0Fatal Python error: ".to_vec();
    let garbage = TestModule { bytes, ..TestModule::default() };
    assert_eq!(Python.detect(&garbage), Detection::No);
}

#[test]
fn a_walker_costs_next_to_nothing() {
    let module = TestModule::fixture("python-3.11");
    check_walkers_are_cheap(|| Python.attach(&module).unwrap(), 1000);
}
