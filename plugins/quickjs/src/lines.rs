//! From a place in bytecode to line and column, by the function's `pc2line` table.
//!
//! An entry begins with a byte: if it is not 0, one less than it is `5 × (bytes of code) + (lines + 1)`; else the two
//! follow as LEB128 numbers, the second signed with the sign as its lowest bit. Then come the columns to go, in that
//! signed form. Each says where the code after it begins.

/// A place in a source file, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

const FIRST_SHORT: u32 = 1;
const LINES: u32 = 5;
const LEAST_LINES: i32 = -1;

/// Where the instruction that ends before byte `pc` of the code stands, in a function that begins at `start`. A table
/// that is broken tells as much as can be read of it.
pub fn locate(table: &[u8], start: Position, pc: u32) -> Position {
    let mut rest = table;
    let mut at = start;
    let mut code = 0_u32;
    while let Some((code_bytes, lines, columns)) = entry(&mut rest) {
        code = code.saturating_add(code_bytes);
        if pc < code {
            break;
        }
        at = Position { line: at.line.wrapping_add_signed(lines), column: at.column.wrapping_add_signed(columns) };
    }
    at
}

fn entry(rest: &mut &[u8]) -> Option<(u32, i32, i32)> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    let (code, lines) = match u32::from(first).checked_sub(FIRST_SHORT) {
        None => (unsigned(rest)?, signed(rest)?),
        Some(short) => (short / LINES, (short % LINES).cast_signed() + LEAST_LINES),
    };
    Some((code, lines, signed(rest)?))
}

fn unsigned(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn signed(rest: &mut &[u8]) -> Option<i32> {
    let value = unsigned(rest)?;
    Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Position = Position { line: 10, column: 3 };

    #[test]
    fn short_and_long_entries_are_followed() {
        // 4 bytes, 2 lines on, 1 column back; 300 bytes, 20 lines back, 64 columns on.
        let table = [1 + 4 * 5 + 3, 0b1, 0, 0xac, 0x02, 39, 0x80, 0x01];
        let of = |pc| locate(&table, START, pc);
        assert_eq!(of(0), START);
        assert_eq!(of(3), START);
        assert_eq!(of(4), Position { line: 12, column: 2 });
        assert_eq!(of(303), Position { line: 12, column: 2 });
        assert_eq!(of(304), Position { line: u32::MAX - 7, column: 66 });
        assert_eq!(of(u32::MAX), of(304));
    }

    #[test]
    fn broken_tables_end() {
        for length in 0..6 {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                locate(&vec![byte; length], START, u32::MAX);
            }
        }
    }
}
