//! Whether a module was compiled from the bytes that somebody says it was.

use super::image::ModuleImage;
use wasmtime::Module;
use wlprof_plugin::ModuleView;

/// Whether the functions of `module` are those of `image`: the same imports, as many functions, and each compiled of what lies where
/// the image has its body. Others' bytes would have the guest's memory and globals be looked for where something else is.
pub(crate) fn was_compiled_from(module: &Module, image: &ModuleImage) -> bool {
    let imports = module.imports().filter(|import| import.ty().func().is_some());
    let imported = image.function_imports();
    if !imports
        .map(|import| (import.module(), import.name()))
        .eq(imported.iter().map(|import| (&*import.module, &*import.name)))
    {
        return false;
    }
    let mut functions: Vec<_> = module.functions().collect();
    functions.sort_by_key(|function| function.offset);
    let after_last = imported.len() as u32 + functions.len() as u32;
    if image.function_body(after_last).is_some() {
        return false;
    }
    let mut rows = module.address_map().into_iter().flatten().peekable();
    functions.iter().all(|function| {
        let index = function.index.as_u32();
        let body = image.function_body(index);
        let end = function.offset + function.len;
        while let Some((_, file_offset)) = rows.next_if(|(at, _)| *at < end) {
            let Some(file_offset) = file_offset else { continue };
            let is_of_image = match image.compiled_code_offset(file_offset) {
                Some(offset) => body.as_ref().is_some_and(|body| body.contains(&offset)),
                None => image.is_rewritten(),
            };
            if !is_of_image {
                return false;
            }
        }
        body.is_some() || image.is_rewritten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::{Config, Engine};

    #[test]
    fn other_bytes_are_told_apart() {
        let engine = Engine::new(Config::new().generate_address_map(true)).unwrap();
        let bytes = |text: &str| wat::parse_str(text).unwrap();
        let image = |text: &str| ModuleImage::parse(bytes(text), "x").unwrap();
        let guest = r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)))"#;
        let module = Module::new(&engine, bytes(guest)).unwrap();
        assert!(was_compiled_from(&module, &image(guest)));
        for other in [
            r#"(module (import "a" "c" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)) (func))"#,
            r#"(module (import "a" "b" (func)) (func) (memory 1) (func (drop (i32.load (i32.const 8))) (call 0)))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (global i32 (i32.const 1)) (func (call 0)))"#,
        ] {
            assert!(!was_compiled_from(&module, &image(other)), "{other}");
        }
    }
}
