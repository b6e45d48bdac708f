//! Who runs what: a session's threads, its stores, and which thread runs which store. Call hooks say so, and whoever holds or polls
//! a store. Dumps on request are made here, too.

mod attachment;
mod dump_request;
mod slot;
mod store_state;
mod threads;

#[cfg(test)]
pub(super) use attachment::find_instance;
pub(super) use attachment::{Attachment, Hold};
pub(super) use slot::ThreadSlot;
pub(super) use store_state::StoreState;
pub(super) use threads::{Threads, Transport};
