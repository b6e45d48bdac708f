//! The command line. Flags that `wasmtime run` has, have the same names here.

use super::Failure;
use super::completions::Completions;
use super::diff::Diff;
use super::formats::{CodeFormat, Format, files_help, rendered_files_help};
use super::man_pages::ManPages;
use super::merge::Merge;
use super::profiling::Profiling;
use super::sampling::{ClockChoice, SamplerChoice};
use super::serve::Serve;
use super::showing::Showing;
use super::table::TableOptions;
use super::top::Top;
use super::wasmtime_options::WasmtimeOptions;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;
use wlprof::sampler::SamplerOptions;
use wlprof_export::Exporter;
use wlprof_recording::{self as recording, Clock};
use wlprof_wasi::Directory;

/// The subcommand that wlprof starts itself with to make a profile.
pub(super) const MAKE_PROFILE: &str = "make-profile";

/// The subcommand that wlprof starts itself with to render a recording that is to be viewed.
pub(super) const MAKE_VIEW: &str = "make-view";

/// What exit codes mean.
pub(super) const EXIT_CODES: &str =
    "The guest's own (134 if it trapped); 125 wlprof failed, 126 the guest cannot be run, 127 no such guest.";

/// wlprof's version, and that of the Wasmtime in it, with which guests run as they do in wlprof.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{} (Wasmtime {})", env!("CARGO_PKG_VERSION"), wasmtime_environ::VERSION));
    &VERSION
}

/// Runs a WebAssembly program and shows which lines of its own language the time went to.
#[derive(Parser)]
#[command(
    name = "wlprof",
    version = version(),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
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
    /// Compare two recordings: which functions took another share of the time, by more than chance
    Diff(Diff),
    /// Put several recordings together
    Merge(Merge),
    /// Print source lines of a recording with the time of each beside it
    Annotate(Annotate),
    /// Serve a profile on this machine and open it in the Firefox Profiler
    View(View),
    /// Run guests many times and write how long each run took, as Faasm's microbenchmark runner does
    Bench(Bench),
    /// Run a guest and show what is hot in it, in a table that refreshes
    Top(Top),
    /// Run a guest and show its stacks whenever it is interrupted with Ctrl-\ (SIGQUIT), at given times, or where it calls
    /// given imports
    Dump(Dump),
    /// Serve a component that answers HTTP requests, as `wasmtime serve` does, and profile it by request
    Serve(Box<Serve>),
    /// List the language plugins, check one, or begin a new one
    ///
    /// Without a command it lists them: the built-in ones, those in $WLPROF_PLUGIN_PATH and in ~/.local/share/wlprof/plugins
    /// ($XDG_DATA_HOME/wlprof/plugins).
    Plugins(PluginsCommand),
    /// Print the script by which a shell completes wlprof's commands and options
    ///
    /// Put it where the shell looks: `wlprof completions bash > ~/.local/share/bash-completion/completions/wlprof`, `wlprof
    /// completions fish > ~/.config/fish/completions/wlprof.fish`, or as `_wlprof` into a folder of zsh's $fpath.
    Completions(Completions),
    /// Write wlprof's help as pages for `man`, one for each command
    ManPages(ManPages),
    /// What `wlprof` starts itself as when a run is over, to make the profile
    #[command(name = MAKE_PROFILE, hide = true)]
    MakeProfile,
    /// What `wlprof view` starts itself as, to render a recording
    #[command(name = MAKE_VIEW, hide = true)]
    MakeView(View),
}

/// Options of a run.
#[derive(Args)]
pub(super) struct Record {
    #[command(flatten)]
    pub(super) profiling: Profiling,
    /// Which functions --format=jitdump writes. perf makes a file of each
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = DumpedFunctions::All)]
    pub(super) jitdump_functions: DumpedFunctions,
    #[command(flatten)]
    pub(super) guest: GuestOptions,
}

/// What to run and the world it runs in.
#[derive(Args)]
pub(super) struct GuestOptions {
    /// The guest's language, whose own stacks to show; auto finds out, native shows wasm frames alone
    #[arg(long = "lang", value_name = "NAME", default_value = "auto")]
    pub(super) language: String,
    /// Load a language plugin, a dynamic library; may repeat. Its code runs in wlprof, with all rights of yours
    #[arg(long = "plugin", value_name = "FILE")]
    pub(super) plugins: Vec<PathBuf>,
    /// File with the guest's debug sections, if they are not in the guest
    #[arg(long, value_name = "FILE")]
    pub(super) debug_file: Option<PathBuf>,
    /// Compile the guest afresh instead of taking it from Wasmtime's cache
    #[arg(long)]
    pub(super) no_cache: bool,
    /// Give the guest a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    pub(super) directories: Vec<Directory>,
    /// Give the guest an environment variable, or pass on one of this process; may repeat
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// Call this exported function instead of `_start`, and ARGS are its parameters; of a component, a call in WAVE, as 'add(1, 2)'
    #[arg(long, value_name = "NAME")]
    pub(super) invoke: Option<String>,
    /// Instantiate a core module before the guest, which can import from it by that name; may repeat
    #[arg(long = "preload", value_name = "NAME=FILE", value_parser = parse_preload)]
    pub(super) preloads: Vec<(String, PathBuf)>,
    /// What the guest is told that it is called: its argument 0 [default: the name of its file]
    #[arg(long, value_name = "NAME")]
    pub(super) argv0: Option<String>,
    #[command(flatten)]
    pub(super) wasmtime: WasmtimeOptions,
    /// The program to run (.wasm or .wat) and its arguments
    #[arg(value_name = "GUEST [ARGS]", value_hint = ValueHint::FilePath, required = true, trailing_var_arg = true)]
    pub(super) guest_and_arguments: Vec<OsString>,
}

/// Options of `wlprof dump`.
#[derive(Args)]
pub(super) struct Dump {
    /// Show every thread of the guest's language (goroutine), with what it waits for, instead of the running stack alone
    #[arg(long, visible_alias = "goroutines")]
    pub(super) threads: bool,
    /// Show the stacks this long after the guest began; may repeat
    #[arg(long = "dump-at", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) dump_at: Vec<f64>,
    /// Show the stacks where the guest calls this import, as `fd_write` or `wasi_snapshot_preview1.fd_write`; may repeat. The
    /// guest goes on when they are printed
    #[arg(long = "at-import", value_name = "NAME")]
    pub(super) at_imports: Vec<String>,
    /// How many calls of them to show, the first ones
    #[arg(long, value_name = "CALLS", default_value_t = 20, requires = "at_imports")]
    pub(super) at_import_limit: u64,
    #[command(flatten)]
    pub(super) guest: GuestOptions,
}

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

/// Options of `wlprof plugins new`.
#[derive(Debug, Args)]
pub(super) struct NewPlugin {
    /// The language that it is to know: what --lang will take
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// What the plugin is written in
    #[arg(long, value_enum, default_value_t = PluginLanguage::Rust)]
    pub(super) language: PluginLanguage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PluginLanguage {
    Rust,
    C,
}

/// Options of `wlprof plugins check`.
#[derive(Debug, Args)]
pub(super) struct CheckPlugin {
    /// The plugin, a dynamic library
    #[arg(value_name = "FILE")]
    pub(super) plugin: PathBuf,
    /// A program of its language, to walk. Its output is dropped, and it is halted after 20 s
    #[arg(long, value_name = "GUEST")]
    pub(super) guest: Option<PathBuf>,
    /// Give the guest a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    pub(super) directories: Vec<Directory>,
    /// Give the guest an environment variable, or pass on one of this process; may repeat
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// Call this exported function instead of `_start`; ARGS are its parameters
    #[arg(long, value_name = "NAME")]
    pub(super) invoke: Option<String>,
    /// The guest's arguments; options come before them
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<String>,
}

/// Options of `wlprof plugins` without more.
#[derive(Debug, Args)]
pub(super) struct ListPlugins {
    /// List this one as well; may repeat
    #[arg(long = "plugin", value_name = "FILE")]
    pub(super) plugins: Vec<PathBuf>,
}

/// Options of `wlprof render`: those of a run that are about its profile, in words that are about no run.
#[derive(Debug, Args)]
#[command(
    mut_arg("files", |files| files.help(rendered_files_help())),
    mut_arg("format", |format| {
        format.help("Format of files whose ending tells none").value_parser(Format::rendered_parser())
    }),
)]
pub(super) struct Render {
    #[command(flatten)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) names: Names,
    /// The recording
    #[arg(value_name = "FILE")]
    pub(super) recording: PathBuf,
}

/// Options of `wlprof bench`.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Write a profile of all runs of a line beside OUT, as OUT.row3-GUEST.json; the runs are then some percent slower
    #[arg(long)]
    pub(super) profile: bool,
    /// Compile guests afresh instead of taking them from Wasmtime's cache
    #[arg(long)]
    pub(super) no_cache: bool,
    /// Give the guests a folder; may repeat
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    pub(super) directories: Vec<Directory>,
    /// Give the guests an environment variable, or pass on one of this process; may repeat
    #[arg(long = "env", value_name = "K[=V]")]
    pub(super) environment: Vec<String>,
    /// What to run: lines of guest,export-or-arguments,runs,input. The second field is an exported function and its
    /// parameters, or else the guest's arguments; the last is what it reads from standard input
    #[arg(value_name = "SPEC.csv")]
    pub(super) spec: PathBuf,
    /// Where to write a line for each run
    #[arg(value_name = "OUT.csv")]
    pub(super) out: PathBuf,
}

/// Options of `wlprof view`.
#[derive(Debug, Args)]
pub(super) struct View {
    /// Print the URL and open no browser
    #[arg(long)]
    pub(super) no_open: bool,
    /// Which frames of a recording to show
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    pub(super) frames: FramesChoice,
    /// Show sources that are in this folder, by any end of their names; may repeat
    #[arg(long = "source-dir", value_name = "DIR")]
    pub(super) source_dirs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) names: Names,
    /// The profile: a recording (x.wlprof), or a profile for the Firefox Profiler (.json, .json.gz)
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// Where names come from that a recording lacks.
#[derive(Debug, Args)]
pub(super) struct Names {
    /// The program that was run: it names what a run that was cut short could not name, and with --debug-file what a stripped one could not
    #[arg(long, value_name = "GUEST")]
    pub(super) guest: Option<PathBuf>,
    /// File with the program's debug sections, if they are not in the program
    #[arg(long, value_name = "FILE", requires = "guest")]
    pub(super) debug_file: Option<PathBuf>,
}

/// Options of `wlprof annotate`.
#[derive(Debug, Args)]
pub(super) struct Annotate {
    /// A folder with source files, which are found in it by any end of their names; may repeat
    #[arg(long = "source-dir", value_name = "DIR")]
    pub(super) source_dirs: Vec<PathBuf>,
    /// Show the machine instructions of a function, which the guest (--guest) is compiled to again as it was for the run, with the
    /// wasm instructions that they are for and the time of these
    #[arg(long, requires = "guest", conflicts_with = "frames")]
    pub(super) asm: bool,
    /// Whose time counts
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    pub(super) frames: FramesChoice,
    #[command(flatten)]
    pub(super) names: Names,
    /// The recording
    #[arg(value_name = "RECORDING")]
    pub(super) recording: PathBuf,
    /// A function, by its name or a part of it, or a file, by its name. Without it the file, or with --asm the function, with
    /// the most time of its own
    #[arg(value_name = "FUNCTION|FILE")]
    pub(super) what: Option<String>,
}

/// Where profiles go.
#[derive(Debug, Default, Args)]
pub(super) struct Output {
    #[arg(short = 'o', long = "output", value_name = "FILE", help = files_help())]
    pub(super) files: Vec<PathBuf>,
    /// Write the call graph here: a picture (.svg), which Graphviz draws, or what it draws it of (.dot)
    #[arg(long, value_name = "FILE")]
    pub(super) graph: Option<PathBuf>,
    /// Format of files whose ending tells none. Or what `perf record` needs of a guest that runs; wlprof then samples only
    /// for -o
    #[arg(long, value_name = "FORMAT", value_parser = Format::parser())]
    pub(super) format: Option<Format>,
    /// Show sources that are in this folder, by any end of their names; may repeat. Firefox profiles have their texts in them
    #[arg(long = "source-dir", value_name = "DIR")]
    pub(super) source_dirs: Vec<PathBuf>,
    /// Which frames to show
    #[arg(long, value_enum, default_value_t = FramesChoice::Guest)]
    pub(super) frames: FramesChoice,
    #[command(flatten)]
    pub(super) showing: Showing,
    /// Print no table
    #[arg(short, long)]
    pub(super) quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DumpedFunctions {
    /// The whole guest
    All,
    /// Those that wlprof's own samples saw
    Sampled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum FramesChoice {
    /// Those of the guest's own language, and native code that it calls
    #[default]
    Guest,
    /// Those of its interpreter as well
    Merged,
    /// Wasm's alone
    Native,
}

impl FramesChoice {
    /// The view of the recording that shows them. In a run, `native` records nothing but wasm frames as well.
    pub(super) fn view(self) -> recording::View {
        match self {
            Self::Guest => recording::View::Guest,
            Self::Merged => recording::View::All,
            Self::Native => recording::View::Native,
        }
    }
}

impl Output {
    /// Whether the user names files to write.
    pub(super) fn names_files(&self) -> bool {
        !self.files.is_empty() || self.graph.is_some()
    }

    /// The format of files whose ending tells none.
    pub(super) fn profile_format(&self) -> Option<&'static dyn Exporter> {
        match self.format {
            Some(Format::Profile(exporter)) => Some(exporter),
            _ => None,
        }
    }

    /// How the table is to be; `None` if there is to be none.
    pub(super) fn table(&self) -> Option<TableOptions> {
        (!self.quiet).then(|| self.showing.table(self.frames != FramesChoice::Guest))
    }

    /// The format in which to write the guest's machine code.
    pub(super) fn code_format(&self) -> Option<CodeFormat> {
        match self.format {
            Some(Format::Code(format)) => Some(format),
            _ => None,
        }
    }
}

impl Record {
    /// Whether wlprof is to take samples: not if it is only to help perf to take them.
    fn samples(&self) -> bool {
        let only_code = match self.profiling.output.code_format() {
            Some(CodeFormat::PerfMap) => true,
            Some(CodeFormat::JitDump) => self.jitdump_functions == DumpedFunctions::All,
            None => false,
        };
        !only_code || self.profiling.output.names_files()
    }

    /// Refuses options that say nothing together.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let profiling @ Profiling { output, sampling, memory, listen } = &self.profiling;
        profiling.check(&self.guest)?;
        if profiling.samples_on_demand() && output.showing.off_cpu {
            return Err(
                "--off-cpu shows the waits of a whole run: give it with -o, or ask for windows with clock=wall",
            );
        }
        if listen.is_some() && output.code_format().is_some() && !output.names_files() {
            return Err("--listen takes samples of its own, and this format is for perf's; give --format a profile's");
        }
        if memory.memory && !self.samples() {
            return Err("--memory is for profiles of wlprof's own: name one with -o");
        }
        if memory.memory && output.showing.off_cpu && profiling.selection().part.is_some() {
            return Err("memory does not wait: leave out --off-cpu, or add --show=time");
        }
        if output.showing.off_cpu && sampling.clock == Some(ClockChoice::Cpu) {
            return Err("--off-cpu shows waiting, which is no CPU time; leave out --clock=cpu");
        }
        if output.showing.off_cpu && sampling.sampler == SamplerChoice::Epoch {
            return Err("--off-cpu needs the signal sampler: the epoch sampler does not see where a guest waits");
        }
        if self.jitdump_functions == DumpedFunctions::All {
            return Ok(());
        }
        match (output.code_format(), sampling.sampler) {
            (Some(CodeFormat::JitDump), SamplerChoice::Off) => {
                Err("--jitdump-functions=sampled needs samples; leave out --sampler=off")
            }
            (Some(CodeFormat::JitDump), _) => Ok(()),
            _ => Err("--jitdump-functions is for --format=jitdump"),
        }
    }

    /// How to sample, and what to say of it; `None` for not at all.
    ///
    /// # Errors
    /// If the sampler that the user names does not work here.
    pub(super) fn sampler(&self) -> Result<Option<(SamplerOptions, Option<String>)>, Failure> {
        if !self.samples() {
            return Ok(None);
        }
        let clock = if self.profiling.output.showing.off_cpu { Clock::Wall } else { Clock::Cpu };
        let keep_functions = self.jitdump_functions == DumpedFunctions::Sampled;
        let sampler = self.profiling.sampler(clock)?;
        Ok(sampler.map(|(options, fallback)| (SamplerOptions { keep_functions, ..options }, fallback)))
    }
}

fn parse_preload(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.to_owned(), file.into()))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let range = 0.0..=1e6;
    text.parse().ok().filter(|seconds| range.contains(seconds)).ok_or_else(|| "expected 0 to 1000000".into())
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
