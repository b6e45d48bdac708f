//! The ELF file beside a perf.data file: the names, files and lines of everything that was seen.
//!
//! perf.data files hold addresses; readers look for what they mean in the binaries that were mapped there. A guest has no
//! binary that perf could read, so this makes one up: code that is nothing but no-ops, one for each line that was seen, a
//! symbol table, and DWARF with a line table.

use super::addresses::{Addresses, SLOT, START};
use super::debug_info::{DebugSections, debug_sections};
use crate::machine::Machine;
use crate::plain_text::plain_name;
use object::elf;
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use wlprof_recording::Recording;

/// Bytes of a build id, as of a SHA-1, which readers expect.
pub(super) const BUILD_ID_SIZE: usize = 20;

/// Alignment of a note in bytes.
const NOTE_ALIGNMENT: u64 = 4;

/// Name of what stands for lines that a stack has no room for.
const CUT_NAME: &str = "[truncated]";

/// A symbol: its name and its addresses.
type NamedRange<'a> = (Cow<'a, str>, Range<u64>);

/// The file and the id that tells it from others.
pub(super) struct Symbols {
    pub(super) file: Vec<u8>,
    pub(super) build_id: [u8; BUILD_ID_SIZE],
}

/// Makes the file for `recording`.
pub(super) fn symbols(recording: &Recording, addresses: &Addresses) -> io::Result<Symbols> {
    let functions = addresses.functions();
    let debug_sections = debug_sections(recording, addresses, &functions).map_err(io::Error::other)?;
    let named = functions.iter().map(|placed| {
        let name = plain_name(&recording.functions[placed.function as usize].name);
        (name, placed.addresses.clone())
    });
    let cut = addresses.cut.map(|cut| (CUT_NAME.into(), cut..cut + SLOT));
    let symbols: Vec<_> = named.chain(cut).collect();
    let build_id = build_id(&symbols, &debug_sections);
    let machine = Machine::called(&recording.meta.architecture);
    let file = write(addresses, &symbols, &debug_sections, &build_id, machine).map_err(io::Error::other)?;
    Ok(Symbols { file, build_id })
}

fn build_id(symbols: &[NamedRange<'_>], debug_sections: &DebugSections) -> [u8; BUILD_ID_SIZE] {
    let mut hash = Sha256::new();
    for (name, range) in symbols {
        hash.update(name.as_bytes());
        hash.update(range.start.to_le_bytes());
        hash.update(range.end.to_le_bytes());
    }
    debug_sections.iter().for_each(|(_, data)| hash.update(data));
    let mut id = [0; BUILD_ID_SIZE];
    id.copy_from_slice(&hash.finalize()[..BUILD_ID_SIZE]);
    id
}

/// A section other than the symbol and string tables, which the writer lays out itself.
struct Section<'a> {
    name: &'a str,
    kind: u32,
    flags: u64,
    data: &'a [u8],
}

fn write(
    addresses: &Addresses,
    symbols: &[NamedRange<'_>],
    debug_sections: &DebugSections,
    build_id: &[u8; BUILD_ID_SIZE],
    machine: &Machine,
) -> object::write::Result<Vec<u8>> {
    let code = machine.no_op.repeat(((addresses.end - START) / SLOT) as usize);
    let sizes_and_type = [4, BUILD_ID_SIZE as u32, elf::NT_GNU_BUILD_ID].map(u32::to_le_bytes).concat();
    let note = [&sizes_and_type, &b"GNU\0"[..], build_id].concat();
    let section = |name, kind, flags, data| Section { name, kind, flags: u64::from(flags), data };
    // The code first: its offset in the file is its address.
    let mut sections = vec![
        section(".text", elf::SHT_PROGBITS, elf::SHF_ALLOC | elf::SHF_EXECINSTR, &code),
        section(".note.gnu.build-id", elf::SHT_NOTE, 0, &note),
    ];
    sections.extend(debug_sections.iter().map(|(name, data)| section(name, elf::SHT_PROGBITS, 0, data)));

    let mut file = Vec::new();
    let mut writer = Writer::new(object::Endianness::Little, true, &mut file);
    writer.reserve_file_header();
    writer.reserve_program_headers(2);
    writer.reserve_null_section_index();
    let mut placed = Vec::new();
    for section in &sections {
        let name = writer.add_section_name(section.name.as_bytes());
        let index = writer.reserve_section_index();
        let alignment = if placed.is_empty() { START } else { NOTE_ALIGNMENT };
        placed.push((name, index, writer.reserve(section.data.len(), alignment as usize), alignment));
    }
    let (_, text, text_offset, _) = placed[0];
    let (_, _, note_offset, _) = placed[1];
    debug_assert_eq!(text_offset as u64, START);
    let names: Vec<_> = symbols
        .iter()
        .map(|(name, _)| {
            writer.reserve_symbol_index(Some(text));
            writer.add_string(name.as_bytes())
        })
        .collect();
    writer.reserve_symtab_section_index();
    writer.reserve_symtab();
    writer.reserve_strtab_section_index();
    writer.reserve_strtab();
    writer.reserve_shstrtab_section_index();
    writer.reserve_shstrtab();
    writer.reserve_section_headers();

    writer.write_file_header(&FileHeader {
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        e_type: elf::ET_DYN,
        e_machine: machine.elf,
        e_entry: 0,
        e_flags: 0,
    })?;
    writer.write_align_program_headers();
    for (p_type, p_flags, offset, size, p_align) in [
        (elf::PT_LOAD, elf::PF_R | elf::PF_X, START, code.len(), START),
        (elf::PT_NOTE, elf::PF_R, note_offset as u64, note.len(), NOTE_ALIGNMENT),
    ] {
        let (p_filesz, p_memsz) = (size as u64, size as u64);
        let (p_vaddr, p_paddr) = (offset, offset);
        writer.write_program_header(&ProgramHeader {
            p_type,
            p_flags,
            p_offset: offset,
            p_vaddr,
            p_paddr,
            p_filesz,
            p_memsz,
            p_align,
        });
    }
    for (section, &(_, _, offset, _)) in sections.iter().zip(&placed) {
        writer.pad_until(offset);
        writer.write(section.data);
    }
    writer.write_null_symbol();
    for (&name, (_, range)) in names.iter().zip(symbols) {
        writer.write_symbol(&Sym {
            name: Some(name),
            section: Some(text),
            st_info: (elf::STB_GLOBAL << 4) | elf::STT_FUNC,
            st_other: elf::STV_DEFAULT,
            st_shndx: 0,
            st_value: range.start,
            st_size: range.end - range.start,
        });
    }
    writer.write_strtab();
    writer.write_shstrtab();
    writer.write_null_section_header();
    for (section, &(name, _, offset, alignment)) in sections.iter().zip(&placed) {
        writer.write_section_header(&SectionHeader {
            name: Some(name),
            sh_type: section.kind,
            sh_flags: section.flags,
            sh_addr: if section.flags == 0 { 0 } else { offset as u64 },
            sh_offset: offset as u64,
            sh_size: section.data.len() as u64,
            sh_link: 0,
            sh_info: 0,
            sh_addralign: alignment,
            sh_entsize: 0,
        });
    }
    // All symbols are global: the null symbol alone is local.
    writer.write_symtab_section_header(1);
    writer.write_strtab_section_header();
    writer.write_shstrtab_section_header();
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use goblin::elf::{Elf, header};
    use wlprof_recording::example;

    #[test]
    fn the_file_is_one_of_the_processor_that_the_guest_ran_on() {
        for (architecture, machine) in [("x86_64", header::EM_X86_64), ("aarch64", header::EM_AARCH64)] {
            let mut recording = example();
            recording.meta.architecture = architecture.to_owned();
            let symbols = symbols(&recording, &Addresses::of(&recording)).unwrap();
            let file = Elf::parse(&symbols.file).unwrap();
            assert_eq!(file.header.e_machine, machine, "{architecture}");
        }
    }
}
