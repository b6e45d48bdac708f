//! Whether code was compiled from the bytes that somebody says it was.

use super::compiled::{Compiled, GuestCode};
use wasmtime::Module;
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;

/// Whether the functions of the code are those of its modules, and of a module the same imports: see
/// [`MappedImage::was_compiled_from_modules`](wlprof_walk::MappedImage::was_compiled_from_modules).
pub(crate) fn was_compiled_from(code: &GuestCode) -> bool {
    let has_imports = match &code.compiled {
        Compiled::Module(module) => has_imports_of(module, &code.images[0]),
        Compiled::Component(_) => true,
    };
    has_imports && code.mapped_image().was_compiled_from_modules()
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
