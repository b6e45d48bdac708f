//! What kind of code a function is, told by its file and its name.
//!
//! Names of allocators and start-up code decide first, then the file; the rest of the name decides only when there is
//! no file. Whatever no rule knows is the user's.

use std::borrow::Cow;
use wlprof_plugin::Category;

/// Functions that are the runtime wherever they come from.
const RUNTIME_NAMES: &[&str] = &[
    // Allocators, by the names that C gives them.
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "malloc_usable_size",
    "sbrk",
    "__libc_malloc",
    "__libc_free",
    "__libc_calloc",
    "__libc_realloc",
    "internal_memalign",
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_dealloc",
    "__rust_realloc",
    "__rg_alloc",
    "__rg_alloc_zeroed",
    "__rg_dealloc",
    "__rg_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_dealloc",
    "__rdl_realloc",
    "__rust_alloc_error_handler",
    "__rust_no_alloc_shim_is_unstable",
    "__cxa_allocate_exception",
    "__cxa_free_exception",
    // Start and end of the program.
    "_start",
    "_initialize",
    "__wasm_call_ctors",
    "__wasm_call_dtors",
    "__wasm_init_memory",
    "__wasm_init_tls",
    "__wasm_apply_data_relocs",
    "__main_void",
    "__wasi_init_tp",
    "exit",
    "_Exit",
    "abort",
    "__funcs_on_exit",
    "__stdio_exit",
    "_start.command_export",
    // Compiler support that is often an alias, which DWARF does not know.
    "__multi3",
    "__netf2",
    "__eqtf2",
    "__lttf2",
    "__letf2",
    "__gttf2",
    "__getf2",
    "__unordtf2",
    // Panics and exceptions.
    "rust_begin_unwind",
    "rust_panic",
    "rust_eh_personality",
    "__rust_start_panic",
    "__rust_panic_cleanup",
    "__rust_drop_panic",
    "__rust_foreign_exception",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_begin_catch",
    "__cxa_end_catch",
    "__assert_fail",
    "__ubsan_handle_type_mismatch",
];

/// How the names of runtime functions begin.
const RUNTIME_PREFIXES: &[&str] = &[
    "dlmalloc",
    "emmalloc",
    "mimalloc::",
    "dlfree",
    "dlcalloc",
    "dlrealloc",
    "operator new",
    "operator delete",
    "__rustc::__rust_",
    "__rustc::__rdl_",
    "__rustc::__rg_",
    "__rustc::rust_",
    "compiler_builtins::",
    "std::rt::lang_start",
    "std::rt::init",
    "std::rt::cleanup",
    "std::panicking::",
    "core::panicking::",
    "std::panic::catch_unwind",
    "rust_panic",
    "std::sys::backtrace::__rust_",
    "std::sys_common::backtrace::__rust_",
    "panic_abort::",
    "panic_unwind::",
    "alloc::alloc::",
    "std::alloc::",
    "__llvm_",
    "__ubsan_",
];

/// How the names of library functions begin, for functions without a file.
const LIBRARY_PREFIXES: &[&str] =
    &["core::", "alloc::", "std::", "hashbrown::", "__cxxabiv1::", "__wasi_", "__wasilibc_", "wasi_"];

/// Library functions of C that often have no DWARF.
const LIBRARY_NAMES: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "strlen",
    "strcmp",
    "strncmp",
    "strcpy",
    "strchr",
    "printf",
    "fprintf",
    "snprintf",
    "vfprintf",
    "vsnprintf",
    "puts",
    "fputs",
    "fwrite",
    "fread",
    "fflush",
    "qsort",
];

/// A rule for paths: every piece must occur.
type PathRule = (&'static [&'static str], Category);

/// The first rule that fits decides. Paths are compared with `/` in front and between.
const PATHS: &[PathRule] = &[
    // Allocators, start-up code and compiler support, before the libraries that carry them.
    (&["/dlmalloc"], Category::Runtime),
    (&["/emmalloc"], Category::Runtime),
    (&["/mimalloc"], Category::Runtime),
    (&["/musl", "/src/malloc/"], Category::Runtime),
    (&["/compiler-rt/"], Category::Runtime),
    (&["/compiler_rt"], Category::Runtime),
    (&["/compiler-builtins"], Category::Runtime),
    (&["/compiler_builtins"], Category::Runtime),
    (&["/crt/crt1"], Category::Runtime),
    (&["/crt1-command.c"], Category::Runtime),
    (&["/crt1-reactor.c"], Category::Runtime),
    (&["/__main_void.c"], Category::Runtime),
    (&["/library/panic_"], Category::Runtime),
    (&["/library/std/src/panicking.rs"], Category::Runtime),
    (&["/library/core/src/panicking.rs"], Category::Runtime),
    (&["/library/std/src/rt.rs"], Category::Runtime),
    (&["/library/std/src/alloc.rs"], Category::Runtime),
    (&["/library/alloc/src/alloc.rs"], Category::Runtime),
    (&["/library/std/src/sys/backtrace.rs"], Category::Runtime),
    (&["/library/std/src/sys_common/backtrace.rs"], Category::Runtime),
    (&["/tinygo", "/src/runtime/", ".go"], Category::Runtime),
    (&["/src/internal/task/", ".go"], Category::Runtime),
    (&["/go/src/runtime/", ".go"], Category::Runtime),
    // Rust.
    (&["/rustc/", "/library/"], Category::Library),
    (&["/library/std/src/"], Category::Library),
    (&["/library/core/src/"], Category::Library),
    (&["/library/alloc/src/"], Category::Library),
    (&["/library/vendor/"], Category::Library),
    (&["/rust/deps/"], Category::Library),
    (&["/.cargo/registry/"], Category::Library),
    (&["/.cargo/git/"], Category::Library),
    (&["/registry/src/"], Category::Library),
    // C++.
    (&["/libcxx"], Category::Library),
    (&["/libc++"], Category::Library),
    (&["/include/c++/"], Category::Library),
    // C.
    (&["/wasi-libc"], Category::Library),
    (&["/wasi-sysroot/"], Category::Library),
    (&["/libc-top-half/"], Category::Library),
    (&["/libc-bottom-half/"], Category::Library),
    (&["/lib/libc/"], Category::Library),
    (&["/musl/"], Category::Library),
    (&["/musl-"], Category::Library),
    // Zig's and Go's own.
    (&["/lib/std/", ".zig"], Category::Library),
    (&["/lib/zig/", ".zig"], Category::Library),
    (&["/lib/c.zig"], Category::Library),
    (&["/lib/c/", ".zig"], Category::Library),
    (&["/tinygo/", "/src/", ".go"], Category::Library),
    (&["/usr/local/go/src/", ".go"], Category::Library),
];

/// The category of `function`, a demangled name, whose code comes from `file`.
pub(crate) fn categorize(function: &str, file: Option<&str>) -> Category {
    if RUNTIME_NAMES.contains(&function) || RUNTIME_PREFIXES.iter().any(|prefix| function.starts_with(prefix)) {
        return Category::Runtime;
    }
    let Some(file) = file else {
        // `<alloc::vec::Vec<T> as core::ops::Drop>::drop`
        let bare = function.trim_start_matches(['<', '&', '*']);
        let library =
            LIBRARY_NAMES.contains(&function) || LIBRARY_PREFIXES.iter().any(|prefix| bare.starts_with(prefix));
        return if library { Category::Library } else { Category::User };
    };
    let path = normal(file);
    let rule = PATHS.iter().find(|(pieces, _)| pieces.iter().all(|piece| path.contains(piece)));
    rule.map_or(Category::User, |&(_, category)| category)
}

fn normal(path: &str) -> Cow<'_, str> {
    if path.starts_with('/') && !path.contains('\\') {
        return Cow::Borrowed(path);
    }
    Cow::Owned(format!("/{}", path.replace('\\', "/").trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::{Library, Runtime, User};

    #[test]
    fn files_decide() {
        let zig = "/v/lib/python3.11/site-packages/ziglang/lib";
        let cases = [
            ("/src/main.c", User),
            ("main.zig", User),
            ("/home/u/zig-project/src/main.zig", User),
            ("/home/u/project/src/runtime/engine.rs", User),
            ("/home/u/go/src/example.com/app/main.go", User),
            ("/src/vector.cpp", User),
            ("/rustc/e408947bfd200af42db322daf0fadfe7e26d3bd1/library/core/src/iter/range.rs", Library),
            ("library/std/src/io/mod.rs", Library),
            ("/usr/src/rustc-1.96.0/library/alloc/src/vec/mod.rs", Library),
            ("/usr/src/rustc-1.96.0/library/vendor/hashbrown-0.15.2/src/raw/mod.rs", Library),
            ("/rust/deps/hashbrown-0.15.2/src/raw/mod.rs", Library),
            ("/home/u/.cargo/registry/src/mirror-1949cf8c6b5b557f/serde-1.0.0/src/lib.rs", Library),
            (r"C:\Users\u\.cargo\registry\src\mirror-1949cf8c6b5b557f\serde-1.0.0\src\lib.rs", Library),
            ("/usr/include/c++/v1/vector", Library),
            ("/wasi-libc/libc-top-half/musl/src/stdio/printf.c", Library),
            ("./musl/src/string/memcpy.c", Library),
            ("/usr/local/go/src/fmt/print.go", Library),
            ("/usr/local/lib/tinygo/src/runtime/gc_blocks.go", Runtime),
            ("/usr/local/lib/tinygo/src/reflect/value.go", Library),
            ("/rust/deps/dlmalloc-0.2.7/src/dlmalloc.rs", Runtime),
            ("/rustc/e408947/library/std/src/panicking.rs", Runtime),
            ("/rustc/e408947/library/std/src/rt.rs", Runtime),
            ("/build/wasi-libc/dlmalloc/src/malloc.c", Runtime),
        ];
        for (file, expected) in cases {
            assert_eq!(categorize("f", Some(file)), expected, "{file}");
        }
        let cases = [
            ("libc/wasi/libc-bottom-half/crt/crt1-command.c", Runtime),
            ("libc/wasi/emmalloc/emmalloc.c", Runtime),
            ("compiler_rt/memcpy.zig", Runtime),
            ("compiler_rt.zig", Runtime),
            ("std/hash_map.zig", Library),
            ("libc/musl/src/stdio/vfprintf.c", Library),
            ("libcxx/include/__algorithm/sort.h", Library),
            ("libcxxabi/src/private_typeinfo.cpp", Library),
            ("c.zig", Library),
        ];
        for (file, expected) in cases {
            assert_eq!(categorize("f", Some(&format!("{zig}/{file}"))), expected, "{file}");
        }
    }

    #[test]
    fn names_decide_without_a_file() {
        let cases = [
            ("main", User),
            ("stdlib_user", User),
            ("wasm-function[7]", User),
            ("<mycrate::Thing as core::fmt::Display>::fmt", User),
            ("<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", Library),
            ("core::fmt::Formatter::pad", Library),
            ("std::__1::vector<int, std::__1::allocator<int> >::push_back(int&&)", Library),
            ("memcpy", Library),
            ("dlmalloc::dlmalloc::Dlmalloc<A>::malloc", Runtime),
            ("std::rt::lang_start::{{closure}}", Runtime),
            ("core::panicking::panic_fmt", Runtime),
            ("operator new(unsigned long)", Runtime),
            ("__rustc::__rust_alloc", Runtime),
        ];
        for (name, expected) in cases {
            assert_eq!(categorize(name, None), expected, "{name}");
        }
    }

    #[test]
    fn allocators_and_start_up_are_the_runtime_in_any_file() {
        for name in ["malloc", "free", "_start", "__wasm_call_ctors", "__rust_alloc", "_initialize"] {
            assert_eq!(categorize(name, Some("/src/main.c")), Runtime, "{name}");
        }
        assert_eq!(categorize("mycrate::Pool::free", Some("/src/pool.rs")), User);
    }
}
