//! What has to be known of a module to add to it.

use super::allocators::NotRewritten;
use std::ops::Range;
use wasmparser::{BinaryReaderError, CompositeInnerType, FunctionBody, Operator, Parser, Payload, TypeRef, ValType};

/// A section's number in the binary format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectionId(pub(super) u8);

impl SectionId {
    pub(super) const CUSTOM: Self = Self(0);
    pub(super) const TYPE: Self = Self(1);
    pub(super) const FUNCTION: Self = Self(3);
    pub(super) const TABLE: Self = Self(4);
    pub(super) const MEMORY: Self = Self(5);
    pub(super) const GLOBAL: Self = Self(6);
    pub(super) const EXPORT: Self = Self(7);
    pub(super) const CODE: Self = Self(10);

    /// Its place in the order in which sections stand; `None` of custom ones, which stand anywhere.
    pub(super) fn place(self) -> Option<usize> {
        const ORDER: [u8; 13] = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11];
        ORDER.iter().position(|id| *id == self.0)
    }
}

/// Of each kind there are fewer: Wasmtime takes a million.
const MAX_ENTITIES: u32 = 1 << 24;

/// Parameters and results.
type Signature = (Vec<ValType>, Vec<ValType>);

/// A module, taken apart as far as is needed.
#[derive(Default)]
pub(super) struct ModuleParts {
    /// In the file's order, with their contents.
    pub(super) sections: Vec<(SectionId, Range<usize>)>,
    /// Of all types; `None` of those that are no functions'.
    pub(super) signatures: Vec<Option<Signature>>,
    pub(super) imported_functions: u32,
    pub(super) tables: u32,
    pub(super) memories: u32,
    pub(super) globals: u32,
    /// It imports or defines tags: exceptions that it may throw or catch.
    pub(super) has_tags: bool,
    /// Types of the functions that it defines.
    pub(super) functions: Vec<u32>,
    /// Where their bodies are, and the instructions in them.
    pub(super) bodies: Vec<(Range<usize>, usize)>,
    pub(super) exports: Vec<String>,
    /// Some memory has 64-bit addresses, or is shared between threads.
    pub(super) has_other_memory: bool,
}

pub(super) fn malformed(error: BinaryReaderError) -> NotRewritten {
    NotRewritten::Malformed(error.to_string())
}

impl ModuleParts {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, NotRewritten> {
        let mut parsed = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            parsed.take(payload.map_err(malformed)?).map_err(malformed)?;
        }
        // What the engine takes is far less.
        if parsed.tables.max(parsed.globals) > MAX_ENTITIES {
            return Err(NotRewritten::Malformed(
                "it says that it has more tables or globals than there can be".to_owned(),
            ));
        }
        if parsed.functions.len() != parsed.bodies.len() {
            return Err(NotRewritten::Malformed("it has not as many bodies as functions".to_owned()));
        }
        Ok(parsed)
    }

    fn take(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        if let Some((id, range)) = payload.as_section() {
            self.sections.push((SectionId(id), range.start..range.end));
        }
        match payload {
            Payload::TypeSection(groups) => {
                for group in groups {
                    for subtype in group?.into_types() {
                        self.signatures.push(match subtype.composite_type.inner {
                            CompositeInnerType::Func(function) => {
                                Some((function.params().to_vec(), function.results().to_vec()))
                            }
                            _ => None,
                        });
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    match import?.ty {
                        TypeRef::Func(_) | TypeRef::FuncExact(_) => self.imported_functions += 1,
                        TypeRef::Table(_) => self.tables += 1,
                        TypeRef::Memory(memory) => {
                            self.memories += 1;
                            self.has_other_memory |= memory.memory64 || memory.shared;
                        }
                        TypeRef::Global(_) => self.globals += 1,
                        TypeRef::Tag(_) => self.has_tags = true,
                    }
                }
            }
            Payload::FunctionSection(types) => {
                for index in types {
                    self.functions.push(index?);
                }
            }
            Payload::TableSection(tables) => self.tables = self.tables.saturating_add(tables.count()),
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory?;
                    self.memories += 1;
                    self.has_other_memory |= memory.memory64 || memory.shared;
                }
            }
            Payload::GlobalSection(globals) => self.globals = self.globals.saturating_add(globals.count()),
            Payload::TagSection(tags) => self.has_tags |= tags.count() > 0,
            Payload::ExportSection(exports) => {
                for export in exports {
                    self.exports.push(export?.name.to_owned());
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body_of(&body)?),
            _ => {}
        }
        Ok(())
    }

    /// How many functions there are.
    pub(super) fn function_count(&self) -> u32 {
        self.imported_functions + self.functions.len() as u32
    }

    /// The place of a function among those that the module defines.
    pub(super) fn defined(&self, function: u32) -> Result<usize, NotRewritten> {
        match function.checked_sub(self.imported_functions).map(|defined| defined as usize) {
            None => Err(NotRewritten::Imported(function)),
            Some(defined) if defined >= self.functions.len() => Err(NotRewritten::NoFunction(function)),
            Some(defined) => Ok(defined),
        }
    }

    /// The signature of a function that the module defines.
    pub(super) fn signature(&self, defined: usize) -> Option<&Signature> {
        self.signatures.get(self.functions[defined] as usize)?.as_ref()
    }

    /// The functions that a function which the module defines calls directly.
    pub(super) fn calls(&self, bytes: &[u8], defined: usize) -> Result<Vec<u32>, NotRewritten> {
        let (range, _) = &self.bodies[defined];
        let body = FunctionBody::new(wasmparser::BinaryReader::new(&bytes[range.clone()], 0));
        let mut called = Vec::new();
        for operator in body.get_operators_reader().map_err(malformed)? {
            match operator.map_err(malformed)? {
                Operator::Call { function_index } | Operator::ReturnCall { function_index } => {
                    called.push(function_index)
                }
                _ => {}
            }
        }
        Ok(called)
    }
}

fn body_of(body: &FunctionBody<'_>) -> Result<(Range<usize>, usize), BinaryReaderError> {
    let range = body.range();
    let instructions = body.get_operators_reader()?.original_position();
    Ok((range.start..range.end, instructions))
}
