//! CPython's strings: one, two or four bytes a character, whichever the widest needs.

use crate::layout::{TEXT_LENGTH, TEXT_STATE, TextLayout};
use wlprof_plugin::{GuestMemory, Truncation};

/// The first bytes of a string object: more than the larger of its headers.
const HEADER: usize = 48;

/// Where the characters of a string are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) address: u64,
    /// In characters.
    pub(crate) length: u32,
    /// Bytes a character: 1, 2 or 4.
    pub(crate) width: u32,
}

impl Text {
    /// Reads the header of the string object at `object`.
    pub(crate) fn find(guest: &dyn GuestMemory, layout: &TextLayout, object: u32) -> Result<Self, Truncation> {
        let mut header = [0; HEADER];
        let wanted = (layout.compact as usize + 4).min(HEADER);
        guest.read(object.into(), &mut header[..wanted])?;
        let word = |at: u32| -> Result<u32, Truncation> {
            let bytes = header.get(at as usize..at as usize + 4).ok_or(Truncation::Inconsistent)?;
            Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| Truncation::Inconsistent)?))
        };
        let state = word(TEXT_STATE)?;
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state & 1 << 5 != 0, state & 1 << 6 != 0);
        if !matches!(width, 1 | 2 | 4) || is_ascii && width != 1 {
            return Err(Truncation::Inconsistent);
        }
        let address = match (is_compact, is_ascii) {
            (true, true) => u64::from(object) + u64::from(layout.ascii),
            (true, false) => u64::from(object) + u64::from(layout.compact),
            // Instances of classes derived from `str` have their text elsewhere.
            (false, _) => word(layout.compact)?.into(),
        };
        Ok(Self { address, length: word(TEXT_LENGTH)?, width })
    }

    /// How many bytes there are.
    pub(crate) fn size(self) -> usize {
        self.length as usize * self.width as usize
    }

    /// Whether the text begins so.
    pub(crate) fn begins(self, guest: &dyn GuestMemory, with: &[u8]) -> Result<bool, Truncation> {
        let mut bytes = [0; 24];
        let bytes = &mut bytes[..with.len()];
        if self.width != 1 || self.size() < with.len() {
            return Ok(false);
        }
        guest.read(self.address, bytes)?;
        Ok(bytes == with)
    }

    /// The text; characters after the first `most` are left out, which an ellipsis shows.
    pub(crate) fn read(self, guest: &dyn GuestMemory, most: u32) -> Result<String, Truncation> {
        let length = self.length.min(most);
        let mut bytes = vec![0; (length * self.width) as usize];
        guest.read(self.address, &mut bytes)?;
        let mut text = decode(&bytes, self.width);
        if length < self.length {
            text.push('…');
        }
        Ok(text)
    }
}

/// The text of these bytes.
pub(crate) fn decode(bytes: &[u8], width: u32) -> String {
    let character = |code: u32| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    match width {
        1 => bytes.iter().map(|&byte| char::from(byte)).collect(),
        2 => bytes.as_chunks().0.iter().map(|&pair| character(u16::from_le_bytes(pair).into())).collect(),
        _ => bytes.as_chunks().0.iter().map(|&four| character(u32::from_le_bytes(four))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_widths_decode() {
        assert_eq!(decode(b"caf\xe9", 1), "café");
        assert_eq!(decode(&[0x31, 0x04, 0x3d, 0xd8], 2), "б\u{fffd}", "a surrogate alone");
        assert_eq!(decode(&[0x37, 0x04, 0x01, 0, 0, 0, 0x11, 0], 4), "𐐷\u{fffd}");
    }
}
