//! A Rust compiler that can build for `wasm32-wasip1`.
//!
//! Usually the user's own, with that target installed. Where rustup cannot install it, Debian has
//! a recent compiler and the standard library's source as packages: unpacked without root, the
//! standard library is built once for our target, with Zig as linker and libc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::progress::Step;
use crate::wheels::{self, Pins, Wheels};
use crate::{checkout, process};

const TARGET: &str = "wasm32-wasip1";
const FOLDER: &str = "rust-wasip1-debian-1";
const NO_TARGET: &str = "the Rust target wasm32-wasip1 is missing: run `rustup target add wasm32-wasip1`";
const NO_DEBIAN: &str = "without the target, only Debian's packages could serve instead";

/// The packages asked for by name; the versioned ones they depend on are looked up.
const PACKAGES: [&str; 3] = ["rustc-web", "libstd-rust-web-dev", "rust-web-src"];
const VERSIONED_PACKAGES: [&str; 2] = ["libstd-rust-web-", "libllvm"];

/// How Rust guests are compiled on this machine.
#[derive(Debug)]
pub(crate) enum RustTarget {
    /// By the user's compiler.
    Installed {
        /// What `rustc -vV` says.
        identity: String,
    },
    /// By the unpacked Debian compiler.
    Unpacked {
        /// Where it is.
        folder: PathBuf,
        /// What `rustc -vV` says, and the pin of the linker.
        identity: String,
    },
}

impl RustTarget {
    /// What is usable as it is: nothing is downloaded or built.
    pub(crate) fn find(cache: &Cache, pins: &Pins) -> Result<Option<Self>> {
        let sysroot = process::text(rustc().args(["--print", "sysroot"]), "install Rust")?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
        if library.is_dir() {
            let identity = process::text(rustc().arg("-vV"), "install Rust")?;
            return Ok(Some(Self::Installed { identity }));
        }
        let folder = cache.toolchain(FOLDER);
        if !folder.exists() {
            return Ok(None);
        }
        let version = fs::read_to_string(folder.join("identity"))
            .with_context(|| format!("{} is damaged: remove it", folder.display()))?;
        let identity = format!("{version}{}", pins.line("ziglang")?);
        Ok(Some(Self::Unpacked { folder, identity }))
    }

    /// What is usable, after making it so.
    pub(crate) fn get(cache: &Cache, pins: &Pins) -> Result<Self> {
        if let Some(found) = Self::find(cache, pins)? {
            return Ok(found);
        }
        unpack(cache).context(NO_TARGET)?;
        Self::find(cache, pins)?.context(NO_TARGET)
    }

    /// What distinguishes this compiler's output from another's.
    pub(crate) fn identity(&self) -> &str {
        match self {
            Self::Installed { identity } | Self::Unpacked { identity, .. } => identity,
        }
    }

    /// The compiler, told about target and linker.
    pub(crate) fn compiler(&self, cache: &Cache, wheels: &Wheels) -> Result<Command> {
        let mut command = match self {
            Self::Installed { .. } => rustc(),
            Self::Unpacked { folder, .. } => {
                let mut command = Command::new(folder.join("rustc"));
                command.arg("--sysroot").arg(folder.join("sysroot"));
                command.args(["-Clinker-flavor=wasm-lld-cc", "-Clink-self-contained=no"]);
                command.arg(format!("-Clinker={}", folder.join("linker").display()));
                command.env("WLPROF_ZIG", wheels.zig_path());
                wheels::with_zig_cache(&mut command, cache)?;
                command
            }
        };
        // The older mangling and the linker flavour are unstable options of a stable compiler.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--target", TARGET]);
        Ok(command)
    }
}

fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn unpack(cache: &Cache) -> Result<()> {
    let workplace = cache.workplace("rust")?;
    let step = Step::announced("downloading Debian's Rust compiler");
    let packages = Packages::open(&workplace.path, NO_DEBIAN)?;
    let files = packages.download(&wanted_packages(&packages)?)?;
    step.done();

    let step = Step::announced("unpacking Debian's Rust compiler");
    let folder = workplace.path.join("toolchain");
    let root = folder.join("root");
    packages.unpack(&files, &root)?;
    process::write_program(
        &folder.join("rustc"),
        "#!/bin/sh\n\
         root=$(dirname \"$0\")/root\n\
         LD_LIBRARY_PATH=$(echo \"$root\"/usr/lib/*-linux-gnu) exec \"$root/usr/bin/rustc\" \"$@\"\n",
    )?;
    // Zig already does what it is not told here, and does not know these spellings of it.
    process::write_program(
        &folder.join("linker"),
        "#!/bin/sh\n\
         for argument do\n\
         \x20   shift\n\
         \x20   case \"$argument\" in\n\
         \x20       -Wl,--stack-first|-Wl,--no-demangle|-nodefaultlibs|-Wl,-O1|--target=*) ;;\n\
         \x20       *) set -- \"$@\" \"$argument\" ;;\n\
         \x20   esac\n\
         done\n\
         cd \"$ZIG_LOCAL_CACHE_DIR\" || exit\n\
         exec \"$WLPROF_ZIG\" cc -target wasm32-wasi -g -O2 \"$@\"\n",
    )?;
    let identity = process::text(Command::new(folder.join("rustc")).arg("-vV"), NO_DEBIAN)?;
    step.done();

    let step = Step::announced("building Rust's standard library for wasm32-wasip1");
    build_library(&workplace.path, &folder, &identity)?;
    // Not needed any more, and most of the space.
    for folder in [root.join("usr/src"), root.join("usr/share")] {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
    }
    fs::write(folder.join("identity"), identity)?;
    cache::publish(&folder, &cache.toolchain(FOLDER))?;
    step.done();
    Ok(())
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

fn build_library(workplace: &Path, folder: &Path, identity: &str) -> Result<()> {
    let package = workplace.join("library");
    fs::create_dir_all(package.join("src"))?;
    fs::write(
        package.join("Cargo.toml"),
        "[package]\nname = \"library\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n",
    )?;
    fs::write(package.join("src/lib.rs"), "#![no_std]\n")?;

    let source = folder.join("root/usr/lib/rustlib/src/rust");
    let real_source = source.canonicalize().context("the package rust-web-src has no source")?;
    let commit = identity.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown");
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
        .env("CARGO_HOME", workplace.join("cargo"))
        .env("RUSTC", folder.join("rustc"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", [remap(&source), remap(&real_source)].join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
        .args(["build", "--offline", "--release", "--target", TARGET])
        .args(["-Zbuild-std=std,panic_abort", "--config"])
        .arg("source.crates-io.replace-with=\"vendored\"")
        .arg("--config")
        .arg(format!("source.vendored.directory=\"{}\"", vendor.display()));
    process::output(&mut cargo, NO_DEBIAN)?;

    let library = folder.join("sysroot/lib/rustlib").join(TARGET).join("lib");
    fs::create_dir_all(&library)?;
    for entry in fs::read_dir(package.join("target").join(TARGET).join("release/deps"))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".rlib") && !name.starts_with("liblibrary-") {
            fs::copy(&path, library.join(name))?;
        }
    }
    Ok(())
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
