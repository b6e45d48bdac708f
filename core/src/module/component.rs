//! The core modules of a component.

use super::component_items::{Component, Instances, Item, Named, bounded, imported_function, instance_name};
use super::core_instances::CoreFunction;
use super::image::ModuleImage;
use super::sections::ImageError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use wasmtime_environ::wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentName,
    ComponentOuterAliasKind, Encoding, ExternalKind, KnownCustom, Parser, Payload,
};
use wlprof_plugin::ModuleView;

/// How many imports of a component's modules are looked at: some ten times as many as Python's have.
const MAX_IMPORTS: usize = 200_000;

/// How many bytes the names that those have in a component may have in all.
const MAX_IMPORT_NAMES: usize = 1 << 20;

/// The modules that lie in a component, in the order in which Wasmtime numbers them: that of the file, with those of components in it
/// where these lie. They are called as they call themselves, or else as their component calls them, or else by `file_name` and number. They
/// know which of the others work on their memory, what their imports are called by the component, and in which of its instances they run.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed. The component is not validated: that is the engine's part.
pub fn core_modules(component: &[u8], file_name: &str) -> Result<Vec<ModuleImage>, ImageError> {
    let found = Found::in_component(component)?;
    let image = |(number, Module { range, name, .. }): (usize, &Module)| {
        let name = name.clone().unwrap_or_else(|| format!("{file_name}#{number}"));
        // Of what is cut short the next payload is an error.
        let bytes = component.get(range.clone()).unwrap_or_default();
        ModuleImage::parse_at(bytes.to_vec(), range.start as u32, &name)
    };
    let mut images: Vec<_> = found.modules.iter().enumerate().map(image).collect::<Result<_, _>>()?;
    found.components.iter().for_each(|component| component.core_instances.tell(&mut images));
    found.name_imports(&mut images);
    found.name_instances(&mut images);
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
    /// The component that it lies in.
    component: usize,
    /// Others may make instances of it.
    is_given_away: bool,
}

#[derive(Default)]
struct Found<'a> {
    modules: Vec<Module>,
    /// The whole, and those in it, in the order of the file.
    components: Vec<Component<'a>>,
    /// What is open, the innermost last: components by their numbers, and `None` for modules.
    open: Vec<Option<usize>>,
}

impl<'a> Found<'a> {
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
                let given: Named<'a> = args.iter().map(|given| (given.name, (given.kind, given.index))).collect();
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

    /// Tells each of `images` what the whole calls those of its functions that it imports.
    fn name_imports(&self, images: &mut [ModuleImage]) {
        let passed_on: Vec<_> = images.iter().map(ModuleImage::functions_passed_on).collect();
        let mut functions: BTreeMap<(usize, u32), Vec<Option<(usize, u32)>>> = BTreeMap::new();
        let mut budget = MAX_IMPORTS;
        for (number, component) in self.components.iter().enumerate() {
            component.core_instances.for_each_import(images, &passed_on, &mut budget, |module, import, function| {
                let given = functions.entry((module, import)).or_default();
                given.push(function.map(|function| (number, function)));
            });
        }
        drop(passed_on);
        let mut left = MAX_IMPORT_NAMES;
        for ((module, import), given) in functions {
            let mut given = given.into_iter().map(|function| {
                let (component, function) = function?;
                imported_function(&self.components, component, function)
            });
            // One whose instances are given different ones says by itself what it calls.
            let Some((interface, name)) = given.next().flatten() else { continue };
            if given.any(|other| other != Some((interface, name))) {
                continue;
            }
            let length = interface.map_or(0, |interface| interface.len() + 1) + name.len();
            if let Some(rest) = left.checked_sub(length) {
                left = rest;
                let name = interface.map_or_else(|| name.to_owned(), |interface| format!("{interface}.{name}"));
                images[module].set_import_name(import, name);
            }
        }
    }

    /// Tells each of `images` what the instance is called that its code runs in, if there are several to be told apart: of the whole the
    /// instance of the module, which is called as that is, and else that of the component that it lies in. One of which, or of whose component, there are
    /// several instances has none: its code does not tell in which it runs.
    fn name_instances(&self, images: &mut [ModuleImage]) {
        let mut counts = vec![0; self.modules.len()];
        let made = self.components.iter().flat_map(|component| component.core_instances.modules());
        made.for_each(|module| counts[module] += 1);
        let own = self.modules.iter().zip(&*images).filter(|(_, image)| !image.is_glue());
        // The first of a component stays.
        let of_own: HashMap<usize, &str> = own.rev().map(|(module, image)| (module.component, image.name())).collect();
        let first_module = |component| of_own.get(&component).map_or("component", |name| name).to_owned();
        let mut of_components: HashMap<usize, Option<String>> = HashMap::new();
        let names: Vec<Option<String>> = self
            .modules
            .iter()
            .zip(&*images)
            .zip(counts)
            .map(|((module, image), count)| {
                if module.is_given_away || image.is_glue() {
                    return None;
                }
                if module.component == 0 {
                    return (count == 1).then(|| bounded(image.name().to_owned()));
                }
                let of_component = || instance_name(&self.components, module.component, first_module);
                of_components.entry(module.component).or_insert_with(of_component).clone()
            })
            .collect();
        if names.iter().flatten().collect::<BTreeSet<_>>().len() > 1 {
            images.iter_mut().zip(names).for_each(|(image, name)| image.set_instance(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// For each module of a component of this text, what its imports are called, and the instance that it runs in.
    fn imports_and_instances(text: &str) -> Vec<(Vec<String>, Option<String>)> {
        let modules = core_modules(&wat::parse_str(format!("(component {text})")).unwrap(), "x").unwrap();
        let of = |module: &ModuleImage| {
            let imports = (0..).map_while(|import| module.import_name(import)).collect();
            (imports, module.instance().map(str::to_owned))
        };
        modules.iter().map(of).collect()
    }

    const CALLER: &str = r#"(core module $caller (import "a" "b" (func)) (import "a" "c" (func)))"#;

    #[test]
    fn what_a_module_imports_is_called_as_its_component_does() {
        let given = r#"(import "acme:shop/log@1.0.0" (instance $log (export "write" (func)) (export "flush" (func))))
            (import "alone" (func $alone))
            (core module $passing (import "from" "it" (func $it)) (export "again" (func $it)) (func (export "own")))
            (core func $write (canon lower (func $log "write")))
            (core func $alone (canon lower (func $alone)))
            (core instance $passing (instantiate $passing (with "from" (instance (export "it" (func $write))))))
            (core instance (instantiate $caller (with "a" (instance
                (export "b" (func $passing "again")) (export "c" (func $alone))))))"#;
        let found = imports_and_instances(&format!("{CALLER} {given}"));
        assert_eq!(found[0].0, ["acme:shop/log@1.0.0.write", "alone"]);
        assert_eq!(found[1].0, ["acme:shop/log@1.0.0.write"]);
        // Of one that another module has, and of two that differ, nothing better is known.
        let apart = r#"(import "log" (func $log)) (import "other" (func $other))
            (core module $own (func (export "f")))
            (core func $log (canon lower (func $log))) (core func $other (canon lower (func $other)))
            (core instance $own (instantiate $own))
            (core instance (instantiate $caller (with "a" (instance (export "b" (func $own "f")) (export "c" (func $log))))))
            (core instance (instantiate $caller (with "a" (instance (export "b" (func $own "f")) (export "c" (func $other))))))"#;
        assert_eq!(imports_and_instances(&format!("{CALLER} {apart}"))[0].0, ["a.b", "a.c"]);
    }

    #[test]
    fn imports_are_followed_out_of_components_to_what_the_whole_imports() {
        let inner = format!(
            r#"(component $inner (import "clock" (instance $clock (export "now" (func)))) (import "tick" (func $tick))
                (export $again "again" (instance $clock))
                {CALLER} (core func $now (canon lower (func $clock "now"))) (core func $tick (canon lower (func $tick)))
                (core instance (instantiate $caller (with "a" (instance (export "b" (func $now)) (export "c" (func $tick)))))))"#
        );
        let outer = r#"(import "wasi:clocks/clock@0.3.0" (instance $host (export "now" (func)) (export "tick" (func))))
            (instance $given (export "now" (func $host "now")))"#;
        let made = r#"(instance $first (instantiate $inner (with "clock" (instance $given)) (with "tick" (func $host "tick"))))"#;
        let found = imports_and_instances(&format!("{outer} {inner} {made}"));
        assert_eq!(found[0].0, ["wasi:clocks/clock@0.3.0.now", "wasi:clocks/clock@0.3.0.tick"]);
        // What one instance of two is given may not be what the other is.
        let twice = format!("{outer} {inner} {made} {}", made.replace("$first", "$second"));
        assert_eq!(imports_and_instances(&twice)[0].0, ["a.b", "a.c"]);
        // From the first's export.
        let chained = format!(
            r#"{outer} {inner} {made} (component $last (import "clock" (instance $clock (export "now" (func))))
                (core module $m (import "x" "y" (func))) (core func $now (canon lower (func $clock "now")))
                (core instance (instantiate $m (with "x" (instance (export "y" (func $now)))))))
            (instance (instantiate $last (with "clock" (instance $first "again"))))"#
        );
        assert_eq!(imports_and_instances(&chained)[1].0, ["wasi:clocks/clock@0.3.0.now"]);
    }

    #[test]
    fn modules_are_of_the_instances_that_run_them() {
        let of = |text: &str| -> Vec<Option<String>> {
            imports_and_instances(text).into_iter().map(|(_, instance)| instance).collect()
        };
        let names = |names: &[&str]| -> Vec<Option<String>> {
            names.iter().map(|name| Some((*name).to_owned()).filter(|name| !name.is_empty())).collect()
        };
        let alone = "(core module $one (func)) (core instance (instantiate $one))";
        assert_eq!(of(alone), names(&[""]), "there is nothing to tell apart");
        let glue = "(core module $wit-component:shim (func)) (core instance (instantiate $wit-component:shim))";
        assert_eq!(of(&format!("{alone} {glue}")), names(&["", ""]));
        let two = format!("{alone} (core module $two (func)) (core instance (instantiate $two))");
        assert_eq!(of(&format!("{two} {glue}")), names(&["one", "two", ""]));
        assert_eq!(of(&format!("{two} (core instance (instantiate $two))")), names(&["", ""]));
        let nested = format!("(component $app {two} (component $deep {alone}) (instance $lib (instantiate $deep)))");
        let shop = format!("{alone} {nested} (instance $shop (instantiate $app))");
        assert_eq!(of(&shop), names(&["one", "shop", "shop", "shop/lib"]));
        assert_eq!(of(&shop.replace("(instance $shop", "(instance")), names(&["one", "app", "app", "app/lib"]));
        // Without names a component is called as its first module.
        let nameless = nested.replace("$app", "");
        let nameless = format!("{alone} {} (instance (instantiate 0))", nameless.replacen("$one", "$own", 2));
        assert_eq!(of(&nameless), names(&["one", "own", "own", "own/lib"]));
        // Of two instances code does not tell in which it runs; nor if others may have made more.
        let again = format!("{two} {nested} (instance (instantiate $app)) (instance (instantiate $app))");
        assert_eq!(of(&again), names(&["one", "two", "", "", ""]));
        let exported = format!(r#"{two} {nested} (instance (instantiate $app)) (export "app" (component $app))"#);
        assert_eq!(of(&exported), names(&["one", "two", "", "", ""]));
    }

    #[test]
    fn components_that_lead_nowhere_or_in_circles_have_no_names() {
        let text = r#"(import "log" (func $log)) (core module $caller (import "a" "b" (func)))
            (core func $f (canon lower (func $log)))
            (core instance (instantiate $caller (with "a" (instance (export "b" (func $f))))))"#;
        let whole = wat::parse_str(format!("(component {text})")).unwrap();
        assert_eq!(core_modules(&whole, "x").unwrap()[0].import_name(0).as_deref(), Some("log"));
        for at in 8..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                // No number that is wrong is a panic.
                let _ = core_modules(&changed, "x");
            }
        }
    }
}
