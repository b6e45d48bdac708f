//! Packages of npm, pinned by hash.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::process;

const REMEDY: &str = "install Node.js with npm (Debian: apt-get install npm)";

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
