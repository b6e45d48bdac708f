//! The Wasmtime engine that guests run on.

use wasmtime::{Cache, Config, Engine, WasmBacktraceDetails};

/// What the engine must be able to do.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// Compile checks into the guest that let the epoch sampler interrupt it. They slow call-heavy code by a half and more.
    pub epoch_interruption: bool,
    /// Keep compiled modules in Wasmtime's cache on disk, as `wasmtime run` does.
    pub cache: bool,
}

/// Makes an engine. Apart from epochs it compiles a guest to the very code that `wasmtime run` would run.
///
/// # Errors
/// Whatever Wasmtime says of this machine.
pub fn engine(options: EngineOptions) -> wasmtime::Result<Engine> {
    Engine::new(&config(options))
}

/// The configuration of [`engine`].
pub fn config(options: EngineOptions) -> Config {
    let mut config = Config::new();
    if options.cache {
        // Without a home directory there is no place for it; that costs time, not the profile.
        config.cache(Cache::from_file(None).ok());
    }
    complete(config, options.epoch_interruption)
}

/// Adds what sampling needs, and nothing that a guest could tell, to what the user wants.
pub(super) fn complete(mut config: Config, epoch_interruption: bool) -> Config {
    if epoch_interruption {
        config.epoch_interruption(true);
    }
    config
        // The sampler finds trampolines by their symbols and offsets by this map.
        .debug_symbols(true)
        .generate_address_map(true)
        // Backtraces are symbolized by wlprof's plugins; Wasmtime would parse DWARF for each.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable);
    config
}
