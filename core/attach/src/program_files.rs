//! Files that images may have been compiled from, and which of them were used.

use crate::images::FoundImage;
use std::path::PathBuf;
use std::sync::Arc;
use wlprof_languages::{Choice, choose_each};
use wlprof_module::{Binary, ModuleImage, among};
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

impl ProgramFile {
    /// What was read of a file, as `wlprof_module::read_binary` gives it, and the language of its modules, which is one of `languages`.
    pub fn of(
        (binary, notes): (Binary, Vec<String>),
        path: Option<PathBuf>,
        languages: &[&dyn wlprof_plugin::Language],
    ) -> (Self, Option<String>) {
        let modules: Vec<_> = binary.into_images().into_iter().map(Arc::new).collect();
        let views: Vec<_> = (0..modules.len()).filter_map(|number| among(&modules, number)).collect();
        let chosen = choose_each(&Choice::Auto, languages, "", &views).unwrap_or_default();
        let programs = chosen.programs.into_iter().chain(std::iter::repeat(None));
        let notes = notes.into_iter().chain(chosen.notes).collect();
        (Self { modules: modules.into_iter().zip(programs).collect(), notes, path }, chosen.language)
    }

    /// Whether an image was compiled from it.
    pub(crate) fn is_of(&self, image: &MappedImage) -> bool {
        let modules = self.modules.iter().map(|(module, _)| module.clone()).collect();
        MappedImage { modules, ..image.clone() }.was_compiled_from_modules()
    }
}

/// All files of a session.
pub(crate) struct ProgramFiles(Vec<(ProgramFile, bool)>);

impl ProgramFiles {
    pub(crate) fn new(files: Vec<ProgramFile>) -> Self {
        Self(files.into_iter().map(|file| (file, false)).collect())
    }

    /// Whether a module is of one of them.
    pub(crate) fn have(&self, module: &Arc<ModuleImage>) -> bool {
        self.0.iter().any(|(file, _)| file.modules.iter().any(|(own, _)| Arc::ptr_eq(own, module)))
    }

    pub(crate) fn add(&mut self, file: ProgramFile) {
        self.0.push((file, false));
    }

    /// Returns the modules that an image was compiled from.
    pub(crate) fn modules_of(&mut self, found: &FoundImage) -> Option<Vec<(Arc<ModuleImage>, Language)>> {
        let (file, is_used) = self.0.iter_mut().find(|(file, _)| file.is_of(&found.image))?;
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
