//! Names of native code: functions by symbols and debug information, with what was inlined.

use crate::elf_file::ElfFile;
use crate::symbol_table::SymbolTable;
use addr2line::Context;
use gimli::LittleEndian;
use object::ReadCache;
use object::read::ReadRef;
use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use wlprof_plugin::SourceFrame;

/// Debug information that is read of a file, in bytes: of more there are the names of symbols.
const MAX_DEBUG_INFORMATION: u64 = 512 << 20;

type Reader = gimli::EndianArcSlice<LittleEndian>;

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
        /// Its debug information, if it has any.
        lines: Option<Box<Context<Reader>>>,
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
        let cache = debug_file.as_ref().or(file).map(ReadCache::new);
        let elf = cache.as_ref().and_then(ElfFile::parse);
        Self::Read {
            symbols: elf.as_ref().map(SymbolTable::read).unwrap_or_default(),
            lines: elf.as_ref().and_then(lines).map(Box::new),
        }
    }

    fn append(&self, address: u64, out: &mut Vec<SourceFrame>) {
        let Self::Read { symbols, lines } = self else { return };
        // Debug information in other files is not looked for: the file says where these are.
        let frames = lines.as_ref().and_then(|lines| lines.find_frames(address).skip_all_loads().ok());
        // The last is the function itself, into which the others are inlined.
        let mut is_named = false;
        for frame in frames.into_iter().flat_map(|mut frames| std::iter::from_fn(move || frames.next().transpose())) {
            is_named = false;
            let Ok(frame) = frame else { break };
            let Some(Ok(name)) = frame.function.map(|function| function.demangle().map(Cow::into_owned)) else {
                continue;
            };
            is_named = true;
            let location = frame.location.as_ref();
            out.push(SourceFrame {
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line),
                column: location.and_then(|location| location.column),
                ..function(name)
            });
        }
        let symbol = symbols.function_at(address).filter(|_| !is_named);
        out.extend(symbol.map(|symbol| function(symbol.into_owned())));
    }
}

/// The debug information of a file.
fn lines<'d>(file: &ElfFile<'d, impl ReadRef<'d>>) -> Option<Context<Reader>> {
    let mut left = MAX_DEBUG_INFORMATION;
    let section = |id: gimli::SectionId| -> Result<Reader, ()> {
        let bytes = file.bytes(id.name(), left).unwrap_or_default();
        left -= bytes.len() as u64;
        Ok(Reader::new(bytes.into(), LittleEndian))
    };
    Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}

/// The file with the debug information that belongs to the build that `file` is of.
fn debug_file(file: &File) -> Option<File> {
    let build_id = ElfFile::parse(&ReadCache::new(file))?.build_id()?;
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    File::open(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")).ok()
}

fn function(name: String) -> SourceFrame {
    SourceFrame { function: name, ..SourceFrame::default() }
}
