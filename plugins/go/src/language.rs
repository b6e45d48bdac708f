//! Detection and attachment.

use crate::{
    code::Tables,
    layout::{self, SUPPORTED},
    program::GoProgram,
    version::{self, Producer, Version},
};
use std::sync::Arc;
use wlprof_plugin::{AttachError, Detection, Language, ModuleView, Program};

/// Go, built by Go's own compiler for `GOOS=wasip1`, releases 1.21 to 1.27.
///
/// TinyGo is another matter: its stack is the wasm stack and it describes itself in DWARF.
#[derive(Clone, Copy, Debug, Default)]
pub struct Go;

impl Go {
    /// Attaches as [`Language::attach`] does, to a program whose further abilities can be used.
    ///
    /// # Errors
    /// As for [`Language::attach`].
    pub fn attach_program(&self, module: &dyn ModuleView) -> Result<GoProgram, AttachError> {
        let version = match version::producer(module) {
            Producer::Go(version) => version,
            Producer::Silent | Producer::TinyGo => None,
        };
        let layout = layout::layout(version.map(|version| version.minor));
        Ok(GoProgram::new(Tables::new(module, &layout)?, layout))
    }
}

impl Language for Go {
    fn name(&self) -> &str {
        "go"
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let version = match version::producer(module) {
            Producer::TinyGo => return Detection::No,
            Producer::Go(version) => version,
            Producer::Silent if module.custom_section("go:buildid").is_some() => None,
            Producer::Silent => return Detection::No,
        };
        let found = version.map_or_else(|| "Go".to_owned(), |version: Version| format!("Go {version}"));
        let supported = format!("Go 1.{} to 1.{} for GOOS=wasip1", SUPPORTED.0, SUPPORTED.1);
        let imports_from = |name: &str| module.function_imports().iter().any(|import| import.module == name);
        if (imports_from("go") || imports_from("gojs")) && !imports_from("wasi_snapshot_preview1") {
            return Detection::Unsupported { found: format!("{found} for GOOS=js"), supported };
        }
        if version.is_some_and(|version| version.minor < SUPPORTED.0) {
            return Detection::Unsupported { found, supported };
        }
        // Later releases are tried: the tables say what they are, and rows of offsets are believed only if they fit.
        Detection::Yes(found)
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        Ok(Arc::new(self.attach_program(module)?))
    }
}
