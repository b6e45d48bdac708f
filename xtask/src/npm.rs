//! Packages of npm, pinned by hash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::cache::{self, Cache, Key};
use crate::progress::Step;
use crate::{checkout, process};

/// What to do without npm or Node.js.
pub(crate) const REMEDY: &str = "install Node.js with npm (Debian: apt-get install npm)";

/// What npm is to install, in a folder of `testdata`: the second has the hash of every package.
const PINS: [&str; 2] = ["package.json", "package-lock.json"];

/// The texts that pin the packages of a folder of `testdata`.
pub(crate) fn pins(folder: &str) -> Result<String> {
    let read = |name| {
        let file = checkout::testdata().join(folder).join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    PINS.into_iter().map(read).collect()
}

/// The folder with the packages that are pinned in a folder of `testdata`, which are called `name`. Installed if the cache does not have
/// them.
pub(crate) fn packages(folder: &str, name: &str, cache: &Cache) -> Result<PathBuf> {
    let key = Key::of([pins(folder)?.as_bytes()]);
    let place = cache.toolchain(&format!("{name}-{}", key.short()));
    if place.exists() {
        return Ok(place);
    }
    let step = Step::announced(format!("installing {name}"));
    let workplace = cache.workplace(name)?;
    let unfinished = workplace.path.join("installed");
    fs::create_dir(&unfinished)?;
    for pin in PINS {
        fs::copy(checkout::testdata().join(folder).join(pin), unfinished.join(pin))?;
    }
    let mut npm = Command::new("npm");
    npm.current_dir(&unfinished).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    process::output(&mut npm, REMEDY).with_context(|| format!("npm cannot install {name}"))?;
    cache::publish(&unfinished, &place)?;
    step.done();
    Ok(place)
}

/// A release of a package.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) release: &'static str,
    /// SHA-256 of the release's archive.
    pub(crate) hash: &'static str,
}

impl Package {
    /// Downloads it and unpacks it into `folder`, an empty one, where all that it has is in `package`.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<()> {
        let Self { name, release, hash } = self;
        let mut npm = Command::new("npm");
        npm.current_dir(folder).args(["pack", "--silent"]).arg(format!("{name}@{release}"));
        process::output(&mut npm, REMEDY)?;
        // The name of a package that has an owner begins with `@owner/`.
        let archive = folder.join(format!("{}-{release}.tgz", name.trim_start_matches('@').replace('/', "-")));
        let bytes = fs::read(&archive).with_context(|| format!("npm has downloaded no {}", archive.display()))?;
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if found != *hash {
            bail!("{name} {release} is not what is pinned: its SHA-256 is {found}");
        }
        process::output(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder), "install tar")?;
        fs::remove_file(&archive)?;
        Ok(())
    }
}
