//! A guest's module, as far as a plugin may know it before it runs.

use crate::OutOfBounds;
use std::ops::Range;

/// A function that the module imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionImport {
    /// The module part of the import, as in `wasi_snapshot_preview1`.
    pub module: String,
    /// The field part of the import, as in `fd_write`.
    pub name: String,
}

/// The place of a member in its structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset in bytes; for a bit-field, that of the unit that it is stored in.
    pub offset: u64,
    /// Size in bytes; for a bit-field, that of the unit. 0 for a flexible array.
    pub size: u64,
    /// Bits of the unit that a bit-field takes, counted from the lowest. `None` for other members.
    pub bits: Option<Range<u32>>,
}

/// A core module of the guest, already validated by the engine. Names and custom sections are the guest's and are not to be trusted.
///
/// A language belongs to a memory, and several modules may work on one: a program and its libraries. A walker is attached with one of them,
/// and finds the others in [`ModuleView::siblings`].
///
/// ```
/// use wlprof_plugin::ModuleView;
///
/// /// The address of the variable in which the runtime keeps its state.
/// fn state(module: &dyn ModuleView) -> Option<u64> {
///     module.variable_address("runtime_state")
/// }
/// ```
pub trait ModuleView {
    /// Returns the module's name in profiles: its file name, or the name that it carries.
    fn name(&self) -> &str;

    /// Returns the whole module in binary form.
    fn bytes(&self) -> &[u8];

    /// Returns the payload of the first custom section of that name.
    ///
    /// Debug sections in a separate file (`--debug-file` or `external_debug_info`) are found here as well.
    fn custom_section(&self, name: &str) -> Option<&[u8]>;

    /// Returns the functions that the module imports. They take the first indices of the function index space.
    fn function_imports(&self) -> &[FunctionImport];

    /// Returns where the body of function `index` lies, after its size field. `None` for an import and past the end.
    ///
    /// Offsets count from the start of the code section's payload.
    fn function_body(&self, index: u32) -> Option<Range<u32>>;

    /// Returns the name of function `index` from the name section, or else from an export, not demangled. `None` if it has neither.
    fn function_name(&self, index: u32) -> Option<&str>;

    /// Returns the index of the global that is exported as `name`, or else has that name in the name section, or else is imported by it.
    ///
    /// The module that it is imported from does not matter. Examples are `__stack_pointer`, and `__memory_base` of a library, where its
    /// data begins. `None` if there is none.
    fn global_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Returns the index of the function that is called `name`, as [`ModuleView::function_name`] has it, or else is exported so.
    ///
    /// Of several it is the first. `None` if there is none.
    fn function_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Returns the index of the function that is element `element` of table `table` before the module runs.
    ///
    /// The active element segments say so. In C, function pointers are elements of table 0. `None` if nothing is there, or if its place is
    /// not a constant.
    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        let _ = (table, element);
        None
    }

    /// Fills `buffer` with what the first memory holds at `address` before the guest runs.
    ///
    /// These are the bytes of the active data segments of all modules that work on it, and zeroes elsewhere. Passive segments are not seen,
    /// nor are segments whose place is not a constant.
    ///
    /// # Errors
    /// [`OutOfBounds`] if any byte lies outside the memory's initial size; `buffer` is then unspecified.
    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let _ = (address, buffer);
        Err(OutOfBounds)
    }

    /// Returns the SHA-256 of the code section's payload. `None` if it is not known here.
    ///
    /// It identifies a build even if names and debug information have been stripped. Tables of offsets can go by it.
    fn code_hash(&self) -> Option<&[u8; 32]> {
        None
    }

    /// Returns the other modules whose code works on the same memory.
    ///
    /// The first is number 1 in [`WasmFrame::module`](crate::WasmFrame), the next number 2, and so on. A sibling has none itself.
    fn siblings(&self) -> Vec<&dyn ModuleView> {
        Vec::new()
    }

    // What follows is answered from the module's DWARF, and `None` without. So a plugin for a runtime that was built with
    // debug information needs no table of offsets, and one that brings a table can check it.

    /// Returns the address in the guest's memory of the global or static variable `name`.
    fn variable_address(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }

    /// Returns the place of `member` in `structure`: the tag of a structure, union or class, or a `typedef` of one.
    ///
    /// Members of members have dots in their names: `header.count`. Members of nameless structures and unions are named like the
    /// structure's own.
    fn member(&self, structure: &str, member: &str) -> Option<Member> {
        let _ = (structure, member);
        None
    }

    /// Returns the size in bytes of the type `name`: a tag, or a `typedef`.
    fn type_size(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }

    /// Returns the value of the enumerator `name`.
    fn enumerator(&self, name: &str) -> Option<i64> {
        let _ = name;
        None
    }
}
