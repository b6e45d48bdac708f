//! Ids of profiles, by which servers recognize one that is sent again.

use crate::sample_types::ValueType;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use wlprof_recording::Recording;

/// The ids of a recording's profiles. They follow from its content, so that equal recordings have equal ids, and halves of one have others.
pub(super) struct ProfileIds(Sha256);

impl ProfileIds {
    pub(super) fn new(recording: &Recording, resource: &BTreeMap<&str, &str>) -> Self {
        let mut hash = Sha256::new();
        let mut number = |number: u64| hash.update(number.to_le_bytes());
        number(recording.meta.start_unix_ms);
        number(recording.meta.duration_ns);
        if recording.part.is_some() {
            for site in recording.stores.iter().filter_map(|store| store.heap.as_ref()).flat_map(|heap| &heap.sites) {
                number(site.stack.into());
                number(site.totals.allocated.bytes.to_bits());
                number(site.totals.held.bytes.to_bits());
            }
        } else {
            for sample in recording.samples() {
                [sample.time_ns, sample.period_ns, sample.stack.into()].into_iter().for_each(&mut number);
            }
        }
        let pairs = resource.iter().flat_map(|(name, value)| [*name, *value]);
        for text in pairs.chain([&*recording.meta.guest]) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Self(hash)
    }

    /// The id of the profile of that type. It is never all zero, which would be none.
    pub(super) fn of(&self, (name, unit): ValueType) -> [u8; 16] {
        let hash = self.0.clone().chain_update(name).chain_update([0]).chain_update(unit).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        if id == [0; 16] {
            id[15] = 1;
        }
        id
    }
}
