//! The guest's world: WASI preview 1 with the arguments, environment and folders that the user gives it.

use std::path::PathBuf;
use std::str::FromStr;
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

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
        let (host, guest) = text.split_once("::").unwrap_or((text, text));
        if host.is_empty() || guest.is_empty() {
            return Err("expected HOST or HOST::GUEST".into());
        }
        Ok(Self { host: host.into(), guest: guest.to_owned(), read_only: false })
    }
}

/// Where the guest's standard streams lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdio {
    /// To those of this process.
    #[default]
    Inherit,
    /// Nowhere: input is at its end, output is dropped.
    Null,
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
        match self.stdio {
            Stdio::Inherit => _ = builder.inherit_stdio(),
            // What a new builder has.
            Stdio::Null => {}
        }
        // As `wasmtime run`: a blocking call blocks this thread, so its time is seen where it is spent.
        builder.allow_blocking_current_thread(true);
        for directory in &self.directories {
            let permissions = if directory.read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite };
            builder
                .preopened_dir(&directory.host, &directory.guest, permissions)
                .map_err(|error| error.context(format!("--dir {}: cannot open it", directory.host.display())))?;
        }
        Ok(GuestState { wasi: builder.build_p1() })
    }
}

/// What the store of a guest holds.
pub struct GuestState {
    wasi: WasiP1Ctx,
}

/// A linker with WASI preview 1.
///
/// # Errors
/// Never in practice: the names are added once.
pub fn linker(engine: &Engine) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_sync(&mut linker, |state: &mut GuestState| &mut state.wasi)?;
    Ok(linker)
}

/// The module's imports that `linker` does not have, as `module.name`, without repetition.
pub fn missing_imports(store: &mut Store<GuestState>, linker: &Linker<GuestState>, module: &Module) -> Vec<String> {
    let mut missing = Vec::new();
    for import in module.imports() {
        let name = format!("{}.{}", import.module(), import.name());
        if linker.get_by_import(&mut *store, &import).is_none() && !missing.contains(&name) {
            missing.push(name);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_parse_as_in_wasmtime_run() {
        let same = Directory { host: ".".into(), guest: ".".into(), read_only: false };
        assert_eq!(".".parse(), Ok(same));
        let mapped = Directory { host: "/srv/data".into(), guest: "/data".into(), read_only: false };
        assert_eq!("/srv/data::/data".parse(), Ok(mapped));
        assert!("::/data".parse::<Directory>().is_err());
    }
}
