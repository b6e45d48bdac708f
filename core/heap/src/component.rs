//! Rewrites one module of a component.

use super::allocators::NotRewritten;
use super::prepare::{NamedAllocator, PreparedModule};
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::Range;
use wasm_encoder::{RawSection, Section};
use wasmparser::BinaryReader;
use wlprof_module::{ModuleImage, core_module_ranges};
use wlprof_plugin::ModuleView;

/// The section of a component that holds a component.
const COMPONENT: u8 = 4;

/// The bytes before the first section.
const HEADER: usize = 8;

/// How deep a module may lie in components within each other: what is around it is written again at each.
const MAX_NESTING: usize = 100;

/// A component of which one module was rewritten, and not yet compiled.
///
/// ```
/// use wlprof_heap::PreparedComponent;
/// use wlprof_module::core_modules;
///
/// let component = wat::parse_str("(component (core module $none))")?;
/// let images = core_modules(&component, "small.wasm")?;
/// let reason = PreparedComponent::new(&images, &[]).map(drop).unwrap_err();
/// assert!(reason.contains("allocator"), "{reason}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PreparedComponent {
    number: usize,
    module: PreparedModule,
    notes: Vec<String>,
}

impl PreparedComponent {
    /// Rewrites one of a component's modules as [`PreparedModule::new`] does.
    ///
    /// That is the first that has an allocator. The allocator's functions are those that the user names, or the compiler's, or those of C's
    /// library. `images` are those of the modules, in order. A store has one heap, so other modules with allocators are left as they are, and
    /// a note names them.
    ///
    /// An index that the user gives may be of a function in any module. A note says for which module it was used.
    ///
    /// # Errors
    /// The reason why the component cannot be rewritten, in words for the user.
    pub fn new(images: &[ModuleImage], functions: &[NamedAllocator]) -> Result<Self, String> {
        let mut prepared = BTreeMap::new();
        let (mut refused, mut not_named) = (None, None);
        for (number, image) in images.iter().enumerate().filter(|(_, image)| !image.is_glue()) {
            match PreparedModule::new(image, functions, None) {
                Ok(module) => _ = prepared.insert(number, module),
                Err(NotRewritten::NoAllocator) => {}
                // A user names functions of one of them.
                Err(NotRewritten::NotNamed(name)) => not_named = Some(NotRewritten::NotNamed(name)),
                Err(reason) => _ = refused.get_or_insert_with(|| format!("{}: {reason}", image.name())),
            }
        }
        // A library's functions may have others of their names before them, which pass calls on.
        let sizes: BTreeMap<usize, usize> =
            prepared.iter().map(|(number, module)| (*number, module.code_size(&images[*number]))).collect();
        let passes_on = |number: &usize| {
            let mut siblings = images[*number].siblings().iter();
            siblings.any(|sibling| sizes.get(&(*sibling as usize)) > sizes.get(number))
        };
        prepared.retain(|number, _| !passes_on(number));
        let Some((number, module)) = prepared.pop_first() else {
            return Err(refused.unwrap_or_else(|| not_named.unwrap_or(NotRewritten::NoAllocator).to_string()));
        };
        let name = images[number].name();
        let others: Vec<&str> = prepared.keys().map(|other| images[*other].name()).collect();
        let apart = (!others.is_empty()).then(|| {
            format!("of its modules, what {name} allocates is profiled; these allocate, too: {}", others.join(", "))
        });
        let by_index = functions.iter().find(|named| named.is_index(&images[number]));
        let by_index = by_index.map(|NamedAllocator { call, function }| {
            format!(
                "{}={function} is taken for a function of {name}, the first of the component's modules that it can be of",
                call.name()
            )
        });
        Ok(Self { number, module, notes: apart.into_iter().chain(by_index).collect() })
    }

    /// Returns the number of the module that was rewritten.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the bytes to compile, which are those of `component` with the module in them, and where its modules begin there.
    ///
    /// # Errors
    /// The reason why it cannot be put together again, in words for the user.
    pub fn bytes(&self, component: &[u8], images: &[ModuleImage]) -> Result<(Vec<u8>, Vec<Range<usize>>), String> {
        let unread = |error: &dyn std::fmt::Display| format!("it cannot be put together again: {error}");
        let changed = with_module(component, &images[self.number].file_range(), self.module.bytes());
        let changed = changed.map_err(|error| unread(&error))?;
        let ranges = core_module_ranges(&changed).map_err(|error| unread(&error))?;
        Ok((changed, ranges))
    }

    /// Notes in `images` that they were compiled, from these ranges of the component. Returns notes about allocations that will be missed.
    pub fn was_compiled(self, images: &mut [ModuleImage], ranges: Vec<Range<usize>>) -> Vec<String> {
        for (image, range) in images.iter_mut().zip(ranges) {
            image.set_compiled_start(range.start as u32);
        }
        let missed = self.module.was_compiled(&mut images[self.number]);
        self.notes.into_iter().chain(missed).collect()
    }
}

/// The component with another module where one is now.
fn with_module(component: &[u8], module: &Range<usize>, other: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut changed = Vec::with_capacity(component.len() + other.len());
    replace(component, 0, MAX_NESTING, module, other, &mut changed)?;
    Ok(changed)
}

/// Appends to `out` the component of these bytes, which begins at `start` in the whole, with what is at `module` replaced. That lies in `depth`
/// components in this one at most.
fn replace(
    component: &[u8],
    start: usize,
    depth: usize,
    module: &Range<usize>,
    other: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let mut reader = BinaryReader::new(component, start);
    out.extend_from_slice(reader.read_bytes(HEADER)?);
    while !reader.eof() {
        let id = reader.read_u8()?;
        let size = reader.read_var_u32()? as usize;
        let range = reader.original_position()..reader.original_position() + size;
        let data = reader.read_bytes(size)?;
        let mut inner = Vec::new();
        let data = if range == *module {
            other
        } else if id == COMPONENT && range.contains(&module.start) {
            let depth = depth.checked_sub(1).ok_or("there are too many components within each other")?;
            replace(data, range.start, depth, module, other, &mut inner)?;
            &inner
        } else {
            data
        };
        RawSection { id, data }.append_to(out);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_module::core_modules;

    const TEXT: &str = r#"(component (core module $first (func nop))
        (component (core module $a (func)) (component (core module $deep (func nop nop))) (core module $b))
        (core module $last (func nop nop nop)))"#;

    #[test]
    fn one_module_is_another_and_all_else_is_as_it_was() {
        let component = wat::parse_str(TEXT).unwrap();
        let other = wat::parse_str(format!("(module $other (data \"{}\"))", "x".repeat(300))).unwrap();
        let ranges = core_module_ranges(&component).unwrap();
        for (number, range) in ranges.iter().enumerate() {
            let bytes = with_module(&component, range, &other).unwrap();
            let changed = core_modules(&bytes, "x").unwrap();
            for (index, (module, range)) in changed.iter().zip(&ranges).enumerate() {
                let expected = if index == number { &other[..] } else { &component[range.clone()] };
                assert_eq!(module.bytes(), expected, "{index} of the one with {number} replaced");
            }
            let back = with_module(&bytes, &changed[number].file_range(), &component[range.clone()]).unwrap();
            assert_eq!(back, component);
        }
        let nested = (0..2 * MAX_NESTING).fold(wat::parse_str("(component (core module))").unwrap(), |inner, _| {
            let mut outer = inner[..HEADER].to_vec();
            RawSection { id: COMPONENT, data: &inner }.append_to(&mut outer);
            outer
        });
        let deep = core_module_ranges(&nested).unwrap();
        assert!(with_module(&nested, &deep[0], &other).is_err());
        for end in 0..component.len() {
            // No cut is a panic.
            let _ = with_module(&component[..end], &ranges[2], &other);
        }
    }

    #[test]
    fn an_index_is_told_of_and_a_name_is_not() {
        let text = r#"(component (core module $none (func (export "f"))) (core module $first (memory 1)
            (func (param i32) (result i32) (local.get 0)) (func $mine (param i32) (result i32) (local.get 0))))"#;
        let component = wat::parse_str(text).unwrap();
        let notes = |function: &str| {
            let mut images = core_modules(&component, "x").unwrap();
            let named = [function.parse().unwrap()];
            let prepared = PreparedComponent::new(&images, &named).unwrap();
            let (_, ranges) = prepared.bytes(&component, &images).unwrap();
            prepared.was_compiled(&mut images, ranges)
        };
        let of_first = "malloc=1 is taken for a function of first,";
        assert!(notes("malloc=1").iter().any(|note| note.starts_with(of_first)), "{:?}", notes("malloc=1"));
        assert!(!notes("malloc=mine").iter().any(|note| note.contains("is taken for")), "{:?}", notes("malloc=mine"));
    }
}
