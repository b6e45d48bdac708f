//! Files that images may have been compiled from, and which of them were used.

use crate::images::FoundImage;
use std::path::PathBuf;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::Program;
use wlprof_walk::MappedImage;

/// What its language knows of a module, if that has stacks of its own.
pub type Language = Option<Arc<dyn Program>>;

/// A file that images may have been compiled from.
///
/// ```
/// use std::sync::Arc;
/// use wlprof_attach::ProgramFile;
/// use wlprof_module::ModuleImage;
///
/// let image = ModuleImage::parse(b"\0asm\x01\0\0\0".to_vec(), "empty.wasm")?;
/// let file = ProgramFile { modules: vec![(Arc::new(image), None)], ..Default::default() };
/// assert_eq!(file.modules.len(), 1);
/// # Ok::<(), wlprof_module::ImageError>(())
/// ```
#[derive(Clone, Default)]
pub struct ProgramFile {
    /// Its modules, and what their languages know of them: itself, or those in a component, in order.
    pub modules: Vec<(Arc<ModuleImage>, Language)>,
    /// What there is to say of them if they are shown.
    pub notes: Vec<String>,
    /// Where it is, if it was the user who named it: a note says so if no image was compiled from it.
    pub path: Option<PathBuf>,
}

/// All files of a session.
pub(crate) struct ProgramFiles(Vec<(ProgramFile, bool)>);

impl ProgramFiles {
    pub(crate) fn new(files: Vec<ProgramFile>) -> Self {
        Self(files.into_iter().map(|file| (file, false)).collect())
    }

    /// Returns the modules that an image was compiled from.
    pub(crate) fn modules_of(&mut self, found: &FoundImage) -> Option<Vec<(Arc<ModuleImage>, Language)>> {
        let is_of = |file: &ProgramFile| {
            let modules = file.modules.iter().map(|(module, _)| module.clone()).collect();
            MappedImage { modules, ..found.image.clone() }.was_compiled_from_modules()
        };
        let (file, is_used) = self.0.iter_mut().find(|(file, _)| is_of(file))?;
        *is_used = true;
        Some(file.modules.clone())
    }

    /// Returns what there is to say of those that were used, and of those that the user named and that were not.
    pub(crate) fn notes(&self) -> Vec<String> {
        let notes = |(file, is_used): &(ProgramFile, bool)| match (&file.path, is_used) {
            (_, true) => file.notes.clone(),
            (Some(path), false) => {
                vec![format!("{}: nothing in the process was compiled from it, so it was not used", path.display())]
            }
            (None, false) => Vec::new(),
        };
        self.0.iter().flat_map(notes).collect()
    }
}
