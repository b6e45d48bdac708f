//! JavaScript values, strings and atoms.

use crate::{
    layout::{Layout, StringLayout},
    memory::{Window, holds, word},
};
use wlprof_plugin::{GuestMemory, Truncation};

/// Tags in the upper half of a value.
const TAG_OBJECT: u32 = -1_i32 as u32;
const TAG_STRING: u32 = -7_i32 as u32;
/// The bit of atoms that are the number in their other bits.
const NUMBER_ATOM: u32 = 1 << 31;
/// `JSStringKind`.
const KIND_SLICE: u32 = 1;
const KIND_INDIRECT: u32 = 2;
/// Bytes of a text that are read along with its header when it is compared: all of most names of functions.
const AT_ONCE: u32 = 32;

/// The object that a value is.
pub(crate) fn object(value: u64) -> Option<u32> {
    ((value >> 32) as u32 == TAG_OBJECT).then_some(value as u32)
}

/// The flat string that a value is.
pub(crate) fn string(value: u64) -> Option<u32> {
    ((value >> 32) as u32 == TAG_STRING).then_some(value as u32)
}

/// What an atom stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atom {
    /// Nothing: `JS_ATOM_NULL`.
    None,
    Number(u32),
    /// The string at this address.
    Text(u32),
}

/// The meaning of `atom` in the runtime at `runtime`.
pub(crate) fn atom(guest: &dyn GuestMemory, layout: &Layout, runtime: u32, atom: u32) -> Result<Atom, Truncation> {
    if atom == 0 {
        return Ok(Atom::None);
    }
    if atom & NUMBER_ATOM != 0 {
        return Ok(Atom::Number(atom & !NUMBER_ATOM));
    }
    if atom >= word(guest, runtime, layout.runtime.atom_size)? {
        return Err(Truncation::Inconsistent);
    }
    let array = word(guest, runtime, layout.runtime.atom_array)?;
    let address = guest.read_u32(u64::from(array) + 4 * u64::from(atom))?;
    // Places that no atom has are marked by their lowest bit.
    if address & 1 != 0 { Err(Truncation::Inconsistent) } else { Ok(Atom::Text(address)) }
}

/// Where the characters of a string are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    address: u64,
    /// In characters.
    length: u32,
    is_wide: bool,
}

impl Text {
    /// Reads the header of the string at `address`.
    pub(crate) fn find(guest: &dyn GuestMemory, layout: &StringLayout, address: u32) -> Result<Self, Truncation> {
        let header = Window::read(guest, address, layout.size.checked_add(8).ok_or(Truncation::Inconsistent)?)?;
        let length = layout.len.of(header.word(layout.len.word)?);
        let is_wide = layout.is_wide_char.of(header.word(layout.is_wide_char.word)?) == 1;
        let kind = layout.kind.map_or(Ok(0), |bits| header.word(bits.word).map(|word| bits.of(word)))?;
        let first = header.word(layout.size)?;
        let address = match kind {
            0 => u64::from(address) + u64::from(layout.size),
            // A part of another string, from a byte of it on.
            KIND_SLICE => u64::from(first) + u64::from(layout.size) + u64::from(header.word(layout.size + 4)?),
            KIND_INDIRECT => first.into(),
            _ => return Err(Truncation::Inconsistent),
        };
        Ok(Self { address, length, is_wide })
    }

    fn width(self) -> u64 {
        if self.is_wide { 2 } else { 1 }
    }

    /// The text; characters after the first `most` are left out, which an ellipsis shows.
    pub(crate) fn read(self, guest: &dyn GuestMemory, most: u32) -> Result<String, Truncation> {
        let length = self.length.min(most);
        let mut bytes = vec![0; length as usize * self.width() as usize];
        guest.read(self.address, &mut bytes)?;
        let mut text = decode(&bytes, self.is_wide);
        if length < self.length {
            text.push('…');
        }
        Ok(text)
    }
}

/// A text as the guest has it, to be known again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptText {
    /// In characters; all of them, even if some are left out.
    length: u32,
    is_wide: bool,
    bytes: Box<[u8]>,
}

impl KeptText {
    /// That at `address`, without characters after the first `most`; nothing if that is 0.
    pub(crate) fn read(
        guest: &dyn GuestMemory,
        layout: &StringLayout,
        address: u32,
        most: u32,
    ) -> Result<Self, Truncation> {
        if address == 0 {
            return Ok(Self::default());
        }
        let text = Text::find(guest, layout, address)?;
        let mut bytes = vec![0; text.length.min(most) as usize * text.width() as usize];
        guest.read(text.address, &mut bytes)?;
        Ok(Self { length: text.length, is_wide: text.is_wide, bytes: bytes.into_boxed_slice() })
    }

    /// Whether it is at `address` now. One read tells of most.
    pub(crate) fn is_at(
        &self,
        guest: &dyn GuestMemory,
        layout: &StringLayout,
        address: u32,
    ) -> Result<bool, Truncation> {
        if address == 0 {
            return Ok(*self == Self::default());
        }
        // What follows a short string at the end of memory cannot be read.
        let window = Window::read(guest, address, layout.size.saturating_add(AT_ONCE))
            .or_else(|_| Window::read(guest, address, layout.size))?;
        let length = layout.len.of(window.word(layout.len.word)?);
        let is_wide = layout.is_wide_char.of(window.word(layout.is_wide_char.word)?) == 1;
        if (length, is_wide) != (self.length, self.is_wide) {
            return Ok(false);
        }
        let kind = layout.kind.map_or(Ok(0), |bits| window.word(bits.word).map(|word| bits.of(word)))?;
        if kind == 0
            && let Some(there) = window.after(layout.size).get(..self.bytes.len())
        {
            return Ok(*there == *self.bytes);
        }
        holds(guest, Text::find(guest, layout, address)?.address, &self.bytes)
    }

    /// In bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn decode(bytes: &[u8], is_wide: bool) -> String {
    if is_wide {
        let units = bytes.as_chunks().0.iter().map(|&pair| u16::from_le_bytes(pair));
        char::decode_utf16(units).map(|character| character.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    } else {
        bytes.iter().map(|&byte| char::from(byte)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_decode() {
        assert_eq!(decode(b"caf\xe9", false), "café");
        assert_eq!(decode(&[0x31, 0x04, 0x01, 0xd8, 0x37, 0xdc, 0x3d, 0xd8], true), "б𐐷\u{fffd}", "half a pair last");
    }

    #[test]
    fn tags_tell_values() {
        assert_eq!(object(0xffff_ffff_0001_2340), Some(0x12340));
        assert_eq!(string(0xffff_fff9_0001_2340), Some(0x12340));
        assert_eq!((object(0x0000_0000_0001_2340), string(0xffff_ffff_0001_2340)), (None, None));
    }
}
