//! Looks at a dynamic library without running any of it: whether it is for this machine, and a plugin of this ABI.

use super::LoadError;
use goblin::elf::header::{EM_AARCH64, EM_X86_64, ET_DYN};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};
use goblin::elf::{Elf, header};
use wlprof_plugin::abi;

/// The machine that this process runs on.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };

/// Bytes of what a library exports up to the end of its ABI's version.
const PREFIX: usize = 16;

/// Checks the contents of a library.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(LoadError::NotALibrary("it is no ELF file".to_owned()));
    }
    let elf = Elf::parse(bytes).map_err(|error| LoadError::NotALibrary(error.to_string()))?;
    if elf.header.e_type != ET_DYN {
        return Err(LoadError::NotALibrary(format!("it is of type {}", header::et_to_str(elf.header.e_type))));
    }
    if elf.header.e_machine != MACHINE || !elf.is_64 {
        return Err(LoadError::OtherMachine {
            found: header::machine_to_str(elf.header.e_machine).to_owned(),
            wanted: header::machine_to_str(MACHINE).to_owned(),
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
    let prefix = at_address(bytes, &elf, exported.st_value).ok_or(LoadError::NoEntry)?;
    let number = |range: std::ops::Range<usize>| u32::from_le_bytes(prefix[range].try_into().unwrap_or_default());
    if prefix[..8] != abi::PLUGIN_MAGIC.to_le_bytes() {
        return Err(LoadError::NoMagic);
    }
    let (major, minor) = (number(8..12), number(12..16));
    if major != abi::ABI_MAJOR {
        return Err(LoadError::OtherAbi { major, minor });
    }
    Ok(())
}

/// The bytes of the file that will be at an address.
fn at_address<'a>(bytes: &'a [u8], elf: &Elf<'_>, address: u64) -> Option<&'a [u8]> {
    let segment = elf.program_headers.iter().find(|segment| {
        segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz
    })?;
    let start = usize::try_from(segment.p_offset.checked_add(address - segment.p_vaddr)?).ok()?;
    bytes.get(start..start.checked_add(PREFIX)?)
}
