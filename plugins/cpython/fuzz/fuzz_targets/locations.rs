//! The decoder of location tables: any table, first line and code unit give a position or none, and a position found
//! says what all code units of its entry say. An index finds the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wlprof_cpython::{LocationIndex, locate};

fuzz_target!(|input: (u32, u32, &[u8])| {
    let (first_line, unit, table) = input;
    let found = locate(table, first_line, unit);
    assert_eq!(LocationIndex::new(table, first_line).locate(table, first_line, unit), found);
    let Some(position) = found else { return };
    // What comes after does not matter.
    let longer = [table, &[0xff, 0x00]].concat();
    assert_eq!(locate(&longer, first_line, unit), Some(position));
    // No table covers more than eight code units a byte.
    assert!(u64::from(unit) < 8 * table.len() as u64);
});
