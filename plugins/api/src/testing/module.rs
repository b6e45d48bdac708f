//! A module for tests: read from a file, or put together field by field.

use super::binary;
use crate::{FunctionImport, ModuleView, WasmFrame};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

/// A module and what a plugin may know of it. Tests may change each part.
///
/// The parts need not agree: a test that is only about names needs no `bytes`. The module knows neither what its segments hold, nor the
/// hash of its code, nor what its DWARF says.
#[derive(Clone, Debug, Default)]
pub struct TestModule {
    /// The whole module in binary form.
    pub bytes: Vec<u8>,
    /// Functions that the module imports, which come first in the function index space.
    pub imports: Vec<FunctionImport>,
    /// Bodies of the functions after the imports, in code section offsets.
    pub bodies: Vec<Range<u32>>,
    /// Names of functions by index, as the name section has them.
    pub names: HashMap<u32, String>,
    /// Functions that the module exports, with the names of the exports. They name the functions that `names` does not.
    pub exports: Vec<(u32, String)>,
    /// Indices of globals by name: from exports, else from the name section, else from imports.
    pub globals: HashMap<String, u32>,
    /// Payloads of the custom sections.
    pub sections: HashMap<String, Vec<u8>>,
    /// Other modules on the same memory.
    pub siblings: Vec<TestModule>,
}

impl TestModule {
    /// Reads a module.
    ///
    /// # Panics
    /// If it is malformed.
    pub fn parse(bytes: Vec<u8>) -> Self {
        let mut module = Self::default();
        binary::read(&bytes, &mut module);
        module.bytes = bytes;
        module
    }

    /// Reads `target/fixtures/NAME.wasm` of the package that is tested, or of a folder around it. Test guests are built to that place.
    ///
    /// # Panics
    /// If there is no such file, or it is malformed.
    pub fn fixture(name: &str) -> Self {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(std::env::current_dir, |path| Ok(path.into()));
        let package: PathBuf = package.expect("a folder");
        let file = format!("target/fixtures/{name}.wasm");
        let found = package.ancestors().map(|folder| folder.join(&file)).find(|path| path.exists());
        let path = found.unwrap_or_else(|| panic!("no {file} in or above {}: is it built?", package.display()));
        Self::parse(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Makes a frame in the function whose body is `bodies[body]`.
    pub fn frame(&self, body: usize, code_offset: u32) -> WasmFrame {
        WasmFrame::attached((self.imports.len() + body) as u32, code_offset)
    }
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
        let export = || self.exports.iter().find(|(exported, _)| *exported == index).map(|(_, name)| name);
        self.names.get(&index).or_else(export).map(String::as_str)
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        self.globals.get(name).copied()
    }

    fn function_named(&self, name: &str) -> Option<u32> {
        let named = self.names.iter().filter(|(_, known)| *known == name).map(|(index, _)| *index).min();
        named.or_else(|| self.exports.iter().find(|(_, known)| known == name).map(|(index, _)| *index))
    }

    fn siblings(&self) -> Vec<&dyn ModuleView> {
        self.siblings.iter().map(|sibling| sibling as &dyn ModuleView).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something with its size before it, in two bytes, as linkers pad sizes.
    fn sized(content: &[u8]) -> Vec<u8> {
        [&[0x80 | content.len() as u8, 0], content].concat()
    }

    fn named(name: &str, rest: &[u8]) -> Vec<u8> {
        [&sized(name.as_bytes()), rest].concat()
    }

    fn section(id: u8, payload: &[u8]) -> Vec<u8> {
        [&[id][..], &sized(payload)].concat()
    }

    /// Imports of each kind, two functions, and names for some.
    fn bytes() -> Vec<u8> {
        let imports: [(&str, &[u8]); 7] = [
            ("table", &[1, 0x70, 1, 1, 0x80, 1]),
            ("typed table", &[1, 0x63, 0x80, 1, 0, 1]),
            ("memory", &[2, 0, 0x81, 0x82, 0]),
            ("log", &[0, 0]),
            ("global", &[3, 0x7f, 1]),
            ("typed global", &[3, 0x64, 0x70, 0]),
            ("tag", &[4, 0, 0]),
        ];
        let imports = imports.map(|(name, what)| named("env", &named(name, what))).concat();
        let exports = [named("first", &[0, 1]), named("alias", &[0, 1]), named("shown", &[3, 0])].concat();
        let functions = [&[3, 0][..], &named("", &[]), &[1], &named("first's own", &[]), &[2], &named("last", &[])];
        let globals = [&[2, 0][..], &named("not shown", &[]), &[1], &named("sum", &[])];
        let names = [section(0, &named("module", &[])), section(1, &functions.concat()), section(7, &globals.concat())];
        [
            b"\0asm\x01\0\0\0".to_vec(),
            section(2, &[&[7][..], &imports].concat()),
            section(7, &[&[3][..], &exports].concat()),
            section(10, &[2, 2, 0, 0x0b, 3, 0, 1, 0x0b]),
            section(0, &named("name", &names.concat())),
            section(0, &named("twice", b"a")),
            section(0, &named("twice", b"b")),
        ]
        .concat()
    }

    #[test]
    fn a_module_is_read() {
        let module = TestModule::parse(bytes());
        assert_eq!(module.imports, [FunctionImport { module: "env".to_owned(), name: "log".to_owned() }]);
        assert_eq!([0, 1, 2, 3].map(|index| module.function_body(index)), [None, Some(2..4), Some(5..8), None]);
        assert_eq!(module.frame(1, 6), WasmFrame::attached(2, 6));
        assert_eq!(module.custom_section("twice"), Some(&b"a"[..]));
        assert_eq!(module.custom_section("never"), None);
        assert_eq!(module.bytes(), bytes());
    }

    #[test]
    fn names_come_from_the_name_section_then_from_exports() {
        let mut module = TestModule::parse(bytes());
        let names = |module: &TestModule| [0, 1, 2].map(|index| module.function_name(index).map(str::to_owned));
        assert_eq!(names(&module), [None, Some("first's own".to_owned()), Some("last".to_owned())]);
        let indices = |module: &TestModule| ["first's own", "first", "alias"].map(|name| module.function_named(name));
        assert_eq!(indices(&module), [Some(1); 3]);
        module.names.clear();
        assert_eq!(names(&module), [None, Some("first".to_owned()), None]);
        assert_eq!(indices(&module), [None, Some(1), Some(1)]);
        let globals = ["shown", "not shown", "sum", "typed global", "none"].map(|name| module.global_named(name));
        assert_eq!(globals, [Some(0), Some(0), Some(1), Some(1), None]);
    }
}
