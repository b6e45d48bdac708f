//! Looks at a dynamic library without running any of it: whether it is for this machine, a plugin of this ABI, and what it
//! says of itself.

use super::{LoadError, MOST_LANGUAGES, why_no_name};
use goblin::elf::header::ET_DYN;
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};
use goblin::elf::{Elf, Reloc, header, reloc};
use rustc_hash::FxHashMap;
use std::mem::offset_of;
use wlprof_plugin::abi;

/// The machine that this process runs on, and its relocations for an address: that of a symbol, and one of the library's own.
#[cfg(target_arch = "aarch64")]
const MACHINE: (u16, u32, u32) = (header::EM_AARCH64, reloc::R_AARCH64_ABS64, reloc::R_AARCH64_RELATIVE);
#[cfg(not(target_arch = "aarch64"))]
const MACHINE: (u16, u32, u32) = (header::EM_X86_64, reloc::R_X86_64_64, reloc::R_X86_64_RELATIVE);

/// Bytes of what a library exports up to the end of its ABI's version.
const PREFIX: usize = 16;
/// The longest name that is read.
const LONGEST_NAME: usize = 256;

/// What a plugin says of itself in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginDescription {
    /// What it is called.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Major and minor version of the ABI it was built for.
    pub abi: (u32, u32),
    /// What its languages are called.
    pub languages: Vec<String>,
}

/// Checks the contents of a library. `None`: it is a plugin, and what it is cannot be said before it is loaded, since it writes
/// that itself or has it from another library.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(bytes: &[u8]) -> Result<Option<PluginDescription>, LoadError> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(LoadError::NotALibrary("it is no ELF file".to_owned()));
    }
    let elf = Elf::parse(bytes).map_err(|error| LoadError::NotALibrary(error.to_string()))?;
    if elf.header.e_type != ET_DYN {
        return Err(LoadError::NotALibrary(format!("it is of type {}", header::et_to_str(elf.header.e_type))));
    }
    if elf.header.e_machine != MACHINE.0 || !elf.is_64 {
        return Err(LoadError::OtherMachine {
            found: header::machine_to_str(elf.header.e_machine).to_owned(),
            wanted: header::machine_to_str(MACHINE.0).to_owned(),
        });
    }
    // The system's loader maps what a header says, and crashes in what the file does not have.
    let end = |segment: &ProgramHeader| segment.p_offset.checked_add(segment.p_filesz);
    let is_whole = |segment: &ProgramHeader| end(segment).is_some_and(|end| end <= bytes.len() as u64);
    if !elf.program_headers.iter().filter(|segment| segment.p_type == PT_LOAD).all(is_whole) {
        return Err(LoadError::NotALibrary("it ends before its last segment does".to_owned()));
    }
    let exported = elf
        .dynsyms
        .iter()
        .find(|symbol| !symbol.is_import() && elf.dynstrtab.get_at(symbol.st_name) == Some(abi::PLUGIN_SYMBOL));
    let exported = exported.ok_or(LoadError::NoEntry)?;
    let image = Image::new(bytes, &elf);
    let prefix = image.bytes_at(exported.st_value, PREFIX).ok_or(LoadError::NoEntry)?;
    let number = |range: std::ops::Range<usize>| u32::from_le_bytes(prefix[range].try_into().unwrap_or_default());
    if prefix[..8] != abi::PLUGIN_MAGIC.to_le_bytes() {
        return Err(LoadError::NoMagic);
    }
    let (major, minor) = (number(8..12), number(12..16));
    if major != abi::ABI_MAJOR {
        return Err(LoadError::OtherAbi { major, minor });
    }
    Ok(describe(&image, exported.st_value, (major, minor)))
}

/// What the plugin at an address says of itself.
fn describe(image: &Image<'_>, plugin: u64, abi: (u32, u32)) -> Option<PluginDescription> {
    // What is wrong with it is said by whoever opens it.
    let size = image.number(plugin + offset_of!(abi::Plugin, size) as u64)?;
    let count = image.number(plugin + offset_of!(abi::Plugin, language_count) as u64)?;
    let first = image.address(plugin + offset_of!(abi::Plugin, languages) as u64)?;
    if count > MOST_LANGUAGES as u64 || size < size_of::<abi::Plugin>() as u64 {
        return None;
    }
    let language = |index: u64| {
        let language = image.address(first.checked_add(index * size_of::<usize>() as u64)?)?;
        let name = image.text(language.checked_add(offset_of!(abi::Language, name) as u64)?)?;
        why_no_name(&name).is_none().then_some(name)
    };
    Some(PluginDescription {
        name: image.text(plugin + offset_of!(abi::Plugin, name) as u64)?,
        version: image.text(plugin + offset_of!(abi::Plugin, version) as u64)?,
        abi,
        languages: (0..count).map(language).collect::<Option<_>>()?,
    })
}

/// A library as it will be in memory, at address 0.
struct Image<'a> {
    bytes: &'a [u8],
    segments: Vec<ProgramHeader>,
    /// What the system's loader will write, by address.
    relocations: FxHashMap<u64, Reloc>,
    /// Values of the library's own symbols, by index.
    symbols: Vec<Option<u64>>,
}

impl<'a> Image<'a> {
    fn new(bytes: &'a [u8], elf: &Elf<'_>) -> Self {
        Self {
            bytes,
            segments: elf.program_headers.iter().filter(|segment| segment.p_type == PT_LOAD).cloned().collect(),
            relocations: elf.dynrelas.iter().map(|relocation| (relocation.r_offset, relocation)).collect(),
            symbols: elf.dynsyms.iter().map(|symbol| (!symbol.is_import()).then_some(symbol.st_value)).collect(),
        }
    }

    /// What the file has for these addresses.
    fn bytes_at(&self, address: u64, length: usize) -> Option<&'a [u8]> {
        let is_there =
            |segment: &&ProgramHeader| address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz;
        let segment = self.segments.iter().find(is_there)?;
        let start = usize::try_from(segment.p_offset.checked_add(address - segment.p_vaddr)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// The number at an address, which nobody will write before the plugin is used.
    fn number(&self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes_at(at, size_of::<u64>())?.try_into().ok()?))
    }

    /// The address that will stand at an address.
    fn address(&self, at: u64) -> Option<u64> {
        let (_, of_symbol, own) = MACHINE;
        match self.relocations.get(&at) {
            // Relocations of a compact form (RELR) leave the address itself in the file.
            None => self.number(at),
            Some(relocation) => {
                let base = match relocation.r_type {
                    kind if kind == own => 0,
                    kind if kind == of_symbol => (*self.symbols.get(relocation.r_sym)?)?,
                    _ => return None,
                };
                base.checked_add_signed(relocation.r_addend.unwrap_or(0))
            }
        }
    }

    /// The text that the `Bytes` at an address name.
    fn text(&self, at: u64) -> Option<String> {
        let length = usize::try_from(self.number(at.checked_add(offset_of!(abi::Bytes, length) as u64)?)?).ok()?;
        if length == 0 {
            return Some(String::new());
        }
        let data = self.address(at.checked_add(offset_of!(abi::Bytes, data) as u64)?)?;
        let bytes = self.bytes_at(data, Some(length).filter(|length| *length <= LONGEST_NAME)?)?;
        Some(std::str::from_utf8(bytes).ok()?.to_owned())
    }
}
