//! Languages behind the C ABI, as the rest of wlprof sees them.

use super::containment::{Activity, Calls, PluginLibrary};
use super::host::{HostModule, HostTexts};
use super::program::{ForeignProgram, ReadProgram};
use std::sync::Arc;
use wlprof_plugin::abi;
use wlprof_plugin::{AttachError, Detection, Language, ModuleView, Program};

/// A language of a loaded plugin.
pub struct ForeignLanguage {
    name: String,
    /// The folder of its programs' library, then the files by which that is known.
    program_library: Vec<String>,
    language: *const abi::Language,
    library: Arc<PluginLibrary>,
}

// SAFETY: the ABI has languages be constant, and their functions called from any thread.
unsafe impl Send for ForeignLanguage {}
// SAFETY: the ABI has languages be constant, and their functions called from any thread.
unsafe impl Sync for ForeignLanguage {}

impl ForeignLanguage {
    /// # Safety
    /// `language` must point to a whole language, as the ABI has it, in `library`, and `name` must be its name.
    pub(super) unsafe fn new(language: *const abi::Language, name: String, library: Arc<PluginLibrary>) -> Self {
        // SAFETY: `language` points to a whole language (see # Safety), and its library stays loaded for good.
        let library_folder = unsafe { (*language).library_folder };
        let mut program_library = Vec::new();
        if let Some(library_folder) = library_folder {
            let receiver = HostTexts::new(&mut program_library);
            // SAFETY: `library_folder` is a function of this language, called with it. The receiver lives until the call has ended.
            let ask = || unsafe { library_folder(language, &receiver.abi) };
            Calls::new(library.clone()).call(Activity::LibraryFolder, ask);
        }
        Self { name, program_library, language, library }
    }

    /// Why the plugin is not asked any more; `None` if it is.
    pub fn failure(&self) -> Option<String> {
        self.library.failure()
    }

    /// What the plugin changed of the process and should not have, in a sentence each.
    pub fn changes(&self) -> Vec<String> {
        self.library.changes()
    }
}

impl Language for ForeignLanguage {
    fn name(&self) -> &str {
        &self.name
    }

    fn library_folder(&self) -> Option<&str> {
        self.program_library.first().map(String::as_str)
    }

    fn library_files(&self) -> Vec<&str> {
        self.program_library.iter().skip(1).map(String::as_str).collect()
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let mut answers = Vec::new();
        let (module, receiver) = (HostModule::new(module), HostTexts::new(&mut answers));
        // SAFETY: the library that `language` points into stays loaded for good.
        let detection = unsafe { (*self.language).detect }.and_then(|detect| {
            // SAFETY: `detect` is a function of this language, called with it. Module and receiver live until the call has ended.
            let ask = || unsafe { detect(self.language, &module.abi, &receiver.abi) };
            Calls::new(self.library.clone()).call(Activity::Detect, ask)
        });
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| self.name.clone());
        match detection {
            Some(abi::DETECTION_YES) => Detection::Yes(next()),
            Some(abi::DETECTION_FAILED) => {
                self.library.failed_by_its_own_account(Activity::Detect);
                Detection::No
            }
            Some(abi::DETECTION_UNSUPPORTED) => Detection::Unsupported { found: next(), supported: next() },
            _ => Detection::No,
        }
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        let mut errors = Vec::new();
        let read = {
            let (module, receiver) = (HostModule::new(module), HostTexts::new(&mut errors));
            // SAFETY: the library that `language` points into stays loaded for good.
            let attach = unsafe { (*self.language).attach };
            let attach = attach.ok_or_else(|| AttachError("the plugin has no `attach`".to_owned()))?;
            let minor = self.library.abi_minor();
            Calls::new(self.library.clone()).call(Activity::Attach, || {
                // SAFETY: `attach` is a function of this language, called with it. Module and receiver live until the call has ended.
                let program = unsafe { attach(self.language, &module.abi, &receiver.abi) };
                // SAFETY: `program` is not null, and the language has just made it; a crash in it is contained, since this runs in
                // `Calls::call`.
                (!program.is_null()).then(|| unsafe { ReadProgram::read(program, minor) })
            })
        };
        match read {
            Some(Some(program)) => Ok(Arc::new(ForeignProgram::new(program?, &self.library)?)),
            Some(None) => {
                let reason = errors.pop().unwrap_or_else(|| "the plugin does not say why it cannot walk it".to_owned());
                Err(AttachError(reason))
            }
            None => Err(AttachError(self.library.failure().unwrap_or_default())),
        }
    }
}
