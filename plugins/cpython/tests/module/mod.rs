//! A module and a stopped guest as the tests see them.
#![allow(dead_code, reason = "each test uses a part")]

use std::{cell::RefCell, collections::BTreeSet, collections::HashMap, ops::Range, path::PathBuf};
use wasmparser::{KnownCustom, Name, Parser, Payload, TypeRef};
use wlprof_plugin::{FunctionImport, GuestMemory, ModuleView, OutOfBounds};

/// A module's functions and custom sections.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestModule {
    pub(crate) bytes: Vec<u8>,
    pub(crate) imports: Vec<FunctionImport>,
    /// In code section offsets.
    pub(crate) bodies: Vec<Range<u32>>,
    pub(crate) sections: HashMap<String, Vec<u8>>,
    pub(crate) names: HashMap<u32, String>,
}

impl TestModule {
    pub(crate) fn parse(bytes: Vec<u8>) -> Self {
        let mut module = Self::default();
        let mut code_start = 0;
        for payload in Parser::new(0).parse_all(&bytes) {
            match payload.unwrap() {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.unwrap();
                        if let TypeRef::Func(_) = import.ty {
                            let (module_name, name) = (import.module.to_owned(), import.name.to_owned());
                            module.imports.push(FunctionImport { module: module_name, name });
                        }
                    }
                }
                Payload::CodeSectionStart { range, .. } => code_start = range.start,
                Payload::CodeSectionEntry(body) => {
                    let offset = |at: usize| u32::try_from(at - code_start).unwrap();
                    module.bodies.push(offset(body.range().start)..offset(body.range().end));
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(names) = section.as_known() {
                        for names in names {
                            let Ok(Name::Function(map)) = names else { continue };
                            let named = map.into_iter().map(Result::unwrap);
                            module.names.extend(named.map(|naming| (naming.index, naming.name.to_owned())));
                        }
                    }
                    module.sections.entry(section.name().to_owned()).or_insert_with(|| section.data().to_vec());
                }
                _ => {}
            }
        }
        module.bytes = bytes;
        module
    }

    /// A fixture that `cargo xtask test-fixtures` builds.
    pub(crate) fn fixture(name: &str) -> Self {
        let path = fixtures().join(name);
        Self::parse(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }
}

/// Where `cargo xtask test-fixtures` puts the guests.
pub(crate) fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures")
}

impl ModuleView for TestModule {
    fn name(&self) -> &str {
        "test"
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        self.sections.get(name).map(Vec::as_slice)
    }

    fn function_imports(&self) -> &[FunctionImport] {
        &self.imports
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.bodies.get((index as usize).checked_sub(self.imports.len())?).cloned()
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        self.names.get(&index).map(String::as_str)
    }
}

/// The memory of a stopped guest. Notes which blocks of it are read.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    pub(crate) memory: Vec<u8>,
    pub(crate) touched: RefCell<BTreeSet<u64>>,
}

impl Frozen {
    /// Bytes of a block.
    pub(crate) const BLOCK: u64 = 64;

    pub(crate) fn new(memory: Vec<u8>) -> Self {
        Self { memory, touched: RefCell::default() }
    }
}

impl GuestMemory for Frozen {
    fn size(&self) -> u64 {
        self.memory.len() as u64
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
        let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
        buffer.copy_from_slice(self.memory.get(start..end).ok_or(OutOfBounds)?);
        if !buffer.is_empty() {
            let last = address + buffer.len() as u64 - 1;
            self.touched.borrow_mut().extend(address / Self::BLOCK..=last / Self::BLOCK);
        }
        Ok(())
    }

    fn global(&self, _: u32) -> Option<u64> {
        None
    }
}
