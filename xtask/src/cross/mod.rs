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

use crate::cache::Cache;
use toolchain::Toolchain;

/// Provides what [`check_platforms`] and the tests of aarch64 need.
pub(crate) fn provide() -> Result<()> {
    let cache = Cache::open()?;
    emulation::provide(&cache)?;
    Toolchain::get(&cache).map(drop)
}

/// Tests wlprof for `target`. `arguments` go to the tests.
pub(crate) fn test(target: &str, arguments: &[String]) -> Result<()> {
    if target == compilers::WINDOWS_GNU.triple { wine::test(arguments) } else { emulation::test(target, arguments) }
}

/// Builds wlprof for `target`, which has the signal sampler, and gives a program that runs it here.
pub(crate) fn command_with_signals(target: &str) -> Result<PathBuf> {
    if target == compilers::WINDOWS_GNU.triple {
        bail!("there is no signal sampler on Windows");
    }
    emulation::command(target)
}
