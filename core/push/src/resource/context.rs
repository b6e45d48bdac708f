//! The process context that an OpenTelemetry SDK publishes in the memory of its process (OTEP 4719).
//!
//! A mapping with a name of its own begins with a header, which points to a protobuf message. The writer sets the header's time to zero
//! while it changes something, and to another value afterwards.

use super::process::Folder;
use prost::Message;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

/// Beginnings of the names that the mapping may have. The kernel and the limits of the process decide which.
const MAPPING_NAMES: [&str; 3] = ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"];
const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
const VERSION: u32 = 2;

/// The most that is read of the list of mappings, and of the message, in bytes.
const MOST_MAPS: u64 = 64 << 20;
const MOST_MESSAGE: u32 = 64 << 10;
/// How often a context is read that the process changes meanwhile, and the time between.
const TRIES: usize = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

#[derive(Clone, PartialEq, Message)]
struct ProcessContext {
    #[prost(message, optional, tag = "1")]
    resource: Option<ResourceMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// A value. Lists, maps and bytes are left out.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

impl KeyValue {
    fn into_attribute(self) -> Option<(String, String)> {
        let value = match self.value?.value? {
            Value::String(value) => value,
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Double(value) => value.to_string(),
        };
        Some((self.key, value))
    }
}

/// The header at the beginning of the mapping. Its numbers are in the machine's own byte order.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header([u8; 32]);

impl Header {
    fn read(memory: &File, address: u64) -> Option<Self> {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(Self(bytes))
    }

    fn number(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }

    fn half(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }

    fn is_known(&self) -> bool {
        self.0.starts_with(SIGNATURE) && self.half(8) == VERSION
    }

    fn message_size(&self) -> u32 {
        self.half(12)
    }

    fn published_at(&self) -> u64 {
        self.number(16)
    }

    fn message_address(&self) -> u64 {
        self.number(24)
    }
}

/// Mappings that are tried: a process has one context, and may have made up others.
const MOST_MAPPINGS: usize = 4;

/// The attributes that a process publishes, if it does.
pub(super) fn attributes(folder: &Folder) -> Option<Vec<(String, String)>> {
    let memory = File::open(folder.path("mem")).ok()?;
    let message = mappings(folder)?.into_iter().take(MOST_MAPPINGS).find_map(|address| message(&memory, address))?;
    let context = ProcessContext::decode(message.as_slice()).ok()?;
    Some(context.resource?.attributes.into_iter().filter_map(KeyValue::into_attribute).collect())
}

/// Reads the message of the context whose header is at `address`.
fn message(memory: &File, address: u64) -> Option<Vec<u8>> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            thread::sleep(BETWEEN_TRIES);
        }
        let header = Header::read(memory, address).filter(Header::is_known)?;
        if header.published_at() == 0 {
            continue;
        }
        let is_bounded = (1..=MOST_MESSAGE).contains(&header.message_size());
        let mut message = vec![0; if is_bounded { header.message_size() as usize } else { 0 }];
        let is_read = is_bounded && memory.read_exact_at(&mut message, header.message_address()).is_ok();
        // The whole header is compared: it may have changed while it was read itself.
        if Header::read(memory, address) == Some(header) {
            return is_read.then_some(message);
        }
    }
    None
}

/// The addresses of the mappings that may begin with a context.
fn mappings(folder: &Folder) -> Option<Vec<u64>> {
    let maps = BufReader::new(File::open(folder.path("maps")).ok()?.take(MOST_MAPS));
    let lines = maps.split(b'\n').map_while(Result::ok);
    Some(lines.filter_map(|line| context_mapping(&String::from_utf8_lossy(&line))).collect())
}

/// The address of the mapping that a line of `maps` is of, if it may have a context.
fn context_mapping(line: &str) -> Option<u64> {
    // Addresses, permissions, offset, device, inode, name.
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions, name) = (fields.next()?, fields.next()?, fields.nth(3)?);
    let is_data = permissions.starts_with('r') && !permissions.contains('x');
    let is_named = MAPPING_NAMES.iter().any(|beginning| name.starts_with(beginning));
    let start = range.split_once('-')?.0;
    if is_data && is_named { u64::from_str_radix(start, 16).ok() } else { None }
}

#[cfg(test)]
mod tests;
