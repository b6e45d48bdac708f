//! A Rust compiler that can build for targets which the user's own has no standard library for.
//!
//! Where rustup cannot install one, Debian has a recent compiler and the standard library's source as packages: unpacked
//! without root, the library is built for the targets that are wanted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::Packages;
use crate::progress::Step;
use crate::{checkout, process};

const NO_DEBIAN: &str = "without the target, only Debian's packages could serve instead";

/// The packages asked for by name; the versioned ones they depend on are looked up.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src"];
const VERSIONED_PACKAGES: [&str; 2] = ["libstd-rust-web-", "libllvm"];

/// An unpacked compiler.
pub(crate) struct DebianRust {
    folder: PathBuf,
    /// Where other things are done.
    workplace: PathBuf,
    identity: String,
}

impl DebianRust {
    /// Downloads the compiler and unpacks it into `folder`, where its program is called `rustc`. With it come the standard
    /// libraries that Debian has for other architectures, named as Debian names them.
    pub(crate) fn unpack(workplace: &Path, folder: &Path, architectures: &[&str]) -> Result<Self> {
        let step = Step::announced("downloading Debian's Rust compiler");
        let packages = Packages::open_for(workplace, architectures, NO_DEBIAN)?;
        let mut wanted = wanted_packages(&packages)?;
        wanted.extend(architectures.iter().map(|architecture| format!("libstd-rust-web-dev:{architecture}")));
        let files = packages.download(&wanted)?;
        step.done();

        let step = Step::announced("unpacking Debian's Rust compiler");
        packages.unpack(&files, &folder.join("root"))?;
        process::write_program(
            &folder.join("rustc"),
            "#!/bin/sh\n\
             root=$(dirname \"$0\")/root\n\
             LD_LIBRARY_PATH=$(echo \"$root\"/usr/lib/*-linux-gnu) exec \"$root/usr/bin/rustc\" \"$@\"\n",
        )?;
        let identity = process::text(Command::new(folder.join("rustc")).arg("-vV"), NO_DEBIAN)?;
        step.done();
        Ok(Self { folder: folder.to_owned(), workplace: workplace.to_owned(), identity })
    }

    /// What `rustc -vV` says.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Where the compiler looks for the library of `target` unless told otherwise.
    pub(crate) fn own_library(&self, target: &str) -> PathBuf {
        self.folder.join("root/usr/lib/rustlib").join(target).join("lib")
    }

    /// Builds the standard library for `target` into the folder `library`. `crates` are those of it that cargo is to build;
    /// `prepare` says what the target needs besides.
    pub(crate) fn build_library(
        &self,
        target: &str,
        crates: &str,
        library: &Path,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<()> {
        let step = Step::announced(format!("building Rust's standard library for {target}"));
        let package = self.workplace.join("library");
        fs::create_dir_all(package.join("src"))?;
        fs::write(
            package.join("Cargo.toml"),
            "[package]\nname = \"library\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n",
        )?;
        fs::write(package.join("src/lib.rs"), "#![no_std]\n")?;

        let source = self.folder.join("root/usr/lib/rustlib/src/rust");
        let real_source = source.canonicalize().context("the package rust-web-src has no source")?;
        let commit = self.identity.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
        // As in the standard library that rustup installs.
        let remap = |path: &Path| format!("--remap-path-prefix={}=/rustc/{commit}", path.display());
        let vendor = source.join("library/vendor");

        let mut cargo = checkout::cargo();
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let ours = name.starts_with("CARGO") || name.starts_with("RUSTC") || name == "RUSTFLAGS";
            if ours {
                cargo.env_remove(name);
            }
        }
        cargo
            .current_dir(&package)
            .env("CARGO_HOME", self.workplace.join("cargo"))
            .env("RUSTC", self.folder.join("rustc"))
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", [remap(&source), remap(&real_source)].join("\x1f"))
            .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
            .args(["build", "--offline", "--release", "--target", target])
            .arg(format!("-Zbuild-std={crates}"))
            .args(["--config", "source.crates-io.replace-with=\"vendored\"", "--config"])
            .arg(format!("source.vendored.directory=\"{}\"", vendor.display()));
        prepare(&mut cargo);
        process::output(&mut cargo, NO_DEBIAN)?;

        fs::create_dir_all(library)?;
        for entry in fs::read_dir(package.join("target").join(target).join("release/deps"))? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".rlib") && !name.starts_with("liblibrary-") {
                fs::copy(&path, library.join(name))?;
            }
        }
        step.done();
        Ok(())
    }

    /// Removes what is not needed once all libraries are built, and is most of the space.
    pub(crate) fn remove_source(&self) -> Result<()> {
        for folder in ["root/usr/src", "root/usr/share"] {
            let folder = self.folder.join(folder);
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
        }
        Ok(())
    }
}

/// The packages and the versioned ones they depend on.
fn wanted_packages(packages: &Packages) -> Result<Vec<String>> {
    let dependencies = packages
        .dependencies(&["--recurse", "--important"], &PACKAGES)
        .context("apt knows no package rustc-web, libstd-rust-web-dev or rust-web-src")?;
    let mut wanted = PACKAGES.map(str::to_owned).to_vec();
    wanted.extend(versioned_packages(&dependencies));
    Ok(wanted)
}

/// Picks the versioned packages out of what `apt-cache depends --recurse` prints.
fn versioned_packages(dependencies: &str) -> Vec<String> {
    let is_versioned = |name: &str| {
        VERSIONED_PACKAGES.iter().any(|prefix| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        })
    };
    let mut names: Vec<String> = dependencies
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| is_versioned(name))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versioned_packages_are_picked_once() {
        let printed = "rustc-web\n  Depends: libc6\n  Depends: libstd-rust-web-dev\n\
            libstd-rust-web-1.96\n  Depends: libllvm22\nlibstd-rust-web-dev\n\
            \x20 Depends: libstd-rust-web-1.96\n  Depends: libllvm22\n  Conflicts: libllvm3\n";
        assert_eq!(versioned_packages(printed), ["libllvm22", "libstd-rust-web-1.96"]);
    }
}
