//! A recording as a Firefox profile, made by a process of its own.
//!
//! # Security
//! That process has the limits of `wlprof render`. They are not for this one, which goes on and starts a browser: whatever it
//! starts would have them, too.

use super::Shown;
use crate::cli::arguments::{FramesChoice, MAKE_VIEW, View};
use crate::cli::os::{self, how_it_ended};
use crate::cli::table::{TableOptions, table};
use crate::cli::{FAILED, Failure};
use crate::cli::{naming, render};
use crate::export;
use std::io::{self, BufWriter, Read, Write};
use std::process::{Command, Stdio};

/// Has the recording rendered.
pub(super) fn rendered(view: &View) -> Result<Shown, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(FAILED, format!("{}: it cannot be rendered: {error}", view.file.display()))
    };
    let mut command = Command::new(os::own_program().map_err(|error| failed(&error))?);
    // What came after `view` is said to it again.
    command.arg(MAKE_VIEW).args(std::env::args_os().skip(2)).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (mut table, mut json) = (Vec::new(), Vec::new());
    let read = child.stdout.take().map_or(Ok(()), |mut out| receive(&mut out, &mut table, &mut json));
    let status = child.wait().map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(match status.code().and_then(|code| u8::try_from(code).ok()) {
            // It has said why.
            Some(code) => Failure::told(code),
            None => failed(&how_it_ended(status)),
        });
    }
    read.map_err(|error| failed(&error))?;
    Ok(Shown { json, is_gzip: false, table: Some(String::from_utf8_lossy(&table).into_owned()) })
}

/// Renders the recording and sends it: the length of the table, the table, the profile.
pub(in super::super) fn run_child(view: &View) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(FAILED, error);
    os::die_with_parent().map_err(failed)?;
    let recording = naming::named(render::read_within_limits(&view.file)?, &view.names)?;
    render::check_frames(&recording, view.frames, &view.file)?;
    let shown = recording.bounded().view(view.frames.view());
    let shows_interpreter = view.frames != FramesChoice::Guest;
    let options = TableOptions { width: None, shows_interpreter, ..TableOptions::for_terminal() };
    let table = table(&shown, None, &options);
    let firefox = export::by_name("firefox").ok_or_else(|| failed(io::ErrorKind::Unsupported.into()))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut send = || {
        out.write_all(&(table.len() as u64).to_le_bytes())?;
        out.write_all(table.as_bytes())?;
        firefox.export(&shown, &view.file, &mut out)?;
        out.flush()
    };
    send().map_err(failed)
}

fn receive(input: &mut dyn Read, table: &mut Vec<u8>, json: &mut Vec<u8>) -> io::Result<()> {
    let mut size = [0; 8];
    input.read_exact(&mut size)?;
    input.take(u64::from_le_bytes(size)).read_to_end(table)?;
    input.read_to_end(json).map(|_| ())
}
