//! Whether code was compiled from the bytes that somebody says it was.

use super::compiled::{Compiled, GuestCode};
use wasmtime::{Module, ModuleFunction};
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;

/// Whether the functions of the code are those of its modules: as many, each compiled of what lies where its module has its body; and of one
/// that is alone the same imports. Others' bytes would have the guest's memory and globals be looked for where something else is.
pub(crate) fn was_compiled_from(code: &GuestCode) -> bool {
    if let Compiled::Module(module) = &code.compiled
        && !has_imports_of(module, &code.images[0])
    {
        return false;
    }
    let functions = code.compiled.functions();
    let of = |function: &ModuleFunction| code.module_of(function).map(|module| &code.images[module as usize]);
    let mut counts = vec![0; code.images.len()];
    functions.iter().filter_map(|function| code.module_of(function)).for_each(|module| counts[module as usize] += 1);
    if code.images.iter().zip(counts).any(|(image, count)| image.function_body(image.first_body() + count).is_some()) {
        return false;
    }
    let mut rows = code.compiled.address_map().unwrap_or_default().into_iter().peekable();
    functions.iter().all(|function| {
        let end = function.offset + function.len;
        let rows = std::iter::from_fn(|| rows.next_if(|(at, _)| (*at as usize) < end));
        let Some(image) = of(function) else {
            rows.for_each(drop);
            return true;
        };
        let body = image.function_body(function.index.as_u32());
        let is_of_image = |file_offset| match image.compiled_code_offset(file_offset) {
            Some(offset) => body.as_ref().is_some_and(|body| body.contains(&offset)),
            None => image.is_rewritten(),
        };
        let are_all = rows.filter_map(|(_, file_offset)| file_offset).fold(true, |all, row| all & is_of_image(row));
        are_all && (body.is_some() || image.is_rewritten())
    })
}

fn has_imports_of(module: &Module, image: &ModuleImage) -> bool {
    let imports = module.imports().filter(|import| import.ty().func().is_some());
    let imported = image.function_imports().iter();
    imports.map(|import| (import.module(), import.name())).eq(imported.map(|import| (&*import.module, &*import.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wasmtime::{Config, Engine};

    #[test]
    fn other_bytes_are_told_apart() {
        let engine = Engine::new(Config::new().generate_address_map(true)).unwrap();
        let bytes = |text: &str| wat::parse_str(text).unwrap();
        let code = |module: &Module, text: &str| {
            GuestCode::of_module(module.clone(), Arc::new(ModuleImage::parse(bytes(text), "x").unwrap()))
        };
        let guest = r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)))"#;
        let module = Module::new(&engine, bytes(guest)).unwrap();
        assert!(was_compiled_from(&code(&module, guest)));
        for other in [
            r#"(module (import "a" "c" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (func (call 0)) (func))"#,
            r#"(module (import "a" "b" (func)) (func) (memory 1) (func (drop (i32.load (i32.const 8))) (call 0)))"#,
            r#"(module (import "a" "b" (func)) (func (result i32) (i32.load (i32.const 8))) (memory 1) (global i32 (i32.const 1)) (func (call 0)))"#,
        ] {
            assert!(!was_compiled_from(&code(&module, other)), "{other}");
        }
    }
}
