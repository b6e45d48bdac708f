//! Options of what to run, and of the world it runs in.

use super::wasmtime::WasmtimeOptions;
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use wlprof_wasi::Directory;

/// What to run and the world it runs in.
#[derive(Args)]
pub(crate) struct GuestOptions {
    /// The guest's language
    ///
    /// Its own stacks are shown. auto finds out; native shows only wasm frames.
    #[arg(long = "lang", value_name = "NAME", default_value = "auto", help_heading = "The guest")]
    pub(crate) language: String,
    /// Load a language plugin, a dynamic library; may repeat. Its code runs in wlprof, with all rights of yours
    #[arg(long = "plugin", value_name = "FILE", hide_short_help = true, help_heading = "The guest")]
    pub(crate) plugins: Vec<PathBuf>,
    /// File with the guest's debug sections, if they are not in the guest
    #[arg(long, value_name = "FILE", hide_short_help = true, help_heading = "The guest")]
    pub(crate) debug_file: Option<PathBuf>,
    /// Compile the guest afresh instead of taking it from Wasmtime's cache
    #[arg(long, hide_short_help = true, help_heading = "The guest")]
    pub(crate) no_cache: bool,
    /// Give the guest a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]", help_heading = "The guest")]
    pub(crate) directories: Vec<Directory>,
    /// Give the guest an environment variable; may repeat
    ///
    /// Without a value it is passed on from this process.
    #[arg(long = "env", value_name = "K[=V]", help_heading = "The guest")]
    pub(crate) environment: Vec<String>,
    /// Call this exported function instead of `_start`
    ///
    /// ARGS are its parameters. Of a component, give a call in WAVE, as 'add(1, 2)'.
    #[arg(long, value_name = "NAME", help_heading = "The guest")]
    pub(crate) invoke: Option<String>,
    /// Instantiate a core module before the guest, which can import from it by that name; may repeat
    #[arg(long = "preload", value_name = "NAME=FILE", value_parser = parse_preload, hide_short_help = true, help_heading = "The guest")]
    pub(crate) preloads: Vec<(String, PathBuf)>,
    /// The guest's argument 0, which is its name [default: the name of its file]
    #[arg(long, value_name = "NAME", hide_short_help = true, help_heading = "The guest")]
    pub(crate) argv0: Option<String>,
    #[command(flatten)]
    pub(crate) wasmtime: WasmtimeOptions,
    /// The program to run (.wasm or .wat) and its arguments
    #[arg(value_name = "GUEST [ARGS]", value_hint = ValueHint::FilePath, required = true, trailing_var_arg = true)]
    pub(crate) guest_and_arguments: Vec<OsString>,
}

fn parse_preload(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.to_owned(), file.into()))
}
