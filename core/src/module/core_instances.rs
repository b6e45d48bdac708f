//! Which modules of a component work on one memory: what its instances of core modules are given.

use super::image::{ExportedMemory, ModuleImage};
use std::collections::{BTreeMap, HashMap};
use wasmtime_environ::wasmparser::{ExternalKind, Instance};

/// A memory: the instance that defines it, and which of its own it is.
type Memory = (u32, u32);

/// Through how many other instances a memory is looked for. It is three in what wit-component links.
const MAX_STEPS: usize = 32;

/// How many instances a component may make for its memories to be looked at: more are none that Wasmtime takes.
const MAX_INSTANCES: usize = 1000;

/// How many modules may work on one memory to be known to each other. Who looks for a language looks at each with all others.
const MAX_SIBLINGS: usize = 63;

/// The instances of core modules that one component makes, without those of components in it, which are given no memory.
#[derive(Default)]
pub(super) struct CoreInstances {
    instances: Vec<CoreInstance>,
    /// Where each core memory that the component has a number for is exported.
    memories: Vec<Export>,
}

/// By which instance, and as what.
type Export = (u32, String);

enum CoreInstance {
    Module {
        /// `None` if it is from another component.
        module: Option<usize>,
        /// The instances that it is given, by the names of what it imports from.
        given: HashMap<String, u32>,
    },
    /// The numbers of memories from elsewhere, by their names.
    Bundle(HashMap<String, u32>),
}

impl CoreInstances {
    /// The component makes an instance. `module` gives which module that of a number is.
    pub(super) fn make(&mut self, instance: Instance<'_>, module: impl Fn(u32) -> Option<usize>) {
        self.instances.push(match instance {
            Instance::Instantiate { module_index, args } => CoreInstance::Module {
                module: module(module_index),
                given: args.iter().map(|argument| (argument.name.to_owned(), argument.index)).collect(),
            },
            Instance::FromExports(exports) => {
                let memories = exports.iter().filter(|export| export.kind == ExternalKind::Memory);
                CoreInstance::Bundle(memories.map(|memory| (memory.name.to_owned(), memory.index)).collect())
            }
        });
    }

    /// The component has a number for a memory that an instance exports.
    pub(super) fn name_memory(&mut self, instance: u32, name: &str) {
        self.memories.push((instance, name.to_owned()));
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
            Some((from, name)) => self.exported(*given.get(from)?, name, modules),
            None => (modules.get(*module)?.compiled_index_spaces().memories > 0).then_some((instance, 0)),
        }
    }

    /// The memory that an instance exports by this name.
    fn exported<'a>(&'a self, mut instance: u32, mut name: &'a str, modules: &'a [ModuleImage]) -> Option<Memory> {
        for _ in 0..MAX_STEPS {
            (instance, name) = match self.instances.get(instance as usize)? {
                CoreInstance::Module { module, given } => match modules.get((*module)?)?.exported_memory(name)? {
                    ExportedMemory::Own(memory) => return Some((instance, memory)),
                    ExportedMemory::Imported { module, name } => (*given.get(module)?, name),
                },
                CoreInstance::Bundle(memories) => {
                    let (instance, name) = self.memories.get(*memories.get(name)? as usize)?;
                    (*instance, name.as_str())
                }
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
