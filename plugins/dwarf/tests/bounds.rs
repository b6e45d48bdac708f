//! DWARF and names that are small and ask for much: an end to the work, a warning, and a name for every frame.
//!
//! What each of these asked for before there was a bound took minutes or gigabytes; nothing here measures time.

mod module;

use module::symbolize;
use wlprof_dwarf::{Layout, Symbolizer};
use wlprof_plugin::{SourceFrame, testing::TestModule};

/// One body, from 3 on.
const START: u32 = 3;
const END: u32 = 0x400;
const BODY: std::ops::Range<u32> = START..END;

/// Forms and attributes that the DWARF below is made of.
const ADDR: u8 = 0x01;
const DATA4: u8 = 0x06;
const STRING: u8 = 0x08;
const REF4: u8 = 0x13;
const SEC_OFFSET: u8 = 0x17;
const NAME: u8 = 0x03;
const STMT_LIST: u8 = 0x10;
const LOW_PC: u8 = 0x11;
const HIGH_PC: u8 = 0x12;
const TYPE: u8 = 0x49;
const CALL_LINE: u8 = 0x59;

/// A compilation unit, a function, an inlined call and a structure, each with entries below it; a member without a name.
const ABBREVIATIONS: &[u8] = &[
    1, 0x11, 1, LOW_PC, ADDR, HIGH_PC, DATA4, STMT_LIST, SEC_OFFSET, 0, 0, //
    2, 0x2e, 1, NAME, STRING, LOW_PC, ADDR, HIGH_PC, DATA4, 0, 0, //
    3, 0x1d, 1, NAME, STRING, LOW_PC, ADDR, HIGH_PC, DATA4, CALL_LINE, DATA4, 0, 0, //
    4, 0x13, 1, NAME, STRING, 0, 0, //
    5, 0x0d, 0, TYPE, REF4, 0, 0, 0,
];

/// A module of one function with these entries in its one unit.
fn module(entries: &[u8]) -> TestModule {
    let mut unit = vec![4, 0, 0, 0, 0, 0, 4, 1];
    unit.extend(range());
    unit.extend(0_u32.to_le_bytes());
    unit.extend(entries);
    unit.push(0);
    let mut info = u32::try_from(unit.len()).unwrap().to_le_bytes().to_vec();
    info.extend(unit);
    let mut module = TestModule { bodies: vec![BODY], ..TestModule::default() };
    module.sections.insert(".debug_info".to_owned(), info);
    module.sections.insert(".debug_abbrev".to_owned(), ABBREVIATIONS.to_vec());
    module
}

/// The body's start and length.
fn range() -> [u8; 8] {
    let [a, b, c, d] = START.to_le_bytes();
    let [e, f, g, h] = (END - START).to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

fn function(name: &str, below: &[u8]) -> Vec<u8> {
    [&[2], name.as_bytes(), &[0], &range(), below, &[0]].concat()
}

fn frames(symbolizer: &mut Symbolizer, module: &TestModule, offset: u32) -> Vec<SourceFrame> {
    symbolize(symbolizer, module.frame(0, offset))
}

/// Each of these kept `cpp_demangle` busy for longer than a profile takes: the first for minutes, with 62 bytes.
#[test]
fn names_that_are_read_in_ever_more_ways_stay_mangled() {
    let names = [
        format!("_Zcv{}i", "T_I".repeat(19)),
        format!("_ZC1DT{}Ei", "na".repeat(40)),
        format!("_Z1f{}i", "SsI".repeat(18)),
        format!("_Z1a{}", "IL1a".repeat(18)),
        format!("_Z{}F{}", "CI1".repeat(12), "S_".repeat(2000)),
        // Text that doubles with every level.
        (0..60).fold("_Z1f1aIiiE".to_owned(), |name, level| {
            let digits = |number: u32| char::from_digit(number, 36).unwrap().to_ascii_uppercase();
            let (high, low) = (2 * level / 36, digits(2 * level % 36));
            let id = if high > 0 { format!("S{}{low}_", digits(high)) } else { format!("S{low}_") };
            format!("{name}1aI{id}{id}E")
        }),
    ];
    for name in names {
        let mut module = TestModule { bodies: vec![BODY], ..TestModule::default() };
        module.names.insert(0, name.clone());
        let mut symbolizer = Symbolizer::new(&module);
        for offset in START..END {
            let frames = frames(&mut symbolizer, &module, offset);
            assert_eq!((frames.len(), &frames[0].function), (1, &name));
        }
    }
}

#[test]
fn ever_more_names_that_take_long_end_demangling() {
    const NAMES: u32 = 20_000;
    let mut module = TestModule::default();
    let name = |index: u32| format!("_Z1a{}1b{index}", "IL1a".repeat(16));
    for index in 0..NAMES {
        module.bodies.push(3 + 2 * index..4 + 2 * index);
        module.names.insert(index, name(index));
    }
    module.names.insert(NAMES - 1, "_ZN6shapes6Square4areaEv".to_owned());
    let mut symbolizer = Symbolizer::new(&module);
    for index in 0..NAMES - 1 {
        let frame = module.frame(index as usize, 3 + 2 * index);
        assert_eq!(symbolize(&mut symbolizer, frame)[0].function, name(index));
    }
    let warnings = symbolizer.warnings();
    assert!(warnings.len() == 1 && warnings[0].contains("demangle"), "{warnings:?}");
}

#[test]
fn calls_inlined_ever_deeper_are_cut() {
    const DEPTH: u32 = 20_000;
    let mut nested = Vec::new();
    for depth in 1..=DEPTH {
        nested.extend([&[3], format!("call{depth}").as_bytes(), &[0], &range()].concat());
        nested.extend(depth.to_le_bytes());
    }
    nested.resize(nested.len() + DEPTH as usize, 0);
    let module = module(&function("outside", &nested));
    let mut symbolizer = Symbolizer::new(&module);
    for offset in START..END {
        let frames = frames(&mut symbolizer, &module, offset);
        let names: Vec<_> = frames.iter().map(|frame| frame.function.as_str()).collect();
        let expected = (0..128).map(|call| format!("call{}", DEPTH - call));
        let expected: Vec<_> = expected.chain(["[truncated]".to_owned(), "outside".to_owned()]).collect();
        assert_eq!(names, expected);
        // Where the outermost call was made, which is not shown.
        assert_eq!(frames.last().unwrap().line, Some(1));
    }
    let warnings = symbolizer.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("[truncated]")), "{warnings:?}");
}

/// The entry of an inlined call, with those below it.
fn call(name: &str, start: u32, length: u32, line: u32, below: &[u8]) -> Vec<u8> {
    let mut entry = [&[3], name.as_bytes(), &[0]].concat();
    [start, length, line].iter().for_each(|number| entry.extend(number.to_le_bytes()));
    [&entry, below, &[0]].concat()
}

/// Frames as `function:line`, innermost first.
fn shown(frames: &[SourceFrame]) -> String {
    let shown = |frame: &SourceFrame| format!("{}:{}", frame.function, frame.line.unwrap_or(0));
    frames.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// As Binaryen leaves them where it cannot follow an end: that is 0 then, and the length goes round.
#[test]
fn what_is_inlined_into_a_call_without_an_end_is_found() {
    let lost = |start: u32| 0_u32.wrapping_sub(start);
    let leaf = call("leaf", 0x30, 0x10, 7, &[]);
    let inner = [call("inner", 0x20, 0x30, 6, &leaf), call("beside", 0x60, 0x10, 8, &[])].concat();
    let twice = call("twice", 0x20, lost(0x20), 5, &inner);
    let calls = [call("once", 0x10, lost(0x10), 4, &twice), call("next", 0x80, 0x10, 9, &[])].concat();
    let around = call("around", 0x10, 0x100, 3, &calls);
    let module = module(&function("f", &around));
    let mut symbolizer = Symbolizer::new(&module);
    let mut at = |offset: u32| shown(&frames(&mut symbolizer, &module, offset));
    // Where nothing is inlined into them, nobody knows whether they are there.
    assert_eq!(at(0x18), "around:0 f:3");
    assert_eq!(at(0x20), "inner:0 twice:6 once:5 around:4 f:3");
    assert_eq!(at(0x30), "leaf:0 inner:7 twice:6 once:5 around:4 f:3");
    assert_eq!(at(0x60), "beside:0 twice:8 once:5 around:4 f:3");
    assert_eq!(at(0x80), "next:0 around:9 f:3");
}

#[test]
fn inlined_calls_side_by_side_are_told_apart() {
    // The third lies: part of its range is the first's, part is outside of the function.
    let inner = call("inner", 0x20, 0x10, 5, &[]);
    let calls = [
        call("first", 0x10, 0x30, 1, &inner),
        call("second", 0x50, 0x10, 2, &[]),
        call("third", 0x30, 0x30, 3, &[]),
        call("outside", 0x3f0, 0x20, 4, &[]),
    ];
    let module = module(&function("f", &calls.concat()));
    let mut symbolizer = Symbolizer::new(&module);
    let mut at = |offset: u32| shown(&frames(&mut symbolizer, &module, offset));
    assert_eq!(at(0x0f), "f:0");
    assert_eq!(at(0x10), "first:0 f:1");
    assert_eq!(at(0x20), "inner:0 first:5 f:1");
    assert_eq!(at(0x30), "first:0 f:1");
    assert_eq!(at(0x40), "third:0 f:3");
    assert_eq!(at(0x50), "second:0 f:2");
    assert_eq!(at(0x60), "f:0");
    assert_eq!(at(0x3f0), "f:0");
}

#[test]
fn line_tables_of_single_bytes_are_given_up() {
    // A path of no length takes a byte here and more than a hundred in memory.
    const FILES: usize = 2 << 20;
    let mut header = vec![1, 1, 1, 0xfb, 14, 1];
    // Directories: none. Files: a path as a string, so many.
    header.extend([0, 0, 1, 1, STRING]);
    let mut count = FILES;
    while count > 0 {
        header.push((count & 0x7f) as u8 | if count > 0x7f { 0x80 } else { 0 });
        count >>= 7;
    }
    header.resize(header.len() + FILES, 0);
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    let lines = [&[5, 0, 4, 0], &length(header.len())[..], &header].concat();
    check_given_up([&length(lines.len())[..], &lines].concat());
}

#[test]
fn line_tables_of_a_row_a_byte_are_given_up() {
    const ROWS: usize = 16 << 20;
    // Version 4, no opcodes but special ones, no files: each byte is a row, and all are one sequence.
    let header = [1, 1, 1, 0xfb, 14, 1, 0, 0];
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_le_bytes();
    let mut lines = [&[4, 0], &length(header.len())[..], &header].concat();
    lines.resize(lines.len() + ROWS, 0x20);
    check_given_up([&length(lines.len())[..], &lines].concat());
}

fn check_given_up(lines: Vec<u8>) {
    let mut module = module(&function("f", &[]));
    module.sections.insert(".debug_line".to_owned(), lines);
    let mut symbolizer = Symbolizer::new(&module);
    assert_eq!(frames(&mut symbolizer, &module, START)[0].function, "f");
    let warnings = symbolizer.warnings();
    assert!(warnings[0].contains("given up"), "{warnings:?}");
}

/// Ten thousand functions that are all the same body, asked for at each of its bytes.
#[test]
fn functions_on_top_of_each_other_are_given_up() {
    let functions: Vec<u8> = (0..10_000).flat_map(|index| function(&format!("f{index}"), &[])).collect();
    let mut module = module(&functions);
    module.names.insert(0, "f7".to_owned());
    let mut symbolizer = Symbolizer::new(&module);
    let names = (0..40 * (END - START)).map(|at| {
        let frames = frames(&mut symbolizer, &module, START + at % (END - START));
        frames[0].function.clone()
    });
    assert!(names.collect::<Vec<_>>().iter().all(|name| name == "f7"));
    assert!(symbolizer.warnings()[0].contains("given up"), "{:?}", symbolizer.warnings());
}

/// Structures whose nameless members are the structures themselves: every question goes round until it is stopped.
#[test]
fn structures_inside_themselves_end() {
    // The structure is the unit's first entry, 23 bytes into the unit.
    let structure = [&[4], &b"loop\0"[..], &[5], &23_u32.to_le_bytes(), &[5], &23_u32.to_le_bytes(), &[0]].concat();
    let module = module(&structure);
    let layout = Layout::new(&module).unwrap();
    assert!((0..100_000).all(|_| layout.member("loop", "count").is_none()));
}
