//! What DWARF says of three places: `_PyRuntime`, `Py_Version` and the interpreter's loop.

use crate::module::EVAL;
use wlprof_dwarf::Layout;
use wlprof_plugin::ModuleView;

/// The files in which the three are defined.
const FILES: [&str; 3] = ["pylifecycle.c", "getversion.c", "ceval.c"];

/// Addresses that DWARF knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    /// Where `_PyRuntime` is.
    pub(crate) runtime: Option<u32>,
    /// Where `Py_Version` is.
    pub(crate) version: Option<u32>,
    /// Where the body of `_PyEval_EvalFrameDefault` is, as an offset in the code section.
    pub(crate) eval: Option<u32>,
}

/// Reads as much of the debug information as can be read.
pub(crate) fn variables(view: &dyn ModuleView) -> Variables {
    let Some(layout) = Layout::of_files(view, &FILES) else { return Variables::default() };
    let narrow = |address: Option<u64>| address.and_then(|address| u32::try_from(address).ok());
    Variables {
        runtime: narrow(layout.variable_address("_PyRuntime")),
        version: narrow(layout.variable_address("Py_Version")),
        eval: narrow(layout.function_start(EVAL)),
    }
}
