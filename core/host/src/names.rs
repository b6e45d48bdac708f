//! Names of native code: functions by symbols and debug information, with what was inlined.

use crate::symbol_table::SymbolTable;
use addr2line::Loader;
use object::{Object, ObjectSection, ReadCache};
use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use wlprof_plugin::SourceFrame;

/// Files and debug information that are read at most, in bytes.
const MAX_BYTES: u64 = 2 << 30;

/// A file with code, and what names the code.
pub(crate) struct NamedObject {
    path: String,
    /// Device and number of the file.
    id: Option<(u64, u64)>,
    names: Names,
}

/// What is known of a file's functions.
enum Names {
    /// Nothing yet. `None` if it is in no file.
    Unread(Option<File>),
    Read {
        symbols: SymbolTable,
        /// What reads its debug information.
        loader: Option<Box<Loader>>,
    },
}

impl NamedObject {
    /// Reads nothing of it yet.
    pub(crate) fn new(path: &str, file: Option<File>) -> Self {
        let id = file.as_ref().and_then(|file| file.metadata().ok()).map(|file| (file.dev(), file.ino()));
        Self { path: path.to_owned(), id, names: Names::Unread(file) }
    }

    /// Whether it is the same file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (&self.path, self.id) == (&other.path, other.id)
    }

    /// Appends what is called by the address that the file states for it, innermost inlined first; if nothing tells, the file's name.
    pub(crate) fn name(&mut self, address: u64, out: &mut Vec<SourceFrame>) {
        if let Names::Unread(file) = &self.names {
            self.names = Names::read(file.as_ref());
        }
        let before = out.len();
        self.names.append(address, out);
        if out.len() == before {
            let file = self.path.rsplit('/').next().unwrap_or_default();
            out.push(function(format!("[{}]", file.trim_matches(['[', ']']))));
        }
    }
}

impl Names {
    /// Reads those of `file`, or, if what was stripped off it lies where systems put that, those.
    fn read(file: Option<&File>) -> Self {
        let debug_file = file.and_then(debug_file);
        match debug_file.as_ref().or(file).filter(|file| is_small(file)) {
            Some(file) => Self::Read {
                symbols: SymbolTable::read(&ReadCache::new(file)),
                // By the open file: another may have its name by now.
                loader: Loader::new(format!("/proc/self/fd/{}", file.as_raw_fd())).ok().map(Box::new),
            },
            None => Self::Read { symbols: SymbolTable::default(), loader: None },
        }
    }

    fn append(&self, address: u64, out: &mut Vec<SourceFrame>) {
        let Self::Read { symbols, loader } = self else { return };
        let symbol = || symbols.function_at(address).map(Cow::into_owned);
        let before = out.len();
        if let Some(Ok(mut frames)) = loader.as_ref().map(|loader| loader.find_frames(address)) {
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

/// Whether a file can be read in a while, and its debug information when it is unpacked.
fn is_small(file: &File) -> bool {
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else { return false };
    let sections = object.sections().filter_map(|section| section.compressed_file_range().ok());
    let unpacked = sections.map(|range| range.uncompressed_size).fold(0, u64::saturating_add);
    file.metadata().is_ok_and(|file| file.len() <= MAX_BYTES) && unpacked <= MAX_BYTES
}

fn function(name: String) -> SourceFrame {
    SourceFrame { function: name, ..SourceFrame::default() }
}
