//! The heap profiler of Go's own runtime, in a real module on made-up memory; and programs that have none.

mod forge;

use forge::*;
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::testing::{Frozen, TestModule};
use wlprof_plugin::{HeapBucket, Language, Program, Truncation, Walker};

/// A stopped guest with that rate and one bucket, of 3 blocks of 32 bytes, one of them freed.
struct Guest {
    walker: GoWalker,
    frozen: Frozen,
}

/// Where the list begins in the fixture, and a bucket.
const LIST: u64 = 0xf_fa28;
const BUCKET: u64 = 0x20_0000;

impl Guest {
    fn new(rate: u64, stack: &[u64]) -> Self {
        let walker = Go.attach_program(&TestModule::fixture("go-work-1.21")).unwrap().new_walker();
        let mut guest = Self { walker, frozen: Frozen::new(vec![0; 0x21_0000]) };
        let patches = guest.walker.program().switch_heap_profiler_on(rate);
        for patch in &patches {
            guest.frozen.memory[patch.address as usize..][..patch.bytes.len()].copy_from_slice(&patch.bytes);
        }
        guest.put(LIST, &[BUCKET]);
        guest.put(BUCKET, &[0, 0, 1, 0, 32, stack.len() as u64]);
        guest.put(BUCKET + 48, stack);
        guest.put(BUCKET + 48 + 8 * stack.len() as u64, &[2, 0, 64, 0, 1, 1, 32, 32]);
        guest
    }

    fn put(&mut self, address: u64, words: &[u64]) {
        for (at, word) in (address as usize..).step_by(8).zip(words) {
            self.frozen.memory[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
    }

    fn profile(&mut self) -> (Result<u64, Truncation>, Vec<HeapBucket>) {
        let mut buckets = Vec::new();
        let end = self.walker.heap_profile(&self.frozen, &mut buckets);
        (end, buckets)
    }
}

/// The number of a function in the fixture.
fn number(name: &str) -> u32 {
    let module = TestModule::fixture("go-work-1.21");
    let (function, _) = module.names.iter().find(|(_, known)| *known == name).unwrap();
    function - module.imports.len() as u32
}

#[test]
fn buckets_have_the_frames_of_who_allocated() {
    let (plant, new) = (number("main.plant"), number("runtime.newobject"));
    let mut guest = Guest::new(1, &[pc(new, 2), pc(plant, 1), pc(plant, 2)]);
    let (end, buckets) = guest.profile();
    assert_eq!(end, Ok(1));
    let [bucket] = &buckets[..] else { panic!("{buckets:?}") };
    let HeapBucket { frames, allocated_blocks, allocated_bytes, freed_blocks, freed_bytes } = bucket;
    assert_eq!([allocated_blocks, allocated_bytes, freed_blocks, freed_bytes], [&3, &96, &1, &32]);
    let mut names = Vec::new();
    for frame in frames {
        guest.walker.program().symbolize(*frame, &mut names);
    }
    let lines: Vec<_> = names.iter().map(|frame| (frame.function.as_str(), frame.line.is_some())).collect();
    assert_eq!(lines, [("main.plant", true), ("main.plant", true)]);
    assert!(guest.walker.program().warnings().is_empty());
}

#[test]
fn a_program_that_has_it_off_has_no_buckets() {
    let mut guest = Guest::new(4096, &[]);
    let rate = guest.walker.program().switch_heap_profiler_on(1)[1].address;
    for off in [0, u64::MAX] {
        guest.put(rate, &[off]);
        assert_eq!(guest.profile(), (Ok(0), Vec::new()));
    }
    guest.frozen.memory.truncate(rate as usize);
    assert_eq!(guest.profile().0, Err(Truncation::BadPointer));
}

#[test]
fn lists_that_lie_are_no_profile() {
    let mut guest = Guest::new(1, &[1, 2, 3]);
    assert_eq!(guest.profile().0, Err(Truncation::Inconsistent), "pcs of nothing");
    guest.put(LIST, &[u64::MAX]);
    assert_eq!(guest.profile().0, Err(Truncation::BadPointer));
    guest.put(LIST, &[BUCKET]);
    guest.put(BUCKET + 40, &[0]);
    guest.put(BUCKET + 8, &[BUCKET]);
    guest.put(BUCKET + 48, &[0; 16]);
    assert_eq!(guest.profile(), (Err(Truncation::Cycle), Vec::new()));
}

#[test]
fn programs_without_it_say_so_if_they_are_asked() {
    let forge = Forge::new(24);
    for asks in [
        |program: &dyn Program| assert!(program.switch_heap_profiler_on(1).is_empty()),
        |program: &dyn Program| {
            let mut buckets = Vec::new();
            let mut walker = program.walker().unwrap();
            assert_eq!(walker.heap_profile(&Frozen::new(vec![0; 64]), &mut buckets), Ok(0));
            assert!(buckets.is_empty());
        },
    ] {
        let program = Go.attach(&forge.module()).unwrap();
        assert!(program.warnings().is_empty());
        asks(&*program);
        let warnings = program.warnings();
        assert!(
            matches!(&warnings[..], [text] if text.contains("the module has no runtime.schedinit")),
            "{warnings:?}"
        );
    }
}

/// Where the byte at `address` of memory is in the module.
fn place(module: &[u8], address: u64) -> usize {
    let sections = wasmparser::Parser::new(0).parse_all(module).filter_map(|payload| match payload {
        Ok(wasmparser::Payload::DataSection(section)) => Some(section),
        _ => None,
    });
    let segments = sections.flatten().map(Result::unwrap);
    let mut places = segments.filter_map(|segment| {
        let wasmparser::DataKind::Active { offset_expr, .. } = segment.kind else { return None };
        let wasmparser::Operator::I32Const { value } = offset_expr.get_operators_reader().read().unwrap() else {
            return None;
        };
        let at = usize::try_from(address.checked_sub(u64::from(value.cast_unsigned()))?).unwrap();
        let start = segment.range.end - segment.data.len();
        (at < segment.data.len()).then_some(start + at)
    });
    places.next().unwrap()
}

/// A tool that sets variables before the program runs, or an address that is another's.
#[test]
fn variables_that_begin_otherwise_are_not_believed() {
    let mut module = TestModule::fixture("go-work-1.21");
    let rate = Go.attach(&module).unwrap().switch_heap_profiler_on(1)[1].address;
    let third = place(&module.bytes, rate + 2);
    assert_eq!(module.bytes[third], 8);
    module.bytes[third] = 9;
    let program = Go.attach(&module).unwrap();
    assert!(program.switch_heap_profiler_on(1).is_empty());
    let warnings = program.warnings();
    let text = "the module begins with 1 and 589824 where runtime.disableMemoryProfiling (0 or 1) and \
                runtime.MemProfileRate (524288) should be";
    assert!(matches!(&warnings[..], [warning] if warning.contains(text)), "{warnings:?}");
}
