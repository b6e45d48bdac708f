//! The allocator of TinyGo's runtime, below which there is no C library, and above it nothing that is called otherwise.

use super::allocators::{Allocator, Call};
use wlprof_plugin::ModuleView;

/// `runtime.alloc(size, layout)`, if `module` defines it. What it gives is freed by a garbage collector, which calls nobody.
pub(super) fn tinygo(module: &dyn ModuleView) -> Vec<Allocator> {
    let imported = module.function_imports().len() as u32;
    let function = module.function_named("runtime.alloc").filter(|function| *function >= imported);
    let alloc = |function| Allocator { function, call: Call::Malloc, leading_parameters: 0, trailing_parameters: 1 };
    function.map(alloc).into_iter().collect()
}
