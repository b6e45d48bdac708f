//! Stopped guests in files: as much of memory as a walk reads, the wasm stack, and what Python itself said its stack
//! was. So the walker can be proved without an engine and without building CPython.
//!
//! A file has the captures of one module. It is a sequence of numbers (LEB128) and texts (length, UTF-8):
//!
//! * the text `wlprof-replay 1`; the minor release; the address of `_PyRuntime`;
//! * the number of wasm functions on the stacks, and for each its index and its name;
//! * the number of different blocks of 64 bytes, and the blocks;
//! * the number of captures, and for each: its name; the size of memory; the number of blocks of memory, and for each
//!   how far it is from the one before, in blocks, and which of the blocks above it is; the number of wasm frames, leaf
//!   first, and for each function and code offset; the number of Python's frames, innermost first, and for each
//!   qualified name, file, first line, line, and column (from 1; 0 is unknown).
#![allow(dead_code, reason = "each user uses a part")]

use std::collections::{BTreeMap, HashMap};
use wlprof_plugin::{
    SourceFrame, WasmFrame,
    testing::{Snapshot, TestModule},
};

const MAGIC: &str = "wlprof-replay 1";

/// All captures of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The minor release, 11 for 3.11.
    pub(crate) minor: u32,
    /// The address of `_PyRuntime`.
    pub(crate) runtime: u32,
    /// Names of the wasm functions on the stacks, by index.
    pub(crate) functions: BTreeMap<u32, String>,
    pub(crate) captures: Vec<Capture>,
}

/// One stopped guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) name: String,
    /// Its memory. No globals: the walker asks for none.
    pub(crate) guest: Snapshot,
    pub(crate) wasm: Vec<WasmFrame>,
    pub(crate) expected: Vec<Expected>,
}

/// A frame, as Python says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) first_line: u32,
    pub(crate) line: u32,
    /// From 1.
    pub(crate) column: Option<u32>,
}

impl Expected {
    /// Reads a line that `stacks.py` prints.
    pub(crate) fn parse(line: &str) -> Self {
        let parts: Vec<&str> = line.split('\t').collect();
        let &[function, file, first_line, line, column] = &parts[..] else { panic!("not a frame: {parts:?}") };
        Self {
            function: function.to_owned(),
            file: file.to_owned(),
            first_line: first_line.parse().expect("a line number"),
            line: line.parse().expect("a line number"),
            column: column.parse().ok().map(|column: u32| column + 1),
        }
    }

    /// Whether `frame` is this frame.
    pub(crate) fn is(&self, frame: &SourceFrame) -> bool {
        frame.function == self.function
            && frame.file.as_deref() == Some(&self.file)
            && frame.function_line.unwrap_or(0) == self.first_line
            && frame.line == Some(self.line)
            && (self.column.is_none() || frame.column == self.column)
    }
}

impl Replay {
    /// A module with as much of the original as attaching needs.
    pub(crate) fn module(&self) -> TestModule {
        let text = format!("\0cpython-3{}\0Fatal Python error: \0", self.minor);
        let mut global = vec![1, 0x7f, 0, 0x41];
        signed(&mut global, self.runtime.cast_signed());
        global.push(0x0b);
        let mut export = vec![1];
        put_text(&mut export, "_PyRuntime");
        export.extend([3, 0]);
        let mut data = vec![1, 0, 0x41, 0, 0x0b];
        put_text(&mut data, &text);
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        for (id, section) in [(5, vec![1, 0, 1]), (6, global), (7, export), (11, data)] {
            bytes.push(id);
            put(&mut bytes, section.len() as u64);
            bytes.extend(section);
        }
        let count = self.functions.keys().max().map_or(0, |last| *last as usize + 1);
        let names = self.functions.iter().map(|(&index, name)| (index, name.clone())).collect();
        TestModule { bytes, bodies: (0..count).map(|_| 0..1).collect(), names, ..TestModule::default() }
    }

    /// The file.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, MAGIC);
        put(&mut out, self.minor.into());
        put(&mut out, self.runtime.into());
        put(&mut out, self.functions.len() as u64);
        for (&index, name) in &self.functions {
            put(&mut out, index.into());
            put_text(&mut out, name);
        }
        let mut numbers: HashMap<[u8; Snapshot::BLOCK], u64> = HashMap::new();
        let mut distinct = Vec::new();
        for block in self.captures.iter().flat_map(|capture| capture.guest.blocks.values()) {
            numbers.entry(*block).or_insert_with(|| {
                distinct.push(*block);
                distinct.len() as u64 - 1
            });
        }
        put(&mut out, distinct.len() as u64);
        out.extend(distinct.iter().flatten());
        put(&mut out, self.captures.len() as u64);
        for capture in &self.captures {
            put_text(&mut out, &capture.name);
            put(&mut out, capture.guest.size);
            put(&mut out, capture.guest.blocks.len() as u64);
            let mut last = 0;
            for (&index, block) in &capture.guest.blocks {
                put(&mut out, index - last);
                put(&mut out, numbers[block]);
                last = index;
            }
            put(&mut out, capture.wasm.len() as u64);
            for frame in &capture.wasm {
                put(&mut out, frame.function.into());
                put(&mut out, frame.code_offset.into());
            }
            put(&mut out, capture.expected.len() as u64);
            for frame in &capture.expected {
                put_text(&mut out, &frame.function);
                put_text(&mut out, &frame.file);
                put(&mut out, frame.first_line.into());
                put(&mut out, frame.line.into());
                put(&mut out, frame.column.unwrap_or(0).into());
            }
        }
        out
    }

    /// Reads a file.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut input = Input { rest: bytes };
        assert_eq!(input.text(), MAGIC, "not a replay file of this version");
        let minor = input.number() as u32;
        let runtime = input.number() as u32;
        let functions = input.list(|input| (input.number() as u32, input.text())).into_iter().collect();
        let blocks: Vec<[u8; Snapshot::BLOCK]> =
            input.list(|input| input.take(Snapshot::BLOCK).try_into().expect("a whole block"));
        let captures = input.list(|input| {
            let (name, size) = (input.text(), input.number());
            let mut index = 0;
            let placed = input.list(|input| {
                index += input.number();
                (index, blocks[input.number() as usize])
            });
            let guest = Snapshot { size, blocks: placed.into_iter().collect(), ..Snapshot::default() };
            let wasm = input.list(|input| WasmFrame::attached(input.number() as u32, input.number() as u32));
            let expected = input.list(|input| Expected {
                function: input.text(),
                file: input.text(),
                first_line: input.number() as u32,
                line: input.number() as u32,
                column: Some(input.number() as u32).filter(|column| *column > 0),
            });
            Capture { name, guest, wasm, expected }
        });
        assert!(input.rest.is_empty(), "the file is longer than it says");
        Self { minor, runtime, functions, captures }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn signed(out: &mut Vec<u8>, mut number: i32) {
    while !(-64..64).contains(&number) {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8 & 0x7f);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.bytes());
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }

    fn text(&mut self) -> String {
        let length = self.number() as usize;
        String::from_utf8(self.take(length).to_vec()).expect("UTF-8")
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.number()).map(|_| item(self)).collect()
    }
}
