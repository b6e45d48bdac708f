//! `wlprof plugins`: lists the language plugins, checks one, or begins one.

mod check;
mod skeleton;

use super::arguments::{ListPlugins, PluginsAction, PluginsCommand};
use super::available_plugins::{failed_to_load, libraries_in_folders, say_what_is_no_folder};
use super::{Failure, escape};
use std::io::Write;
use wlprof::languages::BUILT_IN;
use wlprof_loader::PluginFile;

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
    let mut text = String::from("NAME\tVERSION\tABI\tLANGUAGES\tPATH\n");
    let mut row = |cells: [&str; 5]| {
        let cells = cells.map(escape::single_line);
        text.push_str(&cells.join("\t"));
        text.push('\n');
    };
    let mut broken = Vec::new();
    say_what_is_no_folder();
    let named = arguments.plugins.iter().map(|path| (path.clone(), true));
    for (path, is_named) in named.chain(libraries_in_folders().map(|path| (path, false))) {
        match PluginFile::read(&path).and_then(PluginFile::describe) {
            Ok(plugin) => {
                let abi = format!("{}.{}", plugin.abi.0, plugin.abi.1);
                let languages = plugin.languages.join(",");
                row([&plugin.name, &plugin.version, &abi, &languages, &path.to_string_lossy()]);
            }
            Err(error) if is_named => return Err(failed_to_load(&path, &error)),
            Err(error) => broken.push((path, error)),
        }
    }
    for language in BUILT_IN {
        row([language.name(), env!("CARGO_PKG_VERSION"), "-", language.name(), "(built in)"]);
    }
    for (path, error) in &broken {
        row(["-", "-", "-", "-", &format!("{}: {error}", path.display())]);
    }
    // Whoever closed standard output wants no more of it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
