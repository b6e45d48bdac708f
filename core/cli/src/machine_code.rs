//! `--format=perfmap` and `--format=jitdump`: tells perf what the guest's machine code is.
//!
//! # Security
//! Perf maps lie in `/tmp` under names that anybody can guess. The files made here are always new ones, for their owner
//! alone; what is there already is replaced only if it is this user's own and a regular file, never followed or written to.

use super::failure::{FAILED, Failure};
use super::guest::Programs;
use super::options::formats::CodeFormat;
use super::progress::Spinner;
use super::{os, say};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use wlprof::machine_code::{CodeName, Lines, for_each_function};
use wlprof::sampler::show_to_perf;
use wlprof_export::NativeFunction;
use wlprof_export::jitdump::JitDump;
use wlprof_export::perf_map;
use wlprof_recording::{ModuleId, count_of};
use wlprof_run::guest::Guest;
use wlprof_show::escape;
use wlprof_symbols::Symbols;

/// Which functions a jitdump has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DumpedFunctions {
    /// The whole guest
    All,
    /// Those that wlprof's own samples saw
    Sampled,
}

/// Functions from which on `perf inject` takes some seconds to make a file of each.
const MANY: usize = 50_000;

/// A file with the guest's machine code. It is gone when dropped, unless it was finished.
pub(super) struct CodeFile {
    path: PathBuf,
    format: CodeFormat,
    functions: usize,
    /// A jitdump that is to hold what will have been sampled.
    unfinished: Option<JitDump<BufWriter<File>>>,
    is_finished: bool,
}

/// Writes the guest's code, or prepares to. `programs` name it.
pub(super) fn begin(
    format: CodeFormat,
    functions: DumpedFunctions,
    guest: &Guest,
    programs: &Programs,
) -> Result<CodeFile, Failure> {
    let process = std::process::id();
    let path = match format {
        CodeFormat::PerfMap => PathBuf::from(format!("/tmp/perf-{process}.map")),
        CodeFormat::JitDump => PathBuf::from(format!("jit-{process}.dump")),
    };
    let file = os::create_for_perf(&path).map_err(|error| cannot_write(&path, &error))?;
    let mut code = CodeFile { path, format, functions: 0, unfinished: None, is_finished: false };
    code.begin(file, functions, guest, programs).map_err(|error| cannot_write(&code.path, &error))?;
    Ok(code)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FAILED, format!("cannot write {}: {error}", path.display()))
}

impl CodeFile {
    fn begin(&mut self, file: File, functions: DumpedFunctions, guest: &Guest, programs: &Programs) -> io::Result<()> {
        match self.format {
            CodeFormat::PerfMap => {
                let mut out = BufWriter::new(file);
                let write = |function: &NativeFunction<'_>| perf_map::write_function(function, &mut out);
                self.functions = name_functions(guest, programs, Lines::Omit, |_, _| true, write)?;
                out.flush()
            }
            CodeFormat::JitDump => {
                let shown_ns = show_to_perf(&file).map_err(|error| {
                    let message = format!("it cannot be mapped for execution ({error}); run in a folder where it can");
                    io::Error::new(error.kind(), message)
                })?;
                let dump = JitDump::new(BufWriter::new(file), std::process::id(), shown_ns)?;
                match functions {
                    DumpedFunctions::All => self.dump(dump, guest, programs, |_, _| true),
                    DumpedFunctions::Sampled => {
                        self.unfinished = Some(dump);
                        Ok(())
                    }
                }
            }
        }
    }

    fn dump(
        &mut self,
        mut dump: JitDump<BufWriter<File>>,
        guest: &Guest,
        programs: &Programs,
        wanted: impl Fn(ModuleId, &CodeName<'_>) -> bool,
    ) -> io::Result<()> {
        let write = |function: &NativeFunction<'_>| dump.function(function);
        self.functions = name_functions(guest, programs, Lines::Find, wanted, write)?;
        dump.close()
    }

    /// Writes the functions that were sampled, if that is what the file is to hold.
    pub(super) fn add_sampled(
        &mut self,
        seen: &BTreeSet<(ModuleId, u32)>,
        programs: &Programs,
        guest: &Guest,
    ) -> Result<(), Failure> {
        let Some(dump) = self.unfinished.take() else { return Ok(()) };
        let wanted = |first: ModuleId, name: &CodeName<'_>| match *name {
            CodeName::Function { module, function } | CodeName::Entry { module, function, .. } => {
                seen.contains(&(first + module, function))
            }
            // Samples say nothing of those.
            CodeName::Stub(_) => true,
        };
        self.dump(dump, guest, programs, wanted).map_err(|error| cannot_write(&self.path, &error))
    }

    /// Keeps the file, and says what was written and what to do with it.
    pub(super) fn finish(mut self, quiet: bool) {
        self.is_finished = true;
        if quiet {
            return;
        }
        let path = escape::single_line(&self.path.to_string_lossy());
        let (functions, written) = (self.functions, count_of(self.functions as u64, "function"));
        match self.format {
            CodeFormat::PerfMap => {
                say::line(format_args!("wrote {path}: {written}, for perf report after `perf record -g`"));
            }
            CodeFormat::JitDump => {
                say::line(format_args!(
                    "wrote {path}: {written}, for `perf inject --jit` after `perf record -k mono -g`"
                ));
                if functions >= MANY {
                    say::line(format_args!(
                        "note: `perf inject` makes a file of each of the {functions} functions; \
                         --jitdump-functions=sampled leaves out those that wlprof does not see running"
                    ));
                }
            }
        }
    }
}

impl Drop for CodeFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// As [`for_each_function`], of the guest and then of what it imports from. `programs` are what the guest's languages know of it. `wanted` is given the id of the first module that code is of, from which on the code has them numbered.
fn name_functions(
    guest: &Guest,
    programs: &Programs,
    lines: Lines,
    wanted: impl Fn(ModuleId, &CodeName<'_>) -> bool,
    mut write: impl FnMut(&NativeFunction<'_>) -> io::Result<()>,
) -> io::Result<usize> {
    let _spinner = Spinner::new("naming functions".to_owned());
    let mut symbols = Symbols::new(&guest.images(), programs.clone());
    let (mut first, mut written) = (0, Ok(0));
    for code in guest.codes() {
        let wanted = |name: &CodeName<'_>| wanted(first, name);
        let named = for_each_function(code, first, &mut symbols, lines, wanted, &mut write);
        written = written.and_then(|before| Ok(before + named?));
        first += code.images.len() as ModuleId;
    }
    written
}
