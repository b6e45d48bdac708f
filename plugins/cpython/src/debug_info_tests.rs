//! What is read of debug information, of real interpreters and of hostile modules.

use crate::{
    debug_info::{Variables, variables},
    module::EVAL,
};
use wlprof_plugin::{ModuleView, testing::TestModule};

#[test]
fn the_three_are_where_names_say() {
    check_variables("python-3.11");
}

#[test]
fn the_three_are_where_names_say_in_every_other_release() {
    check_variables("python-3.13");
}

fn check_variables(name: &str) {
    let module = TestModule::fixture(name);
    let found = variables(&module);
    assert!(found.runtime.is_some() && found.version.is_some(), "{name}: {found:?}");
    let eval = module.function_named(EVAL).unwrap();
    let body = module.function_body(eval).unwrap();
    // The size of a body stands before it, in up to five bytes.
    assert!((body.start - 5..body.end).contains(&found.eval.unwrap()), "{name}: {found:?} {body:?}");
}

/// Each unit's table of abbreviations begins one later than that of the unit before, and goes on to the end.
#[test]
fn tables_of_abbreviations_within_each_other_are_read_once() {
    const UNITS: u32 = 60_000;
    let leb = |number: u32| [(number & 0x7f) as u8 | 0x80, (number >> 7 & 0x7f) as u8 | 0x80, (number >> 14) as u8];
    let (mut abbreviations, mut info) = (Vec::new(), Vec::new());
    for code in 1..=UNITS {
        info.extend([10, 0, 0, 0, 4, 0]);
        info.extend(u32::try_from(abbreviations.len()).unwrap().to_le_bytes());
        info.push(4);
        info.extend(leb(code));
        // A compilation unit without attributes and children.
        abbreviations.extend(leb(code));
        abbreviations.extend([0x11, 0, 0, 0]);
    }
    abbreviations.push(0);
    let mut module = TestModule::default();
    module.sections.insert(".debug_info".to_owned(), info);
    module.sections.insert(".debug_abbrev".to_owned(), abbreviations);
    assert_eq!(variables(&module), Variables::default());
}
