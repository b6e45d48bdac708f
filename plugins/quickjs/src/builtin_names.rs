//! How the functions of QuickJS are called that are not the interpreter's own: the collector, and what JavaScript programs
//! call, by the beginnings of their names.

/// Those that collect garbage.
pub(crate) const COLLECTOR: &[&str] = &[
    "JS_MarkValue",
    "JS_RunGC",
    "gc_decref",
    "gc_free_cycles",
    "gc_scan",
    "js_trigger_gc",
    "mark_children",
    "free_gc_object",
    "free_cycles",
    "js_weakref_sweep",
];

/// The memory allocator.
pub(crate) const ALLOCATOR: &[&str] = &[
    "js_arena_",
    "js_bytecode_malloc",
    "js_calloc",
    "js_def_calloc",
    "js_def_free",
    "js_def_malloc",
    "js_def_realloc",
    "js_free",
    "js_malloc",
    "js_mallocz",
    "js_realloc",
];

/// Built-in functions, and what they do their work with.
pub(crate) const BUILT_IN: &[&str] = &[
    // Strings and numbers.
    "JS_JSONStringify",
    "JS_ParseJSON",
    "internalize_json_property",
    "js_JSON_",
    "js_atod",
    "js_bigint_",
    "js_dtoa",
    "js_json_",
    "js_math_",
    "js_number_",
    "js_string_",
    "js_sub_string",
    "json_",
    "string_",
    // Regular expressions and Unicode.
    "js_regexp_",
    "lre_",
    "re_",
    "unicode_",
    // Collections.
    "js_array_",
    "js_build_arguments",
    "js_dataview_",
    "js_iterator_",
    "js_map_",
    "js_set_",
    "js_sort_",
    "js_TA_",
    "js_typed_array_",
    "js_uint8array_",
    "js_weakmap_",
    "map_",
    "rqsort",
    // What else there is.
    "get_date_",
    "js_Date_",
    "js_atomics_",
    "js_date_",
    "js_error_",
    "js_finrec_",
    "js_global_",
    "js_object_",
    "js_os_",
    "js_performance_",
    "js_print",
    "js_promise_",
    "js_proxy_",
    "js_reflect_",
    "js_std_",
    "js_symbol_",
    "js_weakref_",
    "set_date_",
];

/// Among the names above, those that are the interpreter's own all the same: they pass calls on, free and mark what there
/// is, or run the program.
pub(crate) const INTERPRETER: &[&str] = &[
    "js_array_buffer_free",
    "js_array_constructor_",
    "js_promise_resolve_function_call",
    "js_promise_resolve_function_create",
    "js_proxy_call",
    "js_std_add_helpers",
    "js_std_await",
    "js_std_dump",
    "js_std_eval",
    "js_std_free",
    "js_std_init",
    "js_std_loop",
    "js_std_promise",
    "js_std_set",
];

/// How names of functions end that the collector calls, or that free objects.
pub(crate) const OF_OBJECTS: &[&str] = &["_finalizer", "_mark"];
