//! jitdump: the machine code of a process with names, lines and unwinding information, from which `perf inject --jit`
//! makes ELF files for samples taken with `perf record -k mono`.
//!
//! Written as `tools/perf/Documentation/jitdump-specification.txt` in Linux says, and where perf does otherwise, as perf
//! does (seen with 6.1, `util/jitdump.c` and `util/genelf*.c`):
//!
//! * The version is 1: the document has a version 2, which perf refuses.
//! * perf ends the line table at its last entry, so that one has to stand at the end of the code.
//! * A file's name is repeated for each line: perf does not know the `\xff` that means "as before".
//! * Addresses are as they are. V8 and LLVM add 0x40 to those of lines, because perf before 5.8 left out where the code
//!   begins in the ELF file it writes; with any later one that leads to lines of other functions.
//!
//! Debug and unwinding records are for the load record that comes next.

mod unwind;

use super::machine::Machine;
use super::plain_text::plain_name;
use crate::NativeFunction;
use std::io::{self, Write};

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const HEADER_SIZE: u32 = 40;
/// A line table may not be larger, in bytes: it names a file for each line, and its size has 32 bits.
const LARGEST_LINE_TABLE: usize = 1 << 30;

/// Kinds of records.
const CODE_LOAD: u32 = 0;
const CODE_DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;
const CODE_UNWINDING_INFO: u32 = 4;

/// Writes a dump of code that was there before its first sample.
pub struct JitDump<W> {
    out: W,
    process: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds. perf knows a function for samples from its record's time on.
    time_ns: u64,
    functions: u64,
}

impl<W: Write> JitDump<W> {
    /// Begins a dump of process `process`, whose code is all there at `time_ns` of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// Whatever `out` fails with.
    pub fn new(mut out: W, process: u32, time_ns: u64) -> io::Result<Self> {
        let mut header = Vec::new();
        let machine = Machine::called(std::env::consts::ARCH).elf.into();
        for number in [MAGIC, VERSION, HEADER_SIZE, machine, 0, process] {
            header.extend(number.to_le_bytes());
        }
        header.extend(time_ns.to_le_bytes());
        let flags = 0u64;
        header.extend(flags.to_le_bytes());
        out.write_all(&header)?;
        // A dump of a process that is killed is a dump without functions then, not a broken one.
        out.flush()?;
        Ok(Self { out, process, time_ns, functions: 0 })
    }

    /// Writes a function.
    ///
    /// # Errors
    /// Whatever the output fails with.
    pub fn function(&mut self, function: &NativeFunction<'_>) -> io::Result<()> {
        if let Some(mut lines) = debug_info(function) {
            pad(&mut lines);
            self.record(CODE_DEBUG_INFO, &lines)?;
        }
        if let Some(unwind) = function.unwind.and_then(|info| unwind::sections(info, function.code.len())) {
            let mut body = Vec::new();
            let header_size = unwind.eh_frame_hdr.len() as u64;
            let size = unwind.eh_frame.len() as u64 + header_size;
            // None of it is mapped in this process.
            let mapped_size = 0u64;
            for number in [size, header_size, mapped_size] {
                body.extend(number.to_le_bytes());
            }
            body.extend(unwind.eh_frame);
            body.extend(unwind.eh_frame_hdr);
            pad(&mut body);
            self.record(CODE_UNWINDING_INFO, &body)?;
        }
        let mut body = Vec::new();
        // The process's number stands for the thread that made the code as well.
        for number in [self.process, self.process] {
            body.extend(number.to_le_bytes());
        }
        // Where it was made and where it runs are the same; perf names its file by the last number.
        for number in [function.address, function.address, function.code.len() as u64, self.functions] {
            body.extend(number.to_le_bytes());
        }
        body.extend(plain_name(&function.name).as_bytes());
        body.push(0);
        body.extend(function.code);
        self.functions += 1;
        // Not padded: perf takes the code from the record's end.
        self.record(CODE_LOAD, &body)
    }

    /// Ends the dump.
    ///
    /// # Errors
    /// Whatever the output fails with.
    pub fn close(mut self) -> io::Result<()> {
        self.record(CODE_CLOSE, &[])?;
        self.out.flush()
    }

    fn record(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        const PREFIX: usize = 16;
        let size =
            u32::try_from(PREFIX + body.len()).map_err(|_| io::Error::other("a function is larger than 4 GiB"))?;
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&size.to_le_bytes())?;
        self.out.write_all(&self.time_ns.to_le_bytes())?;
        self.out.write_all(body)
    }
}

/// Makes the next record aligned.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(8), 0);
}

/// A line table: each entry's line is that of the code from its address to the next one's. `None` if there are no lines or
/// too many.
fn debug_info(function: &NativeFunction<'_>) -> Option<Vec<u8>> {
    let last = function.lines.last()?;
    let end = (function.code.len() as u64, last);
    let entries = function.lines.iter().map(|line| (u64::from(line.offset), line)).chain([end]);
    let mut body = Vec::new();
    body.extend(function.address.to_le_bytes());
    body.extend((function.lines.len() as u64 + 1).to_le_bytes());
    for (offset, line) in entries {
        let discriminator = 0u32;
        body.extend((function.address + offset).to_le_bytes());
        body.extend(line.line.to_le_bytes());
        body.extend(discriminator.to_le_bytes());
        body.extend(plain_name(&line.file).as_bytes());
        body.push(0);
        if body.len() > LARGEST_LINE_TABLE {
            return None;
        }
    }
    Some(body)
}
