//! The parts of a module in binary form that [`TestModule`] has. Read here and not by a library, so that the crate has no
//! dependencies, not even such as are off: cargo would look for them all the same.

use super::TestModule;
use crate::FunctionImport;

/// Sections, by their numbers.
const CUSTOM: u8 = 0;
const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;
const CODE: u8 = 10;
/// Parts of the name section.
const FUNCTION_NAMES: u8 = 1;
const GLOBAL_NAMES: u8 = 7;
/// What can be imported and exported.
const FUNCTION: u8 = 0;
const TABLE: u8 = 1;
const MEMORY: u8 = 2;
const GLOBAL: u8 = 3;
const TAG: u8 = 4;
/// References to what follows, that can be null or cannot.
const REFERENCES: [u8; 2] = [0x63, 0x64];

/// Reads `bytes` into `module`.
///
/// # Panics
/// If they are malformed.
pub(super) fn read(bytes: &[u8], module: &mut TestModule) {
    let mut input = Input { rest: bytes };
    let mut imported_globals = Vec::new();
    assert_eq!(input.take(8), b"\0asm\x01\0\0\0", "not a core module");
    while !input.rest.is_empty() {
        let (id, mut section) = (input.byte(), input.sized());
        match id {
            CUSTOM => {
                let name = section.text();
                if name == "name" {
                    read_names(Input { rest: section.rest }, module);
                }
                module.sections.entry(name).or_insert_with(|| section.rest.to_vec());
            }
            IMPORTS => {
                for _ in 0..section.number() {
                    let import = FunctionImport { module: section.text(), name: section.text() };
                    match section.external_type() {
                        FUNCTION => module.imports.push(import),
                        GLOBAL => imported_globals.push(import.name),
                        _ => {}
                    }
                }
            }
            EXPORTS => {
                for _ in 0..section.number() {
                    let (name, kind, index) = (section.text(), section.byte(), section.number());
                    match kind {
                        FUNCTION => module.exports.push((index, name)),
                        GLOBAL => _ = module.globals.insert(name, index),
                        _ => {}
                    }
                }
            }
            CODE => {
                let size = section.rest.len();
                for _ in 0..section.number() {
                    let body = section.sized();
                    let end = size - section.rest.len();
                    module.bodies.push((end - body.rest.len()) as u32..end as u32);
                }
            }
            _ => {}
        }
    }
    for (index, name) in (0..).zip(imported_globals) {
        module.globals.entry(name).or_insert(index);
    }
}

fn read_names(mut input: Input<'_>, module: &mut TestModule) {
    while !input.rest.is_empty() {
        let (id, mut part) = (input.byte(), input.sized());
        if id != FUNCTION_NAMES && id != GLOBAL_NAMES {
            continue;
        }
        for _ in 0..part.number() {
            let (index, name) = (part.number(), part.text());
            if id == GLOBAL_NAMES {
                module.globals.entry(name).or_insert(index);
            } else if !name.is_empty() {
                module.names.insert(index, name);
            }
        }
    }
}

/// What is left to read.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(length).expect("the module is cut off");
        self.rest = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    /// A number of at most 64 bits in LEB128, of which the lower 32 are wanted.
    fn number(&mut self) -> u32 {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number as u32;
            }
        }
        panic!("the module has a number without an end");
    }

    /// Something with its size before it.
    fn sized(&mut self) -> Input<'a> {
        let size = self.number() as usize;
        Input { rest: self.take(size) }
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.sized().rest.to_vec()).expect("names are UTF-8")
    }

    /// Passes over the type of an import and says what kind of type that is.
    fn external_type(&mut self) -> u8 {
        let kind = self.byte();
        match kind {
            FUNCTION => _ = self.number(),
            TABLE => {
                self.value_type();
                self.limits();
            }
            MEMORY => self.limits(),
            GLOBAL => {
                self.value_type();
                self.byte();
            }
            TAG => {
                self.byte();
                self.number();
            }
            _ => panic!("the module has an import of an unknown kind, {kind}"),
        }
        kind
    }

    fn value_type(&mut self) {
        if REFERENCES.contains(&self.byte()) {
            self.number();
        }
    }

    fn limits(&mut self) {
        let flags = self.byte();
        self.number();
        // A maximum, and the size of a page.
        for flag in [1, 8] {
            if flags & flag != 0 {
                self.number();
            }
        }
    }
}
