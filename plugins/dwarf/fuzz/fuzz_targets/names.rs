//! Names to demangled names: whatever a linker's name is, it gives one frame with a name that is not empty and not too
//! long, the same each time, and soon: libFuzzer is told how soon.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{SourceFrame, WasmFrame, testing::TestModule};

/// The longest name that is kept, and what marks that it was cut.
const LONGEST: usize = (16 << 10) + '…'.len_utf8();

fn frames(symbolizer: &mut Symbolizer) -> Vec<SourceFrame> {
    let mut out = Vec::new();
    symbolizer.symbolize(WasmFrame::attached(0, 0), &mut out);
    out
}

fuzz_target!(|input: &[u8]| {
    // Where names begin is not what is looked for.
    let (prefix, name) = match input.split_first() {
        Some((0, name)) => ("_R", name),
        Some((1, name)) => ("_ZN", name),
        _ => ("_Z", input),
    };
    let name = format!("{prefix}{}", String::from_utf8_lossy(name));
    let module = TestModule { bodies: vec![0..1], names: [(0, name)].into(), ..TestModule::default() };
    let mut symbolizer = Symbolizer::new(&module);
    let found = frames(&mut symbolizer);
    assert_eq!(found.len(), 1);
    let texts = [Some(&found[0].function), found[0].linkage_name.as_ref()];
    assert!(texts.into_iter().flatten().all(|text| !text.is_empty() && text.len() <= LONGEST));
    assert_eq!(frames(&mut symbolizer), found);
});
