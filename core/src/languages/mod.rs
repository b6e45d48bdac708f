//! Which language a guest is written in: the built-in plugins, and choosing among them.

pub mod loader;

use std::fmt;
use wlprof_plugin::{Detection, Language, ModuleView, Walker};

/// The built-in languages that have stacks of their own. What has none is named by the DWARF plugin in any case.
pub static BUILT_IN: &[&dyn Language] = &[&wlprof_go::Go, &wlprof_cpython::Python];

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
    /// What the user should know.
    pub notes: Vec<String>,
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
        }
    }
}

impl std::error::Error for ChooseError {}

/// What a guest made of `module` calls the folder of its library, if its language has one.
pub fn library_folder<'a>(languages: &[&'a dyn Language], module: &dyn ModuleView) -> Option<&'a str> {
    let mut with_folder = languages.iter().filter_map(|language| Some((language, language.library_folder()?)));
    with_folder.find(|(language, _)| language.detect(module) != Detection::No).map(|(_, folder)| folder)
}

/// Chooses a language for `module` among `languages`.
///
/// # Errors
/// [`ChooseError`] if a named language is not there or does not fit. A language that fits but cannot be attached is a
/// note: its frames are wasm's then.
pub fn choose(choice: &Choice, languages: &[&dyn Language], module: &dyn ModuleView) -> Result<Chosen, ChooseError> {
    match choice {
        Choice::Native => Ok(Chosen::default()),
        Choice::Auto => {
            let mut detected = languages.iter().map(|language| (language, language.detect(module)));
            let Some((language, detection)) = detected.find(|(_, detection)| *detection != Detection::No) else {
                return Ok(Chosen::default());
            };
            let others = detected
                .filter(|(other, detection)| matches!(detection, Detection::Yes(_)) && other.name() != language.name());
            let others: Vec<&str> = others.map(|(other, _)| other.name()).collect();
            let mut chosen = attach(*language, detection, module);
            if !others.is_empty() {
                let (name, taken, others) = (module.name(), language.name(), others.join(", "));
                chosen.notes.push(format!("{name} is taken for {taken}; --lang has it shown as {others}"));
            }
            Ok(chosen)
        }
        Choice::Named(name) => {
            let Some(language) = languages.iter().find(|language| language.name() == name) else {
                let known = ["auto", "native"].into_iter().chain(languages.iter().map(|language| language.name()));
                return Err(ChooseError::Unknown { name: name.clone(), known: known.map(str::to_owned).collect() });
            };
            match language.detect(module) {
                Detection::No => {
                    Err(ChooseError::NotDetected { language: name.clone(), module: module.name().to_owned() })
                }
                detection => Ok(attach(*language, detection, module)),
            }
        }
    }
}

fn attach(language: &dyn Language, detection: Detection, module: &dyn ModuleView) -> Chosen {
    let without = |note: String| Chosen { walker: None, notes: vec![format!("{note}; frames will be native only")] };
    match detection {
        Detection::No => Chosen::default(),
        Detection::Unsupported { found, supported } => {
            without(format!("unsupported {found} in {} (supported: {supported})", module.name()))
        }
        Detection::Yes(found) => match language.attach(module) {
            Ok(walker) => Chosen { walker: Some(walker), notes: Vec::new() },
            Err(error) => without(format!("{found} in {}: {error}", module.name())),
        },
    }
}
