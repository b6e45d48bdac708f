//! The guest's world: WASI, preview 1 for modules and 0.2 for components, with the arguments, environment and folders that the user gives it.

use std::path::PathBuf;
use std::str::FromStr;
use wasmtime::component::Linker as ComponentLinker;
use wasmtime::{Engine, Linker, ResourceLimiter, Store};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiCtxView, WasiView};

/// A folder of the host that the guest may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Where it is on the host.
    pub host: PathBuf,
    /// What the guest calls it.
    pub guest: String,
    /// The guest can write nothing there.
    pub read_only: bool,
}

impl FromStr for Directory {
    type Err = String;

    /// Parses `HOST[::GUEST]`, as `wasmtime run --dir` does.
    fn from_str(text: &str) -> Result<Self, String> {
        // What follows a second `::` counts for nothing there.
        let mut parts = text.split("::");
        let host = parts.next().unwrap_or_default();
        let guest = parts.next().unwrap_or(host);
        if host.is_empty() {
            return Err("expected HOST or HOST::GUEST".into());
        }
        Ok(Self { host: host.into(), guest: guest.to_owned(), read_only: false })
    }
}

/// Where the guest's standard streams lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdio {
    /// To those of this process.
    #[default]
    Inherit,
    /// Nowhere: input is at its end, output is dropped.
    Null,
    /// Input is this, output is dropped.
    Input(Vec<u8>),
}

/// What the guest is given.
#[derive(Clone, Debug, Default)]
pub struct WasiOptions {
    /// Arguments, its own name first.
    pub arguments: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
    /// Folders.
    pub directories: Vec<Directory>,
    /// Standard streams.
    pub stdio: Stdio,
}

impl WasiOptions {
    /// Builds the guest's state.
    ///
    /// # Errors
    /// If a folder cannot be opened; the message names it.
    pub fn build(&self) -> wasmtime::Result<GuestState> {
        let mut builder = WasiCtxBuilder::new();
        builder.args(&self.arguments).envs(&self.environment);
        match &self.stdio {
            Stdio::Inherit => _ = builder.inherit_stdio(),
            // What a new builder has.
            Stdio::Null => {}
            Stdio::Input(bytes) => _ = builder.stdin(MemoryInputPipe::new(bytes.clone())),
        }
        // As `wasmtime run`: a blocking call blocks this thread, so its time is seen where it is spent.
        builder.allow_blocking_current_thread(true);
        for directory in &self.directories {
            let permissions = if directory.read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite };
            builder
                .preopened_dir(&directory.host, &directory.guest, permissions)
                .map_err(|error| error.context(format!("--dir {}: cannot open it", directory.host.display())))?;
        }
        Ok(GuestState { wasi: builder.build_p1(), growth: None })
    }
}

/// What the store of a guest holds.
pub struct GuestState {
    wasi: WasiP1Ctx,
    growth: Option<Growth>,
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// Is told when linear memory is about to grow, and by how many bytes.
struct Growth(Box<dyn FnMut(u64) + Send>);

impl ResourceLimiter for Growth {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        // Wasmtime refuses more by itself.
        if maximum.is_none_or(|maximum| desired <= maximum) {
            (self.0)(desired.saturating_sub(current) as u64);
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

/// Has `growing` be told of each time that linear memory is about to grow, and by how many bytes.
pub fn watch_memory(store: &mut Store<GuestState>, growing: impl FnMut(u64) + Send + 'static) {
    store.data_mut().growth = Some(Growth(Box::new(growing)));
    // It stays where it is: nobody else sets it.
    store.limiter(|state| state.growth.as_mut().expect("it was set before this was asked"));
}

/// A linker with WASI preview 1, and with `wasi_unstable`, as its drafts were called: old compilers import that.
///
/// # Errors
/// Never in practice: the names are added once.
pub fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p0::add_to_linker_sync(&mut linker, |state: &mut GuestState| &mut state.wasi)?;
    wasmtime_wasi::p1::add_to_linker_sync(&mut linker, |state: &mut GuestState| &mut state.wasi)?;
    Ok(linker)
}

/// A linker of components with WASI 0.2. What blocks blocks the calling thread.
///
/// # Errors
/// Never in practice: the names are added once.
pub fn component_linker(engine: &Engine) -> wasmtime::Result<ComponentLinker<GuestState>> {
    let mut linker = ComponentLinker::new(engine);
    wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_parse_as_in_wasmtime_run() {
        let same = Directory { host: ".".into(), guest: ".".into(), read_only: false };
        assert_eq!(".".parse(), Ok(same));
        let mapped = Directory { host: "/srv/data".into(), guest: "/data".into(), read_only: false };
        assert_eq!("/srv/data::/data".parse(), Ok(mapped.clone()));
        assert_eq!("/srv/data::/data::/more".parse(), Ok(mapped));
        let nameless = Directory { host: "/srv/data".into(), guest: String::new(), read_only: false };
        assert_eq!("/srv/data::".parse(), Ok(nameless));
        assert!("::/data".parse::<Directory>().is_err());
    }
}
