//! What the instances of core modules that a component makes are given: which of them work on one memory, and which functions of the
//! component's they import.

use super::image::{ExportedMemory, ModuleImage};
use std::collections::{BTreeMap, HashMap};
use wasmparser::{Export, ExternalKind, Instance};
use wlprof_plugin::{FunctionImport, ModuleView};

/// A memory: the instance that defines it, and which of its own it is.
type Memory = (u32, u32);

/// Through how many other instances a memory or a function is looked for. It is three in what wit-component links.
const MAX_STEPS: usize = 32;

/// How many instances a component may make for its memories to be looked at: more are none that Wasmtime takes.
const MAX_INSTANCES: usize = 1000;

/// How many modules may work on one memory to be known to each other. Who looks for a language looks at each with all others.
const MAX_SIBLINGS: usize = 63;

/// The instances of core modules that one component makes, without those of components in it, which are given no memory.
#[derive(Default)]
pub(super) struct CoreInstances<'a> {
    instances: Vec<CoreInstance<'a>>,
    /// Where each core memory that the component has a number for is exported.
    memories: Vec<ExportPlace<'a>>,
    functions: Vec<CoreFunction<'a>>,
}

/// By which instance, and as what.
type ExportPlace<'a> = (u32, &'a str);

/// What a core function is that the component has a number for.
pub(super) enum CoreFunction<'a> {
    /// The component's function of this number, lowered.
    Lowered(u32),
    /// What an instance exports by this name.
    Exported(u32, &'a str),
    /// One that Wasmtime makes: what drops resources, for instance.
    BuiltIn,
}

enum CoreInstance<'a> {
    Module {
        /// `None` if it is from another component.
        module: Option<usize>,
        /// The instances that it is given, by the names of what it imports from.
        given: HashMap<&'a str, u32>,
    },
    /// The numbers of what is from elsewhere, by their names.
    Bundle { memories: HashMap<&'a str, u32>, functions: HashMap<&'a str, u32> },
}

impl<'a> CoreInstances<'a> {
    /// The component makes an instance. `module` gives which module that of a number is.
    pub(super) fn make(&mut self, instance: Instance<'a>, module: impl Fn(u32) -> Option<usize>) {
        self.instances.push(match instance {
            Instance::Instantiate { module_index, args } => CoreInstance::Module {
                module: module(module_index),
                given: args.iter().map(|argument| (argument.name, argument.index)).collect(),
            },
            Instance::FromExports(exports) => {
                let of_kind = |kind| {
                    let exports = exports.iter().filter(move |export: &&Export<'a>| export.kind == kind);
                    exports.map(|export| (export.name, export.index)).collect()
                };
                CoreInstance::Bundle { memories: of_kind(ExternalKind::Memory), functions: of_kind(ExternalKind::Func) }
            }
        });
    }

    /// The component has a number for a memory that an instance exports.
    pub(super) fn name_memory(&mut self, instance: u32, name: &'a str) {
        self.memories.push((instance, name));
    }

    /// The component has a number for a core function.
    pub(super) fn number_function(&mut self, function: CoreFunction<'a>) {
        self.functions.push(function);
    }

    /// The module of each instance that is one's.
    pub(super) fn modules(&self) -> impl Iterator<Item = usize> {
        self.instances.iter().filter_map(|instance| match instance {
            CoreInstance::Module { module, .. } => *module,
            CoreInstance::Bundle { .. } => None,
        })
    }

    /// Calls `tell` with each import of each of `modules` that is instantiated here, and the component's function that it is given,
    /// lowered, if it is: with the module's number, the function's index in it and its number in the component. `passed_on` are the
    /// functions that each module exports and has from elsewhere. `budget` is how many imports are looked at yet.
    pub(super) fn for_each_import(
        &self,
        modules: &[ModuleImage],
        passed_on: &[HashMap<&str, &FunctionImport>],
        budget: &mut usize,
        mut tell: impl FnMut(usize, u32, Option<u32>),
    ) {
        if self.instances.len() > MAX_INSTANCES {
            return;
        }
        for instance in &self.instances {
            let CoreInstance::Module { module: Some(module), given } = instance else { continue };
            let Some(image) = modules.get(*module) else { continue };
            for (index, import) in (0..).zip(image.function_imports()) {
                let Some(left) = budget.checked_sub(1) else { return };
                *budget = left;
                let from = given.get(&*import.module).copied();
                tell(*module, index, from.and_then(|from| self.lowered(from, &import.name, passed_on)));
            }
        }
    }

    /// The component's function that an instance exports, lowered, by this name.
    fn lowered<'b>(
        &'b self,
        mut instance: u32,
        mut name: &'b str,
        passed_on: &[HashMap<&str, &'b FunctionImport>],
    ) -> Option<u32> {
        for _ in 0..MAX_STEPS {
            (instance, name) = match self.instances.get(instance as usize)? {
                CoreInstance::Module { module, given } => {
                    let import = passed_on.get((*module)?)?.get(name)?;
                    (*given.get(&*import.module)?, &*import.name)
                }
                CoreInstance::Bundle { functions, .. } => match self.functions.get(*functions.get(name)? as usize)? {
                    CoreFunction::Lowered(function) => return Some(*function),
                    CoreFunction::Exported(instance, name) => (*instance, *name),
                    CoreFunction::BuiltIn => return None,
                },
            };
        }
        None
    }

    /// Tells each of `modules` that is instantiated here which others work on its memory. One that is instantiated for several memories has
    /// none: its code is not that of one program.
    pub(super) fn tell(&self, modules: &mut [ModuleImage]) {
        if self.instances.len() > MAX_INSTANCES {
            return;
        }
        let mut memories: BTreeMap<usize, Vec<Memory>> = BTreeMap::new();
        for (number, instance) in (0..).zip(&self.instances) {
            if let CoreInstance::Module { module: Some(module), .. } = instance
                && let Some(memory) = self.memory(number, modules)
            {
                memories.entry(*module).or_default().push(memory);
            }
        }
        let of_one: BTreeMap<usize, Memory> = memories
            .into_iter()
            .filter(|(_, all)| all.iter().all(|memory| *memory == all[0]))
            .map(|(module, all)| (module, all[0]))
            .collect();
        for (module, memory) in &of_one {
            let others = of_one.iter().filter(|(other, of)| *other != module && *of == memory);
            let others: Vec<u32> = others.map(|(other, _)| *other as u32).collect();
            if others.len() <= MAX_SIBLINGS {
                modules[*module].set_siblings(others);
            }
        }
    }

    /// The first memory of an instance.
    fn memory(&self, instance: u32, modules: &[ModuleImage]) -> Option<Memory> {
        let CoreInstance::Module { module: Some(module), given } = self.instances.get(instance as usize)? else {
            return None;
        };
        match modules.get(*module)?.memory_import() {
            Some((from, name)) => self.exported(*given.get(&**from)?, name, modules),
            None => (modules.get(*module)?.compiled_index_spaces().memories > 0).then_some((instance, 0)),
        }
    }

    /// The memory that an instance exports by this name.
    fn exported<'b>(&'b self, mut instance: u32, mut name: &'b str, modules: &'b [ModuleImage]) -> Option<Memory> {
        for _ in 0..MAX_STEPS {
            (instance, name) = match self.instances.get(instance as usize)? {
                CoreInstance::Module { module, given } => match modules.get((*module)?)?.exported_memory(name)? {
                    ExportedMemory::Own(memory) => return Some((instance, memory)),
                    ExportedMemory::Imported { module, name } => (*given.get(module)?, name),
                },
                CoreInstance::Bundle { memories, .. } => *self.memories.get(*memories.get(name)? as usize)?,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::component::core_modules;

    /// For each module its siblings, of a component of this text.
    fn siblings(text: &str) -> Vec<Vec<u32>> {
        let modules = core_modules(&wat::parse_str(format!("(component {text})")).unwrap(), "x").unwrap();
        modules.iter().map(|module| module.siblings().to_vec()).collect()
    }

    const OWNER: &str = r#"(core module $owner (memory (export "memory") 1))"#;
    const USER: &str = r#"(core module $user (import "env" "memory" (memory 0)))"#;

    #[test]
    fn modules_that_are_given_a_memory_are_its_owners_siblings() {
        let given =
            r#"(core instance $o (instantiate $owner)) (core instance (instantiate $user (with "env" (instance $o))))"#;
        assert_eq!(siblings(&format!("{OWNER} {USER} {given}")), [vec![1], vec![0]]);
        let apart = r#"(core instance $o (instantiate $owner)) (core instance $p (instantiate $owner))
            (core instance (instantiate $user (with "env" (instance $o))))"#;
        assert!(siblings(&format!("{OWNER} {USER} {apart}")).iter().all(Vec::is_empty));
    }

    #[test]
    fn memories_are_followed_through_bundles_and_modules_that_pass_them_on() {
        let passing = r#"(core module $passing (import "env" "memory" (memory 0)) (export "again" (memory 0)))
            (core module $last (import "from" "x" (memory 0))) (core module $without)
            (core instance $o (instantiate $owner))
            (alias core export $o "memory" (core memory $m))
            (core instance $bundle (export "memory" (memory $m)))
            (core instance $p (instantiate $passing (with "env" (instance $bundle))))
            (alias core export $p "again" (core memory $n))
            (core instance $other (export "x" (memory $n)))
            (core instance (instantiate $last (with "from" (instance $other))))
            (core instance (instantiate $without))"#;
        assert_eq!(siblings(&format!("{OWNER} {passing}")), [vec![1, 2], vec![0, 2], vec![0, 1], vec![]]);
    }

    #[test]
    fn a_module_that_is_exported_has_one_more_number() {
        let others = r#"(core module $other (memory (export "memory") 1)) (core module $next (memory 1))"#;
        let given = r#"(core instance $o (instantiate $owner)) (core instance (instantiate $other))
            (core instance (instantiate $next)) (core instance (instantiate $user (with "env" (instance $o))))"#;
        let text = format!(r#"{OWNER} (export "owner" (core module $owner)) {others} {USER} {given}"#);
        assert_eq!(siblings(&text), [vec![3], vec![], vec![], vec![0]]);
    }

    #[test]
    fn memories_that_lead_nowhere_are_given_up() {
        // Each is an alias of the next one's, and the last is its own: no engine takes that.
        let aliases: String = (0..50)
            .map(|number| {
                let next = if number == 49 { 49 } else { number + 1 };
                format!(
                    r#"(core instance (export "m" (memory {next}))) (alias core export {number} "m" (core memory))"#
                )
            })
            .collect();
        let user = r#"(core instance (instantiate 0 (with "env" (instance 0))))"#;
        let text = format!(r#"(core module (import "env" "m" (memory 0))) {aliases} {user}"#);
        assert_eq!(siblings(&text), [Vec::<u32>::new()]);
    }

    #[test]
    fn too_many_on_one_memory_are_not_known_to_each_other() {
        let users = USER.replace("$user", "").repeat(300);
        let instances: String = (1..=300)
            .map(|number| format!(r#"(core instance (instantiate {number} (with "env" (instance $o))))"#))
            .collect();
        let many = siblings(&format!("{OWNER} {users} (core instance $o (instantiate $owner)) {instances}"));
        assert!(many.len() == 301 && many.iter().all(Vec::is_empty));
    }

    #[test]
    fn components_in_a_component_have_memories_of_their_own() {
        let given =
            r#"(core instance $o (instantiate $owner)) (core instance (instantiate $user (with "env" (instance $o))))"#;
        let inner = format!("(component {OWNER} {USER} {given})");
        let whole = format!("{inner} {OWNER} {inner} {USER} {given}");
        let expected = [vec![1], vec![0], vec![5], vec![4], vec![3], vec![2]];
        assert_eq!(siblings(&whole), expected);
    }
}
