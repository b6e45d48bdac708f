//! Which language a guest is written in: the built-in plugins, and choosing among them.

mod unwalked;

pub use unwalked::note_of_unwalked_interpreter;

use std::fmt;
use wlprof_plugin::{Detection, Language, ModuleView, Walker};

/// The built-in languages: those that have stacks of their own, and those whose native functions only a plugin can tell apart. What has none is
/// named by the DWARF plugin in any case.
pub static BUILT_IN: &[&dyn Language] = &[&wlprof_go::Go, &wlprof_cpython::Python, &wlprof_spidermonkey::SpiderMonkey];

/// What the user wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Whatever the guest turns out to be.
    #[default]
    Auto,
    /// Wasm frames alone.
    Native,
    /// This language.
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

/// What was chosen for a module.
#[derive(Default)]
pub struct Chosen {
    /// Reads its stacks; `None` if they are wasm's.
    pub walker: Option<Box<dyn Walker>>,
    /// The language that the walker is of.
    pub language: Option<String>,
    /// The library of that language, if its programs need one.
    pub library: Option<Library>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// What was chosen for the modules of a program.
#[derive(Default)]
pub struct ChosenEach {
    /// For each module, what reads the stacks of those that work on its memory: one of all has it.
    pub walkers: Vec<Option<Box<dyn Walker>>>,
    /// The language that the walker is of.
    pub language: Option<String>,
    /// The library of that language, if its programs need one.
    pub library: Option<Library>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Where programs of a language look for their library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// What they call its folder.
    pub folder: String,
    /// Files by which the folder is known, as paths in it: one of them is there.
    pub files: Vec<String>,
}

impl Library {
    fn of(language: &dyn Language) -> Option<Self> {
        let files = language.library_files().into_iter().map(str::to_owned).collect();
        Some(Self { folder: language.library_folder()?.to_owned(), files })
    }
}

/// Why the language that the user named cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooseError {
    /// There is no plugin of that name.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The module is not in that language.
    NotDetected {
        /// The language.
        language: String,
        /// The module.
        module: String,
    },
    /// The module is in that language, and cannot be walked.
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

/// Chooses a language for `module` among `languages`: the first that knows the module and can walk it. Several may have one
/// name, for other releases of a runtime.
///
/// # Errors
/// [`ChooseError`] if a named language is not there, does not fit or cannot walk the module. If none is named and those that
/// fit cannot walk it, what the first of them says is a note: its frames are wasm's then.
pub fn choose(choice: &Choice, languages: &[&dyn Language], module: &dyn ModuleView) -> Result<Chosen, ChooseError> {
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
    let mut walked = None;
    for language in candidates.by_ref() {
        match attach(*language, module) {
            Attached::Walked(walker) => {
                walked = Some((*language, walker));
                break;
            }
            Attached::Refused(reason) => reasons.push(reason),
            Attached::Unknown => {}
        }
    }
    let Some((language, walker)) = walked else {
        return match (choice, reasons.into_iter().next()) {
            (Choice::Named(name), None) => {
                Err(ChooseError::NotDetected { language: name.clone(), module: module.name().to_owned() })
            }
            (Choice::Named(_), Some(reason)) => Err(ChooseError::NotWalked { reason }),
            (_, reason) => {
                let note = reason.map(|reason| format!("{reason}; frames will be native only"));
                Ok(Chosen { notes: note.into_iter().collect(), ..Chosen::default() })
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
    Ok(Chosen { walker: Some(walker), language, library, notes })
}

/// Chooses languages for the modules of a program called `name`, as [`choose`] does. A store has the stacks of one language read, the first that
/// has stacks of its own; a note names the others.
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
        if each.walkers.iter().flatten().any(|walker| walker.reads_guest()) {
            let is_known = languages.iter().any(|language| matches!(language.detect(module), Detection::Yes(_)));
            others.extend((is_known && *choice == Choice::Auto).then(|| module.name()));
            each.walkers.push(None);
            continue;
        }
        let chosen = match choose(choice, languages, module) {
            Ok(chosen) => chosen,
            Err(ChooseError::NotDetected { .. }) => Chosen::default(),
            Err(error @ ChooseError::NotWalked { .. }) => {
                refusal.get_or_insert(error);
                Chosen::default()
            }
            Err(error) => return Err(error),
        };
        let is_walked = chosen.walker.as_ref().is_some_and(|walker| walker.reads_guest());
        if is_walked || each.language.is_none() {
            (each.language, each.library) = (chosen.language, chosen.library);
        }
        each.walkers.push(chosen.walker);
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
enum Attached {
    Walked(Box<dyn Walker>),
    /// It is in the language and cannot be walked, for this reason.
    Refused(String),
    Unknown,
}

fn attach(language: &dyn Language, module: &dyn ModuleView) -> Attached {
    match language.detect(module) {
        Detection::No => Attached::Unknown,
        Detection::Unsupported { found, supported } => {
            Attached::Refused(format!("unsupported {found} in {} (supported: {supported})", module.name()))
        }
        Detection::Yes(found) => match language.attach(module) {
            Ok(walker) => Attached::Walked(walker),
            Err(error) => Attached::Refused(format!("{found} in {}: {error}", module.name())),
        },
    }
}
