//! The core modules of a component.

use super::image::ModuleImage;
use super::sections::ImageError;
use wasmtime_environ::wasmparser::{Parser, Payload};

/// The modules that lie in a component, in the order in which Wasmtime numbers them: that of the file, with those of components in it
/// where these lie. `file_name` is what those are called by that carry no name of their own.
///
/// # Errors
/// [`ImageError`] if the bytes are malformed. The component is not validated: that is the engine's part.
pub fn core_modules(component: &[u8], file_name: &str) -> Result<Vec<ModuleImage>, ImageError> {
    let mut modules = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        let Payload::ModuleSection { unchecked_range, .. } = payload.map_err(ImageError::Malformed)? else { continue };
        // Of what is cut short the next payload is an error.
        let Some(bytes) = component.get(unchecked_range.clone()) else { continue };
        let name = format!("{file_name}#{}", modules.len());
        modules.push(ModuleImage::parse_at(bytes.to_vec(), unchecked_range.start as u32, &name)?);
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::ModuleView;

    #[test]
    fn modules_are_in_the_order_of_the_file_through_all_components() {
        let text = r#"(component (core module $first (func nop))
            (component (core module (func)) (component (core module $deep)) (core module $after (func nop nop)))
            (core module $last))"#;
        let bytes = wat::parse_str(text).unwrap();
        let modules = core_modules(&bytes, "x.wasm").unwrap();
        let names: Vec<&str> = modules.iter().map(|module| module.name()).collect();
        assert_eq!(names, ["first", "x.wasm#1", "deep", "after", "last"]);
        // `nop nop end` behind an empty list of locals.
        let after = &modules[3];
        let body = after.function_body(0).unwrap();
        let file_offset = bytes.windows(4).position(|window| window == [0, 1, 1, 0x0b]).unwrap() as u32;
        assert_eq!(after.compiled_code_offset(file_offset), Some(body.start));
        for end in 8..bytes.len() {
            // No cut is a panic.
            let _ = core_modules(&bytes[..end], "x");
        }
        assert!(core_modules(&wat::parse_str("(component)").unwrap(), "x").unwrap().is_empty());
    }
}
