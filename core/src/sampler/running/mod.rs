//! Who runs what: a session's threads, its stores, and which thread runs which store. Call hooks say so, and whoever holds or polls
//! a store. Samples and dumps on request are made here, too, by whoever stops a guest.

mod attachment;
mod collect;
mod demand;
mod dump_request;
mod flush;
mod host_call_counts;
mod linear_memory;
mod slot;
mod store_name;
mod store_state;
mod store_time;
mod threads;
mod totals;

pub(crate) use attachment::EmbeddersHook;
#[cfg(test)]
pub(super) use attachment::find_instance;
pub(super) use attachment::{Attachment, Hold};
pub(super) use collect::{Place, Sighting, Snapshot, collect, collect_blocked};
pub(super) use demand::Demand;
pub(super) use slot::ThreadSlot;
pub(in crate::sampler) use store_name::NamedStore;
pub(crate) use store_name::StoreName;
pub(super) use store_state::{StoreNumber, StoreState};
pub(super) use threads::{Threads, Transport};
pub(super) use totals::SlotTotals;
