//! Chromium, for tests of pages: Debian's package of it, and a script that opens a page and says what the page does.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::{self, Cache, Key};
use crate::debian_tools::CHROMIUM;
use crate::process;

const SCRIPT: &str = include_str!("browser.js");

/// The program that opens pages. Installed if the cache does not have it.
pub(crate) fn program(cache: &Cache) -> Result<PathBuf> {
    let (_, chromium) = CHROMIUM.programs(cache)?.into_iter().next().context("Chromium is one program")?;
    let chromium = chromium.display();
    let key = Key::of([SCRIPT.as_bytes(), chromium.to_string().as_bytes()]);
    let folder = cache.toolchain(&format!("browse-{}", key.short()));
    cache.once(&folder, || {
        let workplace = cache.workplace("browse")?;
        let made = workplace.path.join("made");
        fs::create_dir(&made)?;
        fs::write(made.join("browser.js"), SCRIPT)?;
        let script = format!("#!/bin/sh\nexec node '{}/browser.js' '{chromium}' \"$@\"\n", folder.display());
        process::write_program(&made.join("browse"), &script)?;
        cache::publish(&made, &folder)
    })?;
    Ok(folder.join("browse"))
}
