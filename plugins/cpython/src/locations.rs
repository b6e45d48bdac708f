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

/// After how many bytes of a table its index has an entry.
const STRIDE: usize = 256;

/// The position of code unit `unit` of a code object whose first line is `first_line`. `None` if the table is broken or
/// does not reach that far.
pub fn locate(table: &[u8], first_line: u32, unit: u32) -> Option<Position> {
    Decoder::new(table, first_line).find(unit)
}

/// Where to begin in a location table, so that a long one is not decoded from its start for each of its code units. It
/// takes a sixteenth of the table's size.
#[derive(Clone, Debug)]
pub struct LocationIndex {
    /// Ascending; of a broken table, up to where it breaks.
    marks: Box<[Mark]>,
}

/// What has been decoded at an entry's start.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Code units before it. Counting them cannot overflow: a byte covers eight at most.
    covered: u32,
    offset: u32,
    line: i64,
}

impl LocationIndex {
    /// Decodes `table` once.
    pub fn new(table: &[u8], first_line: u32) -> Self {
        let mut decoder = Decoder::new(table, first_line);
        let mut marks: Vec<Mark> = Vec::new();
        loop {
            let offset = table.len() - decoder.reader.rest.len();
            if offset >= (marks.len() + 1) * STRIDE
                && let (Ok(covered), Ok(offset)) = (u32::try_from(decoder.covered), u32::try_from(offset))
            {
                marks.push(Mark { covered, offset, line: decoder.line });
            }
            if decoder.entry().is_none() {
                return Self { marks: marks.into() };
            }
        }
    }

    /// What [`locate`] says. `table` and `first_line` are those that it was made from.
    pub fn locate(&self, table: &[u8], first_line: u32, unit: u32) -> Option<Position> {
        let next = self.marks.partition_point(|mark| mark.covered <= unit);
        let decoder = match next.checked_sub(1) {
            Some(mark) => Decoder::at(table, self.marks[mark])?,
            None => Decoder::new(table, first_line),
        };
        decoder.find(unit)
    }
}

/// Goes through a table entry by entry.
struct Decoder<'a> {
    reader: Reader<'a>,
    line: i64,
    /// Code units so far.
    covered: u64,
}

impl<'a> Decoder<'a> {
    fn new(table: &'a [u8], first_line: u32) -> Self {
        Self { reader: Reader { rest: table }, line: first_line.into(), covered: 0 }
    }

    fn at(table: &'a [u8], mark: Mark) -> Option<Self> {
        let rest = table.get(mark.offset as usize..)?;
        Some(Self { reader: Reader { rest }, line: mark.line, covered: mark.covered.into() })
    }

    /// The next entry's position.
    fn entry(&mut self) -> Option<Position> {
        let first = self.reader.byte().filter(|first| first & 0x80 != 0)?;
        self.covered += u64::from(first & 7) + 1;
        self.reader.position(first >> 3 & 15, &mut self.line)
    }

    fn find(mut self, unit: u32) -> Option<Position> {
        loop {
            let position = self.entry()?;
            if self.covered > u64::from(unit) {
                return Some(position);
            }
        }
    }
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
