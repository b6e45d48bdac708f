//! The texts of what goroutines wait for.
//!
//! Reasons are renumbered in each release, but the runtime has an array of their texts, which begins with a string of no
//! length and "GC assist marking".

use crate::image::Image;

const SECOND: &[u8] = b"GC assist marking";
const LONGEST: u64 = 64;

/// The array, found when first asked for: that takes a look at all of the memory image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitReasons {
    array: Option<u64>,
}

impl WaitReasons {
    pub(crate) fn find(image: &Image) -> Self {
        let is_array =
            |at: u64| image.u64(at + 8) == Some(SECOND.len() as u64) && at >= 16 && image.u64(at - 8) == Some(0);
        let header = |text: u64| image.find_word(text).find(|at| is_array(*at));
        Self { array: image.find_text(SECOND).take(16).find_map(header).map(|second| second - 16) }
    }

    /// The text of a reason, as in `chan receive`.
    pub(crate) fn text(self, image: &Image, reason: u8) -> Option<String> {
        let header = self.array? + 16 * u64::from(reason);
        let (address, length) = (image.u64(header)?, image.u64(header + 8)?);
        if length == 0 || length > LONGEST {
            return None;
        }
        image.text(address, length as usize)
    }
}
