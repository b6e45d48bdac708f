//! The `wlprof` command: arguments in, profile files and a table out.
//!
//! The guest's exit code is wlprof's. wlprof's own failures have codes of their own, as `env` and `docker run` have
//! them: 125 wlprof itself failed, 126 the guest cannot be run, 127 there is no such guest.

mod annotate;
mod arguments;
mod available_plugins;
mod bench;
mod compiling;
mod completions;
mod conformance;
mod diff;
mod dump;
mod escape;
mod finish;
mod formats;
mod guest;
mod http;
mod interrupt;
mod library;
mod live;
mod machine_code;
mod man_pages;
mod memory;
mod merge;
mod naming;
mod os;
mod output;
mod output_file;
mod plugins;
mod profiling;
mod progress;
mod record;
mod render;
mod run_outputs;
mod sampling;
mod say;
mod serve;
mod showing;
mod source_folders;
mod table;
mod thread_stacks;
mod top;
mod trap;
mod usage;
mod view;
mod wasmtime_options;
mod window_profiles;
mod wrapping;

use arguments::{Arguments, Command};
use clap::Parser;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// wlprof itself failed: bad arguments, an output that cannot be written.
const FAILED: u8 = 125;
/// The guest cannot be run.
const CANNOT_RUN: u8 = 126;
/// There is no such guest.
const NO_GUEST: u8 = 127;

/// Why the command failed, and with which exit code.
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// The user has been told why, by another process.
    fn told(code: u8) -> Self {
        Self { code, message: String::new() }
    }

    fn print(&self) {
        if self.message.is_empty() {
            return;
        }
        say::line(format_args!("wlprof: {}", escape::multi_line(&self.message)));
    }
}

/// Prints what the user asked for on standard output.
fn print(text: &[u8]) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text) {
        // A pager may be closed before its end.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(FAILED, error)),
        _ => Ok(()),
    }
}

/// Runs the command with the process's arguments.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no failure.
            let code = if error.use_stderr() { FAILED } else { 0 };
            usage::print(error);
            return ExitCode::from(code);
        }
    };
    let result = match arguments.command {
        Some(Command::Render(render)) => render::run(&render).map(|()| 0),
        Some(Command::Diff(diff)) => diff::run(&diff).map(|()| 0),
        Some(Command::Merge(merge)) => merge::run(&merge).map(|()| 0),
        Some(Command::Annotate(annotate)) => annotate::run(&annotate).map(|()| 0),
        Some(Command::View(view)) => view::run(&view),
        Some(Command::Bench(bench)) => bench::run(&bench).map(|()| 0),
        Some(Command::Top(top)) => top::run(&top),
        Some(Command::Dump(dump)) => dump::run(&dump),
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::Plugins(arguments)) => plugins::run(&arguments),
        Some(Command::Completions(completions)) => completions::run(&completions).map(|()| 0),
        Some(Command::ManPages(pages)) => man_pages::run(&pages).map(|()| 0),
        Some(Command::MakeProfile) => finish::run_child().map(|()| 0).map_err(|error| Failure::new(FAILED, error)),
        Some(Command::MakeView(view)) => view::run_child(&view).map(|()| 0),
        None => record::run(&arguments.record),
    };
    let code = result.unwrap_or_else(|failure| {
        failure.print();
        failure.code
    });
    // The destructors of plugins are nobody's to wait for.
    wlprof_loader::end_process(code)
}
