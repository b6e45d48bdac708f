//! Tells the interpreter's own functions from the C code that JavaScript programs call: built-in functions, regular
//! expressions, JSON, sorting; and from the garbage collector.
//!
//! All of it is in a few files, so names decide; files only say whose names they are.

use crate::builtin_names::{ALLOCATOR, BUILT_IN, COLLECTOR, INTERPRETER, OF_OBJECTS};
use wlprof_plugin::{Category, SourceFrame};

/// Files of QuickJS's interpreter and libraries.
const NAMED: &[&str] = &["quickjs.c", "quickjs-libc.c", "list.h", "cutils.h", "cutils.c", "quickjs.h"];
/// Those that have nothing but what programs call.
const LIBRARY: &[&str] = &["libregexp.c", "libunicode.c", "dtoa.c", "libbf.c", "libregexp.h", "libunicode.h", "dtoa.h"];
/// The command that runs scripts.
const COMMAND: &[&str] = &["qjs.c", "standalone.c", "repl.c"];
/// Functions that start a program and do nothing else.
const START: &[&str] =
    &["_start", "_start.command_export", "__main_void", "__main_argc_argv", "main", "__wasm_call_ctors"];
/// How names begin that QuickJS's functions have, and hardly any others.
const OWN: &[&str] = &["JS_", "__JS_", "js_", "async_func_", "lre_", "find_own_property", "free_zero_ref"];
/// Its names that other libraries might have, so these must be whole.
const OWN_WHOLE: &[&str] = &[
    "json_free_parse_record",
    "json_free_token",
    "json_next_token",
    "json_parse_error",
    "json_parse_ident",
    "json_parse_number",
    "json_parse_record_add",
    "json_parse_record_find",
    "json_parse_record_init_array",
    "json_parse_record_init_obj",
    "json_parse_record_init_primitive",
    "json_parse_record_resize_hash",
    "json_parse_string",
    "json_parse_value",
];

/// What kind of code a wasm function of a QuickJS is; `None` if it is not known, so whatever is said of it otherwise
/// stands.
pub fn categorize(frame: &SourceFrame) -> Option<Category> {
    let name = frame.function.as_str();
    if START.contains(&name) {
        return Some(Category::Interpreter);
    }
    let Some(file) = frame.file.as_deref() else {
        // Linkers make names unique, compilers mark parts and clones.
        let whole = name.split('.').next().unwrap_or_default();
        let is_own = OWN.iter().chain(COLLECTOR).any(|start| name.starts_with(start)) || OWN_WHOLE.contains(&whole);
        return is_own.then(|| by_name(name));
    };
    let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
    if NAMED.contains(&file) {
        Some(by_name(name))
    } else if LIBRARY.contains(&file) {
        Some(Category::Library)
    } else {
        COMMAND.contains(&file).then_some(Category::Interpreter)
    }
}

fn by_name(name: &str) -> Category {
    let begins = |list: &[&str]| list.iter().any(|start| name.starts_with(start));
    let ends = |list: &[&str]| list.iter().any(|end| name.ends_with(end));
    if begins(COLLECTOR) || ends(OF_OBJECTS) {
        Category::GarbageCollector
    } else if begins(ALLOCATOR) {
        Category::Runtime
    } else if begins(BUILT_IN) && !begins(INTERPRETER) {
        Category::Library
    } else {
        Category::Interpreter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::{GarbageCollector, Interpreter, Library, Runtime};

    #[test]
    fn names_and_files_decide() {
        for (function, file, expected) in [
            ("JS_CallInternal", Some("/quickjs/quickjs.c"), Some(Interpreter)),
            ("js_call_c_function", None, Some(Interpreter)),
            ("js_async_function_resume", None, Some(Interpreter)),
            ("js_array_every", Some("../quickjs.c"), Some(Library)),
            ("js_array_mark", Some("../quickjs.c"), Some(GarbageCollector)),
            ("json_parse_value", Some("quickjs.c"), Some(Library)),
            ("json_parse_value", None, Some(Library)),
            ("json_next_token.llvm.7", None, Some(Library)),
            ("json_load_file", None, None),
            ("gc_scan", None, Some(GarbageCollector)),
            ("gc_of_another", None, None),
            ("lre_exec_backtrack", None, Some(Library)),
            ("cr_add_range", Some("/quickjs/libunicode.c"), Some(Library)),
            ("JS_RunGC", None, Some(GarbageCollector)),
            ("js_malloc_rt", None, Some(Runtime)),
            ("js_std_loop", Some("quickjs-libc.c"), Some(Interpreter)),
            ("js_std_printf", Some("quickjs-libc.c"), Some(Library)),
            ("eval_buf", Some("/quickjs/qjs.c"), Some(Interpreter)),
            ("list_add", Some("/quickjs/list.h"), Some(Interpreter)),
            ("_start", None, Some(Interpreter)),
            ("memcpy", None, None),
            ("js_not_ours", Some("/app/other.c"), None),
        ] {
            let frame =
                SourceFrame { function: function.to_owned(), file: file.map(str::to_owned), ..SourceFrame::default() };
            assert_eq!(categorize(&frame), expected, "{function}");
        }
    }
}
