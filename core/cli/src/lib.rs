//! The `wlprof` command: arguments in, profile files and a table out.
//!
//! The guest's exit code is wlprof's. wlprof's own failures have codes of their own, as `env` and `docker run` have
//! them: 125 wlprof itself failed, 126 the guest cannot be run, 127 there is no such guest.

#[cfg(target_os = "linux")]
mod agent;
mod annotate;
mod arguments;
#[cfg(target_os = "linux")]
mod attach;
mod available_plugins;
mod bench;
mod compiling;
mod completions;
mod conformance;
mod diff;
mod dump;
mod failure;
mod finish;
mod guest;
mod http;
mod interrupt;
mod library;
mod live;
mod live_guest;
mod machine_code;
mod man_pages;
mod merge;
mod misplaced;
mod naming;
mod options;
mod os;
mod output;
mod output_file;
mod plugins;
mod progress;
mod pushing;
mod record;
mod recordings;
mod render;
mod run_outputs;
mod say;
mod serve;
mod source_folders;
mod thread_stacks;
mod top;
mod trap;
mod usage;
mod view;
mod window_profiles;

use arguments::{Arguments, Command, version};
use clap::{CommandFactory, Parser};
use failure::{FAILED, Failure};
use std::process::ExitCode;

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
        #[cfg(target_os = "linux")]
        Some(Command::Agent(agent)) => agent::run(&agent),
        #[cfg(target_os = "linux")]
        Some(Command::Attach(attach)) => attach::run(&attach),
        #[cfg(target_os = "linux")]
        Some(Command::Ps(ps)) => attach::ps::run(&ps).map(|()| 0),
        Some(Command::Top(top)) => top::run(&top),
        Some(Command::Dump(dump)) => dump::run(&dump),
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::Plugins(arguments)) => plugins::run(&arguments),
        Some(Command::Completions(completions)) => {
            completions::run(&completions, Arguments::command(), version()).map(|()| 0)
        }
        Some(Command::ManPages(pages)) => man_pages::run(&pages, Arguments::command()).map(|()| 0),
        Some(Command::MakeProfile) => finish::run_child().map(|()| 0).map_err(|error| Failure::new(FAILED, error)),
        Some(Command::MakeView(view)) => view::run_child(&view).map(|()| 0),
        None => {
            let record = &arguments.record;
            record::run(record)
                .map_err(|failure| usage::with_command_meant(failure, &record.guest.guest_and_arguments[0]))
        }
    };
    let code = result.unwrap_or_else(|failure| {
        failure.print();
        failure.code
    });
    // The destructors of plugins are nobody's to wait for.
    wlprof_loader::end_process(code)
}
