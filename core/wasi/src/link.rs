//! What a guest can import: WASI preview 1 for modules, WASI 0.2 and 0.3 for components.

use super::flags::Flags;
use super::state::GuestState;
use wasmtime::component::Linker as ComponentLinker;
use wasmtime::{Engine, Instance, Linker, Module, Store};

/// A linker with WASI preview 1, and with `wasi_unstable`, as its drafts were called: old compilers import that.
///
/// # Errors
/// Never in practice: the names are added once.
pub fn linker(engine: &Engine, flags: &Flags) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    linker.allow_unknown_exports(flags.wasm.unknown_exports_allow == Some(true));
    if flags.has_cli() != Some(false) {
        if flags.wasi.preview0 != Some(false) {
            wasmtime_wasi::p0::add_to_linker_sync(&mut linker, |state: &mut GuestState| &mut state.wasi)?;
        }
        wasmtime_wasi::p1::add_to_linker_sync(&mut linker, |state: &mut GuestState| &mut state.wasi)?;
    }
    Ok(linker)
}

/// Instantiates a module with what `linker` has; what it lacks besides is made up where that is allowed.
///
/// # Errors
/// What its start function ended with, or what cannot be made up.
pub fn instantiate(
    mut linker: Linker<GuestState>,
    store: &mut Store<GuestState>,
    module: &Module,
    flags: &Flags,
) -> wasmtime::Result<Instance> {
    if flags.wasm.unknown_imports_trap == Some(true) {
        linker.define_unknown_imports_as_traps(module)?;
    }
    if flags.wasm.unknown_imports_default == Some(true) {
        linker.define_unknown_imports_as_default_values(&mut *store, module)?;
    }
    linker.instantiate(store, module)
}

/// A linker of components with WASI 0.2 and 0.3, and with `wasi:http` where that is allowed.
///
/// # Errors
/// Never in practice: the names are added once.
pub fn component_linker(engine: &Engine, flags: &Flags) -> wasmtime::Result<ComponentLinker<GuestState>> {
    let mut linker = ComponentLinker::new(engine);
    if flags.has_cli() != Some(false) {
        add_programs(&mut linker, flags)?;
    }
    if flags.wasi.http == Some(true) {
        add_http(&mut linker, flags)?;
    }
    Ok(linker)
}

/// A linker of components that answer requests: with `wasi:http` and what comes with it, and with all that programs have if that is asked for
/// (`-S cli`).
///
/// # Errors
/// Never in practice: the names are added once.
pub(super) fn handler_linker(engine: &Engine, flags: &Flags) -> wasmtime::Result<ComponentLinker<GuestState>> {
    let mut linker = ComponentLinker::new(engine);
    if flags.has_cli() == Some(true) {
        add_programs(&mut linker, flags)?;
        add_http(&mut linker, flags)?;
        return Ok(linker);
    }
    wasmtime_wasi_http::p2::add_to_linker_async(&mut linker)?;
    if flags.has_p3() {
        wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
        wasmtime_wasi::p3::clocks::add_to_linker(&mut linker)?;
        wasmtime_wasi::p3::random::add_to_linker(&mut linker)?;
        wasmtime_wasi::p3::cli::add_to_linker(&mut linker)?;
    }
    Ok(linker)
}

/// The patch releases of an interface that are looked for. Wasmtime takes any of them for any other.
const PATCHES: std::ops::RangeInclusive<u64> = 0..=99;

/// Whether `linker` has a function, of an interface or of none. A release that Wasmtime would take for the one that is asked for will do.
pub(super) fn provides(linker: &ComponentLinker<GuestState>, interface: Option<&str>, function: &str) -> bool {
    // Nothing says what a linker has, except that it refuses to define it once more.
    let mut linker = linker.clone();
    linker.allow_shadowing(false);
    let Some(interface) = interface else {
        return linker.root().func_new(function, |_, _, _, _| Ok(())).is_err();
    };
    let mut has = |interface: &str| {
        let instance = linker.instance(interface);
        instance.is_ok_and(|mut instance| instance.func_new(function, |_, _, _, _| Ok(())).is_err())
    };
    let is_patch = |patch: &str| patch.bytes().all(|byte| byte.is_ascii_digit());
    match interface.rsplit_once('.') {
        Some((release, patch)) if release.contains("@0.") && is_patch(patch) => {
            PATCHES.into_iter().any(|patch| has(&format!("{release}.{patch}")))
        }
        _ => has(interface),
    }
}

/// Adds what programs import.
fn add_programs(linker: &mut ComponentLinker<GuestState>, flags: &Flags) -> wasmtime::Result<()> {
    let mut options = wasmtime_wasi::p2::bindings::LinkOptions::default();
    options.network_error_code(flags.wasi.network_error_code == Some(true));
    wasmtime_wasi::p2::add_to_linker_with_options_async(linker, &options)?;
    if flags.has_p3() {
        wasmtime_wasi::p3::add_to_linker(linker)?;
    }
    Ok(())
}

fn add_http(linker: &mut ComponentLinker<GuestState>, flags: &Flags) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    if flags.has_p3() {
        wasmtime_wasi_http::p3::add_to_linker(linker)?;
    }
    Ok(())
}
