//! Files of WebAssembly that several processes run: each is read once.

use crate::available_plugins::Plugins;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof_attach::ProgramFile;
use wlprof_module::parse_binary;
use wlprof_symbols::SharedTables;

/// Files by their bytes, and what names the functions of their modules.
#[derive(Default)]
pub(crate) struct ProgramCache {
    /// By keys of its own, so that nobody can make two files that have one hash.
    hasher: RandomState,
    files: HashMap<(usize, u64), (ProgramFile, Option<String>)>,
    names: SharedTables,
}

impl ProgramCache {
    /// Returns the file of these bytes, which is at `path`, and its language; `None` if it is no module or component.
    pub(super) fn file(
        &mut self,
        path: &Path,
        bytes: Vec<u8>,
        plugins: &Plugins,
    ) -> Option<(ProgramFile, Option<String>)> {
        let key = (bytes.len(), self.hasher.hash_one(&bytes));
        if let Some(known) = self.files.get(&key) {
            return Some(known.clone());
        }
        let read = ProgramFile::of(parse_binary(bytes, path, None).ok()?, None::<PathBuf>, &plugins.languages());
        self.files.insert(key, read.clone());
        Some(read)
    }

    /// Returns what names the modules of all processes.
    pub(crate) fn names(&self) -> &SharedTables {
        &self.names
    }

    /// Lets go of files that no process runs any more.
    pub(crate) fn forget_unused(&mut self) {
        let is_used = |file: &ProgramFile| file.modules.iter().any(|(module, _)| Arc::strong_count(module) > 1);
        self.files.retain(|_, (file, _)| is_used(file));
        self.names.forget_unused();
    }
}
