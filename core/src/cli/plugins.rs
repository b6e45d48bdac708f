//! Which language plugins there are for a run: those that the user names, then the built-in ones.

use super::{FAILED, Failure};
use crate::languages::BUILT_IN;
use crate::languages::loader::LoadedPlugin;
use std::path::PathBuf;
use wlprof_plugin::Language;

/// The plugins of a run.
pub(super) struct Plugins(Vec<LoadedPlugin>);

impl Plugins {
    /// Loads the plugins at these paths.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Self, Failure> {
        let load = |path: &PathBuf| {
            LoadedPlugin::load(path)
                .map_err(|error| Failure::new(FAILED, format!("plugin {}: {error}", path.display())))
        };
        paths.iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// All languages, in the order in which they are asked.
    pub(super) fn languages(&self) -> Vec<&dyn Language> {
        let named = self.0.iter().flat_map(|plugin| &plugin.languages).map(|language| language as &dyn Language);
        named.chain(BUILT_IN.iter().copied()).collect()
    }
}
