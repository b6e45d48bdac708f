//! The unwinding information of one function, moved from Wasmtime's table to where perf puts it.

use crate::UnwindInfo;

/// How perf aligns `.eh_frame` after the code (`jit_add_eh_frame_info` in `util/genelf.c`).
const ALIGNMENT: usize = 8;
/// Where an entry of `.eh_frame` says how far before this field its common part is.
const CIE_POINTER: usize = 4;
/// Where it says at which address the code is, relative to this field.
const CODE_POINTER: usize = 8;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`
const RELATIVE: u8 = 0x1b;
/// `DW_EH_PE_udata4`
const NUMBER: u8 = 0x03;
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`
const RELATIVE_TO_HEADER: u8 = 0x3b;

/// The two sections, the second of which follows the first.
pub(super) struct Sections {
    pub(super) eh_frame: Vec<u8>,
    pub(super) eh_frame_hdr: Vec<u8>,
}

/// The sections for a function of that much code; `None` if an entry is too short to be one.
pub(super) fn sections(info: UnwindInfo<'_>, code_size: usize) -> Option<Sections> {
    let before = code_size.next_multiple_of(ALIGNMENT);
    let mut eh_frame = info.cie.to_vec();
    let entry = eh_frame.len();
    eh_frame.extend(info.fde);
    let cie_distance = u32::try_from(entry + CIE_POINTER).ok()?;
    eh_frame.get_mut(entry + CIE_POINTER..entry + CIE_POINTER + 4)?.copy_from_slice(&cie_distance.to_le_bytes());
    let code_pointer = entry + CODE_POINTER;
    let code_distance = -((before + code_pointer) as i64);
    eh_frame.get_mut(code_pointer..code_pointer + 8)?.copy_from_slice(&code_distance.to_le_bytes());
    // An entry of length 0 ends the section.
    eh_frame.extend([0; 4]);
    eh_frame.resize(eh_frame.len().next_multiple_of(ALIGNMENT), 0);

    let header = eh_frame.len() as i32;
    let eh_frame_field = 4;
    let count = 1i32;
    let mut eh_frame_hdr = vec![1, RELATIVE, NUMBER, RELATIVE_TO_HEADER];
    for number in [-(header + eh_frame_field), count, -(before as i32 + header), entry as i32 - header] {
        eh_frame_hdr.extend(number.to_le_bytes());
    }
    Some(Sections { eh_frame, eh_frame_hdr })
}
