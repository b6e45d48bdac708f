//! By which functions QuickJS allocates: it has arenas of its own for small blocks, of which C's library gives out the whole alone.

use wlprof_plugin::{Allocator, AllocatorCall, ModuleView};

/// Their names. The runtime is the first parameter of each.
const NAMES: [(&str, AllocatorCall); 5] = [
    ("js_malloc_rt", AllocatorCall::Malloc),
    ("js_arena_malloc", AllocatorCall::Malloc),
    ("js_calloc_rt", AllocatorCall::Calloc),
    ("js_realloc_rt", AllocatorCall::Realloc),
    ("js_free_rt", AllocatorCall::Free),
];

/// Those that `module` has, if they are enough to see more than C's library: one that allocates and one that frees. To `missed` goes what a compiler
/// may have inlined.
pub(crate) fn find(module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
    let found = NAMES.into_iter().filter_map(|(name, call)| {
        let function = module.function_named(name).filter(|function| module.function_body(*function).is_some())?;
        Some(Allocator { function, call, leading_parameters: 1, trailing_parameters: 0 })
    });
    let found: Vec<Allocator> = found.collect();
    let has = |call| found.iter().any(|allocator| allocator.call == call);
    if !has(AllocatorCall::Malloc) || !has(AllocatorCall::Free) {
        return Vec::new();
    }
    missed.push(
        "QuickJS takes small blocks from arenas, and compilers inline that in places: what is allocated there is not seen".to_owned(),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::testing::TestModule;

    fn found(names: &[&str]) -> (Vec<(u32, AllocatorCall)>, usize) {
        let names: std::collections::HashMap<u32, String> =
            (0..).zip(names.iter().map(|name| (*name).to_owned())).collect();
        let bodies = (0..names.len() as u32).map(|index| index..index + 1).collect();
        let mut missed = Vec::new();
        let found = find(&TestModule { names, bodies, ..TestModule::default() }, &mut missed);
        (found.iter().map(|allocator| (allocator.function, allocator.call)).collect(), missed.len())
    }

    #[test]
    fn what_may_be_inlined_is_told_of() {
        let expected = vec![(1, AllocatorCall::Malloc), (0, AllocatorCall::Free)];
        assert_eq!(found(&["js_free_rt", "js_arena_malloc", "malloc"]), (expected, 1));
        let (all, missed) = found(&["js_free_rt", "js_malloc_rt", "js_arena_malloc", "js_realloc_rt", "js_calloc_rt"]);
        assert_eq!((all.len(), missed), (5, 1));
    }

    #[test]
    fn c_is_better_than_a_half_of_it() {
        assert_eq!(found(&["js_free_rt", "js_realloc_rt", "malloc", "free"]), (vec![], 0));
        assert_eq!(found(&["js_arena_malloc"]), (vec![], 0));
    }

    #[test]
    fn the_fixture_has_them() {
        let mut missed = Vec::new();
        let found = find(&TestModule::fixture("quickjs-0.16"), &mut missed);
        assert_eq!((found.len(), missed.len()), (5, 1));
        assert!(find(&TestModule::fixture("quickjs-0.16-stripped"), &mut missed).is_empty());
    }
}
