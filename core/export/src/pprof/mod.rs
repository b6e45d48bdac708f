//! pprof: `profile.proto`, gzipped, as `go tool pprof`, Grafana's Pyroscope and Polar Signals read it.
//!
//! A location is a frame with all that was inlined there, the innermost first, and so is a stack: its leaf comes first.
//! Ids count from 1, since 0 means none. The addresses are code offsets, each module's in a range of its own, and of the call
//! instruction already: pprof asks for nothing to be taken off a return address. The flags of the mappings say that all is
//! symbolized, so that pprof does not try.
//!
//! pprof takes names for C++ that have `<`, `[` or `::` in them, and cuts them down, `<module>` to nothing: unless a function
//! has no system name, or another one.
//!
//! What a sample belongs to are labels, one value of each name, as `profile.proto` has it; numbers are numeric labels. Texts stand in
//! pprof's graphs as they are, between quotation marks. Names that begin with `pprof::` have a meaning of pprof's.
//!
//! Servers that scrape profiles (Pyroscope, Parca) make a series of each set of texts, and refuse profiles of more than some
//! thousand samples. Profiles for them do not say which thread or store a sample is of. Grafana's Alloy subtracts profiles of allocations. It
//! has room for four values of a sample, and knows stacks by their addresses.

pub(crate) mod proto;
pub(crate) mod pushed;
mod samples;
mod stack_counts;
mod texts;

pub use pushed::{PushedPprof, pushed_pprof};
pub use stack_counts::{NamedCall, stack_counts};
pub(crate) use texts::number_of;

use super::Exporter;
use super::module_addresses::{MODULE_RANGE, address_of, first_address};
use super::plain_text::printable_name;
use super::sample_types::{period, period_type};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::Path;
use texts::Texts;
use wlprof_recording::{Frame, HeapPart, ModuleId, Recording};

/// `pprof`: for `go tool pprof`.
pub(super) struct Pprof {
    /// For servers that ask for profiles again and again, and keep them.
    pub(super) is_scraped: bool,
}

impl Exporter for Pprof {
    fn name(&self) -> &'static str {
        if self.is_scraped { "pprof-scraped" } else { "pprof" }
    }

    fn description(&self) -> &'static str {
        "A profile for `go tool pprof` and what else reads pprof's format"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pb.gz", "pprof"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("go tool pprof -http=: {}", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        compressed(&profile(recording, self.is_scraped), out)?;
        Ok(None)
    }
}

fn compressed<W: Write>(profile: &proto::Profile, out: W) -> io::Result<W> {
    gzipped(&profile.encode_to_vec(), Compression::default(), out)
}

fn gzipped<W: Write>(encoded: &[u8], level: Compression, out: W) -> io::Result<W> {
    let mut gzip = GzEncoder::new(out, level);
    gzip.write_all(encoded)?;
    gzip.finish()
}

fn profile(recording: &Recording, is_scraped: bool) -> proto::Profile {
    let mut texts = Texts::new();
    if let Some(part) = recording.part {
        let kinds = if is_scraped && part == HeapPart::Allocated { &HEAP_KINDS[..2] } else { &HEAP_KINDS };
        let (types, shown) = heap_types(part, kinds, &mut texts);
        let (name, unit) = period_type(recording);
        let space = texts.value_type(name, unit);
        let sample = samples::of_memory(recording, is_scraped, kinds.len(), &mut texts);
        return proto::Profile {
            sample_type: types,
            sample,
            period_type: Some(space),
            period: period(recording),
            default_sample_type: shown,
            ..with_tables(recording, is_scraped, texts)
        };
    }
    let (name, unit) = period_type(recording);
    let time = texts.value_type(name, unit);
    let count = texts.value_type("samples", "count");
    let sample = samples::of_time(recording, is_scraped, &mut texts);
    proto::Profile {
        sample_type: vec![count, time],
        sample,
        period_type: Some(time),
        period: period(recording),
        default_sample_type: time.r#type,
        ..with_tables(recording, is_scraped, texts)
    }
}

/// What a profile has whatever its samples are of.
fn with_tables(recording: &Recording, is_scraped: bool, mut texts: Texts) -> proto::Profile {
    let meta = &recording.meta;
    let comments: Vec<String> =
        std::iter::once(format!("wlprof {} ran {}", meta.wlprof_version, printable_name(&meta.guest)))
            .chain(meta.notes.iter().map(|note| printable_name(note).into_owned()))
            .collect();
    proto::Profile {
        mapping: mappings(recording, &mut texts),
        location: (1..).zip(&recording.frames).map(|(id, frame)| location(recording, is_scraped, id, frame)).collect(),
        function: functions(recording, &mut texts),
        time_nanos: signed(meta.start_unix_ms.saturating_mul(1_000_000)),
        duration_nanos: signed(meta.duration_ns),
        comment: comments.iter().map(|comment| texts.place(comment)).collect(),
        string_table: texts.all,
        ..proto::Profile::default()
    }
}

/// What the values of memory are of: those of Go's heap profiles, by their own names, and then those of the peak and of linear memory.
const HEAP_KINDS: [&str; 4] = ["alloc", "inuse", "peak", "grown"];

/// The values of these kinds, and which of them is `shown` first.
fn heap_types(part: HeapPart, kinds: &[&str], texts: &mut Texts) -> (Vec<proto::ValueType>, i64) {
    let mut types = Vec::new();
    for prefix in kinds {
        for (what, unit) in [("objects", "count"), ("space", "bytes")] {
            types.push(texts.value_type(&format!("{prefix}_{what}"), unit));
        }
    }
    let shown = match part {
        HeapPart::Allocated => "alloc_space",
        HeapPart::Held => "inuse_space",
        HeapPart::Peak => "peak_space",
        HeapPart::Grown => "grown_space",
    };
    (types, texts.place(shown))
}

fn signed(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// One mapping a module, of which pprof takes the first for the program, and one for the host.
fn mappings(recording: &Recording, texts: &mut Texts) -> Vec<proto::Mapping> {
    let modules = (0..).zip(&recording.modules).map(|(id, module)| (Some(id), &*module.name, &*module.build_id));
    let mappings = modules.chain([(None, "[host]", "")]).map(|(module, name, build_id)| {
        let id = mapping_id(recording, module);
        symbolized(id, first_address(module), texts.printable(name), texts.printable(build_id))
    });
    mappings.collect()
}

/// The mapping of a module, or of the host.
fn mapping_id(recording: &Recording, module: Option<ModuleId>) -> u64 {
    module.map_or(recording.modules.len() as u64, u64::from) + 1
}

/// A mapping of which all is known.
fn symbolized(id: u64, memory_start: u64, filename: i64, build_id: i64) -> proto::Mapping {
    proto::Mapping {
        id,
        memory_start,
        memory_limit: memory_start + MODULE_RANGE,
        filename,
        build_id,
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    }
}

fn location(recording: &Recording, is_scraped: bool, id: u64, frame: &Frame) -> proto::Location {
    let (module, address) = address_of(frame.origin);
    let address = if is_scraped && address == 0 { address_of_lines(recording, frame) } else { address };
    let line = |line: &wlprof_recording::Line| proto::Line {
        function_id: u64::from(line.function) + 1,
        line: line.line.unwrap_or(0).into(),
        column: line.column.unwrap_or(0).into(),
    };
    proto::Location {
        id,
        mapping_id: mapping_id(recording, module),
        address,
        line: frame.lines.iter().map(line).collect(),
    }
}

/// An address for a frame without a code offset, above those of all modules. It is the same in each profile of a guest, and another one for
/// other lines.
fn address_of_lines(recording: &Recording, frame: &Frame) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in &frame.lines {
        let function = &recording.functions[line.function as usize];
        (&function.name, &function.file, line.line).hash(&mut hasher);
    }
    hasher.finish() | 1 << 63
}

fn functions(recording: &Recording, texts: &mut Texts) -> Vec<proto::Function> {
    let functions = (1..).zip(&recording.functions).map(|(id, function)| {
        let name = texts.place(&printable_name(&function.name));
        let system_name = texts.printable(function.linkage_name.as_deref().unwrap_or_default());
        proto::Function {
            id,
            name,
            system_name: if system_name == name { 0 } else { system_name },
            filename: texts.printable(function.file.as_deref().unwrap_or_default()),
            start_line: function.line.unwrap_or(0).into(),
        }
    });
    functions.collect()
}
