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
const PATCHES: std::ops::Range<u64> = 0..100;

/// Finds out by name what a linker has.
pub(super) struct LinkerItems<'a> {
    linker: &'a ComponentLinker<GuestState>,
    /// A copy, to define functions in: nothing says what a linker has, except that it refuses to define it once more.
    copy: ComponentLinker<GuestState>,
    /// The patch release that was found last. Most interfaces of a linker have the same.
    patch: u64,
}

impl<'a> LinkerItems<'a> {
    pub(super) fn by(linker: &'a ComponentLinker<GuestState>) -> Self {
        Self { linker, copy: copy(linker), patch: 0 }
    }

    /// Whether there is a function, of an interface or of none. A release that Wasmtime would take for the one that is asked for will do.
    pub(super) fn has(&mut self, interface: Option<&str>, function: &str) -> bool {
        let is_patch = |patch: &str| patch.bytes().all(|byte| byte.is_ascii_digit());
        let parts = interface.and_then(|interface| interface.rsplit_once('.'));
        let release = parts.filter(|(release, patch)| release.contains("@0.") && is_patch(patch)).map(|parts| parts.0);
        let of_patch = |patch: u64| release.map(|release| format!("{release}.{patch}"));
        if self.refuses(of_patch(self.patch).as_deref().or(interface), function) {
            return true;
        }
        let patches = release.map_or(0..0, |_| PATCHES);
        // That one was defined just now.
        let last = self.patch;
        let found =
            patches.filter(|patch| *patch != last).find(|patch| self.refuses(of_patch(*patch).as_deref(), function));
        self.patch = found.unwrap_or(self.patch);
        // It has now what it did not refuse.
        self.copy = copy(self.linker);
        found.is_some()
    }

    /// Whether the copy refuses to define this.
    fn refuses(&mut self, interface: Option<&str>, function: &str) -> bool {
        let Some(interface) = interface else {
            return self.copy.root().func_new(function, |_, _, _, _| Ok(())).is_err();
        };
        let instance = self.copy.instance(interface);
        instance.is_ok_and(|mut instance| instance.func_new(function, |_, _, _, _| Ok(())).is_err())
    }
}

fn copy(linker: &ComponentLinker<GuestState>) -> ComponentLinker<GuestState> {
    let mut copy = linker.clone();
    copy.allow_shadowing(false);
    copy
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
