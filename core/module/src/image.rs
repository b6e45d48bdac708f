//! A module's bytes and where its parts lie in them: what plugins see as a [`ModuleView`].

use super::initial::Initial;
use super::offset_map::OffsetMap;
use super::sections::{ImageError, IndexSpaces, Sections};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::OnceLock;
use wasmparser::{BinaryReader, Operator, OperatorsReader};
use wlprof_dwarf::Layout;
use wlprof_plugin::{FunctionImport, Member, ModuleView, OutOfBounds};

/// Name of the custom section that a module has which stands in for another.
pub const STAND_IN_SECTION: &str = "wlprof:stand-in";

/// What was compiled in a module's place.
#[derive(Debug)]
struct Rewrite {
    /// Where its code was before.
    offsets: OffsetMap,
    index_spaces: IndexSpaces,
    allocating: BTreeSet<u32>,
}

/// What the component that a module is in says of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct InComponent {
    /// The numbers, among the modules of its component, of those that work on its memory, without its own.
    siblings: Vec<u32>,
    /// What its component calls functions that it imports, by their indices.
    import_names: BTreeMap<u32, String>,
    /// What the instance is called that its code runs in, of several that there are.
    instance: Option<String>,
}

/// A memory that a module exports.
pub(super) enum ExportedMemory<'a> {
    /// That of this index, of its own.
    Own(u32),
    /// One that it has from elsewhere.
    Imported {
        /// From where.
        module: &'a str,
        /// By this name.
        name: &'a str,
    },
}

/// A core module in binary form and what its sections say.
#[derive(Debug)]
pub struct ModuleImage {
    name: String,
    bytes: Vec<u8>,
    /// Where they begin in their file: somewhere in that of a component.
    file_start: u32,
    /// Where those begin that were compiled, in what was compiled: elsewhere if a module of its component was rewritten before.
    compiled_start: u32,
    sections: Sections,
    component: InComponent,
    debug: Option<Box<ModuleImage>>,
    /// The JSON of its source map.
    source_map: Option<Vec<u8>>,
    /// What was compiled, if the module was rewritten before.
    rewritten: Option<Rewrite>,
    /// The DWARF's data, read when a plugin first asks for it.
    layout: OnceLock<Option<Layout>>,
    /// What its segments hold and the hash of its code, likewise.
    initial: OnceLock<Initial>,
    code_hash: OnceLock<[u8; 32]>,
    has_tail_calls: OnceLock<bool>,
}

impl ModuleImage {
    /// Finds the parts of a module. `file_name` is what it is called unless it carries a name of its own.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are no core module. The module is not validated: that is the engine's part.
    pub fn parse(bytes: Vec<u8>, file_name: &str) -> Result<Self, ImageError> {
        Self::parse_at(bytes, 0, file_name)
    }

    /// As [`ModuleImage::parse`], of a module whose bytes begin at `file_start` in a component.
    pub(super) fn parse_at(bytes: Vec<u8>, file_start: u32, file_name: &str) -> Result<Self, ImageError> {
        let mut sections = Sections::read(&bytes)?;
        let name = sections.module_name.take().unwrap_or_else(|| file_name.to_owned());
        Ok(Self {
            name,
            bytes,
            file_start,
            compiled_start: file_start,
            sections,
            component: InComponent::default(),
            debug: None,
            source_map: None,
            rewritten: None,
            layout: OnceLock::new(),
            initial: OnceLock::new(),
            code_hash: OnceLock::new(),
            has_tail_calls: OnceLock::new(),
        })
    }

    /// The numbers of the modules that work on the same memory as this one, among all modules of its component, in order.
    pub fn siblings(&self) -> &[u32] {
        &self.component.siblings
    }

    /// Says which they are.
    pub fn set_siblings(&mut self, siblings: Vec<u32>) {
        self.component.siblings = siblings;
    }

    /// What its component says of it.
    pub fn in_component(&self) -> &InComponent {
        &self.component
    }

    /// Has its component say that.
    pub fn set_in_component(&mut self, component: InComponent) {
        self.component = component;
    }

    /// What the function of this index is called that it imports: as its component calls it, which may have it from an interface, or else as the
    /// module does. `None` of a function that it does not import. Untrusted text.
    pub fn import_name(&self, function: u32) -> Option<String> {
        let import = self.sections.imports.get(function as usize)?;
        let name = self.component.import_names.get(&function).cloned();
        Some(name.unwrap_or_else(|| format!("{}.{}", import.module, import.name)))
    }

    /// Says what its component calls a function that it imports.
    pub(super) fn set_import_name(&mut self, function: u32, name: String) {
        self.component.import_names.insert(function, name);
    }

    /// The functions that it imports and exports again, by the names that it exports them by.
    pub(super) fn functions_passed_on(&self) -> HashMap<&str, &FunctionImport> {
        let exports = self.sections.exports.iter();
        exports.filter_map(|(index, name)| Some((&**name, self.sections.imports.get(*index as usize)?))).collect()
    }

    /// What the instance is called that its code runs in, if its component has several, and its code tells which it is. Untrusted text.
    pub fn instance(&self) -> Option<&str> {
        self.component.instance.as_deref()
    }

    /// Says what it is called.
    pub(super) fn set_instance(&mut self, name: Option<String>) {
        self.component.instance = name;
    }

    /// By what module and name it imports its first memory, if it does.
    pub(super) fn memory_import(&self) -> Option<&(String, String)> {
        self.sections.memory_imports.first()
    }

    /// By what name it exports its first memory.
    pub fn first_memory_export(&self) -> Option<&str> {
        self.sections.memory_exports.iter().find(|(_, index)| **index == 0).map(|(name, _)| name.as_str())
    }

    /// The memory that it exports by this name.
    pub(super) fn exported_memory(&self, name: &str) -> Option<ExportedMemory<'_>> {
        let index = self.sections.memory_exports.get(name)?;
        Some(match self.sections.memory_imports.get(*index as usize) {
            Some((module, name)) => ExportedMemory::Imported { module, name },
            None => ExportedMemory::Own(*index),
        })
    }

    /// Whether it stands in for a module whose file nobody has, with the names of its functions and none of its code: by a section of
    /// that name.
    pub fn is_stand_in(&self) -> bool {
        self.own_section(STAND_IN_SECTION).is_some()
    }

    /// Adds a file that holds this module's debug sections.
    pub fn set_debug_file(&mut self, debug: ModuleImage) {
        self.debug = Some(Box::new(debug));
    }

    /// The file that holds its debug sections, if it was given one.
    pub fn debug_file(&self) -> Option<&ModuleImage> {
        self.debug.as_deref()
    }

    /// Adds the JSON of the module's source map.
    pub fn set_source_map(&mut self, json: Vec<u8>) {
        self.source_map = Some(json);
    }

    /// Returns the JSON of its source map, if it was given one. Untrusted.
    pub fn source_map(&self) -> Option<&[u8]> {
        self.source_map.as_deref()
    }

    /// Returns the address of its source map, if the module has one: a URL, relative to the module.
    pub fn source_map_url(&self) -> Option<&str> {
        let mut reader = BinaryReader::new(self.own_section("sourceMappingURL")?, 0);
        reader.read_string().ok()
    }

    /// Returns the names that its functions have in its name section, or are exported by.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.sections.names.values().map(String::as_str)
    }

    /// What is compiled is another module, which this one was rewritten to: `offsets` lead back from its code to this one's, and it has
    /// so many entities more of each kind. `allocating` are the functions that only pass on what others ask for.
    pub fn set_rewritten(&mut self, offsets: OffsetMap, added: &IndexSpaces, allocating: BTreeSet<u32>) {
        let index_spaces = self.sections.index_spaces.with(added);
        self.rewritten = Some(Rewrite { offsets, index_spaces, allocating });
    }

    /// What was compiled begins there in the component that was compiled.
    pub fn set_compiled_start(&mut self, start: u32) {
        self.compiled_start = start;
    }

    /// Where its bytes are in its file.
    pub fn file_range(&self) -> Range<usize> {
        let start = self.file_start as usize;
        start..start + self.bytes.len()
    }

    /// Whether this function only passes on memory that others ask for, as far as the module was rewritten to tell of these.
    pub fn allocates(&self, function: u32) -> bool {
        self.rewritten.as_ref().is_some_and(|rewritten| rewritten.allocating.contains(&function))
    }

    /// Code offset of the instruction that was compiled to what Wasmtime says is of `file_offset`; `None` of code that is not the
    /// module's own.
    pub fn compiled_code_offset(&self, file_offset: u32) -> Option<u32> {
        let offset = file_offset.checked_sub(self.compiled_start)?;
        match &self.rewritten {
            Some(rewritten) => rewritten.offsets.old_of_file_offset(offset),
            None => offset.checked_sub(self.code_start()),
        }
    }

    /// The function and code offset of code that was compiled as `function`, and is that of `code_offset` if that is known: the function's
    /// start if not. `None` of functions that are not the module's own.
    pub fn compiled_from(&self, function: u32, code_offset: Option<u32>) -> Option<(u32, u32)> {
        let body = self.function_body(function);
        // Those that were added are behind all that it has.
        (body.is_some() || !self.is_rewritten())
            .then(|| (function, code_offset.unwrap_or_else(|| body.map_or(0, |body| body.start))))
    }

    /// Whether the module is none of the program's, but one that wit-component has made its component with: by its name.
    pub fn is_glue(&self) -> bool {
        self.name.starts_with("wit-component")
    }

    /// Whether its functions stand in for others, most of them the host's, which they call through a table: what needs a memory cannot be
    /// imported before that is there.
    pub fn stands_in(&self) -> bool {
        ["wit-component-shim-module", "wit-component:shim"].contains(&&*self.name)
    }

    /// Whether the module was rewritten before it was compiled.
    pub fn is_rewritten(&self) -> bool {
        self.rewritten.is_some()
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

    /// How many entities of each kind what was compiled of it has. Its own have the first indices of each.
    pub fn compiled_index_spaces(&self) -> &IndexSpaces {
        self.rewritten.as_ref().map_or(&self.sections.index_spaces, |rewritten| &rewritten.index_spaces)
    }

    /// Width in bytes of the value of global `index`; `None` past the end.
    pub fn global_width(&self, index: u32) -> Option<u8> {
        self.sections.global_widths.get(index as usize).copied()
    }

    /// File offset of the code section's payload.
    pub fn code_start(&self) -> u32 {
        self.sections.code_start
    }

    /// Where a code offset is in its file, as Wasmtime tells of it where that is what was compiled.
    pub fn file_offset(&self, code_offset: u32) -> u32 {
        self.file_start + self.code_start() + code_offset
    }

    /// Index of the first function that has a body.
    pub fn first_body(&self) -> u32 {
        self.sections.imports.len() as u32
    }

    /// Returns whether `other` has the same bytes, and neither has a debug file nor was rewritten: all that is said of one holds for the other.
    pub fn is_same_module(&self, other: &Self) -> bool {
        let is_plain = |image: &Self| image.debug.is_none() && image.rewritten.is_none();
        is_plain(self) && is_plain(other) && self.bytes == other.bytes
    }

    /// The `build_id` section in hex, or else a hash of the code section: what tells builds of a module apart.
    pub fn build_id(&self) -> String {
        self.own_build_id().unwrap_or_else(|| {
            use std::hash::Hasher;
            let mut hasher = rustc_hash::FxHasher::default();
            hasher.write(&self.bytes);
            format!("{:016x}", hasher.finish())
        })
    }

    /// Returns the `build_id` section in hex.
    pub(super) fn own_build_id(&self) -> Option<String> {
        match self.own_section("build_id")? {
            // The payload is a byte vector: its length, then the id.
            [len, id @ ..] if usize::from(*len) == id.len() => {
                Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
            }
            _ => None,
        }
    }

    /// Size of the code section's payload in bytes.
    pub(super) fn code_size(&self) -> u32 {
        self.sections.code_size
    }

    /// The bytes from a code offset to the end of its function's body.
    pub fn code_at(&self, function: u32, code_offset: u32) -> Option<&[u8]> {
        let body = self.function_body(function)?;
        let at = |offset: u32| (self.sections.code_start + offset) as usize;
        body.contains(&code_offset).then(|| &self.bytes[at(code_offset)..at(body.end)])
    }

    /// The instruction at a code offset.
    pub fn operator_at(&self, function: u32, code_offset: u32) -> Option<Operator<'_>> {
        OperatorsReader::new(BinaryReader::new(self.code_at(function, code_offset)?, 0)).read().ok()
    }

    /// The function whose body holds a code offset.
    pub fn function_at(&self, code_offset: u32) -> Option<u32> {
        let next = self.sections.bodies.partition_point(|body| body.start <= code_offset);
        let body = next.checked_sub(1)?;
        self.sections.bodies[body].contains(&code_offset).then_some(self.first_body() + body as u32)
    }

    /// Returns the segments that its first memory is filled with when it is instantiated: addresses and bytes.
    pub fn initial_segments(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.initial().segments(&self.bytes)
    }

    /// Whether any of its functions ends by having another take its place. Reads all of its code when it is first asked.
    pub fn has_tail_calls(&self) -> bool {
        *self.has_tail_calls.get_or_init(|| super::checks::has_tail_calls(self))
    }

    fn layout(&self) -> Option<&Layout> {
        self.layout.get_or_init(|| Layout::new(self)).as_ref()
    }

    pub(super) fn initial(&self) -> &Initial {
        self.initial.get_or_init(|| Initial::read(&self.bytes))
    }

    fn own_section(&self, name: &str) -> Option<&[u8]> {
        let (_, range) = self.sections.custom.iter().find(|(section, _)| section == name)?;
        self.bytes.get(range.clone())
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
        &self.sections.imports
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        self.sections.bodies.get(index.checked_sub(self.first_body())? as usize).cloned()
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        let own = self.sections.names.get(&index);
        own.or_else(|| self.debug.as_ref()?.sections.names.get(&index)).map(String::as_str)
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        let own = self.sections.globals.get(name);
        own.or_else(|| self.debug.as_ref()?.sections.globals.get(name)).copied()
    }

    fn function_named(&self, name: &str) -> Option<u32> {
        let named = |image: &Self| {
            let names = image.sections.names.iter().filter(|(_, known)| *known == name);
            names.map(|(index, _)| *index).min()
        };
        let exported = || self.sections.exports.iter().find(|(_, known)| known == name).map(|(index, _)| *index);
        named(self).or_else(exported).or_else(|| named(self.debug.as_ref()?))
    }

    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        self.initial().table_function(table, element)
    }

    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        self.initial().data(&self.bytes, address, buffer)
    }

    fn code_hash(&self) -> Option<&[u8; 32]> {
        let code = || self.bytes.get(self.sections.code_start as usize..)?.get(..self.sections.code_size as usize);
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
        let (start, end) = (image.sections.code_start as usize, image.sections.bodies.last().unwrap().end as usize);
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
                assert!(
                    cut.sections.custom.len() < whole.sections.custom.len() || cut.sections.bodies.is_empty(),
                    "cut at {end}"
                );
            }
        }
    }
}
