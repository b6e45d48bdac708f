//! Which stores the recording knows: those that something was recorded of, as long as it has that.

use super::super::running::{StoreName, StoreNumber, Threads};
use crate::recording::{Numbers, Recorder, StoreId};
use std::collections::HashMap;

/// The recording's numbers of stores that have not gone.
#[derive(Default)]
pub(super) struct Stores(HashMap<StoreNumber, StoreId>);

impl Stores {
    /// The recording's number of a store, which it is given now if it has none.
    pub(super) fn id(&mut self, number: StoreNumber, threads: &Threads, recorder: &mut Recorder) -> StoreId {
        *self.0.entry(number).or_insert_with(|| {
            let StoreName { name, labels } = threads.store_name(number);
            let id = recorder.store(&name);
            recorder.label_store(id, &labels);
            id
        })
    }

    /// Forgets a store that has gone, and gives its number if the recording knows it.
    pub(super) fn gone(&mut self, number: StoreNumber) -> Option<StoreId> {
        self.0.remove(&number)
    }

    /// The numbers that are held.
    pub(super) fn held(&self) -> Vec<StoreId> {
        self.0.values().copied().collect()
    }

    /// Takes the recording's new numbers, in which all that are held are kept.
    pub(super) fn renumber(&mut self, stores: &Numbers) {
        self.0.values_mut().for_each(|id| *id = stores.new_of(*id));
    }
}
