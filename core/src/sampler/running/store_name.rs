//! What recordings call a store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What recordings call a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreName {
    pub(crate) name: String,
    /// Names and values of what else is said of it.
    pub(crate) labels: Vec<(String, String)>,
}

impl From<&str> for StoreName {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), labels: Vec::new() }
    }
}

/// The name of a store, whose labels may become others while it runs, or when it has gone.
#[derive(Debug, Default)]
pub(in crate::sampler) struct NamedStore {
    name: String,
    labels: Mutex<Vec<(String, String)>>,
    /// How often they have become others.
    changes: AtomicU64,
}

impl NamedStore {
    pub(in crate::sampler) fn new(StoreName { name, labels }: StoreName) -> Self {
        Self { name, labels: Mutex::new(labels), changes: AtomicU64::new(0) }
    }

    pub(in crate::sampler) fn name(&self) -> &str {
        &self.name
    }

    /// Names and values of what else is said of it now.
    pub(in crate::sampler) fn labels(&self) -> Vec<(String, String)> {
        self.lock().clone()
    }

    /// How often labels have been set. Those that are read afterwards are of then or later.
    pub(in crate::sampler) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Says something else of it, in place of what was said by that name.
    pub(in crate::sampler) fn set_label(&self, name: &str, value: &str) {
        let mut labels = self.lock();
        match labels.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => labels.push((name.to_owned(), value.to_owned())),
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
