//! Rewrites a module so that its allocator reports a sample of its calls.
//!
//! Functions that call no other allocator function get a check at the beginning of their body. The others get code around their body. So
//! does `realloc`, which has to look at a block before it is given away. Neither costs a call where nothing is reported. Exports, tables
//! and calls lead to the new code without a change.
//!
//! Additions come after everything of their kind, so that no index changes. The listener cannot be imported, since imports come first. It
//! is put into an added table once the module is instantiated. Until then nothing is reported, and nothing is missed that would have to be
//! known later.

use super::allocators::{Allocator, Call, MAX_ALLOCATORS, MAX_EXITS, NotRewritten};
use super::bodies::{Body, Part};
use super::calls::Calls;
use super::instructions::{Additions, FILTER_BYTES, Instructions, parameter_count};
use super::parsed::{ModuleParts, SectionId};
use super::tail_calls;
use std::collections::{HashMap, HashSet};
use wasm_encoder::{ConstExpr, Encode, ExportKind, GlobalType, MemoryType, RefType, TableType, ValType};
use wlprof_module::{IndexSpaces, OffsetMap, Stretch};

/// The export names of what was added to a rewritten module.
#[derive(Clone, Copy, Debug)]
pub struct Exports {
    /// A table of two functions, the listeners. The first is called for allocations: `(size: i64, block: i32, before: i32, call: i32)`. The
    /// second is called for frees: `(block: i32)`.
    ///
    /// `before` is the block that `realloc` was given, or where `posix_memalign` has put the block.
    /// [`call_of_number`](super::call_of_number) knows `call`.
    pub table: &'static str,
    /// A global, an `i64`: the number of bytes that may be allocated before the listener is called.
    pub countdown: &'static str,
    /// A global, an `i32`: whether there is a listener.
    pub is_heard: &'static str,
    /// A memory: for each hash of an address, the number of reported blocks that are there.
    pub filter: &'static str,
}

/// The names that wlprof uses.
pub const EXPORTS: Exports = Exports {
    table: "wlprof:heap/table",
    countdown: "wlprof:heap/countdown",
    is_heard: "wlprof:heap/is-heard",
    filter: "wlprof:heap/filter",
};

/// A module that reports its allocator's calls.
#[derive(Debug)]
pub struct RewrittenModule {
    /// Bytes to compile.
    pub bytes: Vec<u8>,
    /// Map from its code offsets back to those of the original.
    pub offsets: OffsetMap,
    /// Number of added entities of each kind.
    pub added: IndexSpaces,
}

/// Rewrites the module `bytes`, whose allocator consists of these functions.
///
/// # Errors
/// The reason why the module is not rewritten.
pub fn rewrite(bytes: &[u8], allocators: &[Allocator]) -> Result<RewrittenModule, NotRewritten> {
    let parsed = ModuleParts::read(bytes)?;
    check(&parsed, allocators)?;
    let allocating: HashSet<u32> =
        allocators.iter().filter(|other| other.call != Call::Free).map(|other| other.function).collect();
    let calls = Calls::of(&parsed, bytes, allocating.iter().copied())?;
    // What those that call others have these allocate is theirs.
    let outer = calls.reaching(&allocating);
    let instructions = Instructions {
        catches: parsed.has_tags,
        added: Additions {
            countdown: parsed.globals,
            is_heard: parsed.globals + 1,
            filter: parsed.memories,
            table: parsed.tables,
            allocated: parsed.signatures.len() as u32,
            freed: parsed.signatures.len() as u32 + 1,
        },
    };
    let code = Code::new(&parsed, bytes, allocators, (&outer, &calls), &instructions)?;
    Ok(code.into_module(&parsed, bytes, &instructions.added))
}

fn check(parsed: &ModuleParts, allocators: &[Allocator]) -> Result<(), NotRewritten> {
    if allocators.len() > MAX_ALLOCATORS {
        return Err(NotRewritten::TooMany(allocators.len()));
    }
    if parsed.memories != 1 || parsed.has_other_memory {
        let what = match parsed.memories {
            0 => "it has no memory",
            1 => "its memory is shared or has 64-bit addresses",
            _ => "it has several memories",
        };
        return Err(NotRewritten::Memory(what));
    }
    let mut seen = HashSet::new();
    for allocator in allocators {
        let Allocator { function, call, .. } = allocator;
        if !seen.insert(function) {
            return Err(NotRewritten::Twice(*function));
        }
        let signature = parsed.signature(parsed.defined(*function)?);
        let is_called_so = signature.is_some_and(|(parameters, results)| {
            parameters.len() == parameter_count(*allocator) as usize
                && results.len() == usize::from(call.returns())
                && parameters.iter().chain(results).all(|value| *value == wasmparser::ValType::I32)
        });
        if !is_called_so {
            return Err(NotRewritten::Signature(*function, *call));
        }
    }
    let own = [EXPORTS.table, EXPORTS.countdown, EXPORTS.is_heard, EXPORTS.filter];
    match parsed.exports.iter().find(|name| own.contains(&name.as_str())) {
        Some(name) => Err(NotRewritten::Name(name.clone())),
        None => Ok(()),
    }
}

/// The code section of a rewritten module, and the functions that were added.
#[derive(Default)]
struct Code {
    /// Contents of the section.
    contents: Vec<u8>,
    stretches: Vec<Stretch>,
    /// Types of the functions that were added.
    added: Vec<u32>,
}

impl Code {
    fn new(
        parsed: &ModuleParts,
        bytes: &[u8],
        allocators: &[Allocator],
        (outer, calls): (&HashSet<u32>, &Calls),
        instructions: &Instructions,
    ) -> Result<Self, NotRewritten> {
        let section = code_section(parsed).cloned().unwrap_or_default();
        let of_function: HashMap<u32, &Allocator> =
            allocators.iter().map(|allocator| (allocator.function, allocator)).collect();
        let mut code = Self::default();
        let (mut added, mut bodies) = (Vec::new(), Vec::new());
        let mut exits = MAX_EXITS;
        for (function, (range, first)) in (parsed.imported_functions..).zip(&parsed.bodies) {
            let in_section = |at: usize| at - section.start;
            let body = Body {
                code: &bytes[section.clone()],
                range: in_section(range.start)..in_section(range.end),
                first: in_section(*first),
            };
            bodies.push(match of_function.get(&function) {
                None => body.whole(),
                Some(&&allocator) if allocator.call == Call::Realloc || outer.contains(&function) => {
                    tail_calls::check(parsed, bytes, calls, function)?;
                    let first_local = parameter_count(allocator) + body.local_count()?;
                    let around = instructions.around(allocator, first_local);
                    body.enclosed(around, &mut exits)?.ok_or(NotRewritten::Exits(function))?
                }
                Some(&&allocator) => {
                    let slow = parsed.function_count() + added.len() as u32;
                    if allocator.call != Call::Free {
                        code.added.push(parsed.functions[(function - parsed.imported_functions) as usize]);
                        added.push(instructions.slow(allocator));
                    }
                    body.beginning_with(instructions.prologue(allocator, slow))
                }
            });
        }
        bodies.extend(added.into_iter().map(|body| vec![(None, body.into())]));
        bodies.len().encode(&mut code.contents);
        bodies.into_iter().for_each(|parts| code.body(parts));
        Ok(code)
    }

    /// Adds a body.
    fn body(&mut self, parts: Vec<Part<'_>>) {
        parts.iter().map(|(_, part)| part.len()).sum::<usize>().encode(&mut self.contents);
        for (old, part) in parts {
            if let Some(old) = old {
                let new = self.contents.len() as u32;
                self.stretches.push(Stretch { new, old, length: part.len() as u32 });
            }
            self.contents.extend_from_slice(&part);
        }
    }

    fn into_module(self, parsed: &ModuleParts, bytes: &[u8], added: &Additions) -> RewrittenModule {
        let mut additions = additions(&self.added, added).into_iter().peekable();
        let mut module = bytes[..8].to_vec();
        let mut code_start = 0;
        for (id, range) in &parsed.sections {
            while let Some((new, count, entries)) =
                additions.next_if(|(new, ..)| id.place().is_some_and(|place| new.place() < Some(place)))
            {
                // A section that it had none of.
                section(&mut module, new, &with_count(count, &entries));
            }
            let contents = &bytes[range.clone()];
            if *id == SectionId::CODE {
                section(&mut module, *id, &self.contents);
                code_start = module.len() - self.contents.len();
            } else if let Some((_, more, entries)) = additions.next_if(|(new, ..)| new == id) {
                let (count, rest) = count_of(contents);
                let rest = [rest, &entries].concat();
                section(&mut module, *id, &with_count(count + more, &rest));
            } else if !is_of_old_code(*id, contents) {
                section(&mut module, *id, contents);
            }
        }
        let offsets = OffsetMap::new(code_start as u32, self.stretches);
        let added = IndexSpaces { tables: 1, memories: 1, globals: 2, ..IndexSpaces::default() };
        RewrittenModule { bytes: module, offsets, added }
    }
}

/// Whether it is a custom section that says something of code by where that was before: better nothing is said of it.
fn is_of_old_code(id: SectionId, contents: &[u8]) -> bool {
    let name = || wasmparser::BinaryReader::new(contents, 0).read_string();
    let is_of_code =
        |name: &str| name.starts_with(".debug_") || ["external_debug_info", "sourceMappingURL"].contains(&name);
    id == SectionId::CUSTOM && name().is_ok_and(is_of_code)
}

fn code_section(parsed: &ModuleParts) -> Option<&std::ops::Range<usize>> {
    parsed.sections.iter().find_map(|(id, range)| (*id == SectionId::CODE).then_some(range))
}

/// What is added to each section but that of code: how many entries, and what they are.
fn additions(functions: &[u32], added: &Additions) -> Vec<(SectionId, u32, Vec<u8>)> {
    let mut types = Vec::new();
    for parameters in [&[ValType::I64, ValType::I32, ValType::I32, ValType::I32][..], &[ValType::I32]] {
        types.push(0x60);
        parameters.encode(&mut types);
        types.push(0);
    }
    let mut function_types = Vec::new();
    functions.iter().for_each(|of_type| of_type.encode(&mut function_types));
    let mut tables = Vec::new();
    let table =
        TableType { element_type: RefType::FUNCREF, table64: false, minimum: 2, maximum: Some(2), shared: false };
    table.encode(&mut tables);
    let pages = u64::from(FILTER_BYTES >> 16);
    let mut memories = Vec::new();
    let memory =
        MemoryType { minimum: pages, maximum: Some(pages), memory64: false, shared: false, page_size_log2: None };
    memory.encode(&mut memories);
    let mut globals = Vec::new();
    for (val_type, value) in [(ValType::I64, ConstExpr::i64_const(i64::MAX)), (ValType::I32, ConstExpr::i32_const(0))] {
        GlobalType { val_type, mutable: true, shared: false }.encode(&mut globals);
        value.encode(&mut globals);
    }
    let mut exports = Vec::new();
    for (name, kind, index) in [
        (EXPORTS.table, ExportKind::Table, added.table),
        (EXPORTS.countdown, ExportKind::Global, added.countdown),
        (EXPORTS.is_heard, ExportKind::Global, added.is_heard),
        (EXPORTS.filter, ExportKind::Memory, added.filter),
    ] {
        name.encode(&mut exports);
        kind.encode(&mut exports);
        index.encode(&mut exports);
    }
    vec![
        (SectionId::TYPE, 2, types),
        (SectionId::FUNCTION, functions.len() as u32, function_types),
        (SectionId::TABLE, 1, tables),
        (SectionId::MEMORY, 1, memories),
        (SectionId::GLOBAL, 2, globals),
        (SectionId::EXPORT, 4, exports),
    ]
}

/// The number of entries that a section begins with, and the entries.
fn count_of(contents: &[u8]) -> (u32, &[u8]) {
    let mut reader = wasmparser::BinaryReader::new(contents, 0);
    // It has been read before.
    let count = reader.read_var_u32().unwrap_or_default();
    (count, &contents[reader.original_position()..])
}

fn with_count(count: u32, entries: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    count.encode(&mut contents);
    contents.extend_from_slice(entries);
    contents
}

fn section(module: &mut Vec<u8>, id: SectionId, contents: &[u8]) {
    module.push(id.0);
    contents.len().encode(module);
    module.extend_from_slice(contents);
}
