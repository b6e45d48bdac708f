//! Requests: a window as its server takes it.

use crate::messages::{Label, parca, pyroscope};
use crate::resource::{Resource, uuid};
use crate::target::Protocol;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use wlprof_export::{KeptLabels, PushedPprof, otlp_request, pushed_pprof};
use wlprof_recording::{Clock, HeapPart, Recording};

/// Rows of a pprof profile that Pyroscope takes.
const MAX_ROWS: usize = 16_000;

/// Bytes of a profile without compression: Pyroscope takes 4 MiB of pprof, and servers of gRPC messages as long by default.
const MAX_BYTES: usize = (4 << 20) - 1024;

/// Labels of a series that Pyroscope takes, and bytes of a value.
const MAX_LABELS: usize = 30;
const MAX_VALUE: usize = 2048;

/// A window as the body of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) body: Bytes,
    /// Whether the body is gzipped. Where the profiles in it are, it is not.
    pub(crate) is_gzipped: bool,
}

/// A window that is more than a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Request {
    /// Encodes `window`, of which samples keep these labels.
    pub(crate) fn of(
        protocol: Protocol,
        resource: &Resource,
        window: &Recording,
        kept: &KeptLabels,
    ) -> Result<Self, TooLarge> {
        let memory = window.has_heaps().then(|| window.clone().of_memory(HeapPart::Held));
        // A program that waited, or had nothing to do but allocate, has no time to show.
        let has_time = window.samples().next().is_some();
        let profiles: Vec<&Recording> = has_time.then_some(window).into_iter().chain(&memory).collect();
        if protocol.is_otlp() {
            let message = otlp_request(&profiles, resource.attributes(), kept);
            if message.len() > MAX_BYTES {
                return Err(TooLarge);
            }
            return Ok(Self { body: gzipped(&message).into(), is_gzipped: true });
        }
        let profiles: Vec<(&str, PushedPprof)> =
            profiles.into_iter().map(|recording| (series_name(recording), pushed_pprof(recording, kept))).collect();
        if profiles.iter().any(|(_, pprof)| pprof.rows > MAX_ROWS || pprof.uncompressed > MAX_BYTES) {
            return Err(TooLarge);
        }
        let labels = |name: &str| series_labels(name, resource);
        let body = if protocol == Protocol::Parca {
            let series = |(name, pprof): (&str, PushedPprof)| parca::Series {
                labels: Some(parca::LabelSet { labels: labels(name) }),
                samples: vec![parca::Sample { raw_profile: pprof.bytes }],
            };
            parca::WriteRawRequest { series: profiles.into_iter().map(series).collect(), normalized: true }
                .encode_to_vec()
        } else {
            let series = |(name, pprof): (&str, PushedPprof)| pyroscope::Series {
                labels: labels(name),
                samples: vec![pyroscope::Sample { id: id(&pprof.bytes), raw_profile: pprof.bytes }],
            };
            pyroscope::PushRequest { series: profiles.into_iter().map(series).collect() }.encode_to_vec()
        };
        Ok(Self { body: body.into(), is_gzipped: false })
    }
}

/// What servers of pprof call a series of such profiles.
fn series_name(recording: &Recording) -> &'static str {
    match (recording.part, recording.meta.clock) {
        (Some(_), _) => "memory",
        (None, Clock::Cpu) => "process_cpu",
        (None, Clock::Wall) => "wall",
    }
}

/// The labels of a series: its name, and the resource's attributes by names that labels may have. The number of a process says less than its
/// instance, which is another one each time.
fn series_labels(name: &str, resource: &Resource) -> Vec<Label> {
    let mut labels = BTreeMap::from([("__name__".to_owned(), name.to_owned())]);
    // A server refuses profiles of no service.
    labels.insert("service_name".to_owned(), "unknown_service:wlprof".to_owned());
    if let Some(service) = resource.get("service.name") {
        labels.insert("service_name".to_owned(), shortened(service));
    }
    // By the conventions names have dots. One without cannot take the place of such a name.
    let (conventional, others): (Vec<_>, Vec<_>) = resource
        .attributes()
        .iter()
        .filter(|(name, _)| name != "process.pid")
        .partition(|(name, _)| name.contains('.'));
    for (name, value) in conventional.into_iter().chain(others) {
        let name = label_name(name);
        if !value.is_empty() && !name.starts_with("__") && labels.len() < MAX_LABELS {
            labels.entry(name).or_insert_with(|| shortened(value));
        }
    }
    labels.into_iter().map(|(name, value)| Label { name, value }).collect()
}

fn shortened(value: &str) -> String {
    value[..value.floor_char_boundary(MAX_VALUE)].to_owned()
}

fn label_name(name: &str) -> String {
    let mut label: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(MAX_VALUE / 2).collect();
    if label.starts_with(|c: char| c.is_ascii_digit()) || label.is_empty() {
        label.insert(0, '_');
    }
    label
}

/// An id that equal profiles have alike, as a UUID is written: a server that has one already can see that.
fn id(bytes: &[u8]) -> String {
    let mut first = [0; 16];
    first.copy_from_slice(&Sha256::digest(bytes)[..16]);
    uuid(first, 8)
}

fn gzipped(message: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes whatever is written.
    let _ = gzip.write_all(message);
    gzip.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_become_labels_that_servers_take() {
        let mut resource = Resource::default();
        resource.set("service.name", "shop");
        resource.set("k8s.pod/name", &"ä".repeat(2000));
        resource.set("__name__", "forged");
        resource.set("service_name", "forged");
        resource.set("process.pid", "7");
        (0..100).for_each(|number| resource.set(&format!("{number}"), "x"));
        let labels = series_labels("process_cpu", &resource);
        assert_eq!(labels.len(), MAX_LABELS);
        let value = |name: &str| labels.iter().find(|label| label.name == name).map(|label| &*label.value);
        assert_eq!((value("__name__"), value("service_name")), (Some("process_cpu"), Some("shop")));
        assert_eq!(value("k8s_pod_name").unwrap().len(), MAX_VALUE);
        assert_eq!((value("process_pid"), value("_0")), (None, Some("x")));
        assert!(labels.iter().all(|label| !label.name.contains(['.', '/'])), "{labels:?}");
    }

    #[test]
    fn ids_are_the_profiles_own() {
        assert_eq!(id(b"one"), id(b"one"));
        assert_ne!(id(b"one"), id(b"other"));
        assert_eq!(id(b"one").len(), 36);
    }
}
