//! The ELF image that Wasmtime compiles a module to: what its pieces of code are called and how they are unwound.

use super::native_code::UnwindInfo;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use goblin::elf::Elf;
use goblin::elf::sym::{STT_FUNC, st_type};
use rustc_hash::FxHashMap;
use std::ops::Range;
use wasmtime::Module;

/// In the names of pieces through which the host enters wasm. The function's index follows in brackets.
pub(super) const ENTRY_TRAMPOLINE: &str = "array_to_wasm_trampoline";

/// A module's image, read with goblin.
pub(super) struct CompiledImage<'m> {
    bytes: &'m [u8],
    elf: Elf<'m>,
    text: usize,
}

impl<'m> CompiledImage<'m> {
    /// The image of `module`; `None` if it is not the ELF file that it is in Wasmtime 48.
    pub(super) fn of(module: &'m Module) -> Option<Self> {
        let image = module.image_range();
        // SAFETY: the range is the module's mapped image, which lives as long as `module` and is never written.
        let bytes = unsafe { std::slice::from_raw_parts(image.start, image.end as usize - image.start as usize) };
        let elf = Elf::parse(bytes).ok()?;
        let text = section(&elf, ".text")?;
        Some(Self { bytes, elf, text })
    }

    /// The pieces of code: their names and their offsets in the text.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&'m str, Range<usize>)> {
        self.elf.syms.iter().filter_map(|symbol| {
            if symbol.st_shndx != self.text || st_type(symbol.st_info) != STT_FUNC || symbol.st_size == 0 {
                return None;
            }
            let start = symbol.st_value as usize;
            Some((self.elf.strtab.get_at(symbol.st_name)?, start..start.checked_add(symbol.st_size as usize)?))
        })
    }

    /// How each piece of code is unwound, by its offset in the text.
    pub(super) fn unwind_infos(&self) -> FxHashMap<usize, UnwindInfo<'m>> {
        self.read_unwind_infos().unwrap_or_default()
    }

    /// Wasmtime's `.eh_frame` reckons addresses as if it followed the text at once: see `write_systemv_unwind_info` in its
    /// `cranelift/src/obj.rs`.
    fn read_unwind_infos(&self) -> Option<FxHashMap<usize, UnwindInfo<'m>>> {
        let header = &self.elf.section_headers[section(&self.elf, ".eh_frame")?];
        let bytes = self.bytes.get(header.file_range()?)?;
        let frames = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(self.elf.section_headers[self.text].sh_size);
        let entry = |offset: usize, length: usize| bytes.get(offset..offset.checked_add(LENGTH_FIELD + length)?);
        let mut infos = FxHashMap::default();
        let mut entries = frames.entries(&bases);
        while let Ok(Some(next)) = entries.next() {
            let CieOrFde::Fde(partial) = next else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).ok()?;
            let cie = fde.cie();
            let info =
                UnwindInfo { cie: entry(cie.offset(), cie.entry_len())?, fde: entry(fde.offset(), fde.entry_len())? };
            infos.insert(fde.initial_address() as usize, info);
        }
        Some(infos)
    }
}

/// Bytes of the field that says how long an entry of `.eh_frame` is, which its own length leaves out.
const LENGTH_FIELD: usize = 4;

fn section(elf: &Elf<'_>, name: &str) -> Option<usize> {
    elf.section_headers.iter().position(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(name))
}
