//! `wlprof plugins`: lists the language plugins, checks one, or begins one.

mod check;
mod skeleton;

use super::available_plugins::{failed_to_load, libraries_in_folders, say_what_is_no_folder};
use super::failure::Failure;
use check::CheckPlugin;
use clap::{Args, Subcommand};
use skeleton::NewPlugin;
use std::io::Write;
use std::path::PathBuf;
use wlprof::languages::BUILT_IN;
use wlprof_loader::PluginFile;
use wlprof_show::escape;

/// `wlprof plugins` and what it can do besides listing.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct PluginsCommand {
    #[command(subcommand)]
    pub(super) action: Option<PluginsAction>,
    #[command(flatten)]
    pub(super) list: ListPlugins,
}

#[derive(Debug, Subcommand)]
pub(super) enum PluginsAction {
    /// Begin a plugin: write a folder NAME with one that compiles and knows no guest yet
    New(NewPlugin),
    /// Check a plugin: what wlprof counts on, with damaged memory and modules, too. Exits with 1 if it fails
    Check(CheckPlugin),
}

/// Options of `wlprof plugins` without more.
#[derive(Debug, Args)]
pub(super) struct ListPlugins {
    /// List this one as well; may repeat
    #[arg(long = "plugin", value_name = "FILE")]
    pub(super) plugins: Vec<PathBuf>,
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
