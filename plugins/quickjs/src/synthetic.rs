//! A made-up guest: as much of QuickJS-ng 0.16's memory as walks read, for tests.

use crate::{layout::Layout, linking::LinkPlaces, program::JavaScriptProgram, roles::Roles, walker::JavaScriptWalker};
use wlprof_plugin::{
    WasmFrame,
    testing::{Frozen, TestModule},
};

/// Where things are in it.
pub(crate) const STACK_POINTER: u32 = 0x1000;
pub(crate) const RUNTIME: u32 = 0x8000;
pub(crate) const CONTEXT: u32 = 0x9000;
const ATOMS: u32 = 0xa000;
const HEAP: u32 = 0xb000;
pub(crate) const SIZE: usize = 0x10000;

/// Functions of the module, by index.
pub(crate) const LOOP: u32 = 0;
pub(crate) const NATIVE: u32 = 1;
pub(crate) const OTHER: u32 = 2;
const NAMES: [&str; 3] = ["JS_CallInternal", "js_call_c_function", "js_array_every"];

/// The atom `name`, and that of the file.
const NAME_ATOM: u32 = 58;
const FILE_ATOM: u32 = 300;

pub(crate) struct Guest {
    pub(crate) frozen: Frozen,
    next: u32,
}

/// The module, as far as a walker needs it.
fn module() -> TestModule {
    let names = (0..).zip(NAMES.map(str::to_owned)).collect();
    TestModule { bodies: (0..3).map(|index| index..index + 1).collect(), names, ..TestModule::default() }
}

/// A walker for guests like this.
pub(crate) fn walker() -> JavaScriptWalker {
    JavaScriptProgram::new(Layout::NG_0_16, NAME_ATOM, Roles::new(&module()), LinkPlaces::default(), 0).new_walker()
}

/// One that does not know the names of wasm functions.
pub(crate) fn nameless_walker() -> JavaScriptWalker {
    JavaScriptProgram::new(Layout::NG_0_16, NAME_ATOM, Roles::default(), LinkPlaces::default(), 0).new_walker()
}

/// A wasm stack of these functions.
pub(crate) fn wasm(functions: &[u32]) -> Vec<WasmFrame> {
    functions.iter().map(|&function| WasmFrame::attached(function, 7)).collect()
}

impl Guest {
    /// A runtime with one context that runs nothing.
    pub(crate) fn new() -> Self {
        let globals = [(0, STACK_POINTER.into())].into();
        let mut guest = Self { frozen: Frozen { globals, ..Frozen::new(vec![0; SIZE]) }, next: HEAP };
        guest.make_runtime(RUNTIME, CONTEXT);
        let file = guest.string("app.js");
        guest.word(ATOMS + 4 * FILE_ATOM, file);
        guest
    }

    /// A runtime with one context.
    pub(crate) fn make_runtime(&mut self, runtime: u32, context: u32) {
        let layout = Layout::NG_0_16;
        self.word(runtime + layout.runtime.atom_array, ATOMS);
        self.word(runtime + layout.runtime.atom_size, 512);
        let (head, link) = (runtime + layout.runtime.context_list, context + layout.context.link);
        for (from, to) in [(head, link), (link, head)] {
            self.word(from + layout.context.list_next, to);
            self.word(to + layout.context.list_prev, from);
        }
        self.word(context + layout.context.rt, runtime);
    }

    /// Moves a function in bytecode to another context.
    pub(crate) fn set_realm(&mut self, object: u32, context: u32) {
        let layout = Layout::NG_0_16;
        let bytecode = self.member(object + layout.object.function_bytecode);
        self.word(bytecode + layout.bytecode.realm, context);
    }

    /// What was read of its memory, in bytes; a read costs as much as 16 of them.
    pub(crate) fn read(&self) -> u64 {
        16 * self.frozen.reads.get() + self.frozen.bytes_read.get()
    }

    pub(crate) fn word(&mut self, address: u32, value: u32) {
        self.frozen.memory[address as usize..][..4].copy_from_slice(&value.to_le_bytes());
    }

    fn long(&mut self, address: u32, tag: i32, value: u32) {
        self.word(address, value);
        self.word(address + 4, tag.cast_unsigned());
    }

    fn room(&mut self, size: u32) -> u32 {
        let start = self.next;
        self.next = (start + size).next_multiple_of(8);
        start
    }

    fn string(&mut self, text: &str) -> u32 {
        let address = self.room(24 + text.len() as u32);
        self.word(address, text.len() as u32);
        self.frozen.memory[address as usize + 16..][..text.len()].copy_from_slice(text.as_bytes());
        address
    }

    /// A function: native, or with bytecode of 100 bytes at line 10 whose second half is at line 12.
    pub(crate) fn function(&mut self, name: &str, is_native: bool) -> u32 {
        let layout = Layout::NG_0_16;
        let (object, shape, values) = (self.room(40), self.room(80), self.room(16));
        self.frozen.memory[(object + layout.object.class_id) as usize] = if is_native { 12 } else { 13 };
        self.word(object + layout.object.shape, shape);
        self.word(object + layout.object.prop, values);
        self.word(shape + layout.shape.prop_hash_mask, 3);
        self.word(shape + layout.shape.prop_count, 2);
        // The second of the two properties, behind the hash table.
        self.word(shape + 40 + 16 + 8 + layout.shape.atom, NAME_ATOM);
        let name = self.string(name);
        self.long(values + 8, -7, name);
        if is_native {
            self.word(object + layout.object.realm, CONTEXT);
            return object;
        }
        let (bytecode, code, lines) = (self.room(96), self.room(100), self.room(16));
        self.word(object + layout.object.function_bytecode, bytecode);
        self.frozen.memory[lines as usize..][..2].copy_from_slice(&[1 + 50 * 5 + 3, 0]);
        for (offset, value) in [
            (layout.bytecode.byte_code_buf, code),
            (layout.bytecode.byte_code_len, 100),
            (layout.bytecode.realm, CONTEXT),
            (layout.bytecode.filename, FILE_ATOM),
            (layout.bytecode.line_num, 10),
            (layout.bytecode.col_num, 5),
            (layout.bytecode.pc2line_len, 2),
            (layout.bytecode.pc2line_buf, lines),
        ] {
            self.word(bytecode + offset, value);
        }
        object
    }

    /// Gives a function in bytecode another table of lines, and says where that is.
    pub(crate) fn set_lines(&mut self, object: u32, lines: &[u8]) -> u32 {
        let layout = Layout::NG_0_16;
        let at = self.room(lines.len() as u32);
        self.frozen.memory[at as usize..][..lines.len()].copy_from_slice(lines);
        let bytecode = self.member(object + layout.object.function_bytecode);
        self.word(bytecode + layout.bytecode.pc2line_len, lines.len() as u32);
        self.word(bytecode + layout.bytecode.pc2line_buf, at);
        at
    }

    fn member(&self, at: u32) -> u32 {
        u32::from_le_bytes(self.frozen.memory[at as usize..][..4].try_into().unwrap())
    }

    /// Makes these functions' frames the list, innermost first, with how far into its code each is.
    pub(crate) fn run(&mut self, frames: &[(u32, u32)]) {
        self.run_in(RUNTIME, STACK_POINTER + 0x20, frames);
    }

    /// The same for any runtime, with frames from `first` on.
    pub(crate) fn run_in(&mut self, runtime: u32, first: u32, frames: &[(u32, u32)]) {
        let layout = Layout::NG_0_16;
        let mut from = runtime + layout.runtime.current_stack_frame;
        for (index, &(object, offset)) in frames.iter().enumerate() {
            let frame = first + 0x40 * index as u32;
            self.word(from, frame);
            self.long(frame + layout.frame.cur_func, -1, object);
            let bytecode = self.member(object + layout.object.function_bytecode);
            let code = self.member(bytecode + layout.bytecode.byte_code_buf);
            self.word(frame + layout.frame.cur_pc, if offset == 0 { 0 } else { code + offset });
            from = frame + layout.frame.prev_frame;
        }
        self.word(from, 0);
    }
}
