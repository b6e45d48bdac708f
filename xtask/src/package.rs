//! `cargo xtask package`: packs the crates as a registry gets them, and sees that they compile from what is in the packages alone.
//!
//! `cargo publish --dry-run --workspace` sees it, too, but compiles Wasmtime anew for it. Here the packages are a workspace that shares
//! the checkout's compiled dependencies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::Step;
use crate::{checkout, process};

/// The only crate that is not published.
const UNPUBLISHED: &str = "xtask";
const IN_EVERY_PACKAGE: [&str; 2] = ["Cargo.toml", "README.md"];
/// Those of the workspace. In the crates' folders they are links, which become files with a path in them where a checkout has no links.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// Beyond this a file is a test's, or was added by mistake.
const MOST_BYTES: u64 = 128 << 10;

/// Packs, looks into the packages, and checks what is in them.
pub(crate) fn run() -> Result<()> {
    let step = Step::announced("packing the crates");
    let folder = checkout::root().join("target/package");
    // With packages of other versions, and what verifying them left.
    let _ = fs::remove_dir_all(&folder);
    let mut pack = checkout::cargo();
    pack.args(["package", "--quiet", "--workspace", "--exclude", UNPUBLISHED, "--no-verify", "--allow-dirty"]);
    process::output(pack.args(["--locked", "--target-dir", "target"]), "")?;
    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    let mut packages = Vec::new();
    for package in crates_in(&folder)? {
        // -m: files of now. The time that cargo gives packed files is older than whatever an earlier check left.
        process::output(Command::new("tar").arg("-xzmf").arg(&package).arg("-C").arg(&unpacked), "install tar")?;
        let name = package.file_stem().and_then(|name| name.to_str()).context("a package without a name")?.to_owned();
        look_into(&unpacked.join(&name)).with_context(|| format!("the package {name}"))?;
        packages.push(name);
    }
    fs::write(unpacked.join("Cargo.toml"), workspace_of(&packages)?)?;
    // The versions that the checkout's dependencies are compiled in.
    fs::copy(checkout::root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    let mut check = checkout::cargo();
    check.current_dir(&unpacked).args(["check", "--quiet", "--release", "--workspace", "--target-dir"]);
    process::visibly(check.arg(checkout::root().join("target"))).context("the packages do not compile")?;
    step.done();
    Ok(())
}

/// The packages in `folder`, in order of their names.
fn crates_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut packages = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            packages.push(path);
        }
    }
    packages.sort();
    Ok(packages)
}

/// Checks that a package has what each has to have, and nothing large.
fn look_into(package: &Path) -> Result<()> {
    for name in IN_EVERY_PACKAGE {
        if !package.join(name).is_file() {
            bail!("{name} is not in it");
        }
    }
    for name in LICENSES {
        let Ok(text) = fs::read(package.join(name)) else { bail!("{name} is not in it") };
        if text != fs::read(checkout::root().join(name))? {
            bail!("{name} is not the workspace's: the crate's is to be a link to it");
        }
    }
    let mut folders = vec![package.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let length = entry.metadata()?.len();
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if length > MOST_BYTES && entry.file_name() != "Cargo.lock" {
                bail!("{} has {length} bytes: `exclude` it, or raise the limit", entry.path().display());
            }
        }
    }
    Ok(())
}

/// A manifest by which the packages, `NAME-VERSION`, find each other.
fn workspace_of(packages: &[String]) -> Result<String> {
    let mut manifest = format!("[workspace]\nresolver = \"3\"\nmembers = {packages:?}\n\n[patch.crates-io]\n");
    for package in packages {
        let name = name_of(package).with_context(|| format!("{package} has no version"))?;
        manifest.push_str(&format!("{name} = {{ path = {package:?} }}\n"));
    }
    Ok(manifest)
}

/// The name before the version: a version begins with a digit, and may have hyphens after that.
fn name_of(package: &str) -> Option<&str> {
    let version =
        package.match_indices('-').find(|(at, _)| package[at + 1..].starts_with(|next: char| next.is_ascii_digit()));
    version.map(|(at, _)| &package[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_find_each_other() -> Result<()> {
        let manifest = workspace_of(&["a-b-1.2.3-rc.1".to_owned()])?;
        assert!(manifest.contains("members = [\"a-b-1.2.3-rc.1\"]"), "{manifest}");
        assert!(manifest.ends_with("[patch.crates-io]\na-b = { path = \"a-b-1.2.3-rc.1\" }\n"), "{manifest}");
        Ok(())
    }

    #[test]
    fn what_lacks_and_what_is_large_is_reported() -> Result<()> {
        let package = std::env::temp_dir().join(format!("xtask-package-{}", std::process::id()));
        fs::create_dir_all(package.join("src"))?;
        let said = |package: &Path| look_into(package).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said(&package).contains("Cargo.toml is not in it"));
        for name in IN_EVERY_PACKAGE {
            fs::write(package.join(name), "")?;
        }
        assert!(said(&package).contains("LICENSE-APACHE is not in it"), "{}", said(&package));
        for name in LICENSES {
            fs::copy(checkout::root().join(name), package.join(name))?;
        }
        assert_eq!(said(&package), "");
        fs::write(package.join("LICENSE-MIT"), "../LICENSE-MIT")?;
        assert!(said(&package).contains("LICENSE-MIT is not the workspace's"), "{}", said(&package));
        fs::copy(checkout::root().join("LICENSE-MIT"), package.join("LICENSE-MIT"))?;
        fs::write(package.join("src/golden"), vec![0; MOST_BYTES as usize + 1])?;
        assert!(said(&package).contains("src/golden has 131073 bytes"), "{}", said(&package));
        fs::remove_dir_all(&package)?;
        Ok(())
    }
}
