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
//! What a sample belongs to are labels, one value of each name, as `profile.proto` has it. Their texts stand in pprof's graphs as
//! they are, between quotation marks. Names that begin with `pprof::` have a meaning of pprof's.

use super::Exporter;
use super::plain_text::printable_name;
use crate::recording::{Clock, Frame, Heap, HeapPart, HeapSite, LabelSetId, Origin, Recording, StackId, State};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;

/// `pprof`: for `go tool pprof`.
pub(super) struct Pprof;

impl Exporter for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
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
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&profile(recording).encode_to_vec())?;
        gzip.finish()?;
        Ok(None)
    }
}

/// The part of `profile.proto` that is written: field numbers and types are its own.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(super) comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub(super) default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) str: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub(super) memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
        #[prost(bool, tag = "8")]
        pub(super) has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub(super) has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub(super) has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
        #[prost(int64, tag = "3")]
        pub(super) column: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(super) filename: i64,
        #[prost(int64, tag = "5")]
        pub(super) start_line: i64,
    }
}

/// Texts are named by their places in one table, whose first is empty.
struct Texts {
    all: Vec<String>,
    places: HashMap<String, i64>,
}

impl Texts {
    fn new() -> Self {
        Self { all: vec![String::new()], places: HashMap::from([(String::new(), 0)]) }
    }

    fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

    /// Text of the guest's, without control characters. The empty one stays so.
    fn printable(&mut self, text: &str) -> i64 {
        if text.is_empty() { 0 } else { self.place(&printable_name(text)) }
    }

    /// The same for labels, without what would end a string in a graph. Never empty: such a label would be none.
    fn of_label(&mut self, text: &str) -> i64 {
        let text = if text.trim().is_empty() { "[empty]".into() } else { printable_name(text) };
        self.place(&text.replace('"', "'").replace('\\', "/"))
    }
}

/// Addresses of a module: more than its code can have.
const MODULE_RANGE: u64 = 1 << 32;

/// Labels of a sample that are written. A plugin may give thousands.
const MAX_LABELS: usize = 64;

/// What the samples of one row of the profile have in common: stack, thread, where the thread was, whose time it may be, labels.
type Row = (StackId, usize, &'static str, Option<&'static str>, Option<LabelSetId>);

fn profile(recording: &Recording) -> proto::Profile {
    let mut texts = Texts::new();
    if let Some(part) = recording.part {
        let (types, shown) = heap_types(part, &mut texts);
        let of_rates = recording.stores.iter().filter_map(|store| Some(store.heap.as_ref()?.rate));
        let period = signed(of_rates.max().unwrap_or_default());
        let space = proto::ValueType { r#type: texts.place("space"), unit: texts.place("bytes") };
        let sample = sites(recording, &mut texts);
        return proto::Profile {
            sample_type: types,
            sample,
            period_type: Some(space),
            period,
            default_sample_type: shown,
            ..with_tables(recording, texts)
        };
    }
    let clock = match recording.meta.clock {
        Clock::Cpu => "cpu",
        Clock::Wall => "wall",
    };
    let time = proto::ValueType { r#type: texts.place(clock), unit: texts.place("nanoseconds") };
    let count = proto::ValueType { r#type: texts.place("samples"), unit: texts.place("count") };
    let meta = &recording.meta;
    let sample = samples(recording, &mut texts);
    proto::Profile {
        sample_type: vec![count, time],
        sample,
        period_type: Some(time),
        period: if meta.allowed_hz > 0.0 { (1e9 / meta.allowed_hz) as i64 } else { 0 },
        default_sample_type: time.r#type,
        ..with_tables(recording, texts)
    }
}

/// What a profile has whatever its samples are of.
fn with_tables(recording: &Recording, mut texts: Texts) -> proto::Profile {
    let meta = &recording.meta;
    let comments: Vec<String> =
        std::iter::once(format!("wlprof {} ran {}", meta.wlprof_version, printable_name(&meta.guest)))
            .chain(meta.notes.iter().map(|note| printable_name(note).into_owned()))
            .collect();
    proto::Profile {
        mapping: mappings(recording, &mut texts),
        location: (1..).zip(&recording.frames).map(|(id, frame)| location(recording, id, frame)).collect(),
        function: functions(recording, &mut texts),
        time_nanos: signed(meta.start_unix_ms.saturating_mul(1_000_000)),
        duration_nanos: signed(meta.duration_ns),
        comment: comments.iter().map(|comment| texts.place(comment)).collect(),
        string_table: texts.all,
        ..proto::Profile::default()
    }
}

/// The four values of Go's heap profiles, by their own names, and those of the peak and of linear memory; and which of them is `shown` first.
fn heap_types(part: HeapPart, texts: &mut Texts) -> (Vec<proto::ValueType>, i64) {
    let mut types = Vec::new();
    for prefix in ["alloc", "inuse", "peak", "grown"] {
        for (what, unit) in [("objects", "count"), ("space", "bytes")] {
            let name = texts.place(&format!("{prefix}_{what}"));
            types.push(proto::ValueType { r#type: name, unit: texts.place(unit) });
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

/// A sample a stack that allocates.
fn sites(recording: &Recording, texts: &mut Texts) -> Vec<proto::Sample> {
    let heaps: Vec<_> = recording.stores.iter().filter_map(|store| Some((&store.name, store.heap.as_ref()?))).collect();
    let tells_store = heaps.len() > 1;
    let of_heap = |(name, heap): (&String, &Heap)| {
        let label: Vec<proto::Label> = match tells_store {
            true => vec![proto::Label { key: texts.place("store"), str: texts.of_label(name) }],
            false => Vec::new(),
        };
        let sample = |HeapSite { stack, totals }: &HeapSite| proto::Sample {
            location_id: recording.frame_ids(*stack).map(|frame| u64::from(frame) + 1).collect(),
            value: [totals.allocated, totals.held, totals.at_peak, totals.grown]
                .iter()
                .flat_map(|amount| [amount.blocks, amount.bytes].map(|number| number.round() as i64))
                .collect(),
            label: label.clone(),
        };
        heap.sites.iter().map(sample).collect::<Vec<_>>()
    };
    heaps.into_iter().flat_map(of_heap).collect()
}

fn signed(number: u64) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Where the addresses of a mapping begin. The host's are always the same, and a module's those of its number, whatever else
/// there is: pprof compares profiles by them.
fn first_address(recording: &Recording, mapping_id: u64) -> u64 {
    let is_host = mapping_id > recording.modules.len() as u64;
    MODULE_RANGE * if is_host { 1 } else { mapping_id + 1 }
}

/// One mapping a module, of which pprof takes the first for the program, and one for the host.
fn mappings(recording: &Recording, texts: &mut Texts) -> Vec<proto::Mapping> {
    let modules = recording.modules.iter().map(|module| (&*module.name, &*module.build_id));
    let mappings = (1..).zip(modules.chain([("[host]", "")])).map(|(id, (name, build_id))| proto::Mapping {
        id,
        memory_start: first_address(recording, id),
        memory_limit: first_address(recording, id) + MODULE_RANGE,
        filename: texts.printable(name),
        build_id: texts.printable(build_id),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    });
    mappings.collect()
}

fn location(recording: &Recording, id: u64, frame: &Frame) -> proto::Location {
    let host = recording.modules.len() as u64 + 1;
    let (mapping_id, offset) = match frame.origin {
        Origin::Wasm { module, code_offset, .. } => (u64::from(module) + 1, Some(code_offset)),
        Origin::Language { module, .. } => (u64::from(module) + 1, None),
        Origin::HostCall { .. } | Origin::Host | Origin::Truncated | Origin::Elided | Origin::Adapter => (host, None),
    };
    let line = |line: &crate::recording::Line| proto::Line {
        function_id: u64::from(line.function) + 1,
        line: line.line.unwrap_or(0).into(),
        column: line.column.unwrap_or(0).into(),
    };
    proto::Location {
        id,
        mapping_id,
        // Frames without one are told apart by their lines.
        address: offset.map_or(0, |offset| first_address(recording, mapping_id) + u64::from(offset)),
        line: frame.lines.iter().map(line).collect(),
    }
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

fn samples(recording: &Recording, texts: &mut Texts) -> Vec<proto::Sample> {
    let mut rows = BTreeMap::<Row, [u64; 2]>::new();
    for (thread, samples) in recording.threads.iter().enumerate() {
        for sample in samples.samples.iter() {
            let place = match sample.state {
                State::Guest | State::Returned | State::Entering => "guest",
                State::Host => "host",
                State::Blocked => "waiting",
            };
            let doubt = match sample.state {
                State::Entering => Some("before the function began"),
                State::Returned => Some("perhaps in functions called before"),
                State::Guest | State::Host | State::Blocked => None,
            };
            let [count, time_ns] = rows.entry((sample.stack, thread, place, doubt, sample.labels)).or_default();
            *count += 1;
            *time_ns = time_ns.saturating_add(sample.period_ns);
        }
    }
    let names: Vec<String> = recording.threads.iter().map(|thread| recording.thread_name(thread)).collect();
    // What all samples have in common says nothing, and takes room in graphs.
    let tells_thread = names.iter().any(|name| *name != names[0]);
    let tells_place = rows.keys().any(|(_, _, place, ..)| *place != "guest");
    let mut guests = HashMap::<LabelSetId, Vec<proto::Label>>::new();
    let samples = rows.into_iter().map(|((stack, thread, place, doubt, labels), value)| {
        let spent = doubt.unwrap_or_default();
        let own = [
            ("thread", &*names[thread], tells_thread),
            ("where", place, tells_place),
            ("spent", spent, doubt.is_some()),
        ];
        let own = own.into_iter().filter(|(.., tells)| *tells);
        let mut label: Vec<proto::Label> =
            own.map(|(key, value, _)| proto::Label { key: texts.place(key), str: texts.of_label(value) }).collect();
        if let Some(set) = labels {
            let of_guest = || guest_labels(&recording.label_sets[set as usize], texts);
            label.extend_from_slice(guests.entry(set).or_insert_with(of_guest));
        }
        proto::Sample {
            location_id: recording.frame_ids(stack).map(|frame| u64::from(frame) + 1).collect(),
            value: value.map(signed).to_vec(),
            label,
        }
    });
    samples.collect()
}

/// The labels that the guest or its language gave: of a name that comes twice the first, and none of a name of wlprof's or
/// pprof's own.
fn guest_labels(labels: &[(String, String)], texts: &mut Texts) -> Vec<proto::Label> {
    let mut all = BTreeMap::new();
    for (name, value) in labels.iter().take(MAX_LABELS) {
        let is_taken = ["thread", "where", "spent"].contains(&&**name) || name.starts_with("pprof::");
        let key = if is_taken { texts.of_label(&format!("guest.{name}")) } else { texts.of_label(name) };
        all.entry(key).or_insert_with(|| texts.of_label(value));
    }
    all.into_iter().map(|(key, str)| proto::Label { key, str }).collect()
}
