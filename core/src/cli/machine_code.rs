//! `--format=perfmap` and `--format=jitdump`: tells perf what the guest's machine code is.
//!
//! # Security
//! Perf maps lie in `/tmp` under names that anybody can guess. The files made here are always new ones, for their owner
//! alone; what is there already is replaced only if it is this user's own and a regular file, never followed or written to.

use super::arguments::{CodeFormat, DumpedFunctions};
use super::guest::Walkers;
use super::progress::Bar;
use super::{FAILED, Failure, escape, say};
use crate::export::jitdump::JitDump;
use crate::export::perf_map;
use crate::guest::Guest;
use crate::native_symbols::{Lines, NativeFunction, native_function};
use crate::recording::ModuleId;
use crate::sampler::{CodeName, Finished, NativeCode, PerfMarker, native_code};
use crate::symbols::Symbols;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Functions above which `perf inject` takes long.
const MANY: usize = 5000;

/// A file with the guest's machine code.
pub(super) struct CodeFile {
    path: PathBuf,
    format: CodeFormat,
    functions: usize,
    /// A jitdump that is to hold what will have been sampled.
    unfinished: Option<File>,
    /// Stays until the process ends.
    marker: Option<PerfMarker>,
}

/// Writes the guest's code, or prepares to. `walkers` name it and are left as they were.
pub(super) fn begin(
    format: CodeFormat,
    functions: DumpedFunctions,
    guest: &Guest,
    walkers: &mut Walkers,
) -> Result<CodeFile, Failure> {
    let process = std::process::id();
    let path = match format {
        CodeFormat::PerfMap => PathBuf::from(format!("/tmp/perf-{process}.map")),
        CodeFormat::JitDump => PathBuf::from(format!("jit-{process}.dump")),
    };
    let fail = |error: io::Error| Failure::new(FAILED, format!("cannot write {}: {error}", path.display()));
    let file = create(&path).map_err(fail)?;
    let mut code = CodeFile { path: path.clone(), format, functions: 0, unfinished: None, marker: None };
    match format {
        CodeFormat::PerfMap => {
            let mut out = BufWriter::new(file);
            code.functions = for_each(
                guest,
                walkers,
                Lines::Omit,
                |_, _| true,
                |function| perf_map::write_function(function, &mut out),
            )
            .and_then(|functions| out.flush().map(|()| functions))
            .map_err(fail)?;
        }
        CodeFormat::JitDump => {
            let marker = PerfMarker::map(&file).map_err(fail)?;
            if functions == DumpedFunctions::All {
                code.functions = dump(file, &marker, guest, walkers, |_, _| true).map_err(fail)?;
            } else {
                code.unfinished = Some(file);
            }
            code.marker = Some(marker);
        }
    }
    Ok(code)
}

impl CodeFile {
    /// Writes the functions that were sampled, if that is what the file is to hold.
    pub(super) fn add_sampled(&mut self, finished: &mut Finished, guest: &Guest) -> Result<(), Failure> {
        let (Some(file), Some(marker)) = (self.unfinished.take(), &self.marker) else { return Ok(()) };
        let seen = finished.recorder.functions_seen();
        let wanted = |module, name: &CodeName<'_>| is_sampled(&seen, guest, module, name);
        self.functions = dump(file, marker, guest, &mut finished.walkers, wanted)
            .map_err(|error| Failure::new(FAILED, format!("cannot write {}: {error}", self.path.display())))?;
        Ok(())
    }

    /// Says what was written and what to do with it.
    pub(super) fn print(&self) {
        let path = escape::single_line(&self.path.to_string_lossy());
        let functions = self.functions;
        match self.format {
            CodeFormat::PerfMap => {
                say::line(format_args!("wrote {path}: {functions} functions, for perf report after `perf record -g`"));
            }
            CodeFormat::JitDump => {
                say::line(format_args!(
                    "wrote {path}: {functions} functions, for `perf inject --jit` after `perf record -k mono -g`"
                ));
                if functions > MANY {
                    say::line(format_args!(
                        "note: perf inject makes a file of each function, which takes long for {functions}; \
                         --jitdump-functions=sampled leaves out those that wlprof does not see running"
                    ));
                }
            }
        }
    }
}

fn dump(
    file: File,
    marker: &PerfMarker,
    guest: &Guest,
    walkers: &mut Walkers,
    wanted: impl Fn(ModuleId, &CodeName<'_>) -> bool,
) -> io::Result<usize> {
    let mut dump = JitDump::new(BufWriter::new(file), std::process::id(), marker.mapped_ns)?;
    let functions = for_each(guest, walkers, Lines::Find, wanted, |function| dump.function(function))?;
    dump.close()?;
    Ok(functions)
}

/// Whether code is of a function that was `seen`, or could have been unseen: of trampolines samples say nothing.
fn is_sampled(seen: &BTreeSet<(ModuleId, u32)>, guest: &Guest, module: ModuleId, name: &CodeName<'_>) -> bool {
    match *name {
        CodeName::Function(function) => seen.contains(&(module, function)),
        CodeName::Entry { function, .. } => guest.modules[module as usize].1.is_exported(function),
        CodeName::Stub(_) => true,
    }
}

/// Calls `write` with every piece of the guest's code that is `wanted`, and gives their number.
fn for_each(
    guest: &Guest,
    walkers: &mut Walkers,
    lines: Lines,
    wanted: impl Fn(ModuleId, &CodeName<'_>) -> bool,
    mut write: impl FnMut(&NativeFunction<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let images: Vec<_> = guest.modules.iter().map(|(_, image)| Arc::clone(image)).collect();
    let mut symbols = Symbols::new(&images, std::mem::take(walkers));
    let mut done = 0;
    let result = guest.modules.iter().zip(0..).try_for_each(|((module, image), id)| {
        let code: Vec<NativeCode<'_>> =
            native_code(module, image).into_iter().filter(|code| wanted(id, &code.name)).collect();
        let bar = Bar::new("naming functions", code.len());
        code.into_iter().try_for_each(|code| {
            write(&native_function(code, (id, &**image), &mut symbols, lines))?;
            done += 1;
            bar.set(done);
            Ok(())
        })
    });
    *walkers = symbols.into_languages();
    result.map(|()| done)
}

/// Makes a new file that only its owner can read. One of an earlier process with the same number is replaced.
fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() && found.uid() == own_user()? => fs::remove_file(path)?,
        Ok(_) => {
            let message = "there is something that is not a file of yours; remove it";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // New, or an error: whatever was put there meanwhile, a link included, is neither followed nor written to.
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// The user that this process makes files as.
fn own_user() -> io::Result<u32> {
    Ok(fs::metadata("/proc/self")?.uid())
}
