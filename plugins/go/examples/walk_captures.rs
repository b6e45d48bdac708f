//! Walks captured guests: `walk_captures MODULE.wasm CAPTURES`, where each line of the file CAPTURES is
//! `NAME SP G MEMORY-FILE FUNCTION:OFFSET…`, wasm frames leaf first. Prints the stack of each, and all goroutines with
//! `--goroutines` as a third argument.

use std::{collections::HashMap, fs};
use wlprof_go::{Go, GoWalker};
use wlprof_plugin::{
    FrameKey, FrameSink, Program, Walker, WasmFrame,
    testing::{Frozen, TestModule},
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let module = TestModule::parse(fs::read(&arguments[0]).unwrap());
    let mut walker = Go.attach_program(&module).unwrap_or_else(|error| panic!("{error}")).new_walker();
    for line in fs::read_to_string(&arguments[1]).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let globals = HashMap::from([(0, words[1].parse().unwrap()), (2, words[2].parse().unwrap())]);
        let guest = Frozen { globals, ..Frozen::new(fs::read(words[3]).unwrap()) };
        let frame = |word: &&str| {
            let (function, offset) = word.split_once(':').unwrap();
            WasmFrame::attached(function.parse().unwrap(), offset.parse().unwrap())
        };
        let wasm: Vec<WasmFrame> = words[4..].iter().map(frame).collect();
        let mut out = FrameSink::new();
        let before = walker.statistics();
        let started = std::time::Instant::now();
        let end = walker.walk(&guest, &wasm, &mut out);
        let took = started.elapsed();
        let after = walker.statistics();
        let mut labels = Vec::new();
        out.labels().iter().for_each(|&key| walker.program().labels(key, &mut labels));
        let labels: Vec<String> = labels.iter().map(|label| format!("{}={}", label.name, label.value)).collect();
        let switching = after.switching - before.switching;
        println!("@ {} {end:?} switching={switching} {} {took:?}", words[0], labels.join(" "));
        out.entries().filter_map(|entry| entry.key(&wasm)).for_each(|key| print_frames(&mut walker, key, ""));
        if arguments.get(2).is_some_and(|argument| argument == "--goroutines") {
            let mut threads = Vec::new();
            walker.threads(&guest, &wasm, &mut threads);
            for thread in threads {
                println!("{} [{}] {:?} {:?}", thread.name, thread.state, thread.walked, thread.labels);
                thread.frames.into_iter().for_each(|frame| print_frames(&mut walker, frame, "    "));
            }
        }
    }
    eprintln!("{:?} {:?}", walker.statistics(), walker.program().warnings());
}

fn print_frames(walker: &mut GoWalker, key: FrameKey, indent: &str) {
    let mut frames = Vec::new();
    walker.program().symbolize(key, &mut frames);
    for frame in frames {
        let (file, line) = (frame.file.unwrap_or_default(), frame.line.unwrap_or_default());
        println!("{indent}{} {file}:{line} {:?} {:?}", frame.function, frame.category, frame.function_line);
    }
}
