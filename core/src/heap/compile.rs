//! Compiles modules and components that are rewritten, so that they report their allocations.

use super::validity::{check_component, check_module};
use wasmtime::component::Component;
use wasmtime::{Engine, Module};
use wlprof_heap::{NamedAllocator, PreparedComponent, PreparedModule};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};

/// Compiles the module of `image` so that it reports its allocations: see [`PreparedModule::new`].
///
/// Also returns notes about allocations that will be missed.
///
/// # Errors
/// The reason why the module is not rewritten, in words for the user. `image` is then unchanged.
pub fn compile(
    engine: &Engine,
    image: &mut ModuleImage,
    functions: &[NamedAllocator],
    program: Option<&dyn Program>,
) -> Result<(Module, Vec<String>), String> {
    let prepared = PreparedModule::new(image, functions, program).map_err(|reason| reason.to_string())?;
    check_module(engine, image.bytes())?;
    // Engines may allow one memory, or one table, alone.
    let module = Module::from_binary(engine, prepared.bytes()).map_err(cannot_be_compiled)?;
    Ok((module, prepared.was_compiled(image)))
}

/// Compiles a component as [`compile`] does a module: see [`PreparedComponent::new`].
///
/// # Errors
/// The reason why the component is not rewritten, in words for the user. `images` are then unchanged.
pub fn compile_component(
    engine: &Engine,
    component: &[u8],
    images: &mut [ModuleImage],
    functions: &[NamedAllocator],
) -> Result<(Component, Vec<String>), String> {
    let prepared = PreparedComponent::new(images, functions)?;
    check_component(engine, component, images[prepared.number()].bytes())?;
    let (bytes, ranges) = prepared.bytes(component, images)?;
    let compiled = Component::from_binary(engine, &bytes).map_err(cannot_be_compiled)?;
    Ok((compiled, prepared.was_compiled(images, ranges)))
}

fn cannot_be_compiled(error: wasmtime::Error) -> String {
    format!("it cannot be compiled with what that takes: {error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_heap::{Call, NotRewritten};

    #[test]
    fn a_module_without_an_allocator_is_left_as_it_was() {
        let text = r#"(module (memory 1) (func $f (param i32) (result i32) (local.get 0)) (func $g (param i32)))"#;
        let engine = Engine::default();
        let mut image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        let by = |image: &mut ModuleImage, functions: &[&str]| {
            let named: Vec<NamedAllocator> = functions.iter().map(|text| text.parse().unwrap()).collect();
            compile(&engine, image, &named, None).map(|(_, notes)| notes)
        };
        for (functions, reason) in [
            (&[][..], NotRewritten::NoAllocator),
            (&["free=g"], NotRewritten::NoAllocator),
            (&["malloc=h"], NotRewritten::NotNamed("h".to_owned())),
            (&["malloc=9"], NotRewritten::NoFunction(9)),
            (&["malloc=1"], NotRewritten::Signature(1, Call::Malloc)),
            (&["malloc=f", "calloc=f"], NotRewritten::Twice(0)),
        ] {
            assert_eq!(by(&mut image, functions), Err(reason.to_string()), "{functions:?}");
            assert!(!image.is_rewritten());
        }
        let notes = by(&mut image, &["malloc=0"]).unwrap();
        assert!(image.is_rewritten() && image.allocates(0) && !image.allocates(1));
        assert!(notes.len() == 2 && notes[1].contains("still held"), "{notes:?}");
    }

    #[test]
    fn an_engine_that_allows_one_memory_alone_says_so() {
        let mut config = wasmtime::Config::new();
        config.wasm_multi_memory(false);
        let engine = Engine::new(&config).unwrap();
        let text = r#"(module (memory 1) (func $malloc (param i32) (result i32) (local.get 0)))"#;
        let mut image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        let error = compile(&engine, &mut image, &[], None).unwrap_err();
        assert!(error.contains("memories") && !image.is_rewritten(), "{error}");
    }
}
