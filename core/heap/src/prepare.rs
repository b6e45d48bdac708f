//! Finds a module's allocator and rewrites it.

use super::allocators::{Allocator, Call, NotRewritten, call_named, names_of_calls};
use super::c_library::{c_library, passes_on};
use super::rewrite::{RewrittenModule, rewrite};
use super::tinygo::tinygo;
use std::collections::BTreeSet;
use std::str::FromStr;
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};

/// An allocator function as the user names it: `malloc=NAME`, or `malloc=INDEX` for a function without a name.
///
/// ```
/// use wlprof_heap::{Call, NamedAllocator};
///
/// let allocator: NamedAllocator = "malloc=my_malloc".parse()?;
/// assert_eq!((allocator.call, &*allocator.function), (Call::Malloc, "my_malloc"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAllocator {
    /// Kind of call.
    pub call: Call,
    /// Name or index of the function.
    pub function: String,
}

impl FromStr for NamedAllocator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (call, function) = text.split_once('=').filter(|(_, function)| !function.is_empty()).ok_or_else(|| {
            format!("expected CALL=FUNCTION, as in malloc=my_malloc or free=17; CALL is one of {}", names_of_calls())
        })?;
        let call = call_named(call).ok_or_else(|| format!("{call} is none of {}", names_of_calls()))?;
        Ok(Self { call, function: function.to_owned() })
    }
}

impl NamedAllocator {
    /// Whether it is no name of a function in `image`, but an index.
    pub(super) fn is_index(&self, image: &ModuleImage) -> bool {
        image.function_named(&self.function).is_none() && self.function.parse::<u32>().is_ok()
    }

    fn find(&self, image: &ModuleImage) -> Result<Allocator, NotRewritten> {
        let named = image.function_named(&self.function);
        let function = named.or_else(|| self.function.parse().ok());
        let function = function.ok_or_else(|| NotRewritten::NotNamed(self.function.clone()))?;
        Ok(Allocator { function, call: self.call, leading_parameters: 0, trailing_parameters: 0 })
    }
}

/// A module that was rewritten, and not yet compiled.
///
/// ```
/// use wlprof_heap::PreparedModule;
/// use wlprof_module::ModuleImage;
/// use wlprof_plugin::ModuleView;
///
/// let text = r#"(module (memory 1) (func $malloc (param i32) (result i32) (local.get 0)))"#;
/// let mut image = ModuleImage::parse(wat::parse_str(text)?, "small.wasm")?;
/// let prepared = PreparedModule::new(&image, &[], None).map_err(|reason| reason.to_string())?;
/// assert!(prepared.bytes().len() > image.bytes().len());
/// // It has been compiled: the image knows from now on what its code was compiled from.
/// let missed = prepared.was_compiled(&mut image);
/// assert!(image.is_rewritten() && missed.iter().any(|note| note.contains("still held")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PreparedModule {
    rewritten: RewrittenModule,
    allocators: Vec<Allocator>,
    missed: Vec<String>,
}

impl PreparedModule {
    /// Rewrites the module of `image` so that it reports its allocations.
    ///
    /// The allocator's functions are those that the user names, or else those that the language knows, or the compiler's, or those
    /// of C's library.
    ///
    /// # Errors
    /// The reason why the module cannot be rewritten.
    pub fn new(
        image: &ModuleImage,
        functions: &[NamedAllocator],
        program: Option<&dyn Program>,
    ) -> Result<Self, NotRewritten> {
        let (mut missed, mut reasons) = (Vec::new(), Vec::new());
        let AllocatorFunctions { mut allocators, are_guessed } = find(image, functions, program, &mut missed)?;
        let rewritten = loop {
            let reason = match rewrite(image.bytes(), &allocators) {
                Ok(rewritten) => break rewritten,
                Err(reason) => reason,
            };
            // It may be another function that has the name by chance.
            let left_out = reason.function().filter(|_| are_guessed).ok_or_else(|| reason.clone())?;
            allocators.retain(|allocator| allocator.function != left_out);
            let name = image.function_name(left_out).unwrap_or("a function");
            missed.push(format!("{name} is left out: {reason}"));
            reasons.push(reason);
            if !allocates(&allocators) {
                return Err(match reasons.len() {
                    1 => reasons.remove(0),
                    _ => NotRewritten::EachLeftOut(reasons),
                });
            }
        };
        missed.extend(without_function(&allocators));
        Ok(Self { rewritten, allocators, missed })
    }

    /// Returns the size in bytes of its allocator's functions, as they are in `image`.
    pub(super) fn code_size(&self, image: &ModuleImage) -> usize {
        let bodies = self.allocators.iter().filter_map(|allocator| image.function_body(allocator.function));
        bodies.map(|body| body.len()).sum()
    }

    /// Returns what is to be compiled.
    pub fn bytes(&self) -> &[u8] {
        &self.rewritten.bytes
    }

    /// Notes in `image` that it was compiled. Returns notes about allocations that will be missed.
    pub fn was_compiled(self, image: &mut ModuleImage) -> Vec<String> {
        let Self { rewritten, allocators, missed } = self;
        let own = allocators.iter().map(|allocator| allocator.function);
        let imported = image.function_imports().len() as u32;
        let defined = (imported..).take_while(|function| image.function_body(*function).is_some());
        let passing = defined.filter(|function| image.function_name(*function).is_some_and(passes_on));
        let allocating: BTreeSet<u32> = own.chain(passing).collect();
        image.set_rewritten(rewritten.offsets, &rewritten.added, allocating);
        missed
    }
}

/// The functions of an allocator.
struct AllocatorFunctions {
    allocators: Vec<Allocator>,
    /// They are known by their names alone.
    are_guessed: bool,
}

/// Whether any of them allocates.
fn allocates(allocators: &[Allocator]) -> bool {
    allocators.iter().any(|allocator| allocator.call != Call::Free)
}

fn find(
    image: &ModuleImage,
    functions: &[NamedAllocator],
    program: Option<&dyn Program>,
    missed: &mut Vec<String>,
) -> Result<AllocatorFunctions, NotRewritten> {
    let named: Vec<Allocator> = functions.iter().map(|function| function.find(image)).collect::<Result<_, _>>()?;
    if !named.is_empty() {
        let named = Some(named).filter(|named| allocates(named)).ok_or(NotRewritten::NoAllocator)?;
        return Ok(AllocatorFunctions { allocators: named, are_guessed: false });
    }
    let of_language = program.map_or_else(Vec::new, |program| program.allocators(image, missed));
    if allocates(&of_language) {
        return Ok(AllocatorFunctions { allocators: of_language, are_guessed: false });
    }
    missed.clear();
    let found = [tinygo(image), c_library(image)].into_iter().find(|found| allocates(found));
    Ok(AllocatorFunctions { allocators: found.ok_or(NotRewritten::NoAllocator)?, are_guessed: true })
}

/// What no function is known for: link-time optimization may have put it into its callers, and who tells of others may leave it out.
fn without_function(allocators: &[Allocator]) -> impl Iterator<Item = String> + '_ {
    let has = move |call: Call| allocators.iter().any(|allocator| allocator.call == call);
    let consequences = [
        (Call::Malloc, "what it allocates is seen as far as other functions do it"),
        (Call::Realloc, "blocks that grow in their places are not seen to"),
        (Call::Free, "all that is allocated counts as still held"),
    ];
    let missing = consequences.into_iter().filter(move |(call, _)| !has(*call));
    let note = |(call, what): (Call, &str)| format!("no function is known that is called as {}: {what}", call.name());
    missing.map(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_named_by_what_they_are_called_like() {
        let named = |text: &str| text.parse::<NamedAllocator>();
        assert_eq!(named("malloc=my"), Ok(NamedAllocator { call: Call::Malloc, function: "my".to_owned() }));
        assert_eq!(named("posix_memalign=7").unwrap().call, Call::PosixMemalign);
        for bad in ["malloc", "malloc=", "mallok=x", ""] {
            assert!(named(bad).unwrap_err().contains("aligned_alloc"), "{bad}");
        }
    }
}
