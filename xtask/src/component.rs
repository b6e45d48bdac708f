//! Makes components of modules for WASI preview 1, as `wasm-tools component new --adapt` does.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wit_component::ComponentEncoder;

/// What makes them; others may make others.
pub(crate) const ENCODER: &str = "wit-component 0.254, adapter 48";

/// Puts a command component in the place of the module in this file.
pub(crate) fn make(file: &Path) -> Result<()> {
    let module = fs::read(file)?;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&module)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)?
        .encode()
        .context("no component can be made of it")?;
    fs::write(file, component).map_err(Into::into)
}
