//! What sampling needs of an engine.

use wasmtime::Config;

/// Has engines of `config` keep what samples are read with: the map from machine code to wasm's instructions, and the symbols of the
/// machine code, by which the places where wasm is entered and left are found. The code that is compiled stays the same; a compiled
/// module takes more room.
///
/// Everything else is the embedder's: optimization, fuel, epochs, async, pooling. Guests have to be compiled by Cranelift, for the
/// machine that runs them.
pub fn configure(config: &mut Config) {
    config.debug_symbols(true).generate_address_map(true);
}
