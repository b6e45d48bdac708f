//! The command line. Flags that `wasmtime run` has, have the same names here.

#[cfg(target_os = "linux")]
use super::agent::Agent;
use super::annotate::Annotate;
#[cfg(target_os = "linux")]
use super::attach::{Attach, ps::Ps};
use super::bench::Bench;
use super::completions::Completions;
use super::diff::Diff;
use super::dump::Dump;
use super::failure::EXIT_CODES;
use super::finish::MAKE_PROFILE;
use super::man_pages::ManPages;
use super::merge::Merge;
use super::plugins::PluginsCommand;
use super::record::Record;
use super::render::Render;
use super::serve::Serve;
use super::top::Top;
use super::view::{MAKE_VIEW, View};
use clap::{Parser, Subcommand};
use std::sync::LazyLock;

/// wlprof's version, and that of the Wasmtime in it, with which guests run as they do in wlprof.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} (Wasmtime {})", env!("CARGO_PKG_VERSION"), wasmtime_environ::VERSION));
    &VERSION
}

/// Runs a WebAssembly program and shows which of its source lines take the time.
#[derive(Parser)]
#[command(
    name = "wlprof",
    version = version(),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    max_term_width = 100,
    after_help = format!("Exit codes: {EXIT_CODES}")
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) record: Record,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Render a recording (x.wlprof) in other formats
    Render(Render),
    /// Compare two recordings: what differs by more than chance
    Diff(Diff),
    /// Put several recordings together
    Merge(Merge),
    /// Print source lines of a recording with the time of each
    Annotate(Annotate),
    /// Show a profile in the browser
    ///
    /// It is served on this machine, and nothing is loaded from the net but by the Firefox Profiler.
    View(View),
    /// Run guests many times and write how long each run took
    ///
    /// As Faasm's microbenchmark runner does.
    Bench(Bench),
    /// Sample the guests of a process that runs already
    ///
    /// It needs no preparation: any program that runs Wasmtime 24 or later can be attached to.
    #[cfg(target_os = "linux")]
    Attach(Attach),
    /// Push profiles of all processes that run Wasmtime
    ///
    /// They are attached to as they come.
    #[cfg(target_os = "linux")]
    Agent(Agent),
    /// List the processes that run Wasmtime
    #[cfg(target_os = "linux")]
    Ps(Ps),
    /// Show what is hot in a guest while it runs, or in a process
    Top(Top),
    /// Run a guest and print its stacks when asked
    ///
    /// They are printed at Ctrl-\ (SIGQUIT), at given times, or where the guest calls given imports.
    Dump(Dump),
    /// Serve a component over HTTP and profile it by request
    ///
    /// As `wasmtime serve` does.
    Serve(Box<Serve>),
    /// List the language plugins, check one, or begin a new one
    ///
    /// Without a command it lists them: the built-in ones, those in $WLPROF_PLUGIN_PATH and in ~/.local/share/wlprof/plugins
    /// ($XDG_DATA_HOME/wlprof/plugins).
    Plugins(PluginsCommand),
    /// Print the script by which a shell completes commands
    ///
    /// Put it where the shell looks: `wlprof completions bash > ~/.local/share/bash-completion/completions/wlprof`, `wlprof
    /// completions fish > ~/.config/fish/completions/wlprof.fish`, or as `_wlprof` into a folder of zsh's $fpath.
    Completions(Completions),
    /// Write wlprof's help as man pages, one a command
    ManPages(ManPages),
    /// What `wlprof` starts itself as when a run is over, to make the profile
    #[command(name = MAKE_PROFILE, hide = true)]
    MakeProfile,
    /// What `wlprof view` starts itself as, to render a recording
    #[command(name = MAKE_VIEW, hide = true)]
    MakeView(View),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_follows_the_guest_is_the_guests() {
        let arguments = Arguments::parse_from(["wlprof", "--rate=250", "g.wasm", "--rate", "x", "-o", "y"]);
        assert_eq!(arguments.record.profiling.sampling.rate, Some(250.0));
        assert_eq!(arguments.record.guest.guest_and_arguments, ["g.wasm", "--rate", "x", "-o", "y"]);
        assert!(arguments.record.profiling.output.files.is_empty());
    }
}
