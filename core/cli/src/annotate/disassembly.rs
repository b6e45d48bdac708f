//! Machine instructions as text, in the syntax that `objdump -d` and `perf annotate` have. iced-x86 decodes and prints them; this
//! finds what in a function is no instruction.
//!
//! Cranelift puts two kinds of data among a function's code: the table of a `br_table` behind the indirect jump that reads it,
//! four bytes a target, counted from the table's beginning; and constants behind the last instruction, which others load by
//! their distance. Read as instructions they would be nonsense, and hide the beginning of what stands behind them.

use iced_x86::{Code, Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, Mnemonic, OpKind};
use std::ops::Range;

/// Whether [`disassemble`] reads the instructions of this machine: of x86-64 alone.
pub(super) const CAN_DISASSEMBLE: bool = cfg!(target_arch = "x86_64");

/// Bytes of constants in a line.
const CONSTANT_BYTES: usize = 8;
/// Constants are aligned to so many bytes at most.
const MOST_ALIGNMENT: usize = 64;
/// Bytes of an entry of a jump table.
const ENTRY_BYTES: usize = 4;

/// An instruction, or data among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineInstruction {
    /// Offset into the function's code.
    pub(super) offset: usize,
    /// As an assembler reads it. Data are the directives `.long` and `.byte`, bytes that are nothing are `(bad)`.
    pub(super) text: String,
    /// What it calls or jumps to, if it names it: an address, as those that the code is at.
    pub(super) target: Option<u64>,
}

/// The instructions of a function whose code is at `address`: any number, from which addresses in the text are counted. `starts` are
/// offsets, in order, at which the code of a wasm instruction is known to begin, and so no data goes on.
pub(super) fn disassemble(code: &[u8], address: u64, starts: &[usize]) -> Vec<MachineInstruction> {
    let mut formatter = formatter();
    let mut all: Vec<MachineInstruction> = Vec::new();
    let (mut at, mut end) = (0, code.len());
    while at < end && !is_padding(&code[at..end], code.len() - end) {
        let here = address.wrapping_add(at as u64);
        let instruction = Decoder::with_ip(64, &code[at..end], here, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            all.push(data(at, "(bad)".to_owned()));
            at += 1;
            continue;
        }
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let target = matches!(instruction.op0_kind(), OpKind::NearBranch64).then(|| instruction.near_branch_target());
        all.push(MachineInstruction { offset: at, text, target });
        at += instruction.len();
        let constant = constant(&instruction).map(|found| found.wrapping_sub(address) as usize);
        end = constant.filter(|constant| (at..end).contains(constant)).unwrap_or(end);
        if is_indirect_jump(&instruction) {
            let next = starts.get(starts.partition_point(|start| *start <= at)).copied();
            let table = jump_table(code, at..end, next.unwrap_or(end), &all);
            let row = |(entry, target): (usize, usize)| {
                let place = address.wrapping_add(target as u64);
                data(at + entry * ENTRY_BYTES, format!(".long {place:#x}-{:#x}", address.wrapping_add(at as u64)))
            };
            let rows: Vec<_> = table.into_iter().enumerate().map(row).collect();
            at += rows.len() * ENTRY_BYTES;
            all.extend(rows);
        }
    }
    for (start, part) in [(at, &code[at..end]), (end, &code[end..])] {
        for (number, bytes) in part.chunks(CONSTANT_BYTES).enumerate() {
            let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
            all.push(data(start + number * CONSTANT_BYTES, format!(".byte {}", bytes.join(","))));
        }
    }
    all
}

/// Whether these bytes, all that are left before so many bytes of constants, are there to align those.
fn is_padding(bytes: &[u8], constants: usize) -> bool {
    constants > 0 && bytes.len() < MOST_ALIGNMENT && bytes.iter().all(|byte| *byte == 0)
}

fn data(offset: usize, text: String) -> MachineInstruction {
    MachineInstruction { offset, text, target: None }
}

/// Writes as objdump does.
fn formatter() -> GasFormatter {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_small_hex_numbers_in_decimal(false);
    options.set_rip_relative_addresses(true);
    options.set_branch_leading_zeros(false);
    options.set_uppercase_hex(false);
    formatter
}

/// The address that it loads from, if that is at a fixed distance from it.
fn constant(instruction: &Instruction) -> Option<u64> {
    let loads = instruction.is_ip_rel_memory_operand() && instruction.mnemonic() != Mnemonic::Lea;
    loads.then(|| instruction.ip_rel_memory_address())
}

fn is_indirect_jump(instruction: &Instruction) -> bool {
    instruction.code() == Code::Jmp_rm64 && instruction.op0_kind() == OpKind::Register
}

/// The targets of the table that begins where `room` does, as offsets into the code; none if there is no table, as behind a tail
/// call. `before` are the instructions before it. Its end is nowhere said. At `most` it goes to where code begins. Code stands at its
/// targets, too, so it ends before the first of them that is behind it, or where an entry leads to no place that can be one.
fn jump_table(code: &[u8], room: Range<usize>, most: usize, before: &[MachineInstruction]) -> Vec<usize> {
    let mut targets = Vec::new();
    let mut table_end = most.min(room.end);
    for (number, entry) in code[room.clone()].chunks_exact(ENTRY_BYTES).enumerate() {
        let entry_end = room.start + (number + 1) * ENTRY_BYTES;
        let distance = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let target = room.start.checked_add_signed(distance as isize);
        let is_code = |target: &usize| {
            let is_behind = (entry_end..room.end).contains(target);
            is_behind || before.binary_search_by_key(target, |instruction| instruction.offset).is_ok()
        };
        let Some(target) = target.filter(|target| entry_end <= table_end && is_code(target)) else { break };
        if target >= entry_end {
            table_end = table_end.min(target);
        }
        targets.push(target);
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(code: &[u8]) -> Vec<(usize, String)> {
        disassemble(code, 0x100, &[]).into_iter().map(|line| (line.offset, line.text)).collect()
    }

    fn line(offset: usize, text: &str) -> (usize, String) {
        (offset, text.to_owned())
    }

    #[test]
    fn instructions_are_written_as_objdump_writes_them() {
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x8b, 0x47, 0x08, 0xc7, 0x04, 0x8f, 5, 0, 0, 0, 0x74, 0x02, 0x0f, 0x0b, 0x5d, 0xc3,
        ];
        let expected = [
            line(0, "push %rbp"),
            line(1, "mov %rsp,%rbp"),
            line(4, "mov 0x8(%rdi),%eax"),
            line(7, "movl $0x5,(%rdi,%rcx,4)"),
            line(14, "je 0x112"),
            line(16, "ud2"),
            line(18, "pop %rbp"),
            line(19, "ret"),
        ];
        assert_eq!(lines(&code), expected);
        assert_eq!(disassemble(&code, 0x100, &[])[4].target, Some(0x112));
    }

    #[test]
    fn jump_tables_and_constants_are_data() {
        // ud2; jmp *%rax; a table of two entries, one that leads back and one that leads forth; a load of a constant behind padding.
        let mut code = vec![0x0f, 0x0b, 0xff, 0xe0];
        code.extend((-4_i32).to_le_bytes());
        code.extend(8_i32.to_le_bytes());
        code.extend([0xf2, 0x0f, 0x10, 0x05, 4, 0, 0, 0, 0xc3, 0, 0, 0]);
        code.extend([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let expected = [
            line(0, "ud2"),
            line(2, "jmp *%rax"),
            line(4, ".long 0x100-0x104"),
            line(8, ".long 0x10c-0x104"),
            line(12, "movsd 0x4(%rip),%xmm0"),
            line(20, "ret"),
            line(21, ".byte 0x00,0x00,0x00"),
            line(24, ".byte 0x01,0x02,0x03,0x04,0x05,0x06,0x07,0x08"),
            line(32, ".byte 0x09"),
        ];
        assert_eq!(lines(&code), expected);
    }

    #[test]
    fn a_jump_table_ends_where_code_is_known_to_begin() {
        // jmp *%rax; a table of one entry; a jump whose first bytes could be another one, to the instruction behind it.
        let code = [0xff, 0xe0, 9, 0, 0, 0, 0xe9, 0, 0, 0, 0, 0xc3];
        let texts = |starts: &[usize]| -> Vec<String> {
            disassemble(&code, 0, starts).into_iter().map(|line| line.text).collect()
        };
        assert_eq!(texts(&[0, 6]), ["jmp *%rax", ".long 0xb-0x2", "jmp 0xb", "ret"]);
        assert_eq!(texts(&[0, 2, 6]), texts(&[0, 6]), "a table may have a wasm instruction, too");
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        let mut random = 1_u64;
        for length in 0..600 {
            let byte = |_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Indirect jumps are rare among random bytes.
                if random >> 61 == 0 { 0xff } else { (random >> 33) as u8 }
            };
            let code: Vec<u8> = (0..length).map(byte).collect();
            let offsets: Vec<usize> = disassemble(&code, 0, &[length / 2]).iter().map(|line| line.offset).collect();
            assert!(offsets.is_sorted_by(|one, other| one < other), "{code:x?}: {offsets:?}");
            assert!(offsets.first().is_none_or(|first| *first == 0) && offsets.iter().all(|at| *at < length));
        }
    }
}
