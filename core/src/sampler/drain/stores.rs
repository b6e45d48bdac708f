//! Which stores the recording knows: those that something was recorded of, as long as it has that.

use super::super::running::{NamedStore, StoreNumber, Threads};
use std::collections::HashMap;
use std::sync::Arc;
use wlprof_recording::{Numbers, Recorder, StoreId};

/// The recording's numbers of stores.
#[derive(Default)]
pub(super) struct Stores {
    /// Of those that have not gone.
    there: HashMap<StoreNumber, KnownStore>,
    /// Of those that have gone, and of which more may be said.
    gone: Vec<KnownStore>,
}

/// A store that the recording knows.
struct KnownStore {
    id: StoreId,
    name: Arc<NamedStore>,
    /// How often its labels had changed when they were written.
    changes: u64,
}

impl KnownStore {
    fn write_labels(&mut self, recorder: &mut Recorder) {
        let changes = self.name.changes();
        if changes != self.changes {
            self.changes = changes;
            recorder.label_store(self.id, &self.name.labels());
        }
    }
}

impl Stores {
    /// The recording's number of a store, which it is given now if it has none.
    pub(super) fn id(&mut self, number: StoreNumber, threads: &Threads, recorder: &mut Recorder) -> StoreId {
        let known = self.there.entry(number).or_insert_with(|| {
            let name = threads.store_name(number);
            let id = recorder.store(name.name());
            let changes = name.changes();
            recorder.label_store(id, &name.labels());
            KnownStore { id, name, changes }
        });
        known.id
    }

    /// Writes what is said of stores now.
    pub(super) fn write_labels(&mut self, recorder: &mut Recorder) {
        self.there.values_mut().for_each(|store| store.write_labels(recorder));
        // Looked at before its labels are written: who lets go of it now may have said something before.
        let may_change: Vec<bool> = self.gone.iter().map(|store| Arc::strong_count(&store.name) > 1).collect();
        self.gone.iter_mut().for_each(|store| store.write_labels(recorder));
        let mut may_change = may_change.into_iter();
        self.gone.retain(|_| may_change.next().unwrap_or_default());
    }

    /// A store has gone. Gives its number if the recording knows it.
    pub(super) fn gone(&mut self, number: StoreNumber) -> Option<StoreId> {
        let store = self.there.remove(&number)?;
        let id = store.id;
        self.gone.push(store);
        Some(id)
    }

    /// The numbers that are held.
    pub(super) fn held(&self) -> Vec<StoreId> {
        self.there.values().chain(&self.gone).map(|store| store.id).collect()
    }

    /// Takes the recording's new numbers, in which all that are held are kept.
    pub(super) fn renumber(&mut self, stores: &Numbers) {
        self.there.values_mut().chain(&mut self.gone).for_each(|store| store.id = stores.new_of(store.id));
    }
}
