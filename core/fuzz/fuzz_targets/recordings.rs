//! Recordings through every exporter: whatever a file says, reading it ends in an error or a recording, what is made of that
//! is bounded, and what is written as a recording is read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{self, Write};
use std::path::Path;
use wlprof::export::EXPORTERS;
use wlprof::recording::{MAGIC, VERSION, file};

/// The most bytes that an exporter may make of the few kilobytes of an input.
const MAX_WRITTEN: u64 = 256 << 20;

/// Counts what is written and keeps nothing.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        assert!(self.0 < MAX_WRITTEN, "it is written without end");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A recording of blocks whose sizes and checksums are right, which a fuzzer would not find: each is preceded by its size
/// in two bytes.
fn with_checksums(mut blocks: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    while let [low, high, rest @ ..] = blocks {
        let size = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (contents, next) = rest.split_at(size);
        bytes.extend((size as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(contents).to_le_bytes());
        bytes.extend(contents);
        blocks = next;
    }
    bytes
}

fuzz_target!(|input: &[u8]| {
    let bytes = with_checksums(input);
    let Ok(recording) = file::read(&bytes) else { return };
    let mut again = Vec::new();
    file::write(&recording, &mut again).expect("memory takes everything");
    assert_eq!(file::read(&again).expect("what is written is read"), recording);
    let bounded = recording.bounded();
    for exporter in EXPORTERS {
        let mut written = Counted(0);
        let _ = exporter.export(&bounded, Path::new("/fuzzed"), &mut written);
    }
});
