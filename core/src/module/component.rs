//! The core modules of a component.

use super::core_instances::CoreInstances;
use super::image::ModuleImage;
use super::sections::ImageError;
use std::ops::Range;
use wasmtime_environ::wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentName, ComponentOuterAliasKind, ComponentTypeRef,
    ExternalKind, KnownCustom, Parser, Payload,
};

/// The modules that lie in a component, in the order in which Wasmtime numbers them: that of the file, with those of components in it
/// where these lie. They are called as they call themselves, or else as their component calls them, or else by `file_name` and number, and
/// know which of the others work on their memory.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed. The component is not validated: that is the engine's part.
pub fn core_modules(component: &[u8], file_name: &str) -> Result<Vec<ModuleImage>, ImageError> {
    let found = Found::in_component(component)?;
    let image = |(number, Module { range, name }): (usize, Module)| {
        let name = name.unwrap_or_else(|| format!("{file_name}#{number}"));
        // Of what is cut short the next payload is an error.
        let bytes = component.get(range.clone()).unwrap_or_default();
        ModuleImage::parse_at(bytes.to_vec(), range.start as u32, &name)
    };
    let mut images: Vec<_> = found.modules.into_iter().enumerate().map(image).collect::<Result<_, _>>()?;
    found.instances.iter().for_each(|instances| instances.tell(&mut images));
    Ok(images)
}

/// Where the core modules of a component are in it, in their order.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed.
pub(crate) fn core_module_ranges(component: &[u8]) -> Result<Vec<Range<usize>>, ImageError> {
    Ok(Found::in_component(component)?.modules.into_iter().map(|module| module.range).collect())
}

struct Module {
    range: Range<usize>,
    name: Option<String>,
}

#[derive(Default)]
struct Found {
    modules: Vec<Module>,
    /// Those that are open, the innermost last.
    open: Vec<Open>,
    /// What components that are closed make.
    instances: Vec<CoreInstances>,
}

/// A component that is not at its end.
#[derive(Default)]
struct Open {
    /// Its core modules by its own numbers; `None` for those that it has from others.
    modules: Vec<Option<usize>>,
    instances: CoreInstances,
}

impl Found {
    fn in_component(component: &[u8]) -> Result<Self, ImageError> {
        let mut found = Self::default();
        let mut parser = Parser::new(0).parse_all(component);
        parser.try_for_each(|payload| found.take(payload?)).map_err(ImageError::Malformed)?;
        Ok(found)
    }

    fn take(&mut self, payload: Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::Version { .. } => self.open.push(Open::default()),
            Payload::End(_) => self.instances.extend(self.open.pop().map(|component| component.instances)),
            Payload::ModuleSection { unchecked_range, .. } => {
                self.number(Some(self.modules.len()));
                self.modules.push(Module { range: unchecked_range, name: None });
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    if let ComponentTypeRef::Module(_) = import?.ty {
                        self.number(None);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                // What is exported has another number from there on.
                for export in section {
                    let export = export?;
                    if export.kind == ComponentExternalKind::Module {
                        let modules = self.open.last().map(|component| &component.modules);
                        self.number(modules.and_then(|modules| *modules.get(export.index as usize)?));
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    match alias? {
                        ComponentAlias::InstanceExport { kind: ComponentExternalKind::Module, .. }
                        | ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, .. } => self.number(None),
                        ComponentAlias::CoreInstanceExport { kind: ExternalKind::Memory, instance_index, name } => {
                            let component = self.open.last_mut().into_iter();
                            component.for_each(|component| component.instances.name_memory(instance_index, name));
                        }
                        _ => {}
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    let instance = instance?;
                    if let Some(Open { modules, instances }) = self.open.last_mut() {
                        instances.make(instance, |number| *modules.get(number as usize)?);
                    }
                }
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::ComponentName(names) = section.as_known() {
                    // Whatever is wrong with names costs names alone.
                    names.into_iter().map_while(Result::ok).for_each(|names| self.name(names));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The innermost component has another core module.
    fn number(&mut self, module: Option<usize>) {
        self.open.last_mut().into_iter().for_each(|component| component.modules.push(module));
    }

    fn name(&mut self, names: ComponentName<'_>) {
        let (ComponentName::CoreModules(names), Some(component)) = (names, self.open.last()) else { return };
        for naming in names.into_iter().map_while(Result::ok) {
            if let Some(Some(module)) = component.modules.get(naming.index as usize) {
                self.modules[*module].name = Some(naming.name.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::ModuleView;

    #[test]
    fn modules_are_in_the_order_of_the_file_through_all_components() {
        let text = r#"(component (import "a" (core module $imported)) (core module $first (func nop))
            (component (core module (func)) (component (core module $deep)) (core module $after (func nop nop)))
            (core module $last))"#;
        let bytes = wat::parse_str(text).unwrap();
        let modules = core_modules(&bytes, "x.wasm").unwrap();
        let names: Vec<&str> = modules.iter().map(|module| module.name()).collect();
        assert_eq!(names, ["first", "x.wasm#1", "deep", "after", "last"]);
        // `nop nop end` behind an empty list of locals.
        let after = &modules[3];
        let body = after.function_body(0).unwrap();
        let file_offset = bytes.windows(4).position(|window| window == [0, 1, 1, 0x0b]).unwrap() as u32;
        assert_eq!(after.compiled_code_offset(file_offset), Some(body.start));
        for end in 8..bytes.len() {
            // No cut is a panic.
            let _ = core_modules(&bytes[..end], "x");
        }
        assert!(core_modules(&wat::parse_str("(component)").unwrap(), "x").unwrap().is_empty());
    }
}
