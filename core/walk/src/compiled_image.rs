//! The ELF image that Wasmtime compiles a module or a component to: its pieces of code by their symbols, and its address map.

use crate::address_map::AddressMap;
use goblin::elf::Elf;
use goblin::elf::sym::{STT_FUNC, st_type};
use std::ffi::CStr;
use std::ops::Range;

/// The section with the address map (`ELF_WASMTIME_ADDRMAP` in wasmtime-environ; in all releases from 24 to 50).
const ADDRESS_MAP: &str = ".wasmtime.addrmap";

/// What a piece of machine code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeName<'m> {
    /// A wasm function.
    Function {
        /// The number of its module in the component; 0 of a module alone. Numbers behind those of all modules are adapters'.
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

/// The image of a module or a component.
///
/// ```
/// // What is not an image of Wasmtime's is not read.
/// assert!(wlprof_walk::CompiledImage::parse(b"\x7fELF").is_none());
/// ```
#[derive(Debug)]
pub struct CompiledImage<'m> {
    bytes: &'m [u8],
    elf: Elf<'m>,
    text: usize,
    /// What names of symbols lie in. goblin looks for each among all.
    names: &'m [u8],
}

impl<'m> CompiledImage<'m> {
    /// Parses an image. `None` if it is not the ELF file that Wasmtime makes.
    pub fn parse(bytes: &'m [u8]) -> Option<Self> {
        let elf = Elf::parse(bytes).ok()?;
        let text = index_of(&elf, ".text")?;
        elf.section_headers[text].file_range().filter(|text| bytes.get(text.clone()).is_some())?;
        let names = elf.section_headers[index_of(&elf, ".strtab")?].file_range();
        Some(Self { names: names.and_then(|names| bytes.get(names)).unwrap_or_default(), bytes, elf, text })
    }

    /// Returns where in the image its machine code lies.
    pub fn text(&self) -> Range<usize> {
        self.elf.section_headers[self.text].file_range().unwrap_or_default()
    }

    /// Returns the pieces of code in order: what they are, and their offsets in the text. None reaches into the next.
    pub fn pieces(&self) -> Vec<(CodeName<'m>, Range<usize>)> {
        let pieces = self.symbols().filter_map(|(symbol, range)| Some((code_name(symbol)?, range)));
        let mut pieces: Vec<_> = pieces.collect();
        pieces.sort_by_key(|(_, range)| range.start);
        let starts: Vec<usize> = pieces.iter().skip(1).map(|(_, range)| range.start).collect();
        pieces.iter_mut().zip(starts).for_each(|((_, range), next)| range.end = range.end.min(next));
        pieces.retain(|(_, range)| !range.is_empty());
        pieces
    }

    /// The symbols of pieces of code, and where these lie in the text.
    fn symbols(&self) -> impl Iterator<Item = (&'m CStr, Range<usize>)> {
        let length = self.elf.section_headers[self.text].sh_size as usize;
        self.elf.syms.iter().filter_map(move |symbol| {
            if symbol.st_shndx != self.text || st_type(symbol.st_info) != STT_FUNC || symbol.st_size == 0 {
                return None;
            }
            let start = symbol.st_value as usize;
            let end = start.checked_add(symbol.st_size as usize).filter(|end| *end <= length)?;
            Some((CStr::from_bytes_until_nul(self.names.get(symbol.st_name..)?).ok()?, start..end))
        })
    }

    /// Returns the names that symbols have for functions: module, index and name. Wasmtime has at most 96 characters of each, with `?` for
    /// those that are not graphic ASCII. Untrusted text.
    pub fn function_names(&self) -> impl Iterator<Item = (u32, u32, &'m str)> {
        self.symbols().filter_map(|(symbol, _)| {
            let (module, function) = numbers(symbol.to_bytes(), b"function[")?;
            let name = symbol.to_str().ok()?.splitn(3, "::").nth(2)?;
            Some((module, function, name))
        })
    }

    /// Returns a section's bytes.
    pub fn section(&self, name: &str) -> Option<&'m [u8]> {
        self.bytes.get(self.elf.section_headers[index_of(&self.elf, name)?].file_range()?)
    }

    /// Returns the address map, if the engine keeps one.
    pub fn address_map(&self) -> Option<AddressMap<'m>> {
        AddressMap::parse(self.section(ADDRESS_MAP)?).filter(AddressMap::is_in_order)
    }

    /// Returns where in the image the section of the address map lies, if the engine keeps one.
    pub(crate) fn address_map_range(&self) -> Option<Range<usize>> {
        self.address_map()?;
        self.elf.section_headers[index_of(&self.elf, ADDRESS_MAP)?].file_range()
    }
}

fn index_of(elf: &Elf<'_>, name: &str) -> Option<usize> {
    elf.section_headers.iter().position(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(name))
}

/// What a piece is by Wasmtime's name for it: `wasm[0]::function[7]::NAME`, `wasm[0]::array_to_wasm_trampoline[7]`, `signatures[0]::…`,
/// `wasmtime_builtin_…`. NAME is the guest's, and may be any of the others or not even text.
fn code_name(symbol: &CStr) -> Option<CodeName<'_>> {
    if let Some((module, function)) = numbers(symbol.to_bytes(), b"function[") {
        return Some(CodeName::Function { module, function });
    }
    let name = symbol.to_str().ok()?;
    Some(match numbers(symbol.to_bytes(), b"array_to_wasm_trampoline[") {
        Some((module, function)) => CodeName::Entry { name, module, function },
        None => CodeName::Stub(name),
    })
}

/// The numbers in `wasm[MODULE]::KIND[FUNCTION]`, whatever comes behind.
fn numbers(symbol: &[u8], kind: &[u8]) -> Option<(u32, u32)> {
    let (module, rest) = number(symbol.strip_prefix(b"wasm[")?)?;
    let (function, _) = number(rest.strip_prefix(b"::")?.strip_prefix(kind)?)?;
    Some((module, function))
}

/// The number before a `]`, and what comes behind that.
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let end = text.iter().position(|byte| *byte == b']')?;
    Some((str::from_utf8(&text[..end]).ok()?.parse().ok()?, &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn a_guest_cannot_name_its_functions_into_stubs() {
        let function = CodeName::Function { module: 0, function: 3 };
        for name in [
            "array_to_wasm_trampoline[1]",
            "module_start[0]",
            "wasmtime_builtin_x",
            "]::array_to_wasm_trampoline[1]",
            "\u{ff}",
        ] {
            let symbol = CString::new(format!("wasm[0]::function[3]::{name}")).unwrap();
            assert_eq!(code_name(&symbol), Some(function));
        }
        assert_eq!(code_name(c"wasm[0]::function[3]"), Some(function));
        assert_eq!(code_name(c"wasm[0]::function[3]::\xff"), Some(function), "it is no text");
        let entry = c"wasm[3]::array_to_wasm_trampoline[12]";
        let name = entry.to_str().unwrap();
        assert_eq!(code_name(entry), Some(CodeName::Entry { name, module: 3, function: 12 }));
        for stub in
            [c"signatures[3]::wasm_to_array_trampoline", c"wasmtime_builtin_memory_grow", c"module_start[0]::Array"]
        {
            assert_eq!(code_name(stub), Some(CodeName::Stub(stub.to_str().unwrap())));
        }
    }
}
