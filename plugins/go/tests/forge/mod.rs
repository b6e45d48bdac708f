//! A forged Go program: a module with a function table of a dozen functions and a stopped guest that runs it, both so
//! small that a test can lie in any word of them.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;
use wlprof_plugin::{
    FunctionImport, WasmFrame,
    testing::{Frozen, TestModule},
};

/// Where the data segment lies, and in it the parts of the function table and `moduledata`.
pub(crate) const BASE: u64 = 0x1_0000;
pub(crate) const NAMES: u64 = BASE + 0x80;
const UNITS: u64 = BASE + 0x400;
const FILES: u64 = BASE + 0x440;
pub(crate) const PCTAB: u64 = BASE + 0x480;
pub(crate) const FUNCTAB: u64 = BASE + 0x800;
const RECORDS: u64 = FUNCTAB + 0x100;
const RECORD: u64 = 0x80;
pub(crate) const TREES: u64 = BASE + 0x1800;
pub(crate) const MODULEDATA: u64 = BASE + 0x1c00;
pub(crate) const IMAGE_END: u64 = BASE + 0x2000;
pub(crate) const BSS: u64 = IMAGE_END;
pub(crate) const EBSS: u64 = BSS + 0x800;

/// The stopped guest's memory and what is where in it.
pub(crate) const MEMORY: u64 = 0x8_0000;
pub(crate) const G: u64 = 0x2_0000;
pub(crate) const M: u64 = 0x2_1000;
pub(crate) const G0: u64 = 0x2_2000;
pub(crate) const HEAP: u64 = 0x2_4000;
pub(crate) const STACK: u64 = 0x4_0000;
pub(crate) const G_M: u64 = 48;
pub(crate) const G_SCHED_SP: u64 = 56;
pub(crate) const G_SCHED_PC: u64 = 64;

/// The functions, by their number in the table. There is one import before them.
pub(crate) const GOEXIT: u32 = 0;
pub(crate) const MAIN: u32 = 1;
pub(crate) const LEAF: u32 = 2;
pub(crate) const FLAT: u32 = 3;
pub(crate) const SYSTEMSTACK: u32 = 4;
pub(crate) const MORESTACK: u32 = 5;
pub(crate) const BARRIER: u32 = 6;
pub(crate) const LOOP: u32 = 7;
pub(crate) const TAIL: u32 = 8;
pub(crate) const INLINES: u32 = 9;
pub(crate) const COUNT: u32 = 10;

const FUNCTIONS: [(&str, u8); COUNT as usize] = [
    ("runtime.goexit", 0),
    ("main.main", 16),
    ("main.leaf", 16),
    ("main.flat", 0),
    ("runtime.systemstack", 0),
    ("runtime.morestack", 0),
    ("gcWriteBarrier", 0),
    ("wasm_pc_f_loop", 0),
    ("main.tail", 0),
    ("main.inlines", 0),
];

/// A Go pc.
pub(crate) fn pc(function: u32, block: u64) -> u64 {
    (0x1000 + u64::from(function)) << 16 | block
}

/// The record of a function in the table, as the linker wrote it.
pub(crate) fn record(function: u32) -> u64 {
    RECORDS + RECORD * u64::from(function)
}

/// The module, before it is put together.
#[derive(Clone, Debug)]
pub(crate) struct Forge {
    pub(crate) version: &'static str,
    pub(crate) image: Vec<u8>,
    pub(crate) bodies: Vec<Vec<u8>>,
}

impl Forge {
    /// A module as Go 1.`minor` would have written it, so 21 (labels are a map) or 24 (a list).
    pub(crate) fn new(minor: u32) -> Self {
        let version = if minor == 21 { "go1.21.13" } else { "go1.24.11" };
        let bodies = (0..COUNT).map(body).collect();
        let mut forge = Self { version, image: vec![0; (IMAGE_END - BASE) as usize], bodies };
        forge.put(BASE, &[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]);
        let parts = [u64::from(COUNT), 1, 0, NAMES - BASE, UNITS - BASE, FILES - BASE, PCTAB - BASE, FUNCTAB - BASE];
        for (word, value) in (1..).zip(parts) {
            forge.u64(BASE + 8 * word, value);
        }
        forge.put(FILES, b"main.go");
        // Line 7 everywhere, file 0; inlined call 0 in block 1, call 1 in block 2, no others. Functions have blocks 0 and 1, `INLINES` four.
        forge.put(PCTAB + 1, &[16, 100, 0]);
        forge.put(PCTAB + 4, &[2, 100, 0]);
        forge.put(PCTAB + 8, &[0, 1, 2, 1, 2, 1, 3, 100, 0]);
        let mut name_at = 1;
        for (index, (name, size)) in (0..).zip(FUNCTIONS) {
            forge.u32(FUNCTAB + 8 * u64::from(index), (0x1000 + index) << 16);
            forge.u32(FUNCTAB + 8 * u64::from(index) + 4, (record(index) - FUNCTAB) as u32);
            forge.put(NAMES + u64::from(name_at), name.as_bytes());
            let sizes = 32 + 4 * index;
            forge.put(PCTAB + u64::from(sizes), &[2 * (size + 1), if index == INLINES { 4 } else { 2 }, 0]);
            for (field, value) in [(4, name_at), (16, sizes), (20, 4), (24, 1), (28, 3), (36, 5)] {
                forge.u32(record(index) + field, value);
            }
            // A top frame or not, then how many funcdata; pcdata 2 says which call is inlined, funcdata 3 where it is.
            forge.put(record(index) + 41, &[u8::from(index == GOEXIT), 0, 4]);
            forge.u32(record(index) + 44 + 8, 8);
            forge.u32(record(index) + 44 + 12 + 12, if index == INLINES { 0 } else { u32::MAX });
            name_at += name.len() as u32 + 1;
        }
        for (call, parent) in [(0, 3), (1, 3)] {
            forge.u32(TREES + 16 * call + 4, 1);
            forge.u32(TREES + 16 * call + 8, parent);
        }
        for (field, value) in [(0, BASE), (8, NAMES), (224, BSS), (232, EBSS), (320, TREES)] {
            forge.u64(MODULEDATA + field, value);
        }
        forge
    }

    /// Sets bytes of the data segment.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - BASE) as usize;
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn u32(&mut self, address: u64, value: u32) {
        self.put(address, &value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }

    /// Puts the module together.
    pub(crate) fn module(&self) -> TestModule {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        // (i32) -> i32 as all Go functions, and () -> ().
        section(&mut bytes, 1, &[2, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 0, 0]);
        section(&mut bytes, 2, b"\x01\x16wasi_snapshot_preview1\x08fd_write\0\x01");
        let types = (0..COUNT).map(|index| u8::from(index == BARRIER));
        section(&mut bytes, 3, &std::iter::once(COUNT as u8).chain(types).collect::<Vec<_>>());
        let mut code = vec![COUNT as u8];
        let bodies = self.bodies.iter().map(|body| {
            code.extend(leb(body.len() as u64));
            code.extend(body);
            code.len() as u32 - body.len() as u32..code.len() as u32
        });
        let bodies = bodies.collect();
        section(&mut bytes, 10, &code);
        let mut data = vec![1, 0, 0x41];
        data.extend(signed_leb(BASE as i64));
        data.push(0x0b);
        data.extend(leb(self.image.len() as u64));
        data.extend(&self.image);
        section(&mut bytes, 11, &data);
        let producers = [b"\x01\x08language\x01\x02Go\x09", self.version.as_bytes()].concat();
        TestModule {
            bytes,
            imports: vec![FunctionImport { module: "wasi_snapshot_preview1".into(), name: "fd_write".into() }],
            bodies,
            sections: HashMap::from([("producers".to_owned(), producers)]),
            ..TestModule::default()
        }
    }
}

/// The body of a function, as Go's compiler would begin it.
fn body(function: u32) -> Vec<u8> {
    let size = FUNCTIONS[function as usize].1;
    // A local, `global.get 0  local.set 1`.
    let mut body = vec![1, 1, 0x7f, 0x23, 0, 0x21, 1];
    if size > 0 {
        body.extend([0x20, 1, 0x41, size, 0x6b, 0x22, 1, 0x24, 0]);
    }
    match function {
        MAIN => {
            // Push the return address and call.
            body.extend([0x20, 1, 0x41, 8, 0x6b, 0x22, 1, 0x24, 0, 0x20, 1, 0x42]);
            body.extend(signed_leb(pc(MAIN, 1) as i64));
            body.extend([0x37, 3, 0, 0x41, 0, 0x10, 1 + LEAF as u8, 0x1a]);
        }
        TAIL => body.extend([0x41, 0, 0x10, 1 + LEAF as u8, 0x1a, 0x01]),
        BARRIER => body = vec![0, 0x01, 0x01],
        _ => body.push(0x01),
    }
    body.extend([0x41, 0, 0x0b]);
    body
}

/// A wasm frame at the `at`th byte of a function's body.
pub(crate) fn frame(module: &TestModule, function: u32, at: u32) -> WasmFrame {
    module.frame(function as usize, module.bodies[function as usize].start + at)
}

fn section(out: &mut Vec<u8>, id: u8, payload: &[u8]) {
    out.push(id);
    out.extend(leb(payload.len() as u64));
    out.extend(payload);
}

fn leb(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn signed_leb(mut value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !(-0x40..0x40).contains(&value) {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8 & 0x7f);
    bytes
}

/// The stopped guest, to be changed word by word.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub(crate) frozen: Frozen,
}

impl Stopped {
    /// Goroutine 1 runs with its stack pointer at [`STACK`]; Go 1.`minor` is 21 or 24.
    pub(crate) fn new(forge: &Forge) -> Self {
        let mut memory = vec![0; MEMORY as usize];
        memory[BASE as usize..IMAGE_END as usize].copy_from_slice(&forge.image);
        let mut guest = Self { frozen: Frozen::new(memory) };
        guest.registers(STACK, G);
        let (status, goid) = if forge.version.starts_with("go1.21") { (144, 152) } else { (152, 160) };
        for (address, value) in [(G + G_M, M), (G0 + G_M, M), (M, G0), (M + 144, G), (G + status, 2), (G + goid, 1)] {
            guest.u64(address, value);
        }
        guest
    }

    pub(crate) fn u64(&mut self, address: u64, value: u64) {
        self.frozen.memory[address as usize..address as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets every word from `address` to `end`.
    pub(crate) fn fill(&mut self, address: u64, end: u64, value: u64) {
        (address..end).step_by(8).for_each(|address| self.u64(address, value));
    }

    pub(crate) fn registers(&mut self, sp: u64, g: u64) {
        self.frozen.globals = HashMap::from([(0, sp), (2, g)]);
    }
}
