//! How long texts and how deep stacks may be: Pyroscope refuses symbols of more than 65,535 bytes, and cuts the leaf off stacks of more
//! than 1,000 frames.

use crate::plain_text::printable_name;
use std::borrow::Cow;

/// Characters of a text, of at most four bytes each.
pub(super) const MAX_TEXT: usize = 4096;

/// Frames of a stack, with the one that stands for those that are left out.
pub(super) const MAX_DEPTH: usize = 1000;

/// Frames that are kept at the root of a stack that is too deep, so that it stays below its callers.
const KEPT_ROOT: usize = 100;

/// Frames that are kept at its leaf.
const KEPT_LEAF: usize = MAX_DEPTH - KEPT_ROOT - 1;

/// The name of the frame that stands for others.
pub(super) const ELIDED: &str = "[elided]";

/// A text without control characters and not too long. Never empty.
pub(super) fn bounded_text(text: &str) -> Cow<'_, str> {
    let text = printable_name(text);
    // There are as many bytes as characters, at least.
    if text.len() <= MAX_TEXT || text.chars().nth(MAX_TEXT).is_none() {
        return text;
    }
    let kept: String = text.chars().take(MAX_TEXT - 1).chain(['…']).collect();
    Cow::Owned(kept)
}

/// The leaf end and the root end of a stack, leaf first. Frames are left out between them if the second is not empty.
pub(super) fn cut<T>(leaf_first: &[T]) -> (&[T], &[T]) {
    if leaf_first.len() <= MAX_DEPTH {
        return (leaf_first, &[]);
    }
    (&leaf_first[..KEPT_LEAF], &leaf_first[leaf_first.len() - KEPT_ROOT..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(bounded_text("a\nb"), "a b");
        assert_eq!(bounded_text(""), "[unnamed]");
        let exact = "é".repeat(MAX_TEXT);
        assert_eq!(bounded_text(&exact), exact);
        let long = bounded_text(&"🦀".repeat(MAX_TEXT + 1)).into_owned();
        assert_eq!((long.chars().count(), long.chars().last()), (MAX_TEXT, Some('…')));
        assert!(long.len() < 65_535);
    }

    #[test]
    fn stacks_keep_both_ends() {
        let frames: Vec<usize> = (0..MAX_DEPTH).collect();
        assert_eq!(cut(&frames), (&frames[..], &[][..]));
        let frames: Vec<usize> = (0..5000).collect();
        let (leaf, root) = cut(&frames);
        assert_eq!((leaf[0], root[root.len() - 1]), (0, 4999));
        assert_eq!(leaf.len() + 1 + root.len(), MAX_DEPTH);
    }
}
