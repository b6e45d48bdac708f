//! Tables of what is distinct, which know what of them is not in the journal yet.

use crate::journal::{Block, Journal};
use crate::{Keyed, ModuleId, keyed};
use std::collections::HashMap;
use std::hash::Hash;
use wlprof_plugin::FrameSink;

/// The keys that the plugin of a module calls the labels of a sample by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LabelKeys {
    module: ModuleId,
    keys: [u64; FrameSink::LABEL_CAPACITY],
    count: usize,
}

impl LabelKeys {
    pub(super) fn new(module: ModuleId, given: &[u64]) -> Self {
        let mut keys = [0; FrameSink::LABEL_CAPACITY];
        let count = given.len().min(keys.len());
        keys[..count].copy_from_slice(&given[..count]);
        Self { module, keys, count }
    }

    pub(super) fn keys(&self) -> &[u64] {
        &self.keys[..self.count]
    }

    pub(super) fn as_set(&self) -> (ModuleId, &[u64]) {
        (self.module, self.keys())
    }

    pub(super) fn in_block(&self) -> (ModuleId, Vec<u64>) {
        (self.module, self.keys().to_vec())
    }
}

/// Numbers what is distinct, and knows which of it is not in the journal yet.
#[derive(Debug)]
pub(super) struct Table<T> {
    ids: HashMap<T, u32, Keyed>,
    /// In the order of their ids, from the first that is not written.
    new: Vec<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { ids: HashMap::with_hasher(keyed()), new: Vec::new() }
    }
}

impl<T: Copy + Eq + Hash> Table<T> {
    pub(super) fn id(&mut self, item: T) -> u32 {
        let next = self.ids.len() as u32;
        *self.ids.entry(item).or_insert_with(|| {
            self.new.push(item);
            next
        })
    }

    /// What was written before, in the order of its ids.
    pub(super) fn of(items: Vec<T>) -> Self {
        let mut ids = HashMap::with_capacity_and_hasher(items.len(), keyed());
        ids.extend(items.into_iter().zip(0..));
        Self { ids, new: Vec::new() }
    }

    /// The id of what is known already.
    pub(super) fn known(&self, item: &T) -> Option<u32> {
        self.ids.get(item).copied()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.ids.keys()
    }

    pub(super) fn holds(&self, item: &T) -> bool {
        self.ids.contains_key(item)
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn in_order(&self) -> Vec<T> {
        let mut items: Vec<(u32, T)> = self.ids.iter().map(|(item, id)| (*id, *item)).collect();
        items.sort_unstable_by_key(|(id, _)| *id);
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// Writes what is new; what could not be written stays new.
    pub(super) fn write(&mut self, journal: &mut Journal, block: impl FnOnce(Vec<T>) -> Block) -> bool {
        self.new.is_empty() || {
            let written = journal.write(&block(self.new.clone()));
            if written {
                self.new.clear();
            }
            written
        }
    }
}
