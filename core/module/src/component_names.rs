//! What a component calls the functions that its modules import, and the instances that their code runs in.

use super::component::Module;
use super::component_items::{Component, bounded, imported_function, instance_name};
use super::image::ModuleImage;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wlprof_plugin::ModuleView;

/// How many imports of a component's modules are looked at: some ten times as many as Python's have.
const MAX_IMPORTS: usize = 200_000;

/// How many bytes the names that those have in a component may have in all.
const MAX_IMPORT_NAMES: usize = 1 << 20;

/// The function that an instance is given for an import: its component and its number there, if it is a lowered one.
type SuppliedFunction = Option<(usize, u32)>;

/// Tells each of `images` what the whole calls those of its functions that it imports.
pub(super) fn name_imports(components: &[Component<'_>], images: &mut [ModuleImage]) {
    let passed_on: Vec<_> = images.iter().map(ModuleImage::functions_passed_on).collect();
    let mut functions: BTreeMap<(usize, u32), Vec<SuppliedFunction>> = BTreeMap::new();
    let mut budget = MAX_IMPORTS;
    for (number, component) in components.iter().enumerate() {
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
            imported_function(components, component, function)
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
pub(super) fn name_instances(components: &[Component<'_>], modules: &[Module], images: &mut [ModuleImage]) {
    let mut counts = vec![0; modules.len()];
    let made = components.iter().flat_map(|component| component.core_instances.modules());
    made.for_each(|module| counts[module] += 1);
    let own = modules.iter().zip(&*images).filter(|(_, image)| !image.is_glue());
    // The first of a component stays.
    let of_own: HashMap<usize, &str> = own.rev().map(|(module, image)| (module.component, image.name())).collect();
    let first_module = |component| of_own.get(&component).map_or("component", |name| name).to_owned();
    let mut of_components: HashMap<usize, Option<String>> = HashMap::new();
    let names: Vec<Option<String>> = modules
        .iter()
        .zip(&*images)
        .zip(counts)
        .map(|((module, image), count)| {
            if module.is_given_away || image.is_glue() {
                return None;
            }
            if module.component == 0 {
                return (count == 1).then(|| bounded(image.name()).to_owned());
            }
            let of_component = || instance_name(components, module.component, first_module);
            of_components.entry(module.component).or_insert_with(of_component).clone()
        })
        .collect();
    if names.iter().flatten().collect::<BTreeSet<_>>().len() > 1 {
        images.iter_mut().zip(names).for_each(|(image, name)| image.set_instance(name));
    }
}

#[cfg(test)]
mod tests {
    use super::super::component::core_modules;
    use super::*;

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
