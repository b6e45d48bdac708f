//! Debian's packages without root: downloaded with a package list of our own and unpacked into a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::process;

/// What apt knows, and a place for it.
pub(crate) struct Packages {
    workplace: PathBuf,
    /// Those besides the machine's own.
    architectures: Vec<String>,
    /// What the user can do on a system that is not Debian.
    remedy: &'static str,
    updated: Result<()>,
}

impl Packages {
    /// Fetches the package lists into `workplace`, so that neither root nor an up-to-date system list is needed.
    pub(crate) fn open(workplace: &Path, remedy: &'static str) -> Result<Self> {
        Self::open_for(workplace, &[], remedy)
    }

    /// As [`Packages::open`], with the packages of other architectures besides, which the system need not know of. Such
    /// packages are named `package:architecture`.
    pub(crate) fn open_for(workplace: &Path, architectures: &[&str], remedy: &'static str) -> Result<Self> {
        for folder in ["lists/partial", "archives/partial", "archives/archives/partial", "packages"] {
            fs::create_dir_all(workplace.join(folder))?;
        }
        let architectures = architectures.iter().map(|&name| name.to_owned()).collect();
        let mut packages = Self { workplace: workplace.to_owned(), architectures, remedy, updated: Ok(()) };
        // Some other source of the machine may be out of reach; whether it matters shows when packages are looked up.
        packages.updated = process::output(packages.apt("apt-get").arg("update"), remedy).map(drop);
        Ok(packages)
    }

    /// What `apt-cache depends` says with these options.
    pub(crate) fn dependencies(&self, options: &[&str], names: &[&str]) -> Result<String> {
        let found = process::text(self.apt("apt-cache").arg("depends").args(options).args(names), self.remedy);
        match (found, &self.updated) {
            (Err(_), Err(error)) => bail!("{error:#}"),
            (found, _) => found,
        }
    }

    /// Downloads these packages and no others.
    pub(crate) fn download(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        process::output(self.apt("apt-get").arg("download").args(names), self.remedy)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(self.workplace.join("packages"))? {
            files.push(entry?.path());
        }
        if files.len() != names.len() {
            bail!("apt-get downloaded {} packages instead of {names:?}", files.len());
        }
        Ok(files)
    }

    /// Unpacks packages into `root`.
    pub(crate) fn unpack(&self, packages: &[PathBuf], root: &Path) -> Result<()> {
        fs::create_dir_all(root)?;
        for package in packages {
            process::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(root), self.remedy)?;
        }
        Ok(())
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.workplace.join("packages"))
            .arg("-o")
            .arg(format!("Dir::State::lists={}", self.workplace.join("lists").display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", self.workplace.join("archives").display()));
        if !self.architectures.is_empty() {
            // The first is the machine's own, by whatever name.
            command.args(["-o", "APT::Architectures::="]);
            command.args(
                self.architectures.iter().flat_map(|name| ["-o".to_owned(), format!("APT::Architectures::={name}")]),
            );
        }
        command
    }
}
