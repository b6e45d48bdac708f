//! The command that is tested: that of this build, or one for another platform, which `cargo xtask test --target` builds.

use std::env;
use std::process::Command;

/// The command.
pub(crate) fn wlprof() -> Command {
    Command::new(env::var_os("WLPROF_TESTED").unwrap_or_else(|| env!("CARGO_BIN_EXE_wlprof").into()))
}

/// A C compiler for the command's platform. The linker of every Rust program is one, so there is one here.
pub(crate) fn c_compiler() -> Command {
    Command::new(env::var_os("WLPROF_TESTED_CC").unwrap_or_else(|| "cc".into()))
}

/// Whether the command's processor is an x86-64.
pub(crate) fn is_x86_64() -> bool {
    triple().starts_with("x86_64-")
}

/// The samplers that the command's platform has.
pub(crate) fn samplers() -> &'static [&'static str] {
    if triple().contains("-linux-") { &["signal", "epoch"] } else { &["epoch"] }
}

/// The command's platform, as compilers name it.
fn triple() -> String {
    match env::var("WLPROF_TESTED_TARGET") {
        Ok(triple) => triple,
        Err(_) => format!("{}-unknown-linux-gnu", env::consts::ARCH),
    }
}
