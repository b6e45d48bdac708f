//! Other platforms than the one that this runs on: wlprof is checked for them, and built and tested where they can be
//! emulated.

mod checks;
mod compilers;
mod emulation;
mod toolchain;
mod wine;

pub(crate) use checks::check_platforms;

use anyhow::Result;

/// Tests wlprof for aarch64 Linux.
pub(crate) fn test_aarch64() -> Result<()> {
    emulation::test(compilers::AARCH64_LINUX.triple, &[])
}

/// Tests wlprof for `target`. `arguments` go to the tests.
pub(crate) fn test(target: &str, arguments: &[&str]) -> Result<()> {
    if target == compilers::WINDOWS_GNU.triple { wine::test(arguments) } else { emulation::test(target, arguments) }
}
