//! The core modules of a component.

use super::component_items::{Component, Instances, Item, ItemsByName};
use super::component_names::{name_imports, name_instances};
use super::core_instances::CoreFunction;
use super::image::ModuleImage;
use super::sections::ImageError;
use std::ops::Range;
use wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentName,
    ComponentOuterAliasKind, Encoding, ExternalKind, KnownCustom, Parser, Payload,
};

/// The modules that lie in a component, in the order in which Wasmtime numbers them: that of the file, with those of components in it
/// where these lie. They are called as they call themselves, or else as their component calls them, or else by `file_name` and number. They
/// know which of the others work on their memory, what their imports are called by the component, and in which of its instances they run.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed. The component is not validated: that is the engine's part.
pub fn core_modules(component: &[u8], file_name: &str) -> Result<Vec<ModuleImage>, ImageError> {
    let found = ScanResult::in_component(component)?;
    let image = |(number, Module { range, name, .. }): (usize, &Module)| {
        let name = name.clone().unwrap_or_else(|| format!("{file_name}#{number}"));
        // Of what is cut short the next payload is an error.
        let bytes = component.get(range.clone()).unwrap_or_default();
        ModuleImage::parse_at(bytes.to_vec(), range.start as u32, &name)
    };
    let mut images: Vec<_> = found.modules.iter().enumerate().map(image).collect::<Result<_, _>>()?;
    found.components.iter().for_each(|component| component.core_instances.tell(&mut images));
    name_imports(&found.components, &mut images);
    name_instances(&found.components, &found.modules, &mut images);
    Ok(images)
}

/// Where the core modules of a component are in it, in their order.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed.
pub fn core_module_ranges(component: &[u8]) -> Result<Vec<Range<usize>>, ImageError> {
    Ok(ScanResult::in_component(component)?.modules.into_iter().map(|module| module.range).collect())
}

/// A core module, and where it is.
pub(super) struct Module {
    range: Range<usize>,
    name: Option<String>,
    /// The component that it lies in.
    pub(super) component: usize,
    /// Others may make instances of it.
    pub(super) is_given_away: bool,
}

#[derive(Default)]
struct ScanResult<'a> {
    modules: Vec<Module>,
    /// The whole, and those in it, in the order of the file.
    components: Vec<Component<'a>>,
    /// What is open, the innermost last: components by their numbers, and `None` for modules.
    open: Vec<Option<usize>>,
}

impl<'a> ScanResult<'a> {
    fn in_component(component: &'a [u8]) -> Result<Self, ImageError> {
        let mut found = Self::default();
        let mut parser = Parser::new(0).parse_all(component);
        parser.try_for_each(|payload| found.take(payload?)).map_err(ImageError::Malformed)?;
        Ok(found)
    }

    fn take(&mut self, payload: Payload<'a>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::Version { encoding: Encoding::Component, .. } => {
                self.open.push(Some(self.components.len()));
                self.components.push(Component::default());
                return Ok(());
            }
            Payload::Version { encoding: Encoding::Module, .. } => self.open.push(None),
            Payload::End(_) => _ = self.open.pop(),
            _ => {}
        }
        let Some(Some(number)) = self.open.last().copied() else { return Ok(()) };
        let next_component = self.components.len();
        let Some(here) = self.components.get_mut(number) else { return Ok(()) };
        match payload {
            Payload::ModuleSection { unchecked_range, .. } => {
                here.core_modules.push(Some(self.modules.len()));
                let module = Module { range: unchecked_range, name: None, component: number, is_given_away: false };
                self.modules.push(module);
            }
            Payload::ComponentSection { .. } => here.components.push(Some(next_component)),
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import?;
                    match import.ty.kind() {
                        ComponentExternalKind::Module => here.core_modules.push(None),
                        ComponentExternalKind::Component => here.components.push(None),
                        ComponentExternalKind::Func => here.functions.push(Item::Imported(import.name.name)),
                        ComponentExternalKind::Instance => here.instances.push(Item::Imported(import.name.name)),
                        ComponentExternalKind::Value | ComponentExternalKind::Type => {}
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section {
                    let export = export?;
                    self.export(number, export.name.name, export.kind, export.index);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.alias(number, &alias?);
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section {
                    match function? {
                        CanonicalFunction::Lift { .. } => here.functions.push(Item::Other),
                        CanonicalFunction::Lower { func_index, .. } => {
                            here.core_instances.number_function(CoreFunction::Lowered(func_index));
                        }
                        _ => here.core_instances.number_function(CoreFunction::BuiltIn),
                    }
                }
            }
            Payload::InstanceSection(section) => {
                for instance in section {
                    let instance = instance?;
                    let Component { core_modules, core_instances, .. } = here;
                    core_instances.make(instance, |number| *core_modules.get(number as usize)?);
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    self.instantiate(number, instance?);
                }
            }
            Payload::CustomSection(section) => {
                if let KnownCustom::ComponentName(names) = section.as_known() {
                    // Whatever is wrong with names costs names alone.
                    names.into_iter().map_while(Result::ok).for_each(|names| self.name(number, names));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The component exports an item, which has another number from there on.
    fn export(&mut self, component: usize, name: &'a str, kind: ComponentExternalKind, index: u32) {
        self.give_away(component, kind, index);
        let here = &mut self.components[component];
        match kind {
            ComponentExternalKind::Module => {
                here.core_modules.push(here.core_modules.get(index as usize).copied().flatten());
            }
            ComponentExternalKind::Component => {
                here.components.push(here.components.get(index as usize).copied().flatten());
            }
            ComponentExternalKind::Func => here.functions.push(Item::Same(index)),
            ComponentExternalKind::Instance => here.instances.push(Item::Same(index)),
            ComponentExternalKind::Value | ComponentExternalKind::Type => {}
        }
        here.exports.insert(name, (kind, index));
    }

    /// Others may make instances of the module or the component that is this item.
    fn give_away(&mut self, component: usize, kind: ComponentExternalKind, index: u32) {
        let here = &self.components[component];
        match kind {
            ComponentExternalKind::Module => {
                if let Some(Some(module)) = here.core_modules.get(index as usize) {
                    self.modules[*module].is_given_away = true;
                }
            }
            ComponentExternalKind::Component => {
                if let Some(given) = here.components.get(index as usize).copied().flatten()
                    && let Some(given) = self.components.get_mut(given)
                {
                    given.made = Instances::Several;
                }
            }
            _ => {}
        }
    }

    fn alias(&mut self, component: usize, alias: &ComponentAlias<'a>) {
        let outer = |open: &[Option<usize>], count: u32| *open.get(open.len().checked_sub(1 + count as usize)?)?;
        match *alias {
            ComponentAlias::InstanceExport { kind, instance_index, name } => {
                let here = &mut self.components[component];
                match kind {
                    ComponentExternalKind::Module => here.core_modules.push(None),
                    ComponentExternalKind::Component => here.components.push(None),
                    ComponentExternalKind::Func => here.functions.push(Item::Exported(instance_index, name)),
                    ComponentExternalKind::Instance => here.instances.push(Item::Exported(instance_index, name)),
                    ComponentExternalKind::Value | ComponentExternalKind::Type => {}
                }
            }
            ComponentAlias::CoreInstanceExport { kind, instance_index, name } => {
                let instances = &mut self.components[component].core_instances;
                match kind {
                    ExternalKind::Memory => instances.name_memory(instance_index, name),
                    ExternalKind::Func | ExternalKind::FuncExact => {
                        instances.number_function(CoreFunction::Exported(instance_index, name));
                    }
                    _ => {}
                }
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, count, index } => {
                if let Some(outer) = outer(&self.open, count) {
                    self.give_away(outer, ComponentExternalKind::Module, index);
                }
                self.components[component].core_modules.push(None);
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                let outer = outer(&self.open, count).and_then(|outer| self.components.get(outer));
                let aliased = outer.and_then(|outer| *outer.components.get(index as usize)?);
                self.components[component].components.push(aliased);
            }
            ComponentAlias::Outer { .. } => {}
        }
    }

    /// The component makes an instance.
    fn instantiate(&mut self, component: usize, instance: ComponentInstance<'a>) {
        let number = self.components[component].instances.len() as u32;
        let item = match instance {
            ComponentInstance::Instantiate { component_index, args } => {
                args.iter().for_each(|given| self.give_away(component, given.kind, given.index));
                let of = self.components[component].components.get(component_index as usize).copied().flatten();
                if let Some(made) = of.and_then(|of| self.components.get_mut(of)).map(|of| &mut of.made) {
                    *made = match made {
                        Instances::None => Instances::One(component, number),
                        Instances::One(..) | Instances::Several => Instances::Several,
                    };
                }
                let given: ItemsByName<'a> = args.iter().map(|given| (given.name, (given.kind, given.index))).collect();
                Item::Instantiated { component: of, given }
            }
            ComponentInstance::FromExports(exports) => {
                exports.iter().for_each(|export| self.give_away(component, export.kind, export.index));
                Item::Bundle(exports.iter().map(|export| (export.name.name, (export.kind, export.index))).collect())
            }
        };
        self.components[component].instances.push(item);
    }

    fn name(&mut self, component: usize, names: ComponentName<'a>) {
        let here = &mut self.components[component];
        match names {
            ComponentName::Component { name, .. } => here.name = Some(name),
            ComponentName::CoreModules(names) => {
                for naming in names.into_iter().map_while(Result::ok) {
                    if let Some(Some(module)) = here.core_modules.get(naming.index as usize) {
                        self.modules[*module].name = Some(naming.name.to_owned());
                    }
                }
            }
            ComponentName::Instances(names) => {
                let names = names.into_iter().map_while(Result::ok);
                here.instance_names.extend(names.map(|naming| (naming.index, naming.name)));
            }
            _ => {}
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
