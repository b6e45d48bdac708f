//! `wlprof completions`: the script by which a shell completes wlprof's commands and options.

use super::failure::Failure;
use super::say::print;
use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// Options of `wlprof completions`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script for `command`, which is of this version.
pub(super) fn run(completions: &Completions, command: Command, version: &'static str) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(completions.shell, &mut visible(command).version(version), "wlprof", &mut script);
    print(&script)
}

/// The command without the subcommands and options that help does not show: scripts would propose them.
fn visible(command: Command) -> Command {
    // Names of commands live as long as the process, which ends when the script is printed.
    let name: &'static str = Box::leak(command.get_name().into());
    let shown = Command::new(name)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned().map(visible));
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}
