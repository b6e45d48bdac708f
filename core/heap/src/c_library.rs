//! The allocator of C's library, as modules that are linked with it have it, and what stands between it and the code that allocates.

use super::allocators::{Allocator, Call};
use std::collections::BTreeSet;
use wlprof_plugin::ModuleView;

/// By what names its functions go. Aliases of one function have one of its names.
const NAMES: [(&str, Call); 12] = [
    ("malloc", Call::Malloc),
    ("emmalloc_malloc", Call::Malloc),
    ("calloc", Call::Calloc),
    ("emmalloc_calloc", Call::Calloc),
    ("realloc", Call::Realloc),
    ("emmalloc_realloc", Call::Realloc),
    ("aligned_alloc", Call::AlignedAlloc),
    ("memalign", Call::AlignedAlloc),
    ("emmalloc_memalign", Call::AlignedAlloc),
    ("posix_memalign", Call::PosixMemalign),
    ("free", Call::Free),
    ("emmalloc_free", Call::Free),
];

/// Returns the functions of C's library by which `module` allocates: those that it defines and that have names.
pub fn c_library(module: &dyn ModuleView) -> Vec<Allocator> {
    let mut seen = BTreeSet::new();
    let imported = module.function_imports().len() as u32;
    let named = NAMES.iter().filter_map(|(name, call)| Some((module.function_named(name)?, *call)));
    let own = named.filter(|(function, _)| *function >= imported && seen.insert(*function));
    own.map(|(function, call)| Allocator { function, call, leading_parameters: 0, trailing_parameters: 0 }).collect()
}

/// Functions by which C's library passes on what others ask for, as wasi-libc, emmalloc and dlmalloc call them.
const OF_C: [&str; 8] = [
    "sbrk",
    "dlmalloc",
    "dlcalloc",
    "emmalloc_memalign",
    "internal_memalign",
    "claim_more_memory",
    "attempt_allocate",
    "allocate_memory",
];

/// Functions by which C++ and Rust do so, by the beginnings of their names, demangled or not: what follows are parameters.
const PASSING_ON: [&str; 9] = [
    "operator new",
    "_Znw",
    "_Zna",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_alloc",
    "__rdl_realloc",
    "__rg_alloc",
    "__rg_realloc",
];

/// Whether a function of that name passes on what others ask for: who allocates is who calls it.
pub(super) fn passes_on(name: &str) -> bool {
    // As rustc calls what is its own, and as linkers call what is one of several.
    let name = name.strip_prefix("__rustc::").unwrap_or(name);
    let is_mangled_by_rustc = name.starts_with("_R") && name.contains("7___rustc");
    OF_C.contains(&name)
        || PASSING_ON.iter().any(|beginning| name.starts_with(beginning))
        || is_mangled_by_rustc && ["alloc", "realloc", "alloc_zeroed"].iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_passes_on_is_told_from_who_allocates() {
        for name in [
            "operator new(unsigned long)",
            "_Znwm",
            "__rustc::__rust_alloc",
            "sbrk",
            "_RNvCs1_7___rustc12___rust_alloc",
        ] {
            assert!(passes_on(name), "{name}");
        }
        for name in [
            "main",
            "new_thing",
            "alloc::vec::Vec<T>::push",
            "operator delete(void*)",
            "my__rust_alloc",
            "allocate_memory_pool",
        ] {
            assert!(!passes_on(name), "{name}");
        }
    }
}
