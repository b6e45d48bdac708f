//! One ELF file with code: its unwind tables, and where its code is meant to be.

use framehop::ExplicitModuleSectionInfo;
use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSegment, SegmentFlags, elf};
use std::ops::Range;

/// The unwind tables that one file may have. Those of browsers have some 20 MB.
const MAX_TABLES: u64 = 64 << 20;

/// What unwinding needs of a file.
pub(crate) struct UnwindTables {
    pub(crate) sections: ExplicitModuleSectionInfo<Vec<u8>>,
    /// File offsets of code, and the addresses that are stated for their beginning.
    code: Vec<(Range<u64>, u64)>,
}

impl UnwindTables {
    /// Reads them. `None` if the file is no ELF file, or has none.
    pub(crate) fn read<'d>(file: impl ReadRef<'d>) -> Option<Self> {
        let object = object::File::parse(file).ok()?;
        let range = |name: &str| {
            let section = object.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let data = |name: &str| {
            let section = object.section_by_name(name).filter(|section| section.size() <= MAX_TABLES)?;
            section.data().ok().map(<[u8]>::to_vec)
        };
        let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags & elf::PF_X != 0);
        let code = object.segments().filter(|segment| is_code(segment.flags())).filter_map(|segment| {
            let (start, length) = segment.file_range();
            Some((start..start.checked_add(length)?, segment.address()))
        });
        let sections = ExplicitModuleSectionInfo {
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            // Debug information may be of code that the linker has left out, at address 0.
            debug_frame: None,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Self { sections, code: code.collect() })
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        [&self.sections.eh_frame, &self.sections.eh_frame_hdr].into_iter().flatten().map(Vec::len).sum()
    }

    /// The address that the file states for its code at `offset`.
    pub(crate) fn stated_address(&self, offset: u64) -> Option<u64> {
        let (range, address) = self.code.iter().find(|(range, _)| {
            // Mappings begin with the page that the code begins in.
            (range.start & !0xfff..range.end).contains(&offset)
        })?;
        Some(address.wrapping_add(offset).wrapping_sub(range.start))
    }
}
