//! The allocator of TinyGo's runtime, below which there is no C library, and above it nothing that is called otherwise.

use super::allocators::{Allocator, Call};
use super::parsed::ModuleParts;
use wlprof_plugin::ModuleView;

/// `runtime.alloc(size, layout)`, if `module` defines it; its compiler leaves out a `layout` that nobody looks at. What it gives is freed
/// by a garbage collector, which calls nobody.
pub(super) fn tinygo(module: &dyn ModuleView) -> Vec<Allocator> {
    let alloc = || {
        let function = module.function_named("runtime.alloc")?;
        let parsed = ModuleParts::read(module.bytes()).ok()?;
        let (parameters, _) = parsed.signature(parsed.defined(function).ok()?)?;
        let trailing_parameters = (parameters.len() as u32).checked_sub(Call::Malloc.parameters())?;
        Some(Allocator { function, call: Call::Malloc, leading_parameters: 0, trailing_parameters })
    };
    alloc().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite;
    use wlprof_module::ModuleImage;

    #[test]
    fn it_is_found_with_and_without_what_its_collector_should_know() {
        for (parameters, trailing) in [("i32", Some(0)), ("i32 i32", Some(1)), ("", None)] {
            let text = format!(
                r#"(module (memory 1) (func (export "malloc") (param i32) (result i32) (i32.const 8))
                    (func $runtime.alloc (param {parameters}) (result i32) (i32.const 8)))"#
            );
            let image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
            let found = tinygo(&image);
            let expected = trailing.map(|trailing| (1, trailing));
            assert_eq!(
                found.first().map(|found| (found.function, found.trailing_parameters)),
                expected,
                "{parameters}"
            );
            assert!(rewrite(image.bytes(), &found).is_ok());
        }
    }
}
