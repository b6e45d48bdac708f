//! The DWARF sections of a module, copied out of it.

use gimli::{LittleEndian, SectionId};
use std::{convert::Infallible, sync::Arc};
use wlprof_plugin::ModuleView;

/// How the sections are read. Symbolizers outlive the module view and move between threads, so the bytes are owned and
/// shared; the view's are borrowed.
pub(crate) type Reader = gimli::EndianArcSlice<LittleEndian>;

/// What names and places need. The rest (variables' locations, types by signature, lookup tables) can be larger than
/// all of these and is never read.
const WANTED: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Copies the sections; `None` without `.debug_info`. The number is their size together.
pub(crate) fn load(view: &dyn ModuleView) -> Option<(gimli::Dwarf<Reader>, usize)> {
    view.custom_section(SectionId::DebugInfo.name())?;
    let mut size = 0;
    let read = |id: SectionId| -> Result<Reader, Infallible> {
        let bytes = if WANTED.contains(&id) { view.custom_section(id.name()).unwrap_or_default() } else { &[] };
        size += bytes.len();
        Ok(Reader::new(Arc::from(bytes), LittleEndian))
    };
    let Ok(dwarf) = gimli::Dwarf::load(read);
    Some((dwarf, size))
}

/// Where units start in `.debug_info`: steps from unit to unit by their lengths alone, so that one broken unit does not hide those behind it.
pub(crate) fn unit_starts(info: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let offset = next?;
        let (header, length) = match u32::from_le_bytes(array(info, offset)?) {
            u32::MAX => (12, u64::from_le_bytes(array(info, offset + 4)?)),
            length => (4, u64::from(length)),
        };
        // As many bytes as a version has.
        let _: [u8; 2] = array(info, offset + header)?;
        next = usize::try_from(length).ok().and_then(|length| length.checked_add(offset + header));
        Some(offset)
    })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
