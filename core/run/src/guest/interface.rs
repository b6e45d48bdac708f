//! What a module asks of its host and what it offers to be called, read from its sections without compiling it.

use std::sync::Arc;
use wasmtime_environ::wasmparser::{
    BinaryReaderError, CompositeInnerType, ExternalKind, FuncType, Parser, Payload, TypeRef,
};

/// An import.
pub(super) struct Import {
    pub(super) module: String,
    pub(super) name: String,
    pub(super) is_function: bool,
    /// The function's type, if that can be read.
    pub(super) function: Option<Arc<FuncType>>,
}

impl Import {
    /// `module.name`
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.module, self.name)
    }
}

/// A module's imports and exported functions.
#[derive(Default)]
pub(super) struct Interface {
    pub(super) imports: Vec<Import>,
    /// Names and types of the functions that it exports. No type is one that cannot be read: the engine says why. A type may have a thousand
    /// parameters, and many functions.
    pub(super) functions: Vec<(String, Option<Arc<FuncType>>)>,
    /// Whether it imports or has a memory for several threads.
    pub(super) has_shared_memory: bool,
}

impl Interface {
    /// Reads a module in binary form. Whether it is valid is for the engine to say.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, BinaryReaderError> {
        let mut interface = Self::default();
        // By type index; `None` for what is no function's type. Then, by function index, the type indices.
        let (mut types, mut functions) = (Vec::new(), Vec::new());
        let type_of = |types: &[Option<Arc<FuncType>>], index: u32| types.get(index as usize).cloned().flatten();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        types.extend(group?.into_types().map(|ty| match ty.composite_type.inner {
                            CompositeInnerType::Func(function) => Some(Arc::new(function)),
                            _ => None,
                        }));
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        let (is_function, function) = match import.ty {
                            TypeRef::Func(index) | TypeRef::FuncExact(index) => {
                                functions.push(index);
                                (true, type_of(&types, index))
                            }
                            TypeRef::Memory(memory) => {
                                interface.has_shared_memory |= memory.shared;
                                (false, None)
                            }
                            _ => (false, None),
                        };
                        let (module, name) = (import.module.to_owned(), import.name.to_owned());
                        interface.imports.push(Import { module, name, is_function, function });
                    }
                }
                Payload::FunctionSection(section) => {
                    for index in section {
                        functions.push(index?);
                    }
                }
                Payload::MemorySection(section) => {
                    for memory in section {
                        interface.has_shared_memory |= memory?.shared;
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            let index = functions.get(export.index as usize);
                            let ty = index.and_then(|&index| type_of(&types, index));
                            interface.functions.push((export.name.to_owned(), ty));
                        }
                    }
                }
                // Everything of interest stands before the code.
                Payload::CodeSectionStart { .. } => break,
                _ => {}
            }
        }
        Ok(interface)
    }

    /// The exported function of that name: its type, if that can be read.
    pub(super) fn function(&self, name: &str) -> Option<Option<&FuncType>> {
        self.functions.iter().find(|(exported, _)| exported == name).map(|(_, ty)| ty.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_for_what_is_imported_and_exported() {
        let text = r#"(module
            (rec (type $none (func)) (type (struct)))
            (type $two (func (param i32 i64) (result f32)))
            (import "env" "two" (func (type $two)))
            (import "env" "table" (table 1 funcref))
            (memory 1)
            (func (export "none") (type $none)) (global (export "global") i32 (i32.const 0))
            (export "again" (func 0)))"#;
        let interface = Interface::read(&wat::parse_str(text).unwrap()).unwrap();
        let imports: Vec<_> =
            interface.imports.iter().map(|import| (&*import.name, import.function.is_some())).collect();
        assert_eq!(imports, [("two", true), ("table", false)]);
        assert_eq!(interface.function("none").flatten().map(|ty| ty.params().len()), Some(0));
        assert_eq!(interface.function("again").flatten().map(|ty| ty.params().len()), Some(2));
        assert!(interface.function("global").is_none());
        assert!(!interface.has_shared_memory);
    }

    #[test]
    fn a_type_is_kept_once_however_many_functions_have_it() {
        let parameters = "i32 ".repeat(1000);
        let exports: String = (0..1000).map(|number| format!("(export \"e{number}\" (func 0))")).collect();
        let text = format!("(module (func (param {parameters})) {exports})");
        let interface = Interface::read(&wat::parse_str(text).unwrap()).unwrap();
        let types: Vec<&Arc<FuncType>> = interface.functions.iter().filter_map(|(_, ty)| ty.as_ref()).collect();
        assert!(types.len() == 1000 && types.iter().all(|ty| Arc::ptr_eq(ty, types[0])));
    }

    #[test]
    fn shared_memories_are_seen_whoever_makes_them() {
        for text in [r#"(module (memory 1 1 shared))"#, r#"(module (import "env" "m" (memory 1 1 shared)))"#] {
            assert!(Interface::read(&wat::parse_str(text).unwrap()).unwrap().has_shared_memory, "{text}");
        }
    }
}
