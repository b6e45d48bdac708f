//! Makes components of modules for WASI preview 1, as `wasm-tools component new --adapt` does.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasm_compose::composer::ComponentComposer;
use wasm_compose::config::Config;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::checkout;

/// What makes them; others may make others.
pub(crate) const ENCODER: &str = "wit-component 0.254, adapter 48";

/// Puts a command component in the place of the module in this file.
pub(crate) fn make(file: &Path) -> Result<()> {
    encode(file, fs::read(file)?, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
}

/// Puts a component that has the interfaces of the only world in the folder `wit` in the place of the module in this file.
pub(crate) fn make_handler(file: &Path, wit: &Path) -> Result<()> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit).with_context(|| format!("cannot read {}", wit.display()))?;
    let world = resolve.select_world(&[package], None)?;
    let mut module = fs::read(file)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    encode(file, module, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)
}

/// Puts the component in `caller`, with the one in this file within it, in that one's place: what the former imports of interfaces that the
/// latter exports comes from there.
pub(crate) fn put_into(caller: &Path, file: &Path) -> Result<()> {
    let config = Config { definitions: vec![file.to_owned()], ..Config::default() };
    let composed = ComponentComposer::new(caller, &config).compose().context("they do not fit each other")?;
    fs::write(file, composed).map_err(Into::into)
}

/// The folder with the interfaces of what is made from `source`, a path in `testdata`.
pub(crate) fn world(source: &str) -> PathBuf {
    checkout::testdata().join(source).with_file_name("wit")
}

/// The files in such a folder.
pub(crate) fn world_files(source: &str) -> Result<Vec<PathBuf>> {
    let mut folders = vec![world(source)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}

fn encode(file: &Path, module: Vec<u8>, adapter: &[u8]) -> Result<()> {
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&module)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, adapter)?
        .encode()
        .context("no component can be made of it")?;
    fs::write(file, component).map_err(Into::into)
}
