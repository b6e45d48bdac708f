//! Which language plugins there are: those that the user names, those in the folders for them, then the built-in ones. And
//! `wlprof plugins`, which lists them, checks one, or begins one.

mod check;
mod skeleton;

use super::arguments::{ListPlugins, PluginsAction, PluginsCommand};
use super::{FAILED, Failure, escape, say};
use crate::languages::BUILT_IN;
use crate::languages::loader::{ForeignLanguage, LoadError, LoadedPlugin};
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use wlprof_plugin::{Detection, Language, ModuleView};

/// Folders with plugins, parted as in `PATH`.
const PATH_VARIABLE: &str = "WLPROF_PLUGIN_PATH";

/// The plugins of a run.
pub(super) struct Plugins {
    /// Those that the user named come first.
    loaded: Vec<LoadedPlugin>,
    named: usize,
    /// What lies in the folders and is no plugin that can be used.
    broken: Vec<(PathBuf, LoadError)>,
}

impl Plugins {
    /// Loads the plugins at these paths, which must work, and those in the folders, which are left out if they do not.
    pub(super) fn load(paths: &[PathBuf]) -> Result<Self, Failure> {
        let load = |path: &PathBuf| {
            let failed = |error| Failure::new(FAILED, format!("plugin {}: {error}", path.display()));
            LoadedPlugin::load(path).map_err(failed)
        };
        let loaded = paths.iter().map(load).collect::<Result<_, _>>()?;
        let mut plugins = Self { loaded, named: paths.len(), broken: Vec::new() };
        for path in folders().iter().flat_map(|folder| libraries(folder)) {
            match LoadedPlugin::load(&path) {
                Ok(plugin) => plugins.loaded.push(plugin),
                Err(error) => plugins.broken.push((path, error)),
            }
        }
        Ok(plugins)
    }

    /// Loads the plugins at these paths, as far as they can be loaded, and no others.
    pub(super) fn of_files(paths: &[PathBuf]) -> Self {
        let loaded: Vec<_> = paths.iter().filter_map(|path| LoadedPlugin::load(path).ok()).collect();
        Self { named: loaded.len(), loaded, broken: Vec::new() }
    }

    /// The files of the plugins that know `language`.
    pub(super) fn files_of(&self, language: &str) -> Vec<PathBuf> {
        let knows = |plugin: &&LoadedPlugin| plugin.languages.iter().any(|known| known.name() == language);
        let absolute = |plugin: &LoadedPlugin| std::path::absolute(&plugin.path).unwrap_or(plugin.path.clone());
        self.loaded.iter().filter(knows).map(absolute).collect()
    }

    /// As [`Plugins::load`], and says which are left out.
    pub(super) fn for_run(paths: &[PathBuf]) -> Result<Self, Failure> {
        let plugins = Self::load(paths)?;
        say_what_is_no_folder();
        for (path, error) in &plugins.broken {
            let note = format!("plugin {} is left out: {error}", path.display());
            say::line(format_args!("note: {}", escape::single_line(&note)));
        }
        Ok(plugins)
    }

    /// What plugins did that failed and is in none of the notes that the user has `seen`.
    pub(super) fn failures(&self, seen: &[String]) -> Vec<String> {
        let failures = self.loaded.iter().filter_map(|plugin| plugin.languages.first()?.failure());
        failures.filter(|failure| !seen.iter().any(|note| note.contains(failure))).collect()
    }

    /// Prints [`Plugins::failures`]. To be called at the end, when walkers are gone, and however little the user wants to read:
    /// the profile is another one then.
    pub(super) fn print_failures(&self, seen: &[String]) {
        for failure in self.failures(seen) {
            say::line(format_args!("note: {}", escape::single_line(&failure)));
        }
    }

    /// Says of the plugins that the user named which of them do not know `module`. Those that failed have said so.
    pub(super) fn strangers(&self, module: &dyn ModuleView) -> impl Iterator<Item = String> {
        let is_stranger =
            |language: &ForeignLanguage| language.detect(module) == Detection::No && language.failure().is_none();
        self.loaded[..self.named].iter().filter(move |plugin| plugin.languages.iter().all(is_stranger)).map(|plugin| {
            let languages: Vec<&str> = plugin.languages.iter().map(Language::name).collect();
            let (path, module) = (plugin.path.display(), module.name());
            format!("plugin {path} is not used: it does not know {module} (its languages: {})", languages.join(", "))
        })
    }

    /// All languages, in the order in which they are asked.
    pub(super) fn languages(&self) -> Vec<&dyn Language> {
        let loaded = self.loaded.iter().flat_map(|plugin| &plugin.languages).map(|language| language as &dyn Language);
        loaded.chain(BUILT_IN.iter().copied()).collect()
    }
}

/// The folders of `WLPROF_PLUGIN_PATH`, then the user's own.
fn folders() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    // As the XDG specification has it: relative ones are ignored. Nobody's working folder is to be a place for plugins.
    let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|data| data.is_absolute());
    let data = data.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    named_folders().into_iter().chain(data.map(|data| data.join("wlprof/plugins"))).collect()
}

fn named_folders() -> Vec<PathBuf> {
    let named = env::var_os(PATH_VARIABLE).unwrap_or_default();
    env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

fn say_what_is_no_folder() {
    for folder in named_folders().iter().filter(|folder| !folder.is_dir()) {
        let note = format!("{PATH_VARIABLE} names {}, which is no folder", folder.display());
        say::line(format_args!("note: {}", escape::single_line(&note)));
    }
}

/// The dynamic libraries of a folder, in order of their names. None if it does not exist.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_library = |path: &PathBuf| path.extension().is_some_and(|ending| ending == env::consts::DLL_EXTENSION);
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_library).collect();
    paths.sort();
    paths
}

/// Runs `wlprof plugins` and gives the exit code.
pub(super) fn run(command: &PluginsCommand) -> Result<u8, Failure> {
    match &command.action {
        None => list(&command.list).map(|()| 0),
        Some(PluginsAction::New(new)) => skeleton::write(new).map(|()| 0),
        Some(PluginsAction::Check(arguments)) => check::run(arguments),
    }
}

/// Lists the plugins on standard output: a line each of name, version, ABI, languages and path, parted by tabs.
fn list(arguments: &ListPlugins) -> Result<(), Failure> {
    let plugins = Plugins::load(&arguments.plugins)?;
    say_what_is_no_folder();
    let mut text = String::from("NAME\tVERSION\tABI\tLANGUAGES\tPATH\n");
    let mut row = |cells: [&str; 5]| {
        let cells = cells.map(escape::single_line);
        text.push_str(&cells.join("\t"));
        text.push('\n');
    };
    for plugin in &plugins.loaded {
        let languages: Vec<&str> = plugin.languages.iter().map(Language::name).collect();
        let abi = format!("{}.{}", plugin.abi.0, plugin.abi.1);
        row([&plugin.name, &plugin.version, &abi, &languages.join(","), &plugin.path.to_string_lossy()]);
    }
    for language in BUILT_IN {
        row([language.name(), env!("CARGO_PKG_VERSION"), "-", language.name(), "(built in)"]);
    }
    for (path, error) in &plugins.broken {
        row(["-", "-", "-", "-", &format!("{}: {error}", path.display())]);
    }
    // Whoever closed standard output wants no more of it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
