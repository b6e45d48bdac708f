//! The perf.data file itself: header, attributes, records, features.

use super::addresses::{Addresses, START};
use super::elf::{BUILD_ID_SIZE, Symbols};
use crate::machine::Machine;
use crate::plain_text::plain_name;
use std::collections::HashSet;
use std::io::{self, Write};
use wlprof_recording::{Clock, Recording, Sample};

// From perf_event.h and perf's own headers, by their names there.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_SAMPLE_IP: u64 = 1 << 0;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_CALLCHAIN: u64 = 1 << 5;
const PERF_SAMPLE_PERIOD: u64 = 1 << 8;
const PERF_FORMAT_ID: u64 = 1 << 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_RECORD_MMAP2: u32 = 10;
const PERF_RECORD_LOST_SAMPLES: u32 = 13;
const PERF_RECORD_FINISHED_ROUND: u32 = 68;
const PERF_RECORD_MISC_USER: u16 = 2;
const PERF_RECORD_MISC_COMM_EXEC: u16 = 1 << 13;
/// Says in a build id's record that its size is given.
const PERF_RECORD_MISC_BUILD_ID_SIZE: u16 = 1 << 15;
const PERF_CONTEXT_USER: u64 = -512i64 as u64;
const PROT_READ_EXEC: u32 = 1 | 4;
const MAP_PRIVATE: u32 = 2;
/// Bits of an attribute: exclude_kernel, mmap, comm, task, sample_id_all, mmap2, comm_exec.
const ATTRIBUTE_FLAGS: u64 = 1 << 5 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 18 | 1 << 23 | 1 << 24;
const ATTRIBUTE_SIZE: u32 = 112;
const HEADER_SIZE: u64 = 104;
/// Bits of the features that the file has.
const HEADER_BUILD_ID: u32 = 2;
const HEADER_HOSTNAME: u32 = 3;
const HEADER_OSRELEASE: u32 = 4;
const HEADER_VERSION: u32 = 5;
const HEADER_ARCH: u32 = 6;
const HEADER_CPUDESC: u32 = 8;
const HEADER_CPUID: u32 = 9;
const HEADER_CMDLINE: u32 = 11;
const HEADER_EVENT_DESC: u32 = 12;
/// Any number will do: it joins the event's description to its samples.
const EVENT_ID: u64 = 1;

/// Bytes of a thread's name that Linux keeps, and that readers have room for.
const LONGEST_THREAD_NAME: usize = 15;

/// Writes the file. `elf_path` is where readers will find the symbols.
pub(super) fn write(
    recording: &Recording,
    addresses: &Addresses,
    symbols: &Symbols,
    elf_path: &[u8],
    out: &mut dyn Write,
) -> io::Result<()> {
    let records = Records { recording, addresses, elf_path };
    // Written twice, the first time to learn the size: it comes first in the file, and a long run's samples are large.
    let mut size = ByteCount(0);
    records.write(&mut size)?;
    let size = size.0;
    let ids = EVENT_ID.to_le_bytes();
    let ids_at = HEADER_SIZE;
    let attributes_at = ids_at + ids.len() as u64;
    let attribute = attribute(recording);
    let data_at = attributes_at + attribute.len() as u64 + SECTION_SIZE;
    let features = features(recording, symbols, elf_path);
    let tables_at = data_at + size;

    let mut file = Bytes::default();
    file.raw(b"PERFILE2").u64(HEADER_SIZE).u64(u64::from(ATTRIBUTE_SIZE) + SECTION_SIZE);
    file.section(attributes_at, u64::from(ATTRIBUTE_SIZE) + SECTION_SIZE);
    file.section(data_at, size);
    // Event types, unused since Linux 3.x.
    file.section(0, 0);
    file.u64(features.iter().map(|(bit, _)| 1 << bit).sum()).u64(0).u64(0).u64(0);
    file.raw(&ids).raw(&attribute).section(ids_at, ids.len() as u64);
    out.write_all(&file.0)?;
    records.write(out)?;
    let mut tables = Bytes::default();
    let mut at = tables_at + SECTION_SIZE * features.len() as u64;
    for (_, contents) in &features {
        tables.section(at, contents.len() as u64);
        at += contents.len() as u64;
    }
    features.iter().for_each(|(_, contents)| {
        tables.raw(contents);
    });
    out.write_all(&tables.0)
}

/// Size of what [`Bytes::section`] writes.
const SECTION_SIZE: u64 = 16;

fn event_name(recording: &Recording) -> &'static str {
    match recording.meta.clock {
        Clock::Cpu => "wasm-cpu",
        Clock::Wall => "wasm-wall",
    }
}

fn attribute(recording: &Recording) -> Vec<u8> {
    let period_ns = (1e9 / recording.meta.requested_hz.max(1.0)) as u64;
    let samples = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_PERIOD;
    let mut attribute = Bytes::default();
    attribute.u32(PERF_TYPE_SOFTWARE).u32(ATTRIBUTE_SIZE).u64(PERF_COUNT_SW_CPU_CLOCK).u64(period_ns);
    attribute.u64(samples).u64(PERF_FORMAT_ID).u64(ATTRIBUTE_FLAGS);
    attribute.0.resize(ATTRIBUTE_SIZE as usize, 0);
    attribute.0
}

/// The features in order of their bits, as readers take them.
fn features(recording: &Recording, symbols: &Symbols, elf_path: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let meta = &recording.meta;
    let text = |text: &str| {
        let mut bytes = Bytes::default();
        bytes.text(text);
        bytes.0
    };
    let command: Vec<&str> =
        ["wlprof", &meta.guest].into_iter().chain(meta.arguments.iter().map(String::as_str)).collect();
    let mut command_line = Bytes::default();
    command_line.u32(command.len() as u32);
    command.iter().for_each(|argument| {
        command_line.text(argument);
    });
    let mut event = Bytes::default();
    event.u32(1).u32(ATTRIBUTE_SIZE).raw(&attribute(recording)).u32(1).text(event_name(recording)).u64(EVENT_ID);
    let mut build_id = Record::new(0, PERF_RECORD_MISC_USER | PERF_RECORD_MISC_BUILD_ID_SIZE);
    // -1: of any process. The size is in what pads the id to 24 bytes.
    build_id.body.u32(u32::MAX).raw(&symbols.build_id).raw(&[BUILD_ID_SIZE as u8, 0, 0, 0]).string(elf_path);
    vec![
        (HEADER_BUILD_ID, build_id.bytes()),
        // A recording does not say where it was made. `perf data convert --to-json` (6.1) follows null pointers where
        // these are missing.
        (HEADER_HOSTNAME, text("unknown")),
        (HEADER_OSRELEASE, text("unknown")),
        (HEADER_VERSION, text(&format!("wlprof {}", meta.wlprof_version))),
        (HEADER_ARCH, text(Machine::called(&meta.architecture).name)),
        (HEADER_CPUDESC, text("unknown")),
        (HEADER_CPUID, text("unknown")),
        (HEADER_CMDLINE, command_line.0),
        (HEADER_EVENT_DESC, event.0),
    ]
}

/// Writes the records of a recording.
struct Records<'a> {
    recording: &'a Recording,
    addresses: &'a Addresses,
    elf_path: &'a [u8],
}

impl Records<'_> {
    /// The guest's own process: the recording knows no number for it but its first thread's.
    fn process(&self) -> u32 {
        self.recording.threads.first().map_or(1, |thread| thread.tid as u32)
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let process = self.process();
        let mut mapping = Record::new(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
        mapping.body.u32(process).u32(process).u64(START).u64(self.addresses.end - START).u64(START);
        // Device, inode and generation of the file, unknown.
        mapping.body.u64(0).u64(0).u64(0).u32(PROT_READ_EXEC).u32(MAP_PRIVATE).string(self.elf_path);
        self.end(&mut mapping, process, 0);
        out.write_all(&self.comm(process, &self.recording.meta.guest, PERF_RECORD_MISC_COMM_EXEC))?;
        out.write_all(&mapping.bytes())?;
        let mut named = HashSet::from([process]);
        for thread in &self.recording.threads {
            let tid = thread.tid as u32;
            if named.insert(tid) {
                out.write_all(&self.comm(tid, &thread.name, 0))?;
            }
            for sample in thread.samples.iter() {
                out.write_all(&self.sample(tid, &sample))?;
            }
        }
        let lost = self.recording.ticks.lost();
        if lost > 0 {
            let mut record = Record::new(PERF_RECORD_LOST_SAMPLES, 0);
            record.body.u64(lost);
            self.end(&mut record, process, self.recording.meta.duration_ns);
            out.write_all(&record.bytes())?;
        }
        // Lets readers put the threads' samples in order of time.
        out.write_all(&Record::new(PERF_RECORD_FINISHED_ROUND, 0).bytes())
    }

    fn comm(&self, tid: u32, name: &str, misc: u16) -> Vec<u8> {
        let mut record = Record::new(PERF_RECORD_COMM, misc);
        let name = plain_name(name.strip_suffix(".wasm").unwrap_or(name));
        let name = &name[..name.floor_char_boundary(LONGEST_THREAD_NAME)];
        record.body.u32(self.process()).u32(tid).string(name.as_bytes());
        self.end(&mut record, tid, 0);
        record.bytes()
    }

    fn sample(&self, tid: u32, sample: &Sample) -> Vec<u8> {
        let chain = self.addresses.chain(self.recording, sample.stack);
        let mut record = Record::new(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
        record.body.u64(chain[0]).u32(self.process()).u32(tid).u64(sample.time_ns).u64(sample.period_ns);
        record.body.u64(chain.len() as u64 + 1).u64(PERF_CONTEXT_USER);
        chain.iter().for_each(|&address| {
            record.body.u64(address);
        });
        record.bytes()
    }

    /// What ends every record but samples: thread and time.
    fn end(&self, record: &mut Record, tid: u32, time_ns: u64) {
        record.body.u32(self.process()).u32(tid).u64(time_ns);
    }
}

/// Counts what is written to it.
struct ByteCount(u64);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record: type, flags, and a body of a multiple of eight bytes.
struct Record {
    kind: u32,
    misc: u16,
    body: Bytes,
}

impl Record {
    fn new(kind: u32, misc: u16) -> Self {
        Self { kind, misc, body: Bytes::default() }
    }

    fn bytes(self) -> Vec<u8> {
        const HEADER: usize = 8;
        let mut bytes = Bytes::default();
        bytes.u32(self.kind).u16(self.misc).u16((HEADER + self.body.0.len()) as u16).raw(&self.body.0);
        bytes.0
    }
}

/// Bytes being put together.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(&mut self, number: u16) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.raw(&number.to_le_bytes())
    }

    /// Place and size of a part of the file.
    fn section(&mut self, at: u64, size: u64) -> &mut Self {
        self.u64(at).u64(size)
    }

    /// A C string in a record, padded so that what follows is aligned.
    fn string(&mut self, bytes: &[u8]) -> &mut Self {
        self.raw(bytes).raw(&[0]);
        let padded = self.0.len().next_multiple_of(8);
        self.0.resize(padded, 0);
        self
    }

    /// A string of a feature: its padded size first.
    fn text(&mut self, text: &str) -> &mut Self {
        const ALIGNMENT: usize = 64;
        let text = plain_name(text);
        let size = (text.len() + 1).next_multiple_of(ALIGNMENT);
        self.u32(size as u32).raw(text.as_bytes());
        self.0.resize(self.0.len() + size - text.len(), 0);
        self
    }
}
