//! What guests allocate: their rewritten allocators tell of a sample of their calls, and the stacks of these are read where they are
//! made. Or their runtime counts itself, and that is read now and then.

mod counted;
mod listener;
mod store_heap;

pub(super) use counted::{CountedHeap, patch};
pub(super) use listener::{AllocatorMark, listen};
pub(super) use store_heap::{HeapDelta, HeapTotals, Heaps, SiteNumber, StoreHeap, stack_header};
