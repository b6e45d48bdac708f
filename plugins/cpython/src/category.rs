//! Tells the interpreter's own functions from C code that Python programs call: extension modules, built-in functions,
//! sorting, arithmetic on large integers, the allocator, the garbage collector.
//!
//! The source file decides, if debug information has it; else the name, as well as it can: functions of CPython's
//! objects have the names of the types before them, those of extension modules mostly not.

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
    ("Modules/gcmodule.c", Category::GarbageCollector),
    ("Python/gc.c", Category::GarbageCollector),
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
    ("merge_", Category::Library),
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

/// How the names of the collector's functions begin, of 3.11 to 3.14.
const COLLECTOR: &[&str] = &[
    "gc_collect",
    "deduce_unreachable",
    "update_refs",
    "subtract_refs",
    "move_unreachable",
    "move_legacy_finalizer",
    "visit_decref",
    "visit_reachable",
    "untrack_tuples",
    "handle_weakrefs",
    "finalize_garbage",
    "delete_garbage",
    "handle_resurrected_objects",
    "mark_all_reachable",
    "visit_add_to_container",
    "PyGC_Collect",
    "_PyGC_Collect",
    "_Py_RunGC",
    "_Py_HandlePending_gc",
    "gc_generation",
    "gc_set_threshold",
];

/// How the names of the interpreter's functions begin, for modules without debug information.
const INTERPRETER: &[&str] = &[
    "Py",
    "_Py",
    "_TAIL_CALL_",
    "BaseException_",
    "abstract_",
    "add_ast",
    "assemble",
    "ast_",
    "astfold_",
    "basicblock_",
    "binary_op",
    "bool_",
    "cell_",
    "cfunction_",
    "check_",
    "class_",
    "classmethod_",
    "clear_",
    "cm_",
    "code_",
    "codegen_",
    "compiler_",
    "coro_",
    "dict",
    "do_call_core",
    "do_raise",
    "ensure_",
    "enum_",
    "eval_",
    "exec_code_in_module",
    "find_name_in_mro",
    "float_",
    "fold_",
    "frame_",
    "free_",
    "func_",
    "function_",
    "gen_",
    "getset_",
    "imp_",
    "import_",
    "init_",
    "initialize_",
    "insertdict",
    "interpreter_",
    "intern_",
    "list_",
    "listiter_",
    "long_",
    "lookdict",
    "map_next",
    "maybe_",
    "member_",
    "meth_",
    "method_",
    "module_",
    "new_",
    "object_",
    "optimize_",
    "partial_vectorcall_fallback",
    "property_",
    "proxy_",
    "py",
    "r_object",
    "r_",
    "range",
    "recursive_",
    "richcmp",
    "run_",
    "set_",
    "slot_",
    "staticmethod_",
    "subtype_",
    "super_",
    "symtable_",
    "tb_",
    "tok_",
    "token",
    "tuple",
    "type_",
    "unicode_",
    "unpack_iterable",
    "vgetargs",
    "visit_",
    "wrap_",
    "wrapper_",
    "zip_",
];

/// Names that a prefix above would take along.
const NOT_INTERPRETER: &[&str] = &["PyInit_", "pyexpat_", "pysqlite_", "set_add_", "init_method"];

/// Functions of C that anything may call.
const SUPPORT: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "dlmalloc",
    "dlfree",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "strlen",
    "strcmp",
    "strchr",
    "emmalloc_memalign",
    "allocate_memory",
    "__multi3",
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
            ("_PyMem_RawMalloc", "/cpython/Objects/obmalloc.c", Some(Runtime)),
            ("pymain_run_python", "/cpython/Modules/main.c", Some(Interpreter)),
            ("main", "/cpython/Programs/python.c", Some(Interpreter)),
            ("parse", "/work/extension/src/parse.c", None),
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
