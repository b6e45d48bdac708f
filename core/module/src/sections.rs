//! What the sections of a module in binary form say.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use wasmparser::{
    BinaryReaderError, ExternalKind, KnownCustom, Name, NameSectionReader, Parser, Payload, TypeRef, ValType,
};
use wlprof_plugin::FunctionImport;

/// Why bytes are not a module that can be profiled.
#[derive(Debug)]
pub enum ImageError {
    /// A component, where a core module is needed.
    Component,
    /// Cut short or malformed.
    Malformed(BinaryReaderError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component => f.write_str("this is a WebAssembly component, where a core module is needed"),
            Self::Malformed(error) => write!(f, "malformed or truncated WebAssembly: {error}"),
        }
    }
}

impl std::error::Error for ImageError {}

/// How many entities of each kind a module has: what Wasmtime lays its instances out by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSpaces {
    /// Imported functions.
    pub imported_functions: u32,
    /// Imported tables.
    pub imported_tables: u32,
    /// Imported memories.
    pub imported_memories: u32,
    /// Those of them that are shared between threads.
    pub imported_shared_memories: u32,
    /// Imported globals.
    pub imported_globals: u32,
    /// Imported tags.
    pub imported_tags: u32,
    /// Tables that the module defines.
    pub tables: u32,
    /// Memories that the module defines.
    pub memories: u32,
    /// Those of its memories that are shared between threads.
    pub shared_memories: u32,
    /// Globals that the module defines.
    pub globals: u32,
    /// Tags that the module defines.
    pub tags: u32,
}

impl IndexSpaces {
    /// With so many more of what a module defines.
    pub(super) fn with(&self, added: &Self) -> Self {
        Self {
            tables: self.tables + added.tables,
            memories: self.memories + added.memories,
            globals: self.globals + added.globals,
            tags: self.tags + added.tags,
            ..*self
        }
    }
}

/// What a module's sections say.
#[derive(Debug, Default)]
pub(super) struct Sections {
    /// What the module calls itself.
    pub(super) module_name: Option<String>,
    /// File offset of the code section's payload: what turns Wasmtime's file offsets into code offsets.
    pub(super) code_start: u32,
    /// Its size in bytes.
    pub(super) code_size: u32,
    pub(super) bodies: Vec<Range<u32>>,
    pub(super) imports: Vec<FunctionImport>,
    pub(super) names: HashMap<u32, String>,
    pub(super) exports: Vec<(u32, String)>,
    pub(super) globals: HashMap<String, u32>,
    /// By what name each imported global is imported.
    imported_globals: Vec<String>,
    /// What each memory is imported as, by module and name.
    pub(super) memory_imports: Vec<(String, String)>,
    /// By what names memories are exported.
    pub(super) memory_exports: HashMap<String, u32>,
    pub(super) custom: Vec<(String, Range<usize>)>,
    pub(super) index_spaces: IndexSpaces,
    /// Width in bytes of each global's value, imports first.
    pub(super) global_widths: Vec<u8>,
}

impl Sections {
    /// Reads the sections of a module, which is not validated: that is the engine's part.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ImageError> {
        let mut sections = Self::default();
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(ImageError::Malformed)?;
            sections.take(payload)?;
        }
        for (index, name) in &sections.exports {
            sections.names.entry(*index).or_insert_with(|| name.clone());
        }
        for (index, name) in (0..).zip(&sections.imported_globals) {
            sections.globals.entry(name.clone()).or_insert(index);
        }
        Ok(sections)
    }

    fn take(&mut self, payload: Payload<'_>) -> Result<(), ImageError> {
        let spaces = &mut self.index_spaces;
        let result: Result<(), BinaryReaderError> = match payload {
            Payload::Version { encoding, .. } if encoding != wasmparser::Encoding::Module => {
                return Err(ImageError::Component);
            }
            Payload::ImportSection(section) => section.into_imports().try_for_each(|import| {
                let import = import?;
                match import.ty {
                    TypeRef::Func(_) | TypeRef::FuncExact(_) => {
                        spaces.imported_functions += 1;
                        self.imports
                            .push(FunctionImport { module: import.module.to_owned(), name: import.name.to_owned() });
                    }
                    TypeRef::Table(_) => spaces.imported_tables += 1,
                    TypeRef::Memory(memory) => {
                        self.memory_imports.push((import.module.to_owned(), import.name.to_owned()));
                        spaces.imported_memories += 1;
                        spaces.imported_shared_memories += u32::from(memory.shared);
                    }
                    TypeRef::Global(ty) => {
                        self.imported_globals.push(import.name.to_owned());
                        spaces.imported_globals += 1;
                        self.global_widths.push(width(ty.content_type));
                    }
                    TypeRef::Tag(_) => spaces.imported_tags += 1,
                }
                Ok(())
            }),
            Payload::TableSection(section) => {
                spaces.tables = section.count();
                Ok(())
            }
            Payload::MemorySection(section) => section.into_iter().try_for_each(|memory| {
                spaces.memories += 1;
                spaces.shared_memories += u32::from(memory?.shared);
                Ok(())
            }),
            Payload::GlobalSection(section) => section.into_iter().try_for_each(|global| {
                spaces.globals += 1;
                self.global_widths.push(width(global?.ty.content_type));
                Ok(())
            }),
            Payload::TagSection(section) => {
                spaces.tags = section.count();
                Ok(())
            }
            Payload::ExportSection(section) => section.into_iter().try_for_each(|export| {
                let export = export?;
                match export.kind {
                    ExternalKind::Func => self.exports.push((export.index, export.name.to_owned())),
                    ExternalKind::Global => {
                        self.globals.insert(export.name.to_owned(), export.index);
                    }
                    ExternalKind::Memory => _ = self.memory_exports.insert(export.name.to_owned(), export.index),
                    _ => {}
                }
                Ok(())
            }),
            Payload::CodeSectionStart { range, .. } => {
                self.code_start = range.start as u32;
                self.code_size = range.len() as u32;
                Ok(())
            }
            Payload::CodeSectionEntry(body) => {
                let range = body.range();
                self.bodies.push(range.start as u32 - self.code_start..range.end as u32 - self.code_start);
                Ok(())
            }
            Payload::CustomSection(section) => {
                self.custom.push((section.name().to_owned(), section.data_offset()..section.range().end));
                if let KnownCustom::Name(names) = section.as_known() {
                    // A broken name section costs names, not the profile: the specification has engines ignore it.
                    let _ = self.take_names(names);
                }
                Ok(())
            }
            _ => Ok(()),
        };
        result.map_err(ImageError::Malformed)
    }

    fn take_names(&mut self, names: NameSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for subsection in names {
            match subsection? {
                Name::Module { name, .. } if !name.is_empty() => self.module_name = Some(name.to_owned()),
                Name::Function(map) => {
                    for naming in map {
                        let naming = naming?;
                        if !naming.name.is_empty() {
                            self.names.insert(naming.index, naming.name.to_owned());
                        }
                    }
                }
                Name::Global(map) => {
                    for naming in map {
                        let naming = naming?;
                        self.globals.entry(naming.name.to_owned()).or_insert(naming.index);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Width of a value in bytes. References are not read.
fn width(ty: ValType) -> u8 {
    match ty {
        ValType::I32 | ValType::F32 => 4,
        ValType::I64 | ValType::F64 => 8,
        ValType::V128 => 16,
        ValType::Ref(_) => 0,
    }
}
