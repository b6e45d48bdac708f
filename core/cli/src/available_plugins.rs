//! Which language plugins there are: those that the user names, those in the folders for them, then the built-in ones.

use super::failure::{FAILED, Failure};
use super::say;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wlprof::languages::{BUILT_IN, Choice};
use wlprof_loader::{ForeignLanguage, LoadError, LoadedPlugin, PluginFile};
use wlprof_plugin::{AttachError, Detection, Language, ModuleView, Program};
use wlprof_show::escape;

/// Folders with plugins, parted as in `PATH`.
const PATH_VARIABLE: &str = "WLPROF_PLUGIN_PATH";

/// The plugins of a run.
pub(super) struct Plugins {
    /// Those that the user named come first.
    opened: Vec<LoadedPlugin>,
    named: usize,
    /// Languages of plugins that the run does not need: only their names are known.
    unopened: Vec<UnopenedPlugin>,
}

impl Plugins {
    /// The plugins at these paths, which must work, and those in the folders, of which it is said which are left out because
    /// they do not. Only those are opened that `choice` may need: none of the others' code runs.
    pub(super) fn for_run(paths: &[PathBuf], choice: &Choice) -> Result<Self, Failure> {
        let mut plugins = Self { opened: Vec::new(), named: 0, unopened: Vec::new() };
        for path in paths {
            plugins.add(path, choice).map_err(|error| failed_to_load(path, &error))?;
        }
        plugins.named = plugins.opened.len();
        say_what_is_no_folder();
        for path in libraries_in_folders() {
            if let Err(error) = plugins.add(&path, choice) {
                let note = format!("plugin {} is left out: {error}", path.display());
                say::line(format_args!("note: {}", escape::single_line(&note)));
            }
        }
        Ok(plugins)
    }

    fn add(&mut self, path: &Path, choice: &Choice) -> Result<(), LoadError> {
        let file = PluginFile::read(path)?;
        let may_be_needed = match (choice, file.languages()) {
            (Choice::Native, _) => false,
            (Choice::Named(name), Some(names)) => names.contains(name),
            // Only the plugin itself knows its guests.
            (Choice::Named(_), None) | (Choice::Auto, _) => true,
        };
        if may_be_needed {
            self.opened.push(file.open()?);
        } else {
            self.unopened.extend(file.languages().unwrap_or_default().iter().cloned().map(UnopenedPlugin));
        }
        Ok(())
    }

    /// The plugins at these paths, as far as they can be loaded, and no others.
    pub(super) fn of_files(paths: &[PathBuf]) -> Self {
        let opened: Vec<_> = paths.iter().filter_map(|path| LoadedPlugin::load(path).ok()).collect();
        Self { named: opened.len(), opened, unopened: Vec::new() }
    }

    /// The files of the plugins that know `language`, of those that were opened.
    pub(super) fn files_of(&self, language: &str) -> Vec<PathBuf> {
        let knows = |plugin: &&LoadedPlugin| plugin.languages.iter().any(|known| known.name() == language);
        let absolute = |plugin: &LoadedPlugin| std::path::absolute(&plugin.path).unwrap_or(plugin.path.clone());
        self.opened.iter().filter(knows).map(absolute).collect()
    }

    /// What plugins did that failed and is in none of the notes that the user has `seen`.
    pub(super) fn failures(&self, seen: &[String]) -> Vec<String> {
        let failures = self.opened.iter().filter_map(LoadedPlugin::failure);
        failures.filter(|failure| !seen.iter().any(|note| note.contains(failure))).collect()
    }

    /// Ends programs and walkers, and prints [`Plugins::failures`]. To be called at the end, when all is written, and however little the user
    /// wants to read: the profile is another one then.
    pub(super) fn print_failures(&self, seen: &[String]) {
        self.opened.iter().for_each(LoadedPlugin::end_walkers);
        for failure in self.failures(seen) {
            say::line(format_args!("note: {}", escape::single_line(&failure)));
        }
    }

    /// Says of the plugins that the user named which of them do not know `module`. Those that failed have said so.
    pub(super) fn strangers(&self, module: &dyn ModuleView) -> impl Iterator<Item = String> {
        let is_stranger =
            |language: &ForeignLanguage| language.detect(module) == Detection::No && language.failure().is_none();
        self.opened[..self.named].iter().filter(move |plugin| plugin.languages.iter().all(is_stranger)).map(|plugin| {
            let languages: Vec<&str> = plugin.languages.iter().map(Language::name).collect();
            let (path, module) = (plugin.path.display(), module.name());
            format!("plugin {path} is not used: it does not know {module} (its languages: {})", languages.join(", "))
        })
    }

    /// All languages, in the order in which they are asked.
    pub(super) fn languages(&self) -> Vec<&dyn Language> {
        let opened = self.opened.iter().flat_map(|plugin| &plugin.languages).map(|language| language as &dyn Language);
        let unopened = self.unopened.iter().map(|language| language as &dyn Language);
        opened.chain(unopened).chain(BUILT_IN.iter().copied()).collect()
    }
}

/// A language that the user did not ask for, of a plugin that was not opened: it is there, and knows no guest.
struct UnopenedPlugin(String);

impl Language for UnopenedPlugin {
    fn name(&self) -> &str {
        &self.0
    }

    fn detect(&self, _module: &dyn ModuleView) -> Detection {
        Detection::No
    }

    fn attach(&self, _module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        Err(AttachError("its plugin has not been opened".to_owned()))
    }
}

/// The failure of a plugin that the user named.
pub(super) fn failed_to_load(path: &Path, error: &LoadError) -> Failure {
    Failure::new(FAILED, format!("plugin {}: {error}", path.display()))
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

/// Says which of the named folders are none.
pub(super) fn say_what_is_no_folder() {
    for folder in named_folders().iter().filter(|folder| !folder.is_dir()) {
        let note = format!("{PATH_VARIABLE} names {}, which is no folder", folder.display());
        say::line(format_args!("note: {}", escape::single_line(&note)));
    }
}

/// The dynamic libraries in the folders for plugins.
pub(super) fn libraries_in_folders() -> impl Iterator<Item = PathBuf> {
    folders().into_iter().flat_map(|folder| libraries(&folder))
}

/// The dynamic libraries of a folder, in order of their names. None if it does not exist.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_library = |path: &PathBuf| path.extension().is_some_and(|ending| ending == env::consts::DLL_EXTENSION);
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_library).collect();
    paths.sort();
    paths
}
