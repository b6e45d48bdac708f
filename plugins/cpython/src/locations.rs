//! The location table of a code object (`co_linetable`): which source lines and columns its instructions come from.
//!
//! The format is that of 3.11 to 3.14, described in CPython's `InternalDocs/code_objects.md`. An entry says how many
//! code units it covers and how its position differs from the one before.

/// Where an instruction comes from, as `co_positions()` says it: lines from 1, columns in bytes from 0. What a module
/// does before its first line is in line 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The first line.
    pub line: Option<u32>,
    /// The last line.
    pub end_line: Option<u32>,
    /// The first column, in the first line.
    pub column: Option<u32>,
    /// The column after the last, in the last line.
    pub end_column: Option<u32>,
}

/// Codes of entries; all less than these have a short form that says columns only.
const ONE_LINE: u8 = 10;
const NO_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NONE: u8 = 15;

/// The position of code unit `unit` of a code object whose first line is `first_line`. `None` if the table is broken or
/// does not reach that far.
pub fn locate(table: &[u8], first_line: u32, unit: u32) -> Option<Position> {
    let mut reader = Reader { rest: table };
    let mut line = i64::from(first_line);
    let mut covered = 0_u64;
    while let Some(first) = reader.byte() {
        if first & 0x80 == 0 {
            return None;
        }
        let code = first >> 3 & 15;
        covered += u64::from(first & 7) + 1;
        let position = reader.position(code, &mut line)?;
        if covered > u64::from(unit) {
            return Some(position);
        }
    }
    None
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Six bits a byte, least first.
    fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0_u64;
        // Enough for any 32-bit number.
        for shift in (0..36).step_by(6) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x3f) << shift;
            if byte & 0x40 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        let magnitude = i64::from(value >> 1);
        Some(if value & 1 == 0 { magnitude } else { -magnitude })
    }

    fn position(&mut self, code: u8, line: &mut i64) -> Option<Position> {
        let (end_line, columns) = match code {
            NONE => return Some(Position::default()),
            LONG => {
                *line += self.signed()?;
                let end_line = *line + i64::from(self.unsigned()?);
                // One more than the column, so that 0 is none.
                let (column, end_column) = (self.unsigned()?, self.unsigned()?);
                (end_line, (column.checked_sub(1), end_column.checked_sub(1)))
            }
            NO_COLUMNS => {
                *line += self.signed()?;
                (*line, (None, None))
            }
            ONE_LINE..NO_COLUMNS => {
                *line += i64::from(code - ONE_LINE);
                (*line, (Some(self.byte()?.into()), Some(self.byte()?.into())))
            }
            short => {
                let rest = u32::from(self.byte()?);
                let column = u32::from(short) << 3 | rest >> 4 & 7;
                (*line, (Some(column), Some(column + (rest & 15))))
            }
        };
        let (column, end_column) = columns;
        Some(Position { line: line_number(*line)?, end_line: line_number(end_line)?, column, end_column })
    }
}

/// Negative lines are none: compilers of other languages than Python may make them up.
fn line_number(line: i64) -> Option<Option<u32>> {
    if line < 0 { Some(None) } else { u32::try_from(line).ok().map(Some) }
}
