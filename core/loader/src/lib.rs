//! Plugins that are dynamic libraries.
//!
//! # Security
//! A plugin is code that runs in this process with all its rights: load none that you would not run. What is contained are
//! mistakes, as far as a process can contain them: what a plugin says is bounded and checked, and one that crashes or does
//! not come back is left and not asked any more, and what it changes of the process is put back (see `containment`).

mod check;
mod containment;
mod foreign;
mod heap;
mod host;
mod open;
mod program;
#[cfg_attr(not(unix), path = "unguarded_stack_room.rs")]
mod stack_room;
mod threads;
mod walker;

pub use check::PluginDescription;
pub use foreign::ForeignLanguage;

/// Ends the process with this exit code, when all is written: what plugins want to do at its end is left out, and may hang.
pub fn end_process(code: u8) -> ! {
    containment::end_process(code)
}

use containment::{Activity, Calls, Identity, PluginLibrary};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof_plugin::{Language, abi};

/// Why a library is no plugin that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file cannot be read.
    Read(String),
    /// It is no dynamic library, or not a whole one.
    NotALibrary(String),
    /// It is for another machine.
    OtherMachine {
        /// Which it is for.
        found: String,
        /// Which it should be for.
        wanted: String,
    },
    /// This system loads none.
    OtherSystem,
    /// It exports no plugin.
    NoEntry,
    /// What it exports under a plugin's name is none.
    NoMagic,
    /// It is for another version of the ABI.
    OtherAbi {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The system cannot load it.
    Load(String),
    /// What it says of itself cannot be.
    Malformed(String),
    /// It crashed while it was asked what it is.
    Failed(String),
    /// One of its languages lacks a function.
    Incomplete(&'static str),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let major = abi::ABI_MAJOR;
        match self {
            Self::Read(error) => f.write_str(error),
            Self::NotALibrary(error) => write!(f, "not a dynamic library, or not a whole one: {error}"),
            Self::OtherMachine { found, wanted } => {
                write!(f, "built for {found}, and this is {wanted}; build it for this machine")
            }
            Self::OtherSystem => {
                f.write_str("plugins are loaded on Linux alone; the languages that are built in are known here, too")
            }
            Self::NoEntry => write!(
                f,
                "it exports no `{}`: not a wlprof plugin (in Rust: export_plugin!, in C: see wlprof_plugin.h)",
                abi::PLUGIN_SYMBOL
            ),
            Self::NoMagic => write!(
                f,
                "its `{}` does not begin as a plugin does: set `.magic = WLPROF_PLUGIN_MAGIC`",
                abi::PLUGIN_SYMBOL
            ),
            Self::OtherAbi { major: found, minor: found_minor } => write!(
                f,
                "built for plugin ABI {found}.{found_minor} (supported: {major}.x); build it with \
                 this wlprof's header or crate"
            ),
            Self::Failed(how) => f.write_str(how),
            Self::Load(error) => write!(f, "cannot be loaded: {error}"),
            Self::Incomplete(function) => write!(f, "one of its languages has no `{function}`"),
            Self::Malformed(what) => write!(f, "what it says of itself cannot be: {what}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded plugin.
pub struct LoadedPlugin {
    /// What it is called.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// Major and minor version of the ABI it was built for.
    pub abi: (u32, u32),
    /// Where it came from.
    pub path: PathBuf,
    /// Its languages.
    pub languages: Vec<ForeignLanguage>,
    library: Arc<PluginLibrary>,
}

/// Whether a structure of a plugin has the size that its version of the ABI gives it; larger ones are of later versions.
fn size_fits<T>(size: usize, abi_minor: u32, name: &str) -> Result<(), String> {
    let wanted = size_of::<T>();
    if size == wanted || (size > wanted && abi_minor > abi::ABI_MINOR) {
        return Ok(());
    }
    Err(format!("a {name} with a size of {size} instead of {wanted} (set `.size = sizeof({name})`)"))
}

/// Why a language cannot be called `name`; `None` if it can.
pub fn why_no_name(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-._#".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        return Some(format!("`{name}` is no name for --lang (lower case letters, digits and any of + - . _ #)"));
    }
    ["auto", "native"].contains(&name).then(|| format!("`{name}` means something else to --lang"))
}

/// Languages that a plugin may have.
const MOST_LANGUAGES: usize = 64;

/// A plugin's file, of which nothing has run.
pub struct PluginFile {
    /// Where it is.
    pub path: PathBuf,
    described: Option<PluginDescription>,
}

impl PluginFile {
    /// Reads the file at `path`, which is a plugin, for this machine and this ABI.
    ///
    /// # Errors
    /// [`LoadError`] says what it is instead.
    pub fn read(path: &Path) -> Result<Self, LoadError> {
        let read = |error: std::io::Error| LoadError::Read(error.to_string());
        if !std::fs::metadata(path).map_err(read)?.is_file() {
            return Err(LoadError::NotALibrary("it is no file".to_owned()));
        }
        if !cfg!(target_os = "linux") {
            return Err(LoadError::OtherSystem);
        }
        let described = check::check(&std::fs::read(path).map_err(read)?)?;
        Ok(Self { path: path.to_owned(), described })
    }

    /// What its languages are called; `None` if it has to be opened for that.
    pub fn languages(&self) -> Option<&[String]> {
        self.described.as_ref().map(|described| &*described.languages)
    }

    /// What it is. It is opened only if the file does not say.
    ///
    /// # Errors
    /// As for [`PluginFile::open`].
    pub fn describe(self) -> Result<PluginDescription, LoadError> {
        match self.described {
            Some(described) => Ok(described),
            None => self.open().map(|plugin| PluginDescription {
                name: plugin.name.clone(),
                version: plugin.version.clone(),
                abi: plugin.abi,
                languages: plugin.languages.iter().map(|language| language.name().to_owned()).collect(),
            }),
        }
    }

    /// Has the system load it, with the constructors in it.
    ///
    /// # Errors
    /// [`LoadError`] says why it cannot be used.
    pub fn open(self) -> Result<LoadedPlugin, LoadError> {
        LoadedPlugin::open(&self.path, false)
    }
}

impl LoadedPlugin {
    /// Loads the plugin at `path`. None of its code runs before it has been found to be one, for this machine and this ABI.
    ///
    /// # Errors
    /// [`LoadError`] says what it is instead.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        PluginFile::read(path)?.open()
    }

    /// As [`LoadedPlugin::load`], and looks in every call for what it changes of the process, which takes longer than most.
    ///
    /// # Errors
    /// As there.
    pub fn load_to_check(path: &Path) -> Result<Self, LoadError> {
        Self::open(&PluginFile::read(path)?.path, true)
    }

    fn open(path: &Path, is_checked: bool) -> Result<Self, LoadError> {
        // Without a folder in it the system would look elsewhere.
        let absolute = std::path::absolute(path).map_err(|error| LoadError::Read(error.to_string()))?;
        let library = PluginLibrary::open(&absolute, is_checked, || {
            // SAFETY: what the library does when it is loaded is the user's choice, as for any program.
            let library = unsafe { open::library(&absolute) }?;
            // SAFETY: the symbol is a constant of that type: magic and version have been checked.
            let plugin = unsafe { *library.get::<*const abi::Plugin>(abi::PLUGIN_SYMBOL.as_bytes())? };
            Ok((library, plugin as usize))
        });
        let failed = |error: libloading::Error| LoadError::Load(error.to_string());
        let (library, plugin) = library.map_err(failed)?;
        // SAFETY: `plugin` is the library's exported constant, whose magic and version the file shows. A crash in what it leads to is
        // contained, since this runs in `Calls::call`.
        let describe = || unsafe { Description::read(plugin as *const abi::Plugin) };
        let described = Calls::new(library.clone()).call(Activity::Load, describe);
        let Some(described) = described else { return Err(LoadError::Failed(library.failure().unwrap_or_default())) };
        let Description { name, version, abi, languages } = described?;
        library.identify(Identity { name: name.clone(), abi_minor: abi.1 });
        // SAFETY: `Description::read` has read the whole language, and its library stays loaded for good.
        let language = |(language, name)| unsafe { ForeignLanguage::new(language, name, library.clone()) };
        let languages = languages.into_iter().map(language).collect();
        Ok(Self { name, version, abi, path: path.to_owned(), languages, library: library.clone() })
    }

    /// Why the plugin is not asked any more; `None` if it is.
    pub fn failure(&self) -> Option<String> {
        self.library.failure()
    }

    /// What it changed of the process and should not have, in a sentence each.
    pub fn changes(&self) -> Vec<String> {
        self.library.changes()
    }

    /// Ends its programs and walkers that nobody needs. Call this when outputs are written: the plugin may fail in it.
    pub fn end_walkers(&self) {
        self.library.end_all();
    }
}

impl Drop for LoadedPlugin {
    fn drop(&mut self) {
        self.library.end_all();
    }
}

/// What a plugin says of itself.
struct Description {
    name: String,
    version: String,
    abi: (u32, u32),
    languages: Vec<(*const abi::Language, String)>,
}

impl Description {
    /// # Safety
    /// `plugin` must point to a plugin that is as the ABI says for good, or this must run in `Calls::call`, which contains a crash.
    unsafe fn read(plugin: *const abi::Plugin) -> Result<Self, LoadError> {
        // SAFETY: `plugin` points to a plugin that stays for good, or a crash is contained (see # Safety).
        let plugin = unsafe { &*plugin };
        let minor = plugin.abi_minor;
        size_fits::<abi::Plugin>(plugin.size, minor, "wlprof_plugin_t").map_err(LoadError::Malformed)?;
        let (count, first) = (plugin.language_count, plugin.languages);
        if count > MOST_LANGUAGES || first.is_null() {
            return Err(LoadError::Malformed(format!(
                "it has {count} languages at {first:p} (supported: up to {MOST_LANGUAGES}, not at null)"
            )));
        }
        let mut languages = Vec::new();
        for index in 0..count {
            // SAFETY: by the ABI there are `count` languages at `first`, which is not null (checked), or a crash is contained
            // (see # Safety).
            let language = unsafe { first.add(index).read() };
            if language.is_null() {
                return Err(LoadError::Malformed("one of its languages is at null".to_owned()));
            }
            // SAFETY: `language` is not null (checked), and every version of the structure begins with its size; or a crash is contained
            // (see # Safety).
            let size = unsafe { (*language).size };
            size_fits::<abi::Language>(size, minor, "wlprof_language_t").map_err(LoadError::Malformed)?;
            // SAFETY: the size says that it is a whole language (checked), or a crash is contained (see # Safety).
            let abi::Language { name, detect, attach, .. } = unsafe { language.read() };
            detect.ok_or(LoadError::Incomplete("detect"))?;
            attach.ok_or(LoadError::Incomplete("attach"))?;
            // SAFETY: by the ABI the texts of languages are constant, or a crash is contained (see # Safety).
            let name = unsafe { host::text(name) };
            if let Some(reason) = why_no_name(&name) {
                return Err(LoadError::Malformed(reason));
            }
            languages.push((language, name));
        }
        // SAFETY: by the ABI the texts of plugins are constant, or a crash is contained (see # Safety).
        let (name, version) = unsafe { (host::text(plugin.name), host::text(plugin.version)) };
        Ok(Self { name, version, abi: (plugin.abi_major, minor), languages })
    }
}
