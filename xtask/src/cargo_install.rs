//! Commands that are built from crates.io, for the cache.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cache::{self, Cache};
use crate::progress::Step;
use crate::{checkout, process};

/// A command of a crate.
pub(crate) struct Crate<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    /// The command.
    pub(crate) program: &'a str,
    /// Further arguments of `cargo install`.
    pub(crate) arguments: &'a [&'a str],
}

impl Crate<'_> {
    /// Builds the command as `place`, which is in the cache, unless it is there.
    pub(crate) fn install(&self, cache: &Cache, place: &Path) -> Result<()> {
        cache.once(place, || {
            let Self { name, version, program, arguments } = self;
            let step = Step::announced(format!("building {program} {version}"));
            let workplace = cache.workplace(program)?;
            // Whoever works on the machine meanwhile comes first.
            let mut install = Command::new("nice");
            // Outside of the checkout: its settings for cargo are wlprof's own.
            install.arg(checkout::cargo().get_program()).current_dir(&workplace.path).env_remove("CARGO_TARGET_DIR");
            install.args(["install", name, "--version", &format!("={version}"), "--locked", "--no-track"]);
            install.args(*arguments).arg("--root").arg(&workplace.path);
            install.arg("--target-dir").arg(workplace.path.join("target"));
            install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "false");
            process::output(&mut install, &format!("{name} is built from crates.io; is it in reach?"))?;
            cache::publish(&workplace.path.join("bin").join(program), place)?;
            step.done();
            Ok(())
        })
    }
}
