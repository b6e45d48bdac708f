//! The language of a module in another process: which of its instances a stopped thread runs, and the walker of each.

use crate::initial_data::InitialData;
use crate::instance::{Instance, RemoteGuest, is_context};
use crate::layout::Layout;
use crate::pages::Pages;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::Program;
use wlprof_recording::ModuleId;
use wlprof_walk::LanguageStacks;

/// Bytes of a stack that are looked through for what runs: the frames that are innermost have it in a register or near.
const LOOKED_THROUGH: usize = 8 << 10;

/// Instances that are known at a time; more are forgotten and found again.
const MAX_INSTANCES: usize = 1000;

/// A module whose language has stacks of its own.
pub(crate) struct LanguageModule {
    pub(crate) id: ModuleId,
    siblings: Vec<ModuleId>,
    module: Arc<ModuleImage>,
    /// That of the siblings too.
    data: InitialData,
    program: Arc<dyn Program>,
    layout: Layout,
    /// By the addresses of their contexts.
    instances: HashMap<usize, (Instance, LanguageStacks)>,
    /// Contexts that are none of this module's instances, or not yet.
    others: HashSet<usize>,
}

impl LanguageModule {
    pub(crate) fn new(
        (id, siblings): (ModuleId, Vec<ModuleId>),
        (module, data): (Arc<ModuleImage>, InitialData),
        program: Arc<dyn Program>,
        layout: Layout,
    ) -> Self {
        Self { id, siblings, module, data, program, layout, instances: HashMap::new(), others: HashSet::new() }
    }

    /// Believes no more which contexts are its instances and which are none: others may lie there by now.
    pub(crate) fn look_again(&mut self) {
        self.others.clear();
        self.instances.values_mut().for_each(|(instance, _)| instance.doubt());
    }

    /// Whether frames of this module are on the stacks that walkers of its instances read.
    pub(crate) fn has_frames_of(&self, module: ModuleId) -> bool {
        module == self.id || self.siblings.contains(&module)
    }

    /// Does `walk` with the memory and the walker of the instance that a thread runs which stands still; `None` if it is not known which that
    /// is. It is looked for in `registers` and from the beginning of `stack` on.
    pub(crate) fn of_instance<R>(
        &mut self,
        memory: &Pages<'_>,
        registers: &[usize],
        stack: Range<usize>,
        walk: impl FnOnce(&RemoteGuest<'_>, &mut LanguageStacks) -> R,
    ) -> Option<R> {
        let end = stack.end.min(stack.start.saturating_add(LOOKED_THROUGH));
        let on_stack = (stack.start.checked_next_multiple_of(8).unwrap_or(end)..end)
            .step_by(8)
            .filter_map(|address| memory.word(address));
        let words_there: Vec<usize> = registers.iter().copied().chain(on_stack).collect();
        let known = words_there.iter().copied().find(|address| self.is_still_instance(memory, *address));
        let context =
            known.or_else(|| words_there.into_iter().find(|address| self.is_new_instance(memory, *address)))?;
        let Self { instances, module, .. } = self;
        let (instance, stacks) = instances.get_mut(&context)?;
        let (base, length) = instance.memory(memory)?;
        let guest = RemoteGuest { memory, module, instance: *instance, base, length };
        Some(walk(&guest, stacks))
    }

    /// Whether the context of an instance that is known is at `address`.
    fn is_still_instance(&mut self, memory: &Pages<'_>, address: usize) -> bool {
        let Some((instance, _)) = self.instances.get_mut(&address) else { return false };
        // It may have gone, and another may lie there.
        let now = instance.again(memory, (&self.module, &self.data));
        match now {
            Some(now) => *instance = now,
            // More could not be read in this stop, which says nothing.
            None if memory.is_exhausted() => {}
            None => drop(self.instances.remove(&address)),
        }
        now.is_some()
    }

    /// Whether the context of an instance is at `address` that was not known. It is from then on.
    fn is_new_instance(&mut self, memory: &Pages<'_>, address: usize) -> bool {
        if self.others.contains(&address) || !is_context(memory, address) {
            return false;
        }
        let instance = Instance::at(memory, address, (&self.module, &self.data), self.layout);
        let (Some(instance), Some(walker)) = (instance, self.program.walker()) else {
            if !memory.is_exhausted() {
                self.others.insert(address);
            }
            return false;
        };
        if self.instances.len() >= MAX_INSTANCES {
            self.instances.clear();
        }
        let stacks = LanguageStacks::new(self.id, self.siblings.clone(), self.program.clone(), walker);
        self.instances.insert(address, (instance, stacks));
        true
    }
}
