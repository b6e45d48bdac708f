//! The guest's world: the arguments, environment and folders that the user gives it.

use super::flags::Flags;
use super::log_lines::{LogLines, Output};
use super::state::GuestState;
use std::path::PathBuf;
use std::str::FromStr;
use wasmtime::{Engine, Store};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
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
    /// Input is at its end, lines of output go to those of this process and say which guest's they are, if it has a number.
    Lines(Option<u64>),
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
    /// What else it may do.
    pub flags: Flags,
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
            Stdio::Inherit => self.flags.inherit_streams(&mut builder),
            // What a new builder has.
            Stdio::Null => {}
            Stdio::Lines(guest) => {
                builder.stdout(LogLines::new(Output::Stdout, *guest)).stderr(LogLines::new(Output::Stderr, *guest));
            }
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
        self.flags.configure(&mut builder);
        Ok(GuestState::new(builder.build_p1(), &self.flags))
    }

    /// A store of `engine` for the guest.
    ///
    /// # Errors
    /// As for [`WasiOptions::build`], or if the engine does not count the fuel that is to be limited.
    pub fn store(&self, engine: &Engine) -> wasmtime::Result<Store<GuestState>> {
        let mut store = Store::new(engine, self.build()?);
        // Without one the first check of code that has such checks would trap. The epoch sampler sets a nearer one.
        store.set_epoch_deadline(u64::MAX / 2);
        self.flags.limit_store(&mut store)?;
        GuestState::limit(&mut store);
        Ok(store)
    }
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
