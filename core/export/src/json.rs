//! JSON that is written as it is made: a long run's samples are many.

use serde::{Serialize, Serializer};

/// A column of a table, or a list, written item by item.
pub(super) struct Column<I>(pub(super) I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Column<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}
