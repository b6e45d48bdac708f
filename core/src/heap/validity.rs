//! Whether Wasmtime takes a module or a component as it is: asked before anything is added to it.
//!
//! What is added has indices and names of its own. Code that is invalid, because it uses an index that nothing has, would reach what is
//! added, and run.

use wasmtime::{Engine, Module};
use wasmtime_environ::wasmparser::{Parser, Validator, WasmFeatures};

/// Looks whether `engine` takes this module.
///
/// # Errors
/// Why it does not, in words for the user.
pub(super) fn check_module(engine: &Engine, module: &[u8]) -> Result<(), String> {
    Module::validate(engine, module).map_err(refused)
}

/// Looks whether `engine` takes this component, of which `module` is rewritten. All its other modules are compiled as they are, and so is
/// what is around them: of these the engine says later whether it knows their features.
///
/// # Errors
/// Why it does not, in words for the user.
pub(super) fn check_component(engine: &Engine, component: &[u8], module: &[u8]) -> Result<(), String> {
    check_module(engine, module)?;
    let mut validator = Validator::new_with_features(WasmFeatures::all());
    for payload in Parser::new(0).parse_all(component) {
        // Bodies of functions are left to the engine.
        payload.and_then(|payload| validator.payload(&payload).map(drop)).map_err(refused)?;
    }
    Ok(())
}

fn refused(error: impl std::fmt::Display) -> String {
    format!("Wasmtime does not take it as it is: {error:#}")
}
