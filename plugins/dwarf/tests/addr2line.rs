//! Compares every instruction with `addr2line::Context`, which shares the parser and nothing of the search.

mod module;

use addr2line::{Context, LookupResult, gimli};
use module::{instructions, qualifies, symbolize};
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::testing::TestModule;

/// How many instructions of a fixture may differ: those of functions that the linker dropped in favour of a shorter
/// copy, whose DWARF reaches into the function behind. Seen in C++ alone.
const DROPPED_COPIES: usize = 40;

/// Without optimisation every instruction takes half a minute.
const STEP: usize = if cfg!(debug_assertions) { 7 } else { 1 };

#[test]
fn says_what_addr2line_says() {
    for name in ["c-inlined", "c-inlined-dwarf5", "c-inlined-O0", "cpp-shapes", "rust-mix", "rust-mix-v0"] {
        let module = TestModule::fixture(name);
        let dwarf = gimli::Dwarf::load(|id| {
            let bytes = module.sections.get(id.name()).map_or(&[][..], Vec::as_slice);
            Ok::<_, gimli::Error>(gimli::EndianSlice::new(bytes, gimli::LittleEndian))
        });
        let context = Context::from_dwarf(dwarf.unwrap()).unwrap();
        let mut symbolizer = Symbolizer::new(&module);
        let (mut same, mut different, mut unknown) = (0, 0, 0);
        for (body, offsets) in instructions(&module).iter().enumerate() {
            for &offset in offsets.iter().step_by(STEP) {
                let theirs = chain(&context, offset);
                let frames = symbolize(&mut symbolizer, module.frame(body, offset));
                let count = frames.len();
                let ours: Vec<_> = frames
                    .into_iter()
                    .enumerate()
                    .map(|(index, frame)| {
                        let file = frame.file.filter(|_| frame.line.is_some());
                        // Names that cannot be demangled we show plain, and `main` as such.
                        let linkage = frame.linkage_name.filter(|name| theirs.get(index).is_some_and(|f| f.0 == *name));
                        // Of units that have line tables alone we know whole names all the same.
                        let name = linkage.unwrap_or(frame.function);
                        let plain = theirs.last().filter(|theirs| index + 1 == count && qualifies(&name, &theirs.0));
                        let name = plain.map_or(name, |plain| plain.0.clone());
                        (name, file, frame.line, frame.column)
                    })
                    .collect();
                if theirs.is_empty() && ours.len() == 1 && ours[0].1.is_none() {
                    unknown += 1;
                } else if theirs == ours {
                    same += 1;
                } else {
                    different += 1;
                    let allowed = if name.starts_with("cpp") { DROPPED_COPIES } else { 0 };
                    assert!(different <= allowed, "{name} {offset:#x}:\nours {ours:#?}\ntheirs {theirs:#?}");
                }
            }
        }
        println!("{name}: {same} the same, {different} different, {unknown} without DWARF");
        assert!(same > 100 * different && same > 1000);
    }
}

type Frame = (String, Option<String>, Option<u32>, Option<u32>);

fn chain(context: &Context<gimli::EndianSlice<'_, gimli::LittleEndian>>, offset: u32) -> Vec<Frame> {
    let LookupResult::Output(frames) = context.find_frames(offset.into()) else { panic!("split DWARF") };
    let mut frames = frames.unwrap();
    let mut out = Vec::new();
    while let Some(frame) = frames.next().unwrap() {
        let name = frame.function.map(|name| addr2line::demangle_auto(name.raw_name().unwrap(), None).into_owned());
        let (file, line, column) = frame.location.map_or((None, None, None), |at| (at.file, at.line, at.column));
        let file = file.filter(|_| line.is_some()).map(str::to_owned);
        out.push((name.unwrap_or_default(), file, line, column.filter(|&column| column > 0)));
    }
    out
}
