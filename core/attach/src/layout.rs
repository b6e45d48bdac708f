//! Where instances have their memories and globals in each release of Wasmtime.
//!
//! A `VMContext` begins with fields that all instances have. Behind them are arrays, whose lengths are the module's numbers of imports and
//! definitions. Which fields and arrays there are, and how long an element is, is in `src/vmoffsets.rs` of the crate wasmtime-environ of that
//! release, and from 49 on in its `src/vmctxtypes.rs` and `src/vmtypes.rs`. Read there for all releases from 24.0.13 to 50.0.1, on 64 bits.

use wlprof_module::IndexSpaces;

/// The word that a `VMContext` begins with.
pub(crate) const MAGIC: [u8; 4] = *b"core";

/// Where a `VMContext` has the address of its store's part that compiled code writes.
pub(crate) const STORE_CONTEXT: usize = 8;

const POINTER: u32 = 8;
const MEMORY_IMPORT: u32 = 24;
const MEMORY_DEFINITION: u32 = 16;
const TABLE_DEFINITION: u32 = 16;
const GLOBAL_DEFINITION: u32 = 16;

/// The oldest release that is known, and the newest.
pub(crate) const RELEASES: std::ops::RangeInclusive<u32> = 24..=50;

/// What depends on the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Length of the fields that all instances have.
    fields: u32,
    /// The arrays of memories stand before those of functions and tables.
    memories_first: bool,
    function_import: u32,
    table_import: u32,
    global_import: u32,
    /// 0 where there are no tags yet.
    tag_import: u32,
}

impl Layout {
    /// The layout of a release; `None` if it is not known.
    pub(crate) fn of(release: u32) -> Option<Self> {
        let fields = match release {
            24..=29 => 88,
            // Without the trait object of the store.
            30 => 72,
            // With `stack_chain`, and without it again.
            31 => 80,
            32 => 72,
            // Without the bounds of the garbage collector's heap.
            33..=34 => 56,
            // Without `callee`.
            35.. => 48,
            _ => return None,
        };
        // Imports of tables, globals and tags say from 34 on whose they are.
        let (table_import, global_import, tag_import) = match release {
            ..=30 => (16, 8, 0),
            31..=33 => (16, 8, 8),
            _ => (24, 24, 24),
        };
        let function_import = if release < 45 { 24 } else { 32 };
        let layout =
            Self { fields, memories_first: release >= 29, function_import, table_import, global_import, tag_import };
        RELEASES.contains(&release).then_some(layout)
    }

    /// Where an instance of a module with these index spaces has the address of its first memory's definition: a pair of base and length.
    pub(crate) fn first_memory(&self, spaces: &IndexSpaces) -> Option<usize> {
        let [imported_memories, memories, ..] = self.arrays(spaces);
        match (spaces.imported_memories, spaces.memories) {
            (0, 0) => None,
            (0, _) => Some(memories as usize),
            _ => Some(imported_memories as usize),
        }
    }

    /// Where it has global `index`, or the address of the global if that is imported (`true`).
    pub(crate) fn global(&self, spaces: &IndexSpaces, index: u32) -> Option<(usize, bool)> {
        let [_, _, imported_globals, globals] = self.arrays(spaces);
        match index.checked_sub(spaces.imported_globals) {
            None => Some(((imported_globals + self.global_import * index) as usize, true)),
            Some(defined) if defined < spaces.globals => {
                Some(((globals + GLOBAL_DEFINITION * defined) as usize, false))
            }
            Some(_) => None,
        }
    }

    /// Where the arrays begin of imported memories, of addresses of memories, of imported globals and of globals.
    fn arrays(&self, spaces: &IndexSpaces) -> [u32; 4] {
        let mut at = self.fields;
        let mut array = |count: u32, size: u32| {
            let start = at;
            at += count * size;
            start
        };
        let owned = spaces.memories - spaces.shared_memories;
        let (imported_memories, memories, imported_globals);
        if self.memories_first {
            imported_memories = array(spaces.imported_memories, MEMORY_IMPORT);
            memories = array(spaces.memories, POINTER);
            array(owned, MEMORY_DEFINITION);
            array(spaces.imported_functions, self.function_import);
            array(spaces.imported_tables, self.table_import);
            imported_globals = array(spaces.imported_globals, self.global_import);
            array(spaces.imported_tags, self.tag_import);
            array(spaces.tables, TABLE_DEFINITION);
        } else {
            array(spaces.imported_functions, self.function_import);
            array(spaces.imported_tables, self.table_import);
            imported_memories = array(spaces.imported_memories, MEMORY_IMPORT);
            imported_globals = array(spaces.imported_globals, self.global_import);
            array(spaces.tables, TABLE_DEFINITION);
            memories = array(spaces.memories, POINTER);
            array(owned, MEMORY_DEFINITION);
        }
        [imported_memories, memories, imported_globals, at.next_multiple_of(GLOBAL_DEFINITION)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_are_where_they_were_seen() {
        let spaces =
            IndexSpaces { imported_functions: 7, tables: 1, memories: 1, globals: 1, ..IndexSpaces::default() };
        let memory = |release| Layout::of(release).and_then(|layout| layout.first_memory(&spaces));
        // By a debugger in processes of these releases: with seven imported functions and a table.
        assert_eq!((memory(24), memory(38), memory(50)), (Some(272), Some(48), Some(48)));
        assert_eq!((memory(23), memory(51)), (None, None));
    }
}
