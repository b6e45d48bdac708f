//! What a plugin may know of a module before it runs.

use std::ops::Range;

/// A function that the module imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionImport {
    /// The module part of the import, as in `wasi_snapshot_preview1`.
    pub module: String,
    /// The field part of the import, as in `fd_write`.
    pub name: String,
}

/// One core module of the guest, already validated by the engine. Names and custom sections are the guest's and are
/// not to be trusted.
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
}
