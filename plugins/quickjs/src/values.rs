//! JavaScript values, strings and atoms.

use crate::{
    layout::{Layout, StringLayout},
    memory::{INCONSISTENT, Stop, Window, word},
};
use wlprof_plugin::GuestMemory;

/// Tags in the upper half of a value.
const TAG_OBJECT: u32 = -1_i32 as u32;
const TAG_STRING: u32 = -7_i32 as u32;
/// The bit of atoms that are the number in their other bits.
const NUMBER_ATOM: u32 = 1 << 31;
/// `JSStringKind`.
const KIND_SLICE: u32 = 1;
const KIND_INDIRECT: u32 = 2;
/// Bytes of a text that are compared to know it again.
const SAMPLE: usize = 16;

/// Some of a text, and its size in characters.
pub(crate) type Sample = ([u8; SAMPLE], u32);

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
pub(crate) fn atom(guest: &dyn GuestMemory, layout: &Layout, runtime: u32, atom: u32) -> Result<Atom, Stop> {
    if atom == 0 {
        return Ok(Atom::None);
    }
    if atom & NUMBER_ATOM != 0 {
        return Ok(Atom::Number(atom & !NUMBER_ATOM));
    }
    if atom >= word(guest, runtime, layout.runtime.atom_size)? {
        return Err(INCONSISTENT);
    }
    let array = word(guest, runtime, layout.runtime.atom_array)?;
    let address = guest.read_u32(u64::from(array) + 4 * u64::from(atom))?;
    // Places that no atom has are marked by their lowest bit.
    if address & 1 != 0 { Err(INCONSISTENT) } else { Ok(Atom::Text(address)) }
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
    pub(crate) fn find(guest: &dyn GuestMemory, layout: &StringLayout, address: u32) -> Result<Self, Stop> {
        let header = Window::read(guest, address, layout.size.checked_add(8).ok_or(INCONSISTENT)?)?;
        let length = layout.len.of(header.word(layout.len.word)?);
        let is_wide = layout.is_wide_char.of(header.word(layout.is_wide_char.word)?) == 1;
        let kind = layout.kind.map_or(Ok(0), |bits| header.word(bits.word).map(|word| bits.of(word)))?;
        let first = header.word(layout.size)?;
        let address = match kind {
            0 => u64::from(address) + u64::from(layout.size),
            // A part of another string, from a byte of it on.
            KIND_SLICE => u64::from(first) + u64::from(layout.size) + u64::from(header.word(layout.size + 4)?),
            KIND_INDIRECT => first.into(),
            _ => return Err(INCONSISTENT),
        };
        Ok(Self { address, length, is_wide })
    }

    fn width(self) -> u64 {
        if self.is_wide { 2 } else { 1 }
    }

    /// The last bytes.
    pub(crate) fn last(self, guest: &dyn GuestMemory) -> Result<Sample, Stop> {
        let size = u64::from(self.length) * self.width();
        let length = size.min(SAMPLE as u64);
        let mut sample = [0; SAMPLE];
        guest.read(self.address + size - length, sample.get_mut(..length as usize).unwrap_or_default())?;
        Ok((sample, self.length))
    }

    /// The text; characters after the first `most` are left out, which an ellipsis shows.
    pub(crate) fn read(self, guest: &dyn GuestMemory, most: u32) -> Result<String, Stop> {
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

/// The first bytes of the string at `address`, or where they are, in one read.
pub(crate) fn first(guest: &dyn GuestMemory, layout: &StringLayout, address: u32) -> Result<Sample, Stop> {
    // Those of a short string at the end of memory cannot be read like this.
    let window = Window::read(guest, address, layout.size.saturating_add(SAMPLE as u32))
        .or_else(|_| Window::read(guest, address, layout.size))?;
    let length = layout.len.of(window.word(layout.len.word)?);
    let width = 1 + layout.is_wide_char.of(window.word(layout.is_wide_char.word)?);
    let mut sample: [u8; SAMPLE] = window.array(layout.size).unwrap_or_default();
    let is_inside = match layout.kind {
        Some(kind) => kind.of(window.word(kind.word)?) == 0,
        None => true,
    };
    // What follows a short string is something else.
    let used = if is_inside { length.saturating_mul(width) as usize } else { 8 };
    sample.iter_mut().skip(used).for_each(|byte| *byte = 0);
    Ok((sample, length))
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
