//! Other platforms than the one that this runs on: wlprof is checked for them, and built and tested where they can be
//! emulated.

mod checks;
mod compilers;
mod emulation;
mod toolchain;
mod wine;

pub(crate) use checks::check_platforms;

use std::path::PathBuf;

use anyhow::{Result, bail};

/// Tests wlprof for aarch64 Linux.
pub(crate) fn test_aarch64() -> Result<()> {
    emulation::test(compilers::AARCH64_LINUX.triple, &[])
}

/// Tests wlprof for `target`. `arguments` go to the tests.
pub(crate) fn test(target: &str, arguments: &[&str]) -> Result<()> {
    if target == compilers::WINDOWS_GNU.triple { wine::test(arguments) } else { emulation::test(target, arguments) }
}

/// Builds wlprof for `target`, which has the signal sampler, and gives a program that runs it here.
pub(crate) fn command_with_signals(target: &str) -> Result<PathBuf> {
    if target == compilers::WINDOWS_GNU.triple {
        bail!("there is no signal sampler on Windows");
    }
    emulation::command(target)
}
