//! A module as the tests see it: parsed with `wasmparser`, its sections replaceable.

use std::{collections::HashMap, ops::Range, path::PathBuf};
use wasmparser::{ExternalKind, KnownCustom, Name, Parser, Payload, TypeRef};
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{FrameKey, FunctionImport, ModuleView, SourceFrame, Walker, WasmFrame};

/// A module's functions, names and custom sections.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestModule {
    pub(crate) imports: Vec<FunctionImport>,
    /// In code section offsets.
    pub(crate) bodies: Vec<Range<u32>>,
    pub(crate) names: HashMap<u32, String>,
    pub(crate) sections: HashMap<String, Vec<u8>>,
    /// Where every instruction of every body starts, in code section offsets.
    pub(crate) instructions: Vec<Vec<u32>>,
}

impl TestModule {
    /// Reads a module that `cargo xtask test-fixtures` built.
    pub(crate) fn fixture(name: &str) -> Self {
        Self::parse(&std::fs::read(fixture_path(name)).unwrap())
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut module = Self::default();
        let mut exports = Vec::new();
        let mut code_start = 0;
        for payload in Parser::new(0).parse_all(bytes) {
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
                Payload::ExportSection(section) => {
                    let functions = section.into_iter().map(Result::unwrap);
                    exports.extend(
                        functions.filter(|e| e.kind == ExternalKind::Func).map(|e| (e.index, e.name.to_owned())),
                    );
                }
                Payload::CodeSectionStart { range, .. } => code_start = range.start,
                Payload::CodeSectionEntry(body) => {
                    let offset = |at: usize| u32::try_from(at - code_start).unwrap();
                    module.bodies.push(offset(body.range().start)..offset(body.range().end));
                    let mut operators = body.get_operators_reader().unwrap();
                    let mut starts = Vec::new();
                    while !operators.eof() {
                        starts.push(offset(operators.original_position()));
                        operators.read().unwrap();
                    }
                    module.instructions.push(starts);
                }
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(names) = section.as_known() {
                        for names in names {
                            let Name::Function(map) = names.unwrap() else { continue };
                            module.names.extend(map.into_iter().map(|n| n.map(|n| (n.index, n.name.into())).unwrap()));
                        }
                    }
                    module.sections.entry(section.name().to_owned()).or_insert_with(|| section.data().to_vec());
                }
                _ => {}
            }
        }
        for (index, name) in exports {
            module.names.entry(index).or_insert(name);
        }
        module
    }

    /// The frame of body `body` at `offset`.
    pub(crate) fn frame(&self, body: usize, offset: u32) -> WasmFrame {
        WasmFrame { function: u32::try_from(self.imports.len() + body).unwrap(), code_offset: offset }
    }

    /// The body that the name section calls `name`.
    #[allow(dead_code)]
    pub(crate) fn body_named(&self, name: &str) -> usize {
        let (index, _) = self.names.iter().find(|(_, found)| *found == name).unwrap_or_else(|| panic!("no {name}"));
        *index as usize - self.imports.len()
    }
}

impl ModuleView for TestModule {
    fn name(&self) -> &str {
        "test"
    }

    fn bytes(&self) -> &[u8] {
        &[]
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

/// Where a fixture is.
pub(crate) fn fixture_path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures").join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is missing: run `cargo xtask test-fixtures`", path.display());
    path
}

/// The source frames of one wasm frame.
#[allow(dead_code)]
pub(crate) fn symbolize(symbolizer: &mut Symbolizer, frame: WasmFrame) -> Vec<SourceFrame> {
    let mut out = Vec::new();
    symbolizer.symbolize(FrameKey::Wasm(frame), &mut out);
    out
}

/// `function file:line:column`, missing parts as `?` and 0.
#[allow(dead_code)]
pub(crate) fn show(frame: &SourceFrame) -> String {
    let file = frame.file.as_deref().unwrap_or("?");
    format!("{} {file}:{}:{}", frame.function, frame.line.unwrap_or(0), frame.column.unwrap_or(0))
}

/// Whether `ours` is `plain` with the module, type or namespace it belongs to: `<core::fmt::Formatter>::pad`, `pad`.
#[allow(dead_code)]
pub(crate) fn qualifies(ours: &str, plain: &str) -> bool {
    let identifier: String = plain.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    // `#[panic_handler]` renames.
    let identifier = if identifier == "panic_handler" { "rust_begin_unwind" } else { &identifier };
    let mangled = ["_Z", "_R"].iter().any(|start| plain.starts_with(start));
    !mangled && (ours.contains("::") || ours.starts_with("_R") || ours.starts_with("_Z")) && ours.contains(identifier)
}
