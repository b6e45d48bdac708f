//! Tells the interpreter's own functions from C code that Python programs call: extension modules, built-in functions,
//! sorting, arithmetic on large integers, the allocator, the garbage collector.
//!
//! The source file decides, if debug information has it; else the name, as well as it can: functions of CPython's
//! objects have the names of the types before them, those of extension modules mostly not.

use crate::function_names::{COLLECTOR, INTERPRETER, NOT_INTERPRETER, SUPPORT};
use wlprof_plugin::{Category, SourceFrame};

/// Folders of CPython's source, and what is in them.
const FOLDERS: &[(&str, Category)] = &[
    ("Objects", Category::Interpreter),
    ("Parser", Category::Interpreter),
    ("Programs", Category::Interpreter),
    ("Python", Category::Interpreter),
    ("Modules", Category::Library),
    ("_io", Category::Library),
    ("_sre", Category::Library),
];

/// Files that are something else than their folder, by the end of their path.
const FILES: &[(&str, Category)] = &[
    // Where objects are made and freed as well; what collects is known by name.
    ("Modules/gcmodule.c", Category::Runtime),
    ("Python/gc.c", Category::Runtime),
    ("Objects/obmalloc.c", Category::Runtime),
    ("Modules/main.c", Category::Interpreter),
    ("Modules/getpath.c", Category::Interpreter),
    ("Modules/config.c", Category::Interpreter),
    ("Modules/getbuildinfo.c", Category::Interpreter),
];

/// Functions that start a program and do nothing else.
const START: &[&str] =
    &["_start", "_start.command_export", "__main_void", "__main_argc_argv", "main", "__wasm_call_ctors"];

/// Work that is worth showing although it is in the interpreter's folders: how names begin.
const WORK: &[(&str, Category)] = &[
    // Sorting.
    ("list_sort", Category::Library),
    ("merge_at", Category::Library),
    ("merge_lo", Category::Library),
    ("merge_hi", Category::Library),
    ("merge_collapse", Category::Library),
    ("merge_force_collapse", Category::Library),
    ("merge_getmem", Category::Library),
    ("gallop_", Category::Library),
    ("binarysort", Category::Library),
    ("count_run", Category::Library),
    ("unsafe_", Category::Library),
    // Large integers.
    ("k_mul", Category::Library),
    ("k_lopsided_mul", Category::Library),
    ("x_mul", Category::Library),
    ("x_divrem", Category::Library),
    ("long_pow", Category::Library),
    ("long_divrem", Category::Library),
    ("long_to_decimal_string", Category::Library),
    ("long_from_string", Category::Library),
    ("_PyLong_GCD", Category::Library),
    // What starts code of another kind, and so says nothing.
    ("builtin___build_class__", Category::Interpreter),
    ("builtin___import__", Category::Interpreter),
    ("builtin_exec", Category::Interpreter),
    ("builtin_eval", Category::Interpreter),
    ("builtin_", Category::Library),
];

/// What kind of code a wasm function of a CPython is; `None` if it is not known, so whatever is said of it otherwise
/// stands.
pub fn categorize(frame: &SourceFrame) -> Option<Category> {
    let name = frame.function.as_str();
    if START.contains(&name) {
        return Some(Category::Interpreter);
    }
    let work = WORK.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, category)| category);
    match frame.file.as_deref() {
        Some(file) => {
            let category = by_file(file)?;
            if category == Category::Runtime && COLLECTOR.iter().any(|start| name.starts_with(start)) {
                return Some(Category::GarbageCollector);
            }
            if category == Category::Interpreter { work.or(Some(category)) } else { Some(category) }
        }
        None => work.or_else(|| by_name(name)),
    }
}

/// Whether a function only does what another asked for, such as copying memory, wherever it comes from.
pub(crate) fn is_support(name: &str) -> bool {
    SUPPORT.contains(&name)
}

fn by_file(file: &str) -> Option<Category> {
    let parts: Vec<&str> = file.split(['/', '\\']).filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let (_, folders) = parts.split_last()?;
    let normal = parts.join("/");
    let ends_with = |path: &str| normal.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    if let Some(&(_, category)) = FILES.iter().find(|(path, _)| ends_with(path)) {
        return Some(category);
    }
    // Headers have the interpreter's inline functions; `clinic` is generated from the file beside it.
    let folders: Vec<&str> = folders.iter().copied().filter(|folder| *folder != "clinic").collect();
    if folders.contains(&"Include") {
        return Some(Category::Interpreter);
    }
    let of = |folder: &&str| FOLDERS.iter().find(|(known, _)| known == folder).map(|&(_, category)| category);
    // Extension modules have folders of their own below `Modules`, parts of the interpreter below the others.
    folders.iter().rev().take(3).find_map(of)
}

fn by_name(name: &str) -> Option<Category> {
    let begins = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
    if begins(COLLECTOR) {
        return Some(Category::GarbageCollector);
    }
    if begins(NOT_INTERPRETER) || is_support(name) {
        return None;
    }
    // The parser's functions are called after the grammar's rules.
    (begins(INTERPRETER) || name.ends_with("_rule")).then_some(Category::Interpreter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::{GarbageCollector, Interpreter, Library, Runtime};

    fn of(function: &str, file: Option<&str>) -> Option<Category> {
        let file = file.map(str::to_owned);
        categorize(&SourceFrame { function: function.to_owned(), file, ..SourceFrame::default() })
    }

    #[test]
    fn files_decide_where_they_are_known() {
        for (function, file, expected) in [
            ("_PyEval_EvalFrameDefault", "/cpython/Python/ceval.c", Some(Interpreter)),
            ("_Py_NewRef", "/cpython/./Include/object.h", Some(Interpreter)),
            ("_Py_IncRef", "/cpython/Include/internal/pycore_object.h", Some(Interpreter)),
            ("tok_get", "/cpython/Parser/tokenizer.c", Some(Interpreter)),
            ("find_max_char", "/cpython/Objects/stringlib/find_max_char.h", Some(Interpreter)),
            ("list_sort_impl", "/cpython/Objects/listobject.c", Some(Library)),
            ("list_sort", "/cpython/Objects/clinic/listobject.c.h", Some(Library)),
            ("builtin_sum_impl", "/cpython/Python/bltinmodule.c", Some(Library)),
            ("builtin_exec_impl", "/cpython/Python/bltinmodule.c", Some(Interpreter)),
            ("scan_once_unicode", "../src/Modules/_json.c", Some(Library)),
            ("_io_FileIO_write_impl", "/cpython/Modules/_io/fileio.c", Some(Library)),
            ("sre_ucs1_match", "/cpython/Modules/_sre/sre_lib.h", Some(Library)),
            ("update_refs", "/cpython/Modules/gcmodule.c", Some(GarbageCollector)),
            ("update_refs", "/cpython/Python/gc.c", Some(GarbageCollector)),
            ("PyObject_GC_Del", "/cpython/Python/gc.c", Some(Runtime)),
            ("merge_const_one", "/cpython/Python/compile.c", Some(Interpreter)),
            ("_PyMem_RawMalloc", "/cpython/Objects/obmalloc.c", Some(Runtime)),
            ("pymain_run_python", "/cpython/Modules/main.c", Some(Interpreter)),
            ("main", "/cpython/Programs/python.c", Some(Interpreter)),
            ("parse", "/src/extension/parse.c", None),
        ] {
            assert_eq!(of(function, Some(file)), expected, "{function} {file}");
        }
    }

    #[test]
    fn names_decide_where_there_is_no_file() {
        for (function, expected) in [
            ("_PyEval_Vector", Some(Interpreter)),
            ("cfunction_vectorcall_FASTCALL", Some(Interpreter)),
            ("slot_tp_getattr_hook", Some(Interpreter)),
            ("statement_newline_rule", Some(Interpreter)),
            ("_start", Some(Interpreter)),
            ("list_sort_impl", Some(Library)),
            ("builtin_sorted", Some(Library)),
            ("gc_collect_main", Some(GarbageCollector)),
            ("scanner_call", None),
            ("sre_ucs1_match", None),
            ("malloc", None),
            ("memcpy", None),
            ("PyInit_extension", None),
        ] {
            assert_eq!(of(function, None), expected, "{function}");
        }
    }
}
