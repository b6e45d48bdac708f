//! From the code of a rewritten module back to that of the module that it was.

/// A stretch of code that was taken over as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Code offset in the rewritten module.
    pub new: u32,
    /// Code offset in the module as it was.
    pub old: u32,
    /// How many bytes.
    pub length: u32,
}

/// Where each stretch of a rewritten module's code was before.
#[derive(Clone, Debug, Default)]
pub struct OffsetMap {
    /// File offset of the rewritten module's code section.
    code_start: u32,
    /// By their new offsets.
    stretches: Vec<Stretch>,
}

impl OffsetMap {
    /// Takes stretches in any order.
    pub fn new(code_start: u32, mut stretches: Vec<Stretch>) -> Self {
        stretches.retain(|stretch| stretch.length > 0);
        stretches.sort_unstable_by_key(|stretch| stretch.new);
        Self { code_start, stretches }
    }

    /// The code offset, in the module as it was, of what is at `new` in the rewritten one; `None` of code that was added.
    pub fn old(&self, new: u32) -> Option<u32> {
        let after = self.stretches.partition_point(|stretch| stretch.new <= new);
        let stretch = self.stretches[..after].last()?;
        let at = new - stretch.new;
        (at < stretch.length).then_some(stretch.old + at)
    }

    /// As [`OffsetMap::old`], of a file offset.
    pub(super) fn old_of_file_offset(&self, file_offset: u32) -> Option<u32> {
        self.old(file_offset.checked_sub(self.code_start)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_was_nowhere() {
        let stretch = |new, old, length| Stretch { new, old, length };
        let map = OffsetMap::new(0, vec![stretch(20, 5, 10), stretch(40, 0, 0), stretch(3, 2, 3)]);
        let old = [2, 3, 5, 6, 19, 20, 29, 30, 40].map(|new| map.old(new));
        assert_eq!(old, [None, Some(2), Some(4), None, None, Some(5), Some(14), None, None]);
        assert_eq!(OffsetMap::default().old(0), None);
    }
}
