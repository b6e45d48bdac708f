//! Functions that the linker dropped and whose DWARF it kept, in DWARF written by hand.

mod module;

use gimli::{
    Encoding, Format, LittleEndian, constants as c,
    write::{
        Address, AttributeValue, Dwarf, EndianVec, LineProgram, LineString, Range, RangeList, Sections, Unit,
        UnitEntryId,
    },
};
use module::{show, symbolize};
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{FunctionImport, testing::TestModule};

/// A function to write: name, range, and whether another is inlined into its second half.
struct Written {
    name: &'static str,
    begin: u64,
    end: u64,
    line: u64,
    inlined: bool,
}

const fn written(name: &'static str, begin: u64, end: u64, line: u64, inlined: bool) -> Written {
    Written { name, begin, end, line, inlined }
}

const BODIES: [std::ops::Range<u32>; 4] = [3..0x40, 0x42..0x90, 0x92..0x100, 0x102..0x140];

/// A dead function at 0 that covers three bodies, one at a kept addend inside the first body, one marked dead, one that
/// ends where no body does; then the live ones.
const DEAD: [Written; 5] = [
    written("dead_at_0", 0, 0x120, 901, true),
    written("dead_at_0_too", 0, 0x40, 902, true),
    written("dead_addend", 5, 0x20, 903, true),
    written("dead_tombstone", 0xffff_ffff, 0x50, 904, true),
    written("dead_longer", 0x42, 0x97, 905, true),
];
const LIVE: [Written; 2] = [written("first", 3, 0x40, 11, true), written("second", 0x42, 0x90, 21, true)];

#[test]
fn the_dead_do_not_speak() {
    for version in [4, 5] {
        // In one unit in either order, and in two.
        let (dead, live): (Vec<_>, Vec<_>) = (DEAD.iter().collect(), LIVE.iter().collect());
        let dead_first = dead.iter().chain(&live).copied().collect();
        let live_first = live.iter().chain(&dead).copied().collect();
        for units in [vec![dead_first], vec![live_first], vec![dead.clone(), live.clone()], vec![live, dead]] {
            let module = module(version, &units);
            let mut symbolizer = Symbolizer::new(&module);
            let mut at = |body: usize, offset: u32| {
                let frames = symbolize(&mut symbolizer, module.frame(body, offset));
                frames.iter().map(show).collect::<Vec<_>>().join(" < ")
            };
            assert_eq!(at(0, 3), "first /src/first.c:11:0", "version {version}");
            assert_eq!(at(0, 0x10), "first /src/first.c:11:0");
            assert_eq!(at(0, 0x3f), "inlined /src/first.c:12:0 < first /src/first.c:15:0");
            assert_eq!(at(1, 0x42), "second /src/second.c:21:0");
            assert_eq!(at(1, 0x8f), "inlined /src/second.c:22:0 < second /src/second.c:25:0");
            // Nothing but the dead speak of these.
            assert_eq!(at(2, 0x92), "third ?:0:0");
            assert_eq!(at(2, 0xff), "third ?:0:0");
            assert_eq!(at(3, 0x110), "wasm-function[4] ?:0:0");
            // Not in the body: no lookup at all.
            assert_eq!(at(1, 0x3f), "second ?:0:0");
            assert_eq!(symbolizer.warnings(), [""; 0]);
        }
    }
}

#[test]
fn a_rewritten_module_is_warned_of() {
    let stale = [written("a", 0x8000, 0x8100, 1, false), written("b", 0, 0x200, 2, false)];
    let module = module(4, &[stale.iter().collect()]);
    let mut symbolizer = Symbolizer::new(&module);
    assert_eq!(symbolizer.warnings(), [""; 0]);
    assert_eq!(symbolize(&mut symbolizer, module.frame(0, 5))[0].function, "first");
    let warnings = symbolizer.warnings();
    // What begins at 0 was dropped by a linker, and says nothing of a tool.
    assert!(warnings.len() == 1 && warnings[0].contains("1 of 1 functions"), "{warnings:?}");
    assert!(symbolizer.has_stale_dwarf());
}

/// Two of three functions begin elsewhere, and the third begins at a body by chance: that body is another function's.
#[test]
fn a_unit_that_fits_by_chance_names_nothing() {
    for version in [4, 5] {
        let stale = [
            written("third", 3, 0x20, 1, true),
            written("first", 0x94, 0xb0, 2, true),
            written("x", 0x105, 0x130, 3, true),
        ];
        // A linker put it beside a unit that fits.
        let sound = [written("second", 0x42, 0x90, 21, true)];
        for units in
            [[stale.iter().collect(), sound.iter().collect()], [sound.iter().collect(), stale.iter().collect()]]
        {
            let module = module(version, &units);
            let mut symbolizer = Symbolizer::new(&module);
            let mut at = |body: usize, offset: u32| {
                let frames = symbolize(&mut symbolizer, module.frame(body, offset));
                frames.iter().map(show).collect::<Vec<_>>().join(" < ")
            };
            assert_eq!([at(0, 3), at(0, 0x1f), at(0, 0x30)], ["first ?:0:0"; 3], "version {version}");
            assert_eq!([at(2, 0x96), at(3, 0x106)], ["third ?:0:0", "wasm-function[4] ?:0:0"]);
            assert_eq!(at(1, 0x42), "second /src/second.c:21:0");
            assert_eq!(at(1, 0x8f), "inlined /src/second.c:22:0 < second /src/second.c:25:0");
            let warnings = symbolizer.warnings();
            assert!(warnings.len() == 1 && warnings[0].starts_with("1 unit of the DWARF is left out"), "{warnings:?}");
            assert!(warnings[0].contains("2 of 3 functions"), "{warnings:?}");
        }
    }
}

/// A module of [`BODIES`] behind one import, whose names are first, second, third and none.
fn module(version: u16, units: &[Vec<&Written>]) -> TestModule {
    let mut dwarf = Dwarf::new();
    let encoding = Encoding { address_size: 4, format: Format::Dwarf32, version };
    for functions in units {
        let program = LineProgram::new(encoding, <_>::default(), string("/src"), None, string("unit.c"), None);
        let id = dwarf.units.add(Unit::new(encoding, program));
        let unit = dwarf.units.get_mut(id);
        let root = unit.root();
        unit.get_mut(root).set(c::DW_AT_comp_dir, AttributeValue::String(b"/src".to_vec()));
        let ranges = functions.iter().filter(|function| function.begin < function.end).map(|function| {
            Range::StartEnd { begin: Address::Constant(function.begin), end: Address::Constant(function.end) }
        });
        let ranges = unit.ranges.add(RangeList(ranges.collect()));
        unit.get_mut(root).set(c::DW_AT_ranges, AttributeValue::RangeListRef(ranges));
        for function in functions {
            write_function(unit, root, function);
        }
    }
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    dwarf.write(&mut sections).unwrap();
    let mut module = TestModule { bodies: BODIES.to_vec(), ..TestModule::default() };
    module.imports.push(FunctionImport { module: "env".into(), name: "host".into() });
    module.names.extend([(1, "first".to_owned()), (2, "second".to_owned()), (3, "third".to_owned())]);
    let store = |id: gimli::SectionId, bytes: &EndianVec<LittleEndian>| {
        module.sections.insert(id.name().to_owned(), bytes.slice().to_vec());
        Ok::<_, gimli::Error>(())
    };
    sections.for_each(store).unwrap();
    module
}

fn string(text: &str) -> LineString {
    LineString::String(text.as_bytes().to_vec())
}

fn write_function(unit: &mut Unit, root: UnitEntryId, function: &Written) {
    let directory = unit.line_program.default_directory();
    let file = unit.line_program.add_file(string(&format!("{}.c", function.name)), directory, None);
    let middle = function.begin + function.end.saturating_sub(function.begin) / 2;
    unit.line_program.begin_sequence(Some(Address::Constant(function.begin)));
    for (address, line) in [(function.begin, function.line), (middle, function.line + 1)] {
        let row = unit.line_program.row();
        (row.address_offset, row.file, row.line) = (address - function.begin, file, line);
        unit.line_program.generate_row();
    }
    unit.line_program.end_sequence(function.end.saturating_sub(function.begin));

    let span = |unit: &mut Unit, die: UnitEntryId, begin: u64| {
        let entry = unit.get_mut(die);
        entry.set(c::DW_AT_low_pc, AttributeValue::Address(Address::Constant(begin)));
        entry.set(c::DW_AT_high_pc, AttributeValue::Udata(function.end.saturating_sub(begin)));
    };
    let name = |unit: &mut Unit, die: UnitEntryId, name: &str| {
        unit.get_mut(die).set(c::DW_AT_name, AttributeValue::String(name.as_bytes().to_vec()));
    };
    let die = unit.add(root, c::DW_TAG_subprogram);
    name(unit, die, function.name);
    span(unit, die, function.begin);
    if function.inlined {
        let origin = unit.add(root, c::DW_TAG_subprogram);
        name(unit, origin, "inlined");
        let block = unit.add(die, c::DW_TAG_lexical_block);
        let call = unit.add(block, c::DW_TAG_inlined_subroutine);
        span(unit, call, middle);
        let entry = unit.get_mut(call);
        entry.set(c::DW_AT_abstract_origin, AttributeValue::UnitRef(origin));
        entry.set(c::DW_AT_call_file, AttributeValue::FileIndex(Some(file)));
        entry.set(c::DW_AT_call_line, AttributeValue::Udata(function.line + 4));
    }
}
