//! Tables whose items are there once, and have numbers from 1: 0 means none in pprof and OTLP.

use std::collections::HashMap;
use std::hash::Hash;

pub(crate) struct Table<T> {
    items: Vec<T>,
    ids: HashMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ids: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// The number of an item, which is added if it is new.
    pub(crate) fn id(&mut self, item: T) -> u32 {
        if let Some(id) = self.ids.get(&item) {
            return *id;
        }
        self.items.push(item.clone());
        let id = self.items.len() as u32;
        self.ids.insert(item, id);
        id
    }
}

impl<T> Table<T> {
    /// All items in the order of their numbers.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    /// All items in the order of their numbers.
    pub(crate) fn into_items(self) -> Vec<T> {
        self.items
    }
}
