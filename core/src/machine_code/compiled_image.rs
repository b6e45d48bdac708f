//! The ELF image that Wasmtime compiles a module or a component to: what its pieces of code are called and how they are unwound.

use super::Compiled;
use super::image_bytes::image_bytes;
use gimli::{BaseAddresses, CieOrFde, DwEhPe, EhFrame, LittleEndian, UnwindSection};
use goblin::elf::Elf;
use goblin::elf::sym::{STT_FUNC, st_type};
use rustc_hash::FxHashMap;
use std::ffi::CStr;
use std::ops::Range;
use wasmtime_environ::obj::ELF_WASMTIME_ADDRMAP;
use wlprof_export::UnwindInfo;

/// What a piece of machine code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeName<'m> {
    /// A wasm function.
    Function {
        /// The number of its module in the component; 0 of a module alone.
        module: u32,
        /// Its index in the module, imports first.
        function: u32,
    },
    /// Where the host enters a wasm function.
    Entry {
        /// Wasmtime's name for it.
        name: &'m str,
        /// The number of its module in the component; 0 of a module alone.
        module: u32,
        /// The function.
        function: u32,
    },
    /// Another trampoline or stub, by Wasmtime's name for it.
    Stub(&'m str),
}

/// The image of a module or a component, read with goblin.
pub(crate) struct CompiledImage<'m> {
    bytes: &'m [u8],
    elf: Elf<'m>,
    text: usize,
    /// What names of symbols lie in. goblin looks for each among all.
    names: &'m [u8],
}

impl<'m> CompiledImage<'m> {
    /// The image of `compiled`; `None` if it is not the ELF file that it is in Wasmtime 48.
    pub(crate) fn of(compiled: &'m Compiled) -> Option<Self> {
        let bytes = image_bytes(compiled);
        let elf = Elf::parse(bytes).ok()?;
        let text = section(&elf, ".text")?;
        let names = elf.section_headers[section(&elf, ".strtab")?].file_range();
        Some(Self { names: names.and_then(|names| bytes.get(names)).unwrap_or_default(), bytes, elf, text })
    }

    /// The pieces of code that are no functions: what they are and their offsets in the text.
    pub(crate) fn stubs(&self) -> impl Iterator<Item = (CodeName<'m>, Range<usize>)> {
        self.elf.syms.iter().filter_map(|symbol| {
            if symbol.st_shndx != self.text || st_type(symbol.st_info) != STT_FUNC || symbol.st_size == 0 {
                return None;
            }
            let start = symbol.st_value as usize;
            let name = CStr::from_bytes_until_nul(self.names.get(symbol.st_name..)?).ok()?;
            let name = stub_name(name.to_str().ok()?)?;
            Some((name, start..start.checked_add(symbol.st_size as usize)?))
        })
    }

    /// Where in the image its address map lies, if it has one.
    pub(super) fn address_map(&self) -> Option<Range<usize>> {
        self.elf.section_headers[section(&self.elf, ELF_WASMTIME_ADDRMAP)?].file_range()
    }

    /// How each piece of code is unwound, by its offset in the text.
    pub(crate) fn unwind_infos(&self) -> FxHashMap<usize, UnwindInfo<'m>> {
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
            if cie.fde_address_encoding() != Some(ADDRESSES) {
                continue;
            }
            let info =
                UnwindInfo { cie: entry(cie.offset(), cie.entry_len())?, fde: entry(fde.offset(), fde.entry_len())? };
            infos.insert(fde.initial_address() as usize, info);
        }
        Some(infos)
    }
}

/// How Wasmtime writes addresses there, and whoever moves the entries elsewhere relies on.
const ADDRESSES: DwEhPe = gimli::DW_EH_PE_pcrel;

/// Bytes of the field that says how long an entry of `.eh_frame` is, which its own length leaves out.
const LENGTH_FIELD: usize = 4;

fn section(elf: &Elf<'_>, name: &str) -> Option<usize> {
    elf.section_headers.iter().position(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(name))
}

/// What a piece is by Wasmtime's name for it: `wasm[0]::array_to_wasm_trampoline[7]`, `signatures[0]::…`, `wasmtime_builtin_…`.
/// `None` for functions: `wasm[0]::function[7]::NAME`, where NAME is the guest's and may be any of the others.
fn stub_name(name: &str) -> Option<CodeName<'_>> {
    let of_module = name.strip_prefix("wasm[").and_then(|rest| rest.split_once(']'));
    let of_module = of_module.and_then(|(module, rest)| Some((module, rest.strip_prefix("::")?)));
    if of_module.is_some_and(|(_, kind)| kind.starts_with("function[")) {
        return None;
    }
    let entry = of_module.and_then(|(module, kind)| {
        let function = kind.strip_prefix("array_to_wasm_trampoline[")?.strip_suffix(']')?;
        Some((module.parse().ok()?, function.parse().ok()?))
    });
    Some(match entry {
        Some((module, function)) => CodeName::Entry { name, module, function },
        None => CodeName::Stub(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_name_its_functions_into_stubs() {
        for name in
            ["array_to_wasm_trampoline[1]", "module_start[0]", "wasmtime_builtin_x", "]::array_to_wasm_trampoline[1]"]
        {
            assert_eq!(stub_name(&format!("wasm[0]::function[3]::{name}")), None);
        }
        assert_eq!(stub_name("wasm[0]::function[3]"), None);
        let entry = "wasm[3]::array_to_wasm_trampoline[12]";
        assert_eq!(stub_name(entry), Some(CodeName::Entry { name: entry, module: 3, function: 12 }));
        for stub in
            ["signatures[3]::wasm_to_array_trampoline", "wasmtime_builtin_memory_grow", "module_start[0]::Array"]
        {
            assert_eq!(stub_name(stub), Some(CodeName::Stub(stub)));
        }
    }
}
