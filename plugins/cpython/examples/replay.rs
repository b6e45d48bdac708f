//! Walks captured guests and prints their stacks: `replay MODULE.wasm DUMPS [--quiet]`, where DUMPS is a folder as the
//! example `record` reads, without `N.stack`. Ends with how many walks ended how.

use std::{collections::BTreeMap, fs, path::Path};
use wlprof_cpython::Python;
use wlprof_plugin::{
    FrameKey, FrameSink, ModuleView, Program, SinkEntry, Truncation, Walker, WasmFrame,
    testing::{Frozen, TestModule},
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let module = TestModule::parse(fs::read(&arguments[0]).expect("a module"));
    let quiet = arguments.get(2).is_some_and(|argument| argument == "--quiet");
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0.. {
        let file = |kind: &str| Path::new(&arguments[1]).join(format!("{number}.{kind}"));
        let Ok(memory) = fs::read(file("memory")) else { break };
        let frame = |line: &str| {
            let (function, offset) = line.split_once(' ')?;
            Some(WasmFrame::attached(function.parse().ok()?, offset.parse().ok()?))
        };
        let text = fs::read_to_string(file("wasm")).expect("a wasm stack");
        let wasm: Vec<WasmFrame> = text.lines().filter_map(frame).collect();
        let mut walker = Python.attach_program(&module).unwrap_or_else(|error| panic!("{error}")).new_walker();
        let mut out = FrameSink::new();
        let guest = Frozen::new(memory);
        let mut end = walker.walk(&guest, &wasm, &mut out);
        let mut walks = 1;
        // Where the runtime has to be looked for, each walk looks at a part of memory.
        while end == Err(Truncation::NoStack) && walks < 1000 {
            end = walker.walk(&guest, &wasm, &mut out);
            walks += 1;
        }
        let mut labels = Vec::new();
        out.labels().iter().for_each(|&key| walker.program().labels(key, &mut labels));
        let state = labels.first().map_or("", |label| &label.value);
        *ends.entry(format!("{end:?} {state}")).or_default() += 1;
        if quiet && end.is_ok() {
            continue;
        }
        println!("@ {number} {end:?} {state} after {walks} walks");
        for entry in out.entries() {
            match entry {
                SinkEntry::Own(key) => {
                    let mut frames = Vec::new();
                    walker.program().symbolize(FrameKey::Own(key), &mut frames);
                    for frame in frames {
                        let (file, line) = (frame.file.unwrap_or_default(), frame.line.unwrap_or_default());
                        println!("{} {file}:{line}:{}", frame.function, frame.column.unwrap_or_default());
                    }
                }
                SinkEntry::Wasm(index) => {
                    let name = module.function_name(wasm[index].function).unwrap_or("?");
                    println!("    {name}+{}", wasm[index].code_offset);
                }
                SinkEntry::Elided => println!("    [elided]"),
            }
        }
    }
    println!("{ends:?}");
}
