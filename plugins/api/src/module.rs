//! What a plugin may know of a module before it runs.

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

/// Where a member lies in its structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its offset in bytes; for a bit-field, that of the unit that it is stored in.
    pub offset: u64,
    /// Its size in bytes, or that of the unit. 0 for a flexible array.
    pub size: u64,
    /// Which bits of the unit a bit-field is, counted from the lowest; `None` if it is none.
    pub bits: Option<Range<u32>>,
}

/// One core module of the guest, already validated by the engine. Names and custom sections are the guest's and are
/// not to be trusted.
///
/// A language belongs to a memory, and several modules may work on one: a program and its libraries. A walker is attached with
/// one of them, and finds the others in [`ModuleView::siblings`].
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
    /// How the module is called in profiles: its file name, or the name it carries.
    fn name(&self) -> &str;

    /// The whole module in binary form.
    fn bytes(&self) -> &[u8];

    /// Payload of the first custom section of that name. Debug sections that live in a separate file (`--debug-file`
    /// or `external_debug_info`) are found here as well.
    fn custom_section(&self, name: &str) -> Option<&[u8]>;

    /// Functions that the module imports; they take the first indices of the function index space.
    fn function_imports(&self) -> &[FunctionImport];

    /// Where the body of function `index` lies (after its size field), in offsets from the start of the code
    /// section's payload. `None` for an import and past the end.
    fn function_body(&self, index: u32) -> Option<Range<u32>>;

    /// Name of function `index` from the name section, else from an export; undemangled. `None` if it has neither.
    fn function_name(&self, index: u32) -> Option<&str>;

    /// Index of the global that is exported as `name`, or else called so in the name section, or else imported by that name,
    /// whatever it is imported from: `__stack_pointer`; of a library `__memory_base`, where its data begins. `None` if there is
    /// none.
    fn global_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Index of the function that is called `name`, as [`ModuleView::function_name`] has it, or else exported so; the first of
    /// several. `None` if there is none.
    fn function_named(&self, name: &str) -> Option<u32> {
        let _ = name;
        None
    }

    /// Index of the function that is element `element` of table `table` before the module runs, by its active element
    /// segments: what a function pointer is, in table 0 for C. `None` if nothing is there, or where it is is not a constant.
    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        let _ = (table, element);
        None
    }

    /// Fills `buffer` with what the first memory holds at `address` before the guest runs: the bytes of the active data segments
    /// of all modules that work on it, and zeroes where there are none. Segments whose place is not a constant, and passive ones,
    /// are not seen.
    ///
    /// # Errors
    /// [`OutOfBounds`] if any byte lies outside of what that memory begins with; `buffer` is then unspecified.
    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let _ = (address, buffer);
        Err(OutOfBounds)
    }

    /// SHA-256 of the code section's payload. It says which build this is even if names and debug information have been
    /// stripped: what a table of offsets can go by. `None` if whoever shows the module does not know it.
    fn code_hash(&self) -> Option<&[u8; 32]> {
        None
    }

    /// The other modules whose code works on the same memory. The first is number 1 in [`WasmFrame::module`](crate::WasmFrame), the
    /// next number 2, and so on. A sibling has none itself.
    fn siblings(&self) -> Vec<&dyn ModuleView> {
        Vec::new()
    }

    // What follows is answered from the module's DWARF, and `None` without. So a plugin for a runtime that was built with
    // debug information needs no table of offsets, and one that brings a table can check it.

    /// Address in the guest's memory of the global or static variable `name`.
    fn variable_address(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }

    /// Where `member` lies in `structure`, which is the tag of a structure, union or class, or a `typedef` of one. Members
    /// of members are asked for with dots, `header.count`; those of nameless structures and unions like the structure's
    /// own.
    fn member(&self, structure: &str, member: &str) -> Option<Member> {
        let _ = (structure, member);
        None
    }

    /// Size in bytes of the type `name`: a tag, or a `typedef`.
    fn type_size(&self, name: &str) -> Option<u64> {
        let _ = name;
        None
    }

    /// Value of the enumerator `name`.
    fn enumerator(&self, name: &str) -> Option<i64> {
        let _ = name;
        None
    }
}
