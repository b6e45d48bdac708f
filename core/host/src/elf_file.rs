//! An ELF file, read piece by piece: nothing is read before its size is known.

use flate2::read::ZlibDecoder;
use object::elf::{
    CompressionHeader64, ELFCOMPRESS_ZLIB, FileHeader64, PF_X, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS, Sym64,
};
use object::read::ReadRef;
use object::read::elf::{
    CompressionHeader as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable,
};
use object::{Endianness, pod};
use std::io::Read;
use std::ops::Range;

type Header = FileHeader64<Endianness>;
type Section = object::elf::SectionHeader64<Endianness>;

/// Sections that a file may have.
const MAX_SECTIONS: u16 = 1000;

/// A file of 64-bit ELF.
pub(crate) struct ElfFile<'d, R: ReadRef<'d>> {
    data: R,
    header: &'d Header,
    endian: Endianness,
    sections: SectionTable<'d, Header, R>,
}

impl<'d, R: ReadRef<'d>> ElfFile<'d, R> {
    /// Reads the tables of sections and segments. `None` if it is no such file.
    pub(crate) fn parse(data: R) -> Option<Self> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        // 0 stands for more than the field can say.
        (1..=MAX_SECTIONS).contains(&header.e_shnum.get(endian)).then_some(())?;
        Some(Self { data, header, endian, sections: header.sections(endian, data).ok()? })
    }

    fn section(&self, name: &str) -> Option<&'d Section> {
        self.sections.section_by_name(self.endian, name.as_bytes()).map(|(_, section)| section)
    }

    /// The addresses that the file states for a section.
    pub(crate) fn addresses(&self, name: &str) -> Option<Range<u64>> {
        let section = self.section(name)?;
        let start = section.sh_addr(self.endian);
        Some(start..start.checked_add(section.sh_size(self.endian))?)
    }

    /// The bytes of a section, unpacked if they are packed by zlib. `None` if there are more than `most`.
    pub(crate) fn bytes(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let section = self.section(name).filter(|section| section.sh_type(self.endian) != SHT_NOBITS)?;
        let bytes = self.raw(section, most)?;
        if section.sh_flags(self.endian) & u64::from(SHF_COMPRESSED) == 0 {
            return Some(bytes.to_vec());
        }
        let (header, packed) = pod::from_bytes::<CompressionHeader64<Endianness>>(bytes).ok()?;
        let is_known = header.ch_type(self.endian) == ELFCOMPRESS_ZLIB && header.ch_size(self.endian) <= most;
        let mut unpacked = Vec::new();
        let limit = header.ch_size(self.endian);
        is_known.then(|| ZlibDecoder::new(packed).take(limit).read_to_end(&mut unpacked).ok()).flatten()?;
        Some(unpacked)
    }

    fn raw(&self, section: &Section, most: u64) -> Option<&'d [u8]> {
        (section.sh_size(self.endian) <= most).then(|| section.data(self.endian, self.data).ok()).flatten()
    }

    /// File offsets of code, and the addresses that are stated for their beginning.
    pub(crate) fn code(&self) -> Vec<(Range<u64>, u64)> {
        let segments = self.header.program_headers(self.endian, self.data).unwrap_or_default();
        let is_code = |segment: &&object::elf::ProgramHeader64<Endianness>| {
            segment.p_type(self.endian) == PT_LOAD && segment.p_flags(self.endian) & PF_X != 0
        };
        let code = segments.iter().filter(is_code).filter_map(|segment| {
            let start = segment.p_offset(self.endian);
            Some((start..start.checked_add(segment.p_filesz(self.endian))?, segment.p_vaddr(self.endian)))
        });
        code.collect()
    }

    /// The symbols in a table, with their names in another: begin, size, section, and name. None if there are more than `most` bytes of either.
    pub(crate) fn functions(&self, symbols: &str, names: &str, most: u64) -> Vec<(u64, u64, u16, String)> {
        let read = || {
            let table = self.raw(self.section(symbols)?, most)?;
            let names = self.raw(self.section(names)?, most)?;
            let symbols = pod::slice_from_all_bytes::<Sym64<Endianness>>(table).ok()?;
            let named = symbols.iter().filter_map(|symbol| {
                let section = symbol.st_shndx.get(self.endian);
                let is_function = matches!(symbol.st_info & 0xf, object::elf::STT_NOTYPE | object::elf::STT_FUNC);
                let name = names.get(symbol.st_name.get(self.endian) as usize..)?;
                let name = name
                    .split(|byte| *byte == 0)
                    .next()
                    .filter(|name| !name.is_empty() && is_function && section > 0)?;
                let name = String::from_utf8_lossy(&name[..name.len().min(MAX_NAME)]).into_owned();
                Some((symbol.st_value.get(self.endian), symbol.st_size.get(self.endian), section, name))
            });
            Some(named.collect())
        };
        /// Names overlap in a hostile file.
        const MAX_NAME: usize = 4096;
        read().unwrap_or_default()
    }

    /// Where the section of that number ends.
    pub(crate) fn end_of_section(&self, number: u16) -> Option<u64> {
        let section = self.sections.section(object::SectionIndex(number.into())).ok()?;
        section.sh_addr(self.endian).checked_add(section.sh_size(self.endian))
    }

    /// What tells the build that it is of from all others.
    pub(crate) fn build_id(&self) -> Option<Vec<u8>> {
        /// Lengths and kind of a note, and its owner's name.
        const BEFORE: usize = 12 + 4;
        let note = self.bytes(".note.gnu.build-id", 1024)?;
        note.get(BEFORE..).map(<[u8]>::to_vec)
    }
}
