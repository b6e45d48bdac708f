//! The `wlprof` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    wlprof_cli::main()
}
