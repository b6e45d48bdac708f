//! Names of native code: functions by symbols and debug information, with what was inlined.

use crate::symbol_table::SymbolTable;
use addr2line::Loader;
use object::{Object, ReadCache};
use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use wlprof_plugin::SourceFrame;

/// A file with code, and what names the code.
pub(crate) struct NamedObject {
    path: String,
    /// `None` if it is in no file.
    file: Option<File>,
    names: Option<Names>,
}

/// What is known of a file's functions.
#[derive(Default)]
struct Names {
    symbols: SymbolTable,
    /// What reads its debug information.
    loader: Option<Loader>,
}

impl NamedObject {
    /// Reads nothing of it yet.
    pub(crate) fn new(path: &str, file: Option<File>) -> Self {
        Self { path: path.to_owned(), file, names: None }
    }

    /// Whether it is the same file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let number = |object: &Self| Some(object.file.as_ref()?.metadata().ok()?).map(|file| (file.dev(), file.ino()));
        self.path == other.path && number(self) == number(other)
    }

    /// Appends what is called by the address that the file states for it, innermost inlined first; if nothing tells, the file's name.
    pub(crate) fn name(&mut self, address: u64, out: &mut Vec<SourceFrame>) {
        let names = self.names.get_or_insert_with(|| self.file.as_ref().map(Names::read).unwrap_or_default());
        let before = out.len();
        names.append(address, out);
        if out.len() == before {
            let file = self.path.rsplit('/').next().unwrap_or_default();
            out.push(function(format!("[{}]", file.trim_matches(['[', ']']))));
        }
    }
}

impl Names {
    /// Reads those of `file`, or, if what was stripped off it lies where systems put that, those.
    fn read(file: &File) -> Self {
        let debug_file = debug_file(file);
        let file = debug_file.as_ref().unwrap_or(file);
        // By the open file: another may have its name by now.
        let loader = Loader::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
        Self { symbols: SymbolTable::read(&ReadCache::new(file)), loader }
    }

    fn append(&self, address: u64, out: &mut Vec<SourceFrame>) {
        let symbol = || self.symbols.function_at(address).map(Cow::into_owned);
        let before = out.len();
        if let Some(Ok(mut frames)) = self.loader.as_ref().map(|loader| loader.find_frames(address)) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.and_then(|function| function.demangle().ok().map(Cow::into_owned));
                let Some(name) = name.or_else(symbol) else { continue };
                let location = frame.location.as_ref();
                out.push(SourceFrame {
                    file: location.and_then(|location| location.file).map(str::to_owned),
                    line: location.and_then(|location| location.line),
                    column: location.and_then(|location| location.column),
                    ..function(name)
                });
            }
        }
        if out.len() == before {
            out.extend(symbol().map(function));
        }
    }
}

/// The file with the debug information that belongs to the build that `file` is of.
fn debug_file(file: &File) -> Option<File> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let (first, rest) = object.build_id().ok()??.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    File::open(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")).ok()
}

fn function(name: String) -> SourceFrame {
    SourceFrame { function: name, ..SourceFrame::default() }
}
