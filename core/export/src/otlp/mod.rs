//! OTLP profiles, in the layout of opentelemetry-proto 1.10 and 1.11 (`v1development`), for collectors from 0.148 on, Pyroscope from 1.20 on
//! and Parca from 0.28 on.
//!
//! A profile has one type of samples, so that a recording becomes several, which share one dictionary. Samples are added up: one value
//! for each stack, set of attributes and link, and no timestamps.

mod dictionary;
mod profile_id;
pub(crate) mod proto;

use crate::pushed::{KeptLabels, Row, Rows};
use crate::sample_types::{period, period_type, pushed_types};
use dictionary::Dictionary;
use profile_id::ProfileIds;
use prost::Message;
use std::collections::BTreeMap;
use wlprof_recording::Recording;

/// The resource attribute that is a number.
const PROCESS_ID: &str = "process.pid";

/// Encodes an `ExportProfilesServiceRequest`, as uncompressed protobuf.
///
/// A recording of time becomes two profiles: `samples/count`, and `cpu/nanoseconds` or `wall/nanoseconds`. A recording of memory
/// ([`Recording::part`]) becomes four: `alloc_objects/count`, `alloc_space/bytes`, `inuse_objects/count` and `inuse_space/bytes`. Equal
/// recordings get equal profile ids each time.
///
/// `resource` has names and values of attributes. The last value of a name counts. `process.pid` is a number.
///
/// ```
/// use wlprof_export::{KeptLabels, otlp_request};
///
/// let resource = [("service.name".to_owned(), "shop".to_owned())];
/// let kept = KeptLabels::new(["request"]);
/// let message = otlp_request(&[&wlprof_recording::example()], &resource, &kept);
/// assert!(!message.is_empty());
/// ```
pub fn otlp_request(recordings: &[&Recording], resource: &[(String, String)], kept: &KeptLabels) -> Vec<u8> {
    request(recordings, resource, kept).encode_to_vec()
}

pub(crate) fn request(
    recordings: &[&Recording],
    resource: &[(String, String)],
    kept: &KeptLabels,
) -> proto::ExportProfilesServiceRequest {
    // In order of their names, so that the order they were given in does not matter.
    let resource: BTreeMap<&str, &str> = resource.iter().map(|(name, value)| (&**name, &**value)).collect();
    let mut dictionary = Dictionary::new();
    let mut profiles = Vec::new();
    for recording in recordings {
        add_profiles(recording, &resource, kept, &mut dictionary, &mut profiles);
    }
    let scope =
        proto::InstrumentationScope { name: "wlprof".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let resource = proto::Resource { attributes: resource.into_iter().map(resource_attribute).collect() };
    proto::ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![proto::ScopeProfiles { scope: Some(scope), profiles }],
        }],
        dictionary: Some(dictionary.finish()),
    }
}

fn resource_attribute((name, value): (&str, &str)) -> proto::KeyValue {
    let number = value.parse().ok().filter(|_| name == PROCESS_ID);
    let value = number.map_or_else(|| proto::Value::String(value.to_owned()), proto::Value::Int);
    proto::KeyValue { key: name.to_owned(), value: Some(proto::AnyValue { value: Some(value) }) }
}

fn add_profiles(
    recording: &Recording,
    resource: &BTreeMap<&str, &str>,
    kept: &KeptLabels,
    dictionary: &mut Dictionary,
    profiles: &mut Vec<proto::Profile>,
) {
    let (rows, labels) = Rows::of(recording, kept).with_symbols(recording, &mut dictionary.symbols);
    let mut labels: Vec<_> = labels.into_iter().map(Some).collect();
    // Sets without a row are in no sample, and their attributes would be orphans.
    let mut attributes = vec![(Vec::new(), 0); labels.len()];
    for row in &rows {
        if let Some(labels) = labels[row.labels].take() {
            attributes[row.labels] = dictionary.of_labels(labels, kept);
        }
    }
    let ids = ProfileIds::new(recording, resource);
    let period_type = dictionary.value_type(period_type(recording));
    for (place, sample_type) in pushed_types(recording).iter().enumerate() {
        let sample = |row: &Row| {
            let (attributes, link) = &attributes[row.labels];
            proto::Sample {
                stack_index: row.stack as i32,
                attribute_indices: attributes.clone(),
                link_index: *link,
                values: vec![row.values[place]],
            }
        };
        profiles.push(proto::Profile {
            sample_type: Some(dictionary.value_type(*sample_type)),
            samples: rows.iter().filter(|row| row.values[place] != 0).map(sample).collect(),
            time_unix_nano: recording.meta.start_unix_ms.saturating_mul(1_000_000),
            duration_nano: recording.meta.duration_ns,
            period_type: Some(period_type),
            period: period(recording),
            profile_id: ids.of(*sample_type).to_vec(),
        });
    }
}
