//! A module's bytes and where its parts lie in them: what plugins see as a [`ModuleView`].

use super::initial::Initial;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use wasmtime_environ::wasmparser::{
    BinaryReader, BinaryReaderError, ExternalKind, KnownCustom, Name, NameSectionReader, Operator, OperatorsReader,
    Parser, Payload, TypeRef, ValType,
};
use wlprof_dwarf::Layout;
use wlprof_plugin::{FunctionImport, Member, ModuleView, OutOfBounds};

/// Why bytes are not a module that can be profiled.
#[derive(Debug)]
pub enum ImageError {
    /// A component, not a core module.
    Component,
    /// Cut short or malformed.
    Malformed(BinaryReaderError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component => f.write_str(
                "this is a WebAssembly component (supported: core modules, WASI preview 1); \
                 build it for wasm32-wasip1 to profile it",
            ),
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

/// A core module in binary form and what its sections say.
#[derive(Debug)]
pub struct ModuleImage {
    name: String,
    bytes: Vec<u8>,
    /// File offset of the code section's payload: what turns Wasmtime's file offsets into code offsets.
    code_start: u32,
    /// Its size in bytes.
    code_size: u32,
    bodies: Vec<Range<u32>>,
    imports: Vec<FunctionImport>,
    names: HashMap<u32, String>,
    exports: Vec<(u32, String)>,
    globals: HashMap<String, u32>,
    /// By what name each imported global is imported.
    imported_globals: Vec<String>,
    custom: Vec<(String, Range<usize>)>,
    index_spaces: IndexSpaces,
    /// Width in bytes of each global's value, imports first.
    global_widths: Vec<u8>,
    debug: Option<Box<ModuleImage>>,
    /// The DWARF's data, read when a plugin first asks for it.
    layout: OnceLock<Option<Layout>>,
    /// What its segments hold and the hash of its code, likewise.
    initial: OnceLock<Initial>,
    code_hash: OnceLock<[u8; 32]>,
}

impl ModuleImage {
    /// Finds the parts of a module. `file_name` is what it is called unless it carries a name of its own.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are no core module. The module is not validated: that is the engine's part.
    pub fn parse(bytes: Vec<u8>, file_name: &str) -> Result<Self, ImageError> {
        let mut image = Self {
            name: file_name.to_owned(),
            bytes: Vec::new(),
            code_start: 0,
            code_size: 0,
            bodies: Vec::new(),
            imports: Vec::new(),
            names: HashMap::new(),
            exports: Vec::new(),
            globals: HashMap::new(),
            imported_globals: Vec::new(),
            custom: Vec::new(),
            index_spaces: IndexSpaces::default(),
            global_widths: Vec::new(),
            debug: None,
            layout: OnceLock::new(),
            initial: OnceLock::new(),
            code_hash: OnceLock::new(),
        };
        for payload in Parser::new(0).parse_all(&bytes) {
            let payload = payload.map_err(ImageError::Malformed)?;
            image.take(payload)?;
        }
        for (index, name) in &image.exports {
            image.names.entry(*index).or_insert_with(|| name.clone());
        }
        for (index, name) in (0..).zip(&image.imported_globals) {
            image.globals.entry(name.clone()).or_insert(index);
        }
        image.bytes = bytes;
        Ok(image)
    }

    fn take(&mut self, payload: Payload<'_>) -> Result<(), ImageError> {
        let spaces = &mut self.index_spaces;
        let result: Result<(), BinaryReaderError> = match payload {
            Payload::Version { encoding, .. } if encoding != wasmtime_environ::wasmparser::Encoding::Module => {
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
                    TypeRef::Memory(_) => spaces.imported_memories += 1,
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
                Name::Module { name, .. } if !name.is_empty() => self.name = name.to_owned(),
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

    /// Adds a file that holds this module's debug sections.
    pub fn set_debug_file(&mut self, debug: ModuleImage) {
        self.debug = Some(Box::new(debug));
    }

    /// The file that holds its debug sections, if it was given one.
    pub fn debug_file(&self) -> Option<&ModuleImage> {
        self.debug.as_deref()
    }

    /// Whether the module has DWARF of its own or from its debug file.
    pub fn has_dwarf(&self) -> bool {
        self.custom_section(".debug_info").is_some()
    }

    /// Where a debug file lies, if the module says so: a URL, relative to the module.
    pub fn external_debug_info(&self) -> Option<&str> {
        let section = self.own_section("external_debug_info")?;
        let mut reader = BinaryReader::new(section, 0);
        reader.read_string().ok()
    }

    /// How many entities of each kind it has.
    pub fn index_spaces(&self) -> &IndexSpaces {
        &self.index_spaces
    }

    /// Width in bytes of the value of global `index`; `None` past the end.
    pub fn global_width(&self, index: u32) -> Option<u8> {
        self.global_widths.get(index as usize).copied()
    }

    /// File offset of the code section's payload.
    pub fn code_start(&self) -> u32 {
        self.code_start
    }

    /// Index of the first function that has a body.
    pub fn first_body(&self) -> u32 {
        self.imports.len() as u32
    }

    /// The `build_id` section in hex, or else a hash of the code section: what tells builds of a module apart.
    pub fn build_id(&self) -> String {
        match self.own_section("build_id") {
            // The payload is a byte vector: its length, then the id.
            Some([len, id @ ..]) if usize::from(*len) == id.len() => {
                id.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => {
                use std::hash::Hasher;
                let mut hasher = rustc_hash::FxHasher::default();
                hasher.write(&self.bytes);
                format!("{:016x}", hasher.finish())
            }
        }
    }

    /// The bytes from a code offset to the end of its function's body.
    pub fn code_at(&self, function: u32, code_offset: u32) -> Option<&[u8]> {
        let body = self.function_body(function)?;
        let at = |offset: u32| (self.code_start + offset) as usize;
        body.contains(&code_offset).then(|| &self.bytes[at(code_offset)..at(body.end)])
    }

    /// The instruction at a code offset.
    pub fn operator_at(&self, function: u32, code_offset: u32) -> Option<Operator<'_>> {
        OperatorsReader::new(BinaryReader::new(self.code_at(function, code_offset)?, 0)).read().ok()
    }

    /// The function whose body holds a code offset.
    pub fn function_at(&self, code_offset: u32) -> Option<u32> {
        let next = self.bodies.partition_point(|body| body.start <= code_offset);
        let body = next.checked_sub(1)?;
        self.bodies[body].contains(&code_offset).then_some(self.first_body() + body as u32)
    }

    fn layout(&self) -> Option<&Layout> {
        self.layout.get_or_init(|| Layout::new(self)).as_ref()
    }

    fn initial(&self) -> &Initial {
        self.initial.get_or_init(|| Initial::read(&self.bytes))
    }

    fn own_section(&self, name: &str) -> Option<&[u8]> {
        let (_, range) = self.custom.iter().find(|(section, _)| section == name)?;
        self.bytes.get(range.clone())
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

impl ModuleView for ModuleImage {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        let from_debug_file = || {
            let wanted = name.starts_with(".debug_") || name == "name";
            self.debug.as_ref().filter(|_| wanted).and_then(|debug| debug.own_section(name))
        };
        self.own_section(name).or_else(from_debug_file)
    }

    fn function_imports(&self) -> &[FunctionImport] {
        &self.imports
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.bodies.get(index.checked_sub(self.first_body())? as usize).cloned()
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        let own = self.names.get(&index);
        own.or_else(|| self.debug.as_ref()?.names.get(&index)).map(String::as_str)
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        let own = self.globals.get(name);
        own.or_else(|| self.debug.as_ref()?.globals.get(name)).copied()
    }

    fn function_named(&self, name: &str) -> Option<u32> {
        let named = |image: &Self| {
            let names = image.names.iter().filter(|(_, known)| *known == name);
            names.map(|(index, _)| *index).min()
        };
        let exported = || self.exports.iter().find(|(_, known)| known == name).map(|(index, _)| *index);
        named(self).or_else(exported).or_else(|| named(self.debug.as_ref()?))
    }

    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        self.initial().table_function(table, element)
    }

    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.initial().data(&self.bytes, address, buffer)
    }

    fn code_hash(&self) -> Option<&[u8; 32]> {
        let code = || self.bytes.get(self.code_start as usize..)?.get(..self.code_size as usize);
        Some(self.code_hash.get_or_init(|| Sha256::digest(code().unwrap_or_default()).into()))
    }

    fn variable_address(&self, name: &str) -> Option<u64> {
        self.layout()?.variable_address(name)
    }

    fn member(&self, structure: &str, member: &str) -> Option<Member> {
        self.layout()?.member(structure, member)
    }

    fn type_size(&self, name: &str) -> Option<u64> {
        self.layout()?.type_size(name)
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        self.layout()?.enumerator(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"(module $shop
        (import "env" "log" (func))
        (global $sum (mut i32) (i32.const 0)) (global $other (export "shown") i32 (i32.const 0))
        (func $first) (func (export "second") nop) (func nop nop))"#;

    fn image() -> ModuleImage {
        ModuleImage::parse(wat::parse_str(TEXT).unwrap(), "shop.wasm").unwrap()
    }

    #[test]
    fn names_come_from_the_name_section_then_from_exports() {
        let image = image();
        assert_eq!(image.name(), "shop");
        assert_eq!(image.function_name(1), Some("first"));
        assert_eq!(image.function_name(2), Some("second"));
        assert_eq!(image.function_name(3), None);
        assert_eq!(image.function_imports()[0].name, "log");
        assert_eq!(
            ["sum", "shown", "other", "none"].map(|name| image.global_named(name)),
            [Some(0), Some(1), Some(1), None]
        );
    }

    #[test]
    fn imported_globals_have_the_names_that_they_are_imported_by_if_no_other_has() {
        let text = r#"(module (import "env" "base" (global i32)) (import "env" "own" (global $mine i32)) (import "a" "base" (global i32))
            (global $own i32 (i32.const 0)))"#;
        let image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        assert_eq!(["base", "own", "mine"].map(|name| image.global_named(name)), [Some(0), Some(3), Some(1)]);
    }

    #[test]
    fn functions_are_found_by_either_name() {
        let image = image();
        assert_eq!(["first", "second", "none"].map(|name| image.function_named(name)), [Some(1), Some(2), None]);
        let text = r#"(module (func $own (export "other")) (func (export "own")) (func $own2 (export "third")))"#;
        let image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        // What a function is called comes before what another is exported as.
        assert_eq!(["own", "other", "third"].map(|name| image.function_named(name)), [Some(0), Some(0), Some(2)]);
    }

    #[test]
    fn the_codes_hash_is_that_of_its_payload_and_names_do_not_change_it() {
        let image = image();
        let (start, end) = (image.code_start as usize, image.bodies.last().unwrap().end as usize);
        let hash: [u8; 32] = Sha256::digest(&image.bytes()[start..start + end]).into();
        assert_eq!(image.code_hash(), Some(&hash));
        let stripped = TEXT.replace("$first", "").replace("$shop", "");
        let stripped = ModuleImage::parse(wat::parse_str(stripped).unwrap(), "x").unwrap();
        assert!(stripped.function_name(1).is_none() && stripped.code_hash() == image.code_hash());
        let other = ModuleImage::parse(wat::parse_str(TEXT.replace("nop nop", "nop")).unwrap(), "x").unwrap();
        assert_ne!(other.code_hash(), image.code_hash());
    }

    #[test]
    fn bodies_hold_their_offsets_and_nothing_else() {
        let image = image();
        for function in 1..=3 {
            let body = image.function_body(function).unwrap();
            assert_eq!(image.function_at(body.start), Some(function));
            assert_eq!(image.function_at(body.end - 1), Some(function));
            // 0x0b is `end`, the last instruction of every body.
            assert_eq!(image.code_at(function, body.end - 1), Some(&[0x0b][..]));
        }
        assert_eq!(image.function_at(0), None, "the count of bodies is not a body");
    }

    #[test]
    fn every_cut_of_a_module_is_an_error() {
        let bytes = wat::parse_str(TEXT).unwrap();
        let whole = ModuleImage::parse(bytes.clone(), "x").unwrap();
        for end in 9..bytes.len() {
            if let Ok(cut) = ModuleImage::parse(bytes[..end].to_vec(), "x") {
                // A cut between two sections leaves a smaller module; the engine's validation refuses it.
                assert!(cut.custom.len() < whole.custom.len() || cut.bodies.is_empty(), "cut at {end}");
            }
        }
    }
}
