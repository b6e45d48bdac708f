//! New numbers for what is kept of a table, in the same order.

/// For each item of a table its new number, if it is kept.
#[derive(Debug)]
pub struct Numbers(Vec<Option<u32>>);

impl Numbers {
    /// Keeps the items whose place says so.
    pub(super) fn keeping(kept: &[bool]) -> Self {
        let mut next = 0;
        let number = |kept: &bool| {
            kept.then(|| {
                next += 1;
                next - 1
            })
        };
        Self(kept.iter().map(number).collect())
    }

    /// The new number of an item; `None` if it is not kept.
    pub fn of(&self, id: u32) -> Option<u32> {
        self.0.get(id as usize).copied().flatten()
    }

    /// The new number of an item that is kept.
    pub fn new_of(&self, id: u32) -> u32 {
        self.of(id).unwrap_or_default()
    }

    /// How many of the first items are kept.
    pub(super) fn kept_of_first(&self, count: usize) -> usize {
        self.0.iter().take(count).flatten().count()
    }

    /// Keeps the items of a table that have a number.
    pub(super) fn retain<T>(&self, items: &mut Vec<T>) {
        let mut numbers = self.0.iter();
        items.retain(|_| numbers.next().is_some_and(Option::is_some));
    }
}
