//! The allocator of C's library, as modules that are linked with it have it.

use super::allocators::{AllocatorFunction, Call};
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

/// The functions of C's library by which `module` allocates: those that it defines, as far as they have names.
pub fn c_library(module: &dyn ModuleView) -> Vec<AllocatorFunction> {
    let mut seen = BTreeSet::new();
    let imported = module.function_imports().len() as u32;
    let named = NAMES.iter().filter_map(|(name, call)| Some((module.function_named(name)?, *call)));
    let own = named.filter(|(function, _)| *function >= imported && seen.insert(*function));
    own.map(|(function, call)| AllocatorFunction { function, call }).collect()
}
