//! The built-in language plugins, and the choice among them. This crate does not depend on Wasmtime.
#![forbid(unsafe_code)]

mod unwalked;

pub use unwalked::note_of_unwalked_interpreter;

use std::fmt;
use std::sync::Arc;
use wlprof_plugin::{Detection, Language, ModuleView, Program};

/// The built-in languages: those with stacks of their own, and those whose native functions only a plugin can classify.
///
/// The DWARF plugin names the frames of all others. Without the feature `built-in` there are none.
#[cfg(feature = "built-in")]
pub static BUILT_IN: &[&dyn Language] = &[&wlprof_go::Go, &wlprof_cpython::Python, &wlprof_spidermonkey::SpiderMonkey];

/// The built-in languages: none, without the feature `built-in`.
#[cfg(not(feature = "built-in"))]
pub static BUILT_IN: &[&dyn Language] = &[];

/// The user's choice of a language.
///
/// ```
/// use wlprof_languages::Choice;
///
/// assert_eq!(Choice::from("auto"), Choice::Auto);
/// assert_eq!(Choice::from("python"), Choice::Named("python".to_owned()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The language that the guest turns out to be in.
    #[default]
    Auto,
    /// Only wasm frames.
    Native,
    /// The language of this name.
    Named(String),
}

impl From<&str> for Choice {
    fn from(name: &str) -> Self {
        match name {
            "auto" => Self::Auto,
            "native" => Self::Native,
            name => Self::Named(name.to_owned()),
        }
    }
}

/// The language chosen for a module.
#[derive(Default)]
pub struct ModuleLanguage {
    /// What the language knows of the module. `None` if it is in none.
    pub program: Option<Arc<dyn Program>>,
    /// Name of the language.
    pub language: Option<String>,
    /// Library of that language, if its programs need one.
    pub library: Option<Library>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The languages chosen for the modules of a program.
#[derive(Default)]
pub struct ChosenEach {
    /// What languages know of each module. At most one of them has walkers.
    pub programs: Vec<Option<Arc<dyn Program>>>,
    /// Name of the language.
    pub language: Option<String>,
    /// Library of that language, if its programs need one.
    pub library: Option<Library>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// The place where programs of a language look for their library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Path at which programs look for the folder.
    pub folder: String,
    /// Files by which the folder is known, as paths in it. One of them must be there.
    pub files: Vec<String>,
}

impl Library {
    fn of(language: &dyn Language) -> Option<Self> {
        let files = language.library_files().into_iter().map(str::to_owned).collect();
        Some(Self { folder: language.library_folder()?.to_owned(), files })
    }
}

/// The reason why the language that the user named cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooseError {
    /// No plugin has that name.
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Names that may be asked for.
        known: Vec<String>,
    },
    /// The module is not in that language.
    NotDetected {
        /// Name of the language.
        language: String,
        /// Name of the module.
        module: String,
    },
    /// The module is in that language but cannot be walked.
    NotWalked {
        /// What was found and what is supported.
        reason: String,
    },
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => write!(f, "unknown language {name} (known: {})", known.join(", ")),
            Self::NotDetected { language, module } => {
                write!(
                    f,
                    "{module} does not look like a {language} program; leave out --lang to profile it as what it is"
                )
            }
            Self::NotWalked { reason } => {
                write!(f, "{reason}; leave out --lang to profile it without the language's own frames")
            }
        }
    }
}

impl std::error::Error for ChooseError {}

/// Chooses a language for `module`: the first of `languages` that knows the module and can walk it.
///
/// Several languages may have one name, for different releases of a runtime.
///
/// # Errors
/// [`ChooseError`] if a named language does not exist, does not fit or cannot walk the module. Without a name that is no error: if those
/// that fit cannot walk the module, the reason of the first is a note, and its frames are wasm's.
pub fn choose(
    choice: &Choice,
    languages: &[&dyn Language],
    module: &dyn ModuleView,
) -> Result<ModuleLanguage, ChooseError> {
    let is_meant = |language: &&&dyn Language| match choice {
        Choice::Native => false,
        Choice::Auto => true,
        Choice::Named(name) => language.name() == name,
    };
    let mut candidates = languages.iter().filter(is_meant).peekable();
    if let (Choice::Named(name), None) = (choice, candidates.peek()) {
        let known = ["auto", "native"].into_iter().chain(languages.iter().map(|language| language.name()));
        return Err(ChooseError::Unknown { name: name.clone(), known: known.map(str::to_owned).collect() });
    }
    let mut reasons = Vec::new();
    let mut attached = None;
    for language in candidates.by_ref() {
        match attach(*language, module) {
            AttachOutcome::Program(program) => {
                attached = Some((*language, program));
                break;
            }
            AttachOutcome::Refused(reason) => reasons.push(reason),
            AttachOutcome::Unknown => {}
        }
    }
    let Some((language, program)) = attached else {
        return match (choice, reasons.into_iter().next()) {
            (Choice::Named(name), None) => {
                Err(ChooseError::NotDetected { language: name.clone(), module: module.name().to_owned() })
            }
            (Choice::Named(_), Some(reason)) => Err(ChooseError::NotWalked { reason }),
            (_, reason) => {
                let note = reason.map(|reason| format!("{reason}; frames will be native only"));
                Ok(ModuleLanguage { notes: note.into_iter().collect(), ..ModuleLanguage::default() })
            }
        };
    };
    let taken = language.name();
    let knows_it_too =
        |language: &&&dyn Language| language.name() != taken && matches!(language.detect(module), Detection::Yes(_));
    let others: Vec<&str> = candidates.filter(knows_it_too).map(|other| other.name()).collect();
    let mut notes = Vec::new();
    if !others.is_empty() {
        notes.push(format!("{} is taken for {taken}; --lang has it shown as {}", module.name(), others.join(", ")));
    }
    let (language, library) = (Some(taken.to_owned()), Library::of(language));
    Ok(ModuleLanguage { program: Some(program), language, library, notes })
}

/// Chooses languages for the modules of the program `name`, as [`choose`] does.
///
/// In a store the stacks of only one language are read: the first that has stacks of its own. A note names the others.
///
/// # Errors
/// As for [`choose`], if a named language fits none of the modules.
pub fn choose_each(
    choice: &Choice,
    languages: &[&dyn Language],
    name: &str,
    modules: &[impl ModuleView],
) -> Result<ChosenEach, ChooseError> {
    let mut each = ChosenEach::default();
    let (mut refusal, mut others) = (None, Vec::new());
    for module in modules {
        if each.programs.iter().flatten().any(|program| program.walker().is_some()) {
            let is_known = languages.iter().any(|language| matches!(language.detect(module), Detection::Yes(_)));
            others.extend((is_known && *choice == Choice::Auto).then(|| module.name()));
            each.programs.push(None);
            continue;
        }
        let chosen = match choose(choice, languages, module) {
            Ok(chosen) => chosen,
            Err(ChooseError::NotDetected { .. }) => ModuleLanguage::default(),
            Err(error @ ChooseError::NotWalked { .. }) => {
                refusal.get_or_insert(error);
                ModuleLanguage::default()
            }
            Err(error) => return Err(error),
        };
        let is_walked = chosen.program.as_ref().is_some_and(|program| program.walker().is_some());
        if is_walked || each.language.is_none() {
            (each.language, each.library) = (chosen.language, chosen.library);
        }
        each.programs.push(chosen.program);
        each.notes.extend(chosen.notes);
    }
    if !others.is_empty() {
        each.notes.push(format!(
            "a store has one language whose own stacks are read; shown as wasm frames: {}",
            others.join(", ")
        ));
    }
    match choice {
        Choice::Named(language) if each.language.is_none() => {
            Err(refusal
                .unwrap_or_else(|| ChooseError::NotDetected { language: language.clone(), module: name.to_owned() }))
        }
        _ => Ok(each),
    }
}

/// What comes of asking a language to walk a module.
enum AttachOutcome {
    Program(Arc<dyn Program>),
    /// It is in the language and cannot be walked, for this reason.
    Refused(String),
    Unknown,
}

fn attach(language: &dyn Language, module: &dyn ModuleView) -> AttachOutcome {
    match language.detect(module) {
        Detection::No => AttachOutcome::Unknown,
        Detection::Unsupported { found, supported } => {
            AttachOutcome::Refused(format!("unsupported {found} in {} (supported: {supported})", module.name()))
        }
        Detection::Yes(found) => match language.attach(module) {
            Ok(program) => AttachOutcome::Program(program),
            Err(error) => AttachOutcome::Refused(format!("{found} in {}: {error}", module.name())),
        },
    }
}
