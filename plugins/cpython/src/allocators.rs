//! By which functions CPython allocates, where they have no names, or are not those of C's library: by the tables of its allocators' domains,
//! which are in its data.
//!
//! A domain is a `PyMemAllocatorEx`: a context, which is the first argument of each function and NULL in all that CPython brings, and the indices of
//! `malloc`, `calloc`, `realloc` and `free` in the table of functions. The domains of raw memory, memory and objects stand one after the other;
//! 3.12 and later have them in `_PyRuntime`, and once more in what that is set from.

use crate::module::Module;
use wlprof_plugin::{Allocator, AllocatorCall, ModuleView};

const WORD: usize = 4;
/// Words of a domain.
const DOMAIN: usize = 5;
const DOMAINS: usize = 3;
/// What the words after the context are.
const CALLS: [AllocatorCall; 4] =
    [AllocatorCall::Malloc, AllocatorCall::Calloc, AllocatorCall::Realloc, AllocatorCall::Free];

/// The functions of the domain of objects, if the module shows where that is. None where that is the domain of raw memory, too, and C's library,
/// which that passes everything on to, has names: there all of the program's C code is seen.
///
/// Where CPython is built with pymalloc, those of raw memory are others, which pymalloc calls through its table: then they are not among
/// these, since each of its blocks would be two.
pub(crate) fn find(view: &dyn ModuleView) -> Vec<Allocator> {
    let module = Module::read(view.bytes());
    let domains = module.segments.iter().flat_map(|&(start, data)| domains_in(start, data));
    let found = domains.filter_map(|domains| Some((allocators(view, domains.objects)?, domains.has_pymalloc))).next();
    let has_names = || view.function_named("malloc").is_some();
    found.filter(|(_, has_pymalloc)| *has_pymalloc || !has_names()).map_or_else(Vec::new, |(objects, _)| objects)
}

/// What looks like the three domains.
#[derive(Debug, PartialEq, Eq)]
struct Domains {
    /// The functions of the last.
    objects: [u32; 4],
    /// They are not those of raw memory.
    has_pymalloc: bool,
}

/// The domains in a segment.
fn domains_in(start: u32, data: &[u8]) -> impl Iterator<Item = Domains> {
    let first = (WORD - start as usize % WORD) % WORD;
    let words = data.get(first..).unwrap_or_default();
    words.as_chunks::<WORD>().0.windows(DOMAIN * DOMAINS).filter_map(|window| {
        let word = |index: usize| u32::from_le_bytes(window[index]);
        let functions = |domain: usize| std::array::from_fn(|call| word(domain * DOMAIN + 1 + call));
        let has_contexts = (0..DOMAINS).any(|domain| word(domain * DOMAIN) != 0);
        let [raw, memory, objects]: [[u32; 4]; DOMAINS] = std::array::from_fn(functions);
        let are_functions = [raw, objects].iter().all(|functions| functions.iter().all(|function| *function != 0));
        let is_one = !has_contexts && are_functions && memory == objects;
        is_one.then_some(Domains { objects, has_pymalloc: objects != raw })
    })
}

/// The functions at these places of the table, if there are four different ones.
fn allocators(view: &dyn ModuleView, places: [u32; 4]) -> Option<Vec<Allocator>> {
    let mut found: Vec<Allocator> = Vec::new();
    for (place, call) in places.into_iter().zip(CALLS) {
        let function = view.table_function(0, place.into())?;
        if found.iter().any(|other| other.function == function) {
            return None;
        }
        found.push(Allocator { function, call, leading_parameters: 1, trailing_parameters: 0 });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn domains_are_three_with_no_context() {
        let found = |start: u32, words: &[u32]| domains_in(start, &data(words)).collect::<Vec<_>>();
        let domains = |objects: [u32; 4], has_pymalloc: bool| Domains { objects, has_pymalloc };
        let domain = [0, 9, 8, 7, 6];
        let three = [domain, domain, domain].concat();
        assert_eq!(found(0, &three), [domains([9, 8, 7, 6], false)]);
        assert_eq!(found(1024, &[&[5, 5][..], &three, &[1]].concat()), [domains([9, 8, 7, 6], false)]);
        let pymalloc = [[0, 9, 8, 7, 6], [0, 5, 4, 3, 2], [0, 5, 4, 3, 2]].concat();
        assert_eq!(found(0, &pymalloc), [domains([5, 4, 3, 2], true)]);
        assert_eq!(found(0, &[domain, domain, [0, 5, 4, 3, 2]].concat()), []);
        assert_eq!(found(0, &[domain, domain, [1, 9, 8, 7, 6]].concat()), []);
        assert_eq!(found(0, &[domain, domain].concat()), []);
        assert_eq!(found(0, &[0; 40]), []);
    }

    #[test]
    fn segments_need_not_begin_at_a_word() {
        let mut unaligned = vec![7; 3];
        unaligned.extend(data(&[[0, 9, 8, 7, 6]; 3].concat()));
        let objects: Vec<_> = domains_in(1025, &unaligned).map(|domains| domains.objects).collect();
        assert_eq!(objects, [[9, 8, 7, 6]]);
        assert_eq!(domains_in(1, &[0]).count(), 0);
    }
}
