//! How each piece of compiled code is unwound: the image's `.eh_frame`.

use gimli::{BaseAddresses, CieOrFde, DwEhPe, EhFrame, LittleEndian, UnwindSection};
use rustc_hash::FxHashMap;
use wlprof_export::UnwindInfo;
use wlprof_walk::CompiledImage;

/// How Wasmtime writes addresses there, and whoever moves the entries elsewhere relies on.
const ADDRESSES: DwEhPe = gimli::DW_EH_PE_pcrel;

/// Bytes of the field that says how long an entry of `.eh_frame` is, which its own length leaves out.
const LENGTH_FIELD: usize = 4;

/// How each piece of code is unwound, by its offset in the text. `None` if the image does not say.
///
/// Wasmtime's `.eh_frame` reckons addresses as if it followed the text at once: see `write_systemv_unwind_info` in its
/// `cranelift/src/obj.rs`.
pub(super) fn unwind_infos<'m>(image: &CompiledImage<'m>) -> Option<FxHashMap<usize, UnwindInfo<'m>>> {
    let bytes = image.section(".eh_frame")?;
    let frames = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(image.text().len() as u64);
    let entry = |offset: usize, length: usize| bytes.get(offset..offset.checked_add(LENGTH_FIELD + length)?);
    let mut infos = FxHashMap::default();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(next)) = entries.next() {
        let CieOrFde::Fde(partial) = next else { continue };
        let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
        let cie = fde.cie();
        if cie.fde_address_encoding() != Some(ADDRESSES) {
            continue;
        }
        let info =
            UnwindInfo { cie: entry(cie.offset(), cie.entry_len())?, fde: entry(fde.offset(), fde.entry_len())? };
        infos.insert(fde.initial_address() as usize, info);
    }
    Some(infos)
}
