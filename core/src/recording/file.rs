//! The recording on disk: `x.wlprof`, written by `-o x.wlprof`, read by `wlprof render`.
//!
//! Layout: the eight bytes [`MAGIC`], a little-endian u32 [`VERSION`], then the [`Recording`] in postcard's wire
//! format (varints, no field names). Any change to the shape of `Recording` or what it holds raises the version; older
//! versions are refused with both numbers rather than misread.

use super::{Origin, Recording, Sample};
use std::fmt;
use std::io::{self, Write};

/// First bytes of every recording.
pub const MAGIC: [u8; 8] = *b"wlprof\r\n";

/// Version that this build writes and reads.
pub const VERSION: u32 = 1;

/// Why a file is not a recording that can be read.
#[derive(Debug)]
pub enum ReadError {
    /// It does not begin with [`MAGIC`].
    NotARecording,
    /// It was written by another version.
    Version(u32),
    /// It is cut short or corrupt.
    Corrupt(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARecording => f.write_str("not a wlprof recording (make one with `wlprof -o x.wlprof GUEST`)"),
            Self::Version(found) => write!(
                f,
                "recording of format version {found} (supported: {VERSION}); render it with the wlprof that made it"
            ),
            Self::Corrupt(what) => write!(f, "corrupt recording: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Writes a recording.
///
/// # Errors
/// Whatever `out` fails with.
pub fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_le_bytes())?;
    let body = postcard::to_stdvec(recording).map_err(io::Error::other)?;
    out.write_all(&body)
}

/// Reads a recording and checks that all its indices hold, so that nobody downstream needs to.
///
/// # Errors
/// [`ReadError`] if the bytes are not a recording of this version.
pub fn read(bytes: &[u8]) -> Result<Recording, ReadError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(ReadError::NotARecording)?;
    let (version, body) =
        rest.split_first_chunk().ok_or_else(|| ReadError::Corrupt("it ends within its header".into()))?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(ReadError::Version(version));
    }
    let (recording, rest): (Recording, &[u8]) =
        postcard::take_from_bytes(body).map_err(|error| ReadError::Corrupt(error.to_string()))?;
    if !rest.is_empty() {
        return Err(ReadError::Corrupt("something follows its end".into()));
    }
    check(&recording).map_err(|table| ReadError::Corrupt(format!("an index in its {table} leads nowhere")))?;
    Ok(recording)
}

/// Names the first table with an index out of range.
fn check(recording: &Recording) -> Result<(), &'static str> {
    let within = |index: u32, len: usize| (index as usize) < len;
    let all = |ok: bool, table| if ok { Ok(()) } else { Err(table) };
    let Recording { modules, functions, frames, stacks, label_sets, threads, .. } = recording;
    let origin_holds = |origin: Origin| match origin {
        Origin::Wasm { module, .. } | Origin::Language { module, .. } | Origin::HostCall { module, .. } => {
            within(module, modules.len())
        }
        Origin::Host | Origin::Truncated => true,
    };
    all(functions.iter().all(|f| f.module.is_none_or(|id| within(id, modules.len()))), "functions")?;
    all(
        frames.iter().all(|frame| {
            origin_holds(frame.origin)
                && !frame.lines.is_empty()
                && frame.lines.iter().all(|line| within(line.function, functions.len()))
        }),
        "frames",
    )?;
    all(
        stacks
            .iter()
            .enumerate()
            .all(|(own, stack)| within(stack.frame, frames.len()) && stack.parent.is_none_or(|id| within(id, own))),
        "stacks",
    )?;
    let sample_holds = |sample: &Sample| {
        within(sample.stack, stacks.len()) && sample.labels.is_none_or(|id| within(id, label_sets.len()))
    };
    all(threads.iter().all(|t| t.samples.iter().all(sample_holds)), "samples")?;
    all(threads.iter().all(|t| t.host_calls.iter().all(|h| within(h.frame, frames.len()))), "host calls")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Meta, Origin, Recorder, Sample, State, TickCounts};
    use wlprof_plugin::SourceFrame;

    fn small() -> Recording {
        let mut recorder = Recorder::default();
        let frame = recorder.frame(Origin::Host);
        let stack = recorder.stack([frame, frame]).unwrap();
        let labels = recorder.labels(0, 3);
        recorder.sample(
            7,
            Sample {
                time_ns: 5,
                cpu_delta_ns: 0,
                period_ns: 1_000_000,
                stack,
                state: State::Host,
                labels: Some(labels),
            },
        );
        recorder.finish(Meta::default(), TickCounts::default(), &mut |_: &Origin, out: &mut Vec<SourceFrame>| {
            out.push(SourceFrame::default());
        })
    }

    fn bytes(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(recording, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = small();
        assert_eq!(read(&bytes(&recording)).unwrap(), recording);
    }

    #[test]
    fn every_cut_is_an_error_and_no_panic() {
        let whole = bytes(&small());
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn indices_that_lead_nowhere_are_refused() {
        let mut recording = small();
        recording.stacks[0].parent = Some(0);
        let error = read(&bytes(&recording)).unwrap_err().to_string();
        assert!(error.contains("stacks"), "{error}");
    }

    #[test]
    fn another_version_is_named() {
        let mut whole = bytes(&small());
        whole[MAGIC.len()] = 9;
        assert!(read(&whole).unwrap_err().to_string().contains("version 9"));
    }
}
