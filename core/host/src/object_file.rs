//! What unwinding needs of one file with code: its unwind tables, made harmless, and where its code is meant to be.

use crate::elf_file::ElfFile;
use framehop::ExplicitModuleSectionInfo;
use gimli::{BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::read::ReadRef;
use std::ops::Range;

/// The bytes that a table of one file may have. Those of browsers have some 20 MB.
const MAX_TABLE: u64 = 64 << 20;

/// The bytes that an entry of a table may have: each instruction of it is carried out for a frame.
const MAX_ENTRY: usize = 64 << 10;

/// The operation of DWARF that does nothing.
const NOP: u8 = 0x96;

/// What unwinding needs of a file.
pub(crate) struct UnwindTables {
    pub(crate) sections: ExplicitModuleSectionInfo<Vec<u8>>,
    /// File offsets of code, and the addresses that are stated for their beginning.
    code: Vec<(Range<u64>, u64)>,
}

impl UnwindTables {
    /// Reads them. `None` if the file is no ELF file.
    pub(crate) fn read<'d>(file: impl ReadRef<'d>) -> Option<Self> {
        let file = ElfFile::parse(file)?;
        let eh_frame_svma = file.addresses(".eh_frame");
        let table = file.bytes(".eh_frame", MAX_TABLE).zip(eh_frame_svma.clone());
        let eh_frame = table.and_then(|(table, addresses)| without_expressions(table, addresses.start));
        let sections = ExplicitModuleSectionInfo {
            text_svma: file.addresses(".text"),
            got_svma: file.addresses(".got"),
            eh_frame_svma,
            eh_frame_hdr_svma: file.addresses(".eh_frame_hdr"),
            eh_frame_hdr: eh_frame.as_ref().and_then(|_| file.bytes(".eh_frame_hdr", MAX_TABLE)),
            eh_frame,
            // Debug information may be of code that the linker has left out, at address 0.
            debug_frame: None,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Self { sections, code: file.code() })
    }

    /// How many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        [&self.sections.eh_frame, &self.sections.eh_frame_hdr].into_iter().flatten().map(Vec::len).sum()
    }

    /// The address that the file states for its code at `offset`.
    pub(crate) fn stated_address(&self, offset: u64) -> Option<u64> {
        /// Mappings begin with the page that the code begins in. The largest pages of aarch64 have as much.
        const PAGE: u64 = 64 << 10;
        let (range, address) =
            self.code.iter().find(|(range, _)| (range.start & !(PAGE - 1)..range.end).contains(&offset))?;
        Some(address.wrapping_add(offset).wrapping_sub(range.start))
    }
}

/// The table with expressions that have no effect: an expression of a hostile file may go on for ever, and the thread that is unwound stands still
/// meanwhile. Compilers write none. What has some anyway, such as the first function of a fiber, cannot be unwound by framehop either.
///
/// `None` if the table is broken, or an entry is too long.
fn without_expressions(mut table: Vec<u8>, address: u64) -> Option<Vec<u8>> {
    let mut expressions: Vec<Range<usize>> = Vec::new();
    {
        let section = EhFrame::from(EndianSlice::new(&table, LittleEndian));
        let bases = BaseAddresses::default().set_eh_frame(address);
        let mut entries = section.entries(&bases);
        while let Some(entry) = entries.next().ok()? {
            let (length, mut instructions) = match entry {
                CieOrFde::Cie(cie) => (cie.entry_len(), cie.instructions(&section, &bases)),
                CieOrFde::Fde(fde) => {
                    let fde = fde.parse(|_, bases, offset| section.cie_from_offset(bases, offset)).ok()?;
                    (fde.entry_len(), fde.instructions(&section, &bases))
                }
            };
            (length <= MAX_ENTRY).then_some(())?;
            while let Some(instruction) = instructions.next().ok()? {
                if let CallFrameInstruction::DefCfaExpression { expression }
                | CallFrameInstruction::Expression { expression, .. }
                | CallFrameInstruction::ValExpression { expression, .. } = instruction
                {
                    expressions.push(expression.offset..expression.offset.checked_add(expression.length)?);
                }
            }
        }
    }
    for expression in expressions {
        table.get_mut(expression)?.fill(NOP);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one common entry with these instructions.
    fn table(instructions: &[u8]) -> Vec<u8> {
        // Version 1, no augmentation, alignment factors 1 and -8, return address in register 16.
        let mut entry = vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16];
        entry.extend(instructions);
        while !entry.len().is_multiple_of(4) {
            entry.push(0);
        }
        let mut table = (entry.len() as u32).to_le_bytes().to_vec();
        table.extend(entry);
        table.extend([0; 4]);
        table
    }

    #[test]
    fn expressions_are_made_harmless_and_nothing_else() {
        // DW_CFA_def_cfa_expression of three bytes: DW_OP_skip -3, which never ends.
        let endless = table(&[0x0f, 3, 0x2f, 0xfd, 0xff]);
        let mut harmless = endless.clone();
        let at = 4 + 9 + 2;
        harmless[at..at + 3].fill(NOP);
        assert_eq!(without_expressions(endless, 0x1000), Some(harmless));
        // DW_CFA_def_cfa rsp 8.
        let usual = table(&[0x0c, 7, 8]);
        assert_eq!(without_expressions(usual.clone(), 0x1000), Some(usual));
        assert_eq!(without_expressions(table(&vec![0; MAX_ENTRY + 1]), 0x1000), None);
    }
}
