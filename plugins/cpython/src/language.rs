//! Detection and attachment.

use crate::{
    debug_info, debug_offsets,
    functions::Functions,
    layout::SUPPORTED,
    program::PythonProgram,
    prologue::Prologue,
    runtime::{InLibrary, MOST_CANDIDATES, Runtime},
    state::HostCalls,
    version::{self, Evidence, Version},
};
use memchr::memmem;
use std::sync::Arc;
use wlprof_plugin::{AttachError, Detection, Language, ModuleView, Program};

/// Python, on CPython 3.11 to 3.14.
#[derive(Clone, Copy, Debug, Default)]
pub struct Python;

impl Python {
    /// Attaches as [`Language::attach`] does, to a program whose further abilities can be used.
    ///
    /// # Errors
    /// As for [`Language::attach`].
    pub fn attach_program(&self, view: &dyn ModuleView) -> Result<PythonProgram, AttachError> {
        let not_python = || AttachError("this is not CPython".to_owned());
        let (module, evidence) = version::read_interpreter(view).ok_or_else(not_python)?;
        let variables = debug_info::variables(view);
        let version = evidence.version.or_else(|| version::from_debug_info(&module, &variables));
        let unknown = || AttachError("this CPython does not say which release it is".to_owned());
        let version = version.ok_or_else(unknown)?;
        if !is_supported(version) || evidence.free_threaded {
            return Err(AttachError(format!("unsupported (supported: {})", supported())));
        }
        let cookies = module.segments.iter().flat_map(|&(start, data)| {
            let found = memmem::find_iter(data, debug_offsets::COOKIE);
            found.filter_map(move |at| start.checked_add(u32::try_from(at).ok()?))
        });
        let told: Vec<u32> = variables.runtime.into_iter().chain(module.address("_PyRuntime")).collect();
        let (told, in_library) = match module.memory_base {
            Some(global) => (Vec::new(), Some(InLibrary { base: global, offsets: told })),
            None => (told, None),
        };
        let candidates = told.into_iter().chain(cookies).take(MOST_CANDIDATES / 2).collect();
        let runtime = Runtime::new(version.minor, candidates, in_library, module.static_data());
        let functions = Functions::new(view, variables.eval);
        let body = functions.eval().and_then(|eval| view.function_body(eval)).unwrap_or_default();
        let prologue = Prologue::new(module.code, body);
        let calls = HostCalls::of_program(&module, view);
        Ok(PythonProgram::new(runtime, functions, calls, prologue))
    }
}

fn is_supported(version: Version) -> bool {
    (SUPPORTED.0..=SUPPORTED.1).contains(&version.minor)
}

fn supported() -> String {
    format!("3.{}–3.{}", SUPPORTED.0, SUPPORTED.1)
}

impl Language for Python {
    fn name(&self) -> &str {
        "python"
    }

    fn library_folder(&self) -> Option<&str> {
        // The prefix that CPython is configured with if nothing else is said.
        Some("/usr/local/lib")
    }

    fn library_files(&self) -> Vec<&str> {
        // What CPython itself looks for, and the library as one file.
        vec![
            "python3.11/os.py",
            "python3.12/os.py",
            "python3.13/os.py",
            "python3.14/os.py",
            "python311.zip",
            "python312.zip",
            "python313.zip",
            "python314.zip",
        ]
    }

    fn detect(&self, view: &dyn ModuleView) -> Detection {
        match version::read_interpreter(view) {
            None => Detection::No,
            Some((_, Evidence { version: None, .. })) => Detection::Yes("CPython".to_owned()),
            Some((_, Evidence { version: Some(version), free_threaded })) => {
                let found = if free_threaded { format!("free-threaded {version}") } else { version.to_string() };
                if is_supported(version) && !free_threaded {
                    Detection::Yes(found)
                } else {
                    Detection::Unsupported { found, supported: supported() }
                }
            }
        }
    }

    fn attach(&self, view: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        Ok(Arc::new(self.attach_program(view)?))
    }
}
