//! The layouts against the debug information of the interpreters that `cargo xtask test-fixtures` builds.

#[path = "../tests/structures/mod.rs"]
mod structures;

use crate::{
    debug_info, debug_offsets,
    layout::{self, Entry, Layout, Top},
    module::Module,
    synthetic,
};
use structures::Structures;
use wlprof_plugin::testing::{Frozen, TestModule};

/// The layout, as debug information has it.
fn measured(structures: &Structures<'_>, minor: u8) -> Vec<Option<u64>> {
    let at = |structure: &str, member: &str| structures.offset(structure, member);
    let newer = minor >= 12;
    let callers = |structure: &str, member: &str| at(structure, member).filter(|_| minor >= 13);
    vec![
        structures.size("pyruntimestate"),
        at("pyruntimestate", "interpreters.head"),
        if newer { at("_is", "_gil.last_holder") } else { at("pyruntimestate", "ceval.gil.last_holder") },
        at("_is", "next"),
        at("_is", "threads.head"),
        at("_is", "gc.collecting"),
        at("_ts", "next"),
        at("_ts", "interp"),
        at("_ts", "cframe").or(at("_ts", "current_frame")),
        at("_PyCFrame", "current_frame"),
        at("_PyCFrame", "previous"),
        at("_PyInterpreterFrame", "f_code").or(at("_PyInterpreterFrame", "f_executable")),
        at("_PyInterpreterFrame", "previous"),
        at("_PyInterpreterFrame", "prev_instr").or(at("_PyInterpreterFrame", "instr_ptr")),
        at("_PyInterpreterFrame", "owner"),
        at("_PyInterpreterFrame", "is_entry"),
        at("PyCodeObject", "co_firstlineno"),
        at("PyCodeObject", "co_filename"),
        at("PyCodeObject", "co_name"),
        at("PyCodeObject", "co_qualname"),
        at("PyCodeObject", "co_linetable"),
        at("PyCodeObject", "co_code_adaptive"),
        at("PyBytesObject", "ob_sval"),
        structures.size("PyASCIIObject"),
        structures.size("PyCompactUnicodeObject"),
        callers("_ts", "datastack_chunk"),
        callers("_ts", "exc_info"),
        callers("PyCodeObject", "co_nlocalsplus"),
        callers("PyCodeObject", "co_framesize"),
        callers("_PyInterpreterFrame", "stacktop"),
        callers("_PyInterpreterFrame", "localsplus"),
    ]
}

/// The same numbers of a layout.
fn numbers(layout: &Layout) -> Vec<Option<u64>> {
    let (top, current, previous) = match layout.thread.top {
        Top::CFrame { at, current, previous } => (at, Some(current), Some(previous)),
        Top::Frame { at } => (at, None, None),
    };
    let callers = layout.thread.callers;
    let entry = if let Entry::Marked { at } = layout.frame.entry { Some(at) } else { None };
    let all = [
        Some(layout.runtime.size),
        Some(layout.runtime.interpreters_head),
        layout.runtime.lock_holder.or(layout.interpreter.lock_holder),
        Some(layout.interpreter.next),
        Some(layout.interpreter.threads_head),
        Some(layout.interpreter.collecting),
        Some(layout.thread.next),
        Some(layout.thread.interpreter),
        Some(top),
        current,
        previous,
        Some(layout.frame.code),
        Some(layout.frame.previous),
        Some(layout.frame.instruction),
        Some(layout.frame.owner),
        entry,
        Some(layout.code.first_line),
        Some(layout.code.file_name),
        Some(layout.code.name),
        Some(layout.code.qualified_name),
        Some(layout.code.line_table),
        Some(layout.code.instructions),
        Some(layout.code.bytes_data),
        Some(layout.text.ascii),
        Some(layout.text.compact),
        callers.map(|layout| layout.data_stack),
        callers.map(|layout| layout.exceptions),
        callers.map(|layout| layout.local_count),
        callers.map(|layout| layout.frame_size),
        callers.map(|layout| layout.values_end),
        callers.map(|layout| layout.values),
    ];
    all.into_iter().map(|number| number.map(u64::from)).collect()
}

#[test]
fn the_row_of_3_11_is_what_debug_information_says() {
    let module = TestModule::fixture("python-3.11");
    let row = layout::of_release(11).unwrap();
    assert_eq!(numbers(&row), measured(&Structures::read(&module.bytes), 11));
}

#[test]
fn the_description_of_every_other_release_is_what_debug_information_says() {
    let module = TestModule::fixture("python-3.13");
    let read = Module::read(&module.bytes);
    let runtime = debug_info::variables(&module).runtime.unwrap();
    // Memory as it is before the first instruction.
    let mut memory = vec![0; read.static_data().unwrap().end as usize];
    for &(start, data) in &read.segments {
        memory[start as usize..][..data.len()].copy_from_slice(data);
    }
    let described = debug_offsets::read(&Frozen::new(memory), runtime.into(), 13).unwrap();
    assert_eq!(numbers(&described), measured(&Structures::read(&module.bytes), 13));
}

#[test]
fn descriptions_are_read_as_they_are_laid_out() {
    for layout in synthetic::layouts().into_iter().filter(|layout| layout.minor >= 13) {
        let guest = synthetic::Guest::new(layout);
        assert_eq!(debug_offsets::read(&guest.frozen, synthetic::RUNTIME.into(), layout.minor), Some(layout));
        assert_eq!(debug_offsets::read(&guest.frozen, synthetic::RUNTIME.into(), 27 - layout.minor), None);
    }
}

#[test]
fn descriptions_that_cannot_be_are_not_believed() {
    for layout in synthetic::layouts().into_iter().filter(|layout| layout.minor >= 13) {
        let mut guest = synthetic::Guest::new(layout);
        let words = if layout.minor == 13 { 73 } else { 83 };
        for word in 0..words {
            let at = synthetic::RUNTIME as usize + 8 * word;
            let whole: [u8; 8] = guest.frozen.memory[at..at + 8].try_into().unwrap();
            for value in [u64::MAX, 1 << 32, 1 << 31, 1 << 25] {
                guest.frozen.memory[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let read = debug_offsets::read(&guest.frozen, synthetic::RUNTIME.into(), layout.minor);
                // Those that are not read may be anything.
                assert!(read.is_none() || read == Some(layout), "3.{}: word {word} is {value:#x}", layout.minor);
            }
            let is_read = u64::from_le_bytes(whole) != 0;
            guest.frozen.memory[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            let read = debug_offsets::read(&guest.frozen, synthetic::RUNTIME.into(), layout.minor);
            assert!(read.is_none() || !is_read, "3.{}: word {word}", layout.minor);
            guest.frozen.memory[at..at + 8].copy_from_slice(&whole);
        }
    }
}
