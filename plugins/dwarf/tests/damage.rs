//! DWARF that is cut off or overwritten: no panic, no endless work, and a name for every frame.

mod module;

use module::{instructions, symbolize};
use std::time::{Duration, Instant};
use wlprof_dwarf::{Layout, Symbolizer};
use wlprof_plugin::testing::TestModule;

const FIXTURES: [&str; 4] = ["c-inlined-dwarf5", "c-inlined", "cpp-inlined", "rust-mix-v0"];
const SECTIONS: [&str; 9] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_line_str",
    ".debug_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_ranges",
    ".debug_rnglists",
];

/// One look at a damaged module may take this long, with the tests' own slowness.
const LONGEST: Duration = Duration::from_secs(20);

/// Without optimisation a round takes ten times as long.
const THOROUGH: usize = if cfg!(debug_assertions) { 1 } else { 5 };

/// Symbolizes one offset in every few bodies.
fn look(module: &TestModule, instructions: &[Vec<u32>], step: usize) -> Vec<String> {
    let started = Instant::now();
    let mut symbolizer = Symbolizer::new(module);
    let mut names = Vec::new();
    for (body, offsets) in instructions.iter().enumerate().step_by(step) {
        let Some(&offset) = offsets.get(offsets.len() / 2) else { continue };
        let frames = symbolize(&mut symbolizer, module.frame(body, offset));
        names.push(frames.last().expect("a frame without a name").function.clone());
    }
    let _ = symbolizer.warnings();
    assert!(started.elapsed() < LONGEST, "took {:?}", started.elapsed());
    names
}

#[test]
fn cut_off_anywhere() {
    for fixture in FIXTURES {
        let whole = TestModule::fixture(fixture);
        let instructions = instructions(&whole);
        for section in SECTIONS {
            let Some(bytes) = whole.sections.get(section) else { continue };
            let mut module = whole.clone();
            // Near the start every byte counts; then spread over the section.
            let parts = 4 * THOROUGH;
            let spread = (0..parts).map(|part| bytes.len() * part / parts);
            for length in (0..40).step_by(6 - THOROUGH).chain(spread).filter(|&length| length < bytes.len()) {
                module.sections.insert(section.to_owned(), bytes[..length].to_vec());
                look(&module, &instructions, 7);
            }
        }
    }
}

#[test]
fn overwritten_anywhere() {
    for (fixture, rounds) in FIXTURES.into_iter().zip([24, 24, 12, 12]) {
        let whole = TestModule::fixture(fixture);
        let instructions = instructions(&whole);
        let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
        for section in SECTIONS {
            let Some(bytes) = whole.sections.get(section).filter(|bytes| !bytes.is_empty()) else { continue };
            let mut module = whole.clone();
            for round in 0..rounds * THOROUGH {
                let mut damaged = bytes.clone();
                // From a few flipped bytes to a section full of them.
                for _ in 0..1usize << (round % 12) {
                    let at = random.below(damaged.len());
                    damaged[at] = random.next().to_le_bytes()[0];
                }
                module.sections.insert(section.to_owned(), damaged);
                look(&module, &instructions, 5);
            }
        }
    }
}

#[test]
fn data_is_looked_for_in_any_damage() {
    let whole = TestModule::fixture("c-layout");
    let mut random = Xorshift(0x2545_f491_4f6c_dd1d);
    let mut found = 0;
    for round in 0..400 * THOROUGH {
        let mut module = whole.clone();
        for section in [".debug_info", ".debug_abbrev"] {
            let bytes = module.sections.get_mut(section).unwrap();
            for _ in 0..1usize << (round % 8) {
                let at = random.below(bytes.len());
                bytes[at] = random.next().to_le_bytes()[0];
            }
        }
        let started = Instant::now();
        let Some(layout) = Layout::new(&module) else { continue };
        for member in ["next.next.header.count", "value.text", "second", "colors", "trailing", "is_wide"] {
            found += usize::from(layout.member("object", member).is_some());
        }
        for name in ["object", "heap_alias", "uint64_t", "color"] {
            found += usize::from(layout.type_size(name).is_some());
        }
        assert!(started.elapsed() < LONGEST, "took {:?}", started.elapsed());
    }
    assert!(found > 100, "the damage left nothing to look for: {found}");
}

#[test]
fn a_broken_unit_costs_no_other() {
    let whole = TestModule::fixture("c-inlined");
    let instructions = instructions(&whole);
    let expected = look(&whole, &instructions, 1);
    let info = &whole.sections[".debug_info"];
    let mut module = whole.clone();
    // Every unit's version in turn, which makes it unreadable.
    let mut at = 0;
    let mut broken = 0;
    while at < info.len() {
        let mut damaged = info.clone();
        damaged[at + 4] = 0xff;
        module.sections.insert(".debug_info".to_owned(), damaged);
        // The name section knows most functions as well; what matters is that frames elsewhere keep their lines.
        let lines = |module: &TestModule| {
            let mut symbolizer = Symbolizer::new(module);
            let bodies = 0..module.bodies.len();
            let line = |body: usize| symbolize(&mut symbolizer, module.frame(body, module.bodies[body].start))[0].line;
            (bodies.map(line).collect::<Vec<_>>(), symbolizer.warnings())
        };
        let (before, _) = lines(&whole);
        let (after, warnings) = lines(&module);
        let lost = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        let kept = after.iter().flatten().count();
        let known = before.iter().flatten().count();
        assert!(warnings.len() == 1 && warnings[0].starts_with("1 units"), "{warnings:?}");
        assert!(lost + kept == known && lost < 20, "the unit at {at:#x} cost {lost} of {known} functions");
        assert_eq!(look(&module, &instructions, 1).len(), expected.len());
        at += 4 + u32::from_le_bytes(info[at..at + 4].try_into().unwrap()) as usize;
        broken += 1;
    }
    assert!(broken > 20);
}

#[test]
fn units_that_share_everything_are_given_up() {
    // 60,000 units that name the same line program: reading each would take hours.
    let whole = TestModule::fixture("c-inlined");
    let instructions = instructions(&whole);
    let mut module = whole.clone();
    let end = whole.bodies.last().unwrap().end;
    let mut unit = vec![0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 4, 1];
    unit.extend(0u32.to_le_bytes()); // low_pc
    unit.extend(end.to_le_bytes()); // high_pc
    unit.extend(0u32.to_le_bytes()); // stmt_list
    let length = u32::try_from(unit.len() - 4).unwrap();
    unit[..4].copy_from_slice(&length.to_le_bytes());
    module.sections.insert(".debug_info".to_owned(), unit.repeat(60_000));
    // compile_unit without children: low_pc addr, high_pc data4, stmt_list sec_offset.
    let abbreviations = vec![1, 0x11, 0, 0x11, 0x01, 0x12, 0x06, 0x10, 0x17, 0, 0, 0];
    module.sections.insert(".debug_abbrev".to_owned(), abbreviations);
    let started = Instant::now();
    look(&module, &instructions, 1);
    assert!(started.elapsed() < LONGEST);
    let mut symbolizer = Symbolizer::new(&module);
    symbolize(&mut symbolizer, module.frame(0, module.bodies[0].start));
    assert!(symbolizer.warnings()[0].contains("given up"), "{:?}", symbolizer.warnings());
}

struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}
