//! Who runs what: the threads of a session, its stores, and which thread runs which store, as the stores' call hooks and those
//! who poll them say.

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
