//! pprof for servers that profiles are pushed to: with the labels that are kept, bounded texts and stacks, and nothing that no sample
//! refers to.

use super::{gzipped, proto, signed, symbolized};
use crate::module_addresses::first_address;
use crate::pushed::{KeptLabels, LabelValue, Rows, SampleLabels, Symbols};
use crate::sample_types::{period, period_type, pushed_types};
use crate::string_table::StringTable;
use flate2::Compression;
use prost::Message;
use std::fmt::Write;
use wlprof_recording::{HeapPart, Recording};

/// A profile to push, with what servers have limits of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedPprof {
    /// The profile, gzipped.
    pub bytes: Vec<u8>,
    /// Its size before that, in bytes.
    pub uncompressed: usize,
    /// How many samples it has: one for each stack and set of labels.
    pub rows: usize,
}

/// Encodes a recording as a pprof profile to push.
///
/// It has the labels of samples that are kept, and `trace_id` and `span_id` of spans. A profile of memory has the four types of Go's:
/// `alloc_objects`, `alloc_space`, `inuse_objects` and `inuse_space`.
///
/// ```
/// use wlprof_export::{KeptLabels, pushed_pprof};
///
/// let profile = pushed_pprof(&wlprof_recording::example(), &KeptLabels::new(["request"]));
/// assert!(profile.bytes.starts_with(&[0x1f, 0x8b]) && profile.rows > 0);
/// ```
pub fn pushed_pprof(recording: &Recording, kept: &KeptLabels) -> PushedPprof {
    let profile = profile(recording, kept);
    let rows = profile.sample.len();
    let encoded = profile.encode_to_vec();
    // The default level takes three times as long, for some 15 % fewer bytes.
    let bytes = gzipped(&encoded, Compression::fast(), Vec::new()).expect("a vector takes all that is written");
    PushedPprof { bytes, uncompressed: encoded.len(), rows }
}

pub(crate) fn profile(recording: &Recording, kept: &KeptLabels) -> proto::Profile {
    let mut symbols = Symbols::new();
    let (rows, labels) = Rows::of(recording, kept).with_symbols(recording, &mut symbols);
    let types = pushed_types(recording);
    let mut of_sets: Vec<Option<Vec<proto::Label>>> = vec![None; labels.len()];
    let texts = &mut symbols.texts;
    let sample = rows.into_iter().map(|row| {
        let of_set = &mut of_sets[row.labels];
        let label = of_set.get_or_insert_with(|| pprof_labels(&labels[row.labels], kept, texts)).clone();
        let stack = &symbols.stacks.items()[row.stack as usize - 1];
        let location_id = stack.iter().map(|location| u64::from(*location)).collect();
        proto::Sample { location_id, value: row.values[..types.len()].to_vec(), label }
    });
    let sample = sample.collect();
    let sample_type = types.iter().map(|(name, unit)| texts.value_type(name, unit)).collect();
    let (name, unit) = period_type(recording);
    let period_type = Some(texts.value_type(name, unit));
    let default_sample_type = texts.place(match recording.part {
        Some(HeapPart::Allocated | HeapPart::Grown) => "alloc_space",
        Some(HeapPart::Held | HeapPart::Peak) => "inuse_space",
        None => name,
    });
    let (mapping, new_ids) = mappings(&mut symbols);
    proto::Profile {
        sample_type,
        sample,
        mapping,
        location: locations(&symbols, &new_ids),
        function: functions(&symbols),
        time_nanos: signed(recording.meta.start_unix_ms.saturating_mul(1_000_000)),
        duration_nanos: signed(recording.meta.duration_ns),
        period_type,
        period: period(recording),
        default_sample_type,
        string_table: symbols.texts.all,
        comment: Vec::new(),
    }
}

fn pprof_labels(labels: &SampleLabels, kept: &KeptLabels, texts: &mut StringTable) -> Vec<proto::Label> {
    let mut all = Vec::with_capacity(labels.values.len());
    for (name, value) in &labels.values {
        let name = kept.name(*name);
        // Those have a meaning of pprof's.
        let key = if name.starts_with("pprof::") { texts.place(&format!("guest.{name}")) } else { texts.place(name) };
        all.push(match value {
            LabelValue::Text(text) => text_label(key, text, texts),
            LabelValue::Number(num) => texts.number_label(key, *num),
        });
    }
    if let Some(span) = &labels.span {
        for (name, id) in [("trace_id", &span.trace_id[..]), ("span_id", &span.span_id)] {
            let key = texts.place(name);
            all.push(text_label(key, &hex(id), texts));
        }
    }
    all
}

fn text_label(key: i64, text: &str, texts: &mut StringTable) -> proto::Label {
    proto::Label { key, str: texts.place(text), num: 0, num_unit: 0 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes all that is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The mappings by their addresses, the host's last, and the id of each by its number in the tables. pprof takes the first for the program.
fn mappings(symbols: &mut Symbols) -> (Vec<proto::Mapping>, Vec<u64>) {
    let items = symbols.mappings.items();
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|place| items[*place].start);
    let has_host = symbols.locations.items().iter().any(|location| location.mapping == 0);
    let mut ids = vec![items.len() as u64 + 1; items.len() + 1];
    let mut mappings = Vec::with_capacity(ids.len());
    for (id, place) in (1..).zip(order) {
        let mapping = &items[place];
        ids[place + 1] = id;
        mappings.push(symbolized(id, mapping.start, mapping.filename, symbols.texts.place(&mapping.build_id)));
    }
    if has_host {
        mappings.push(symbolized(ids[0], first_address(None), symbols.texts.place("[host]"), 0));
    }
    (mappings, ids)
}

fn locations(symbols: &Symbols, mapping_ids: &[u64]) -> Vec<proto::Location> {
    let locations = (1..).zip(symbols.locations.items()).map(|(id, location)| {
        let lines = location.lines.iter().map(|line| proto::Line {
            function_id: line.function.into(),
            line: line.line.into(),
            column: line.column.into(),
        });
        let mapping_id = mapping_ids[location.mapping as usize];
        proto::Location { id, mapping_id, address: location.address, line: lines.collect() }
    });
    locations.collect()
}

fn functions(symbols: &Symbols) -> Vec<proto::Function> {
    let functions = (1..).zip(symbols.functions.items()).map(|(id, function)| proto::Function {
        id,
        name: function.name,
        system_name: function.system_name,
        filename: function.filename,
        start_line: function.start_line.into(),
    });
    functions.collect()
}
