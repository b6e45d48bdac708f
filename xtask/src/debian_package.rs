//! The Debian package of `cargo xtask dist`, made by `dpkg-deb` of the folder that the archive is made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Workplace;
use crate::dist::Distribution;
use crate::process;

/// Writes the package into `folder`.
pub(crate) fn build(distribution: &Distribution, workplace: &Workplace, folder: &Path) -> Result<PathBuf> {
    let architecture = architecture(&distribution.target)?;
    let tree = workplace.path.join("debian");
    let usr = tree.join("usr");
    fs::create_dir_all(&tree)?;
    process::output(Command::new("cp").arg("-R").arg(&distribution.prefix).arg(&usr), "install coreutils")?;
    // Where Debian's zsh looks.
    fs::rename(usr.join("share/zsh/site-functions"), usr.join("share/zsh/vendor-completions"))?;
    // As Debian has its man pages.
    let pages = fs::read_dir(usr.join("share/man/man1"))?.map(|page| Ok(page?.path())).collect::<Result<Vec<_>>>()?;
    process::output(Command::new("gzip").args(["-9", "-n"]).args(pages), "install gzip")?;
    let binary = fs::read(usr.join("bin/wlprof"))?;
    let libc = newest_glibc(&binary).context("the binary does not say which C library it needs")?;
    fs::create_dir(tree.join("DEBIAN"))?;
    fs::write(tree.join("DEBIAN/control"), control(distribution.version, architecture, &libc, kibibytes(&usr)?))?;
    set_permissions(&tree)?;
    let package = folder.join(format!("wlprof_{}_{architecture}.deb", version(distribution.version)));
    let mut build = Command::new("dpkg-deb");
    // By it dpkg-deb dates everything.
    build.env("SOURCE_DATE_EPOCH", &distribution.time).args(["--root-owner-group", "-Zxz", "--build"]);
    process::output(build.arg(&tree).arg(&package), "install dpkg")?;
    Ok(package)
}

/// A crate's version as Debian has it: to Debian what follows a hyphen is newer than what has none, what follows a tilde older.
fn version(of_crate: &str) -> String {
    of_crate.replacen('-', "~", 1)
}

fn control(of_crate: &str, architecture: &str, libc: &str, kibibytes: u64) -> String {
    // Whoever gives the package to others says so as Debian's tools have it.
    let variable = |name| std::env::var(name).ok();
    let maintainer = match (variable("DEBFULLNAME"), variable("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => "whoever built it <root@localhost>".to_owned(),
    };
    format!(
        "Package: wlprof\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {kibibytes}\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Suggests: graphviz, linux-perf\n\
         Section: devel\n\
         Priority: optional\n\
         Description: language-aware, stack-walking profiler for WebAssembly\n \
         Runs a WebAssembly program on Wasmtime and tells which lines of its Python,\n \
         Go, C, C++, Rust or Zig the time and the memory went to.\n",
        version(of_crate)
    )
}

/// Refuses a platform that Debian has no packages for, and a machine that cannot make them.
pub(crate) fn refuse_others(target: &str) -> Result<()> {
    architecture(target)?;
    process::output(Command::new("dpkg-deb").arg("--version"), "install dpkg")?;
    Ok(())
}

/// As Debian calls it.
fn architecture(target: &str) -> Result<&'static str> {
    match target {
        "x86_64-unknown-linux-gnu" => Ok("amd64"),
        "aarch64-unknown-linux-gnu" => Ok("arm64"),
        _ => bail!("Debian has no packages for {target}: build on Linux with its C library, on x86-64 or aarch64"),
    }
}

/// The newest version of the C library that `binary` needs symbols of.
fn newest_glibc(binary: &[u8]) -> Option<String> {
    const PREFIX: &[u8] = b"GLIBC_2.";
    let starts = (0..binary.len()).filter(|at| binary[*at..].starts_with(PREFIX));
    let minors = starts.filter_map(|at| {
        let digits: String =
            binary[at + PREFIX.len()..].iter().map(|byte| *byte as char).take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

fn kibibytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        sum += match entry.file_type()?.is_dir() {
            true => kibibytes(&entry.path())?,
            false => entry.metadata()?.len().div_ceil(1024),
        };
    }
    Ok(sum)
}

/// Those of an installed package, whatever this process's mask is.
fn set_permissions(folder: &Path) -> Result<()> {
    process::output(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(folder), "install coreutils").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_a_number_not_a_text() {
        assert_eq!(newest_glibc(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_2.9\0"), Some("2.34".to_owned()));
        assert_eq!(newest_glibc(b"GLIBC_PRIVATE GLIBC_2."), None);
    }

    #[test]
    fn the_control_file_has_a_line_for_each_field() {
        let control = control("1.2.3-rc.1", "arm64", "2.36", 7);
        for line in
            ["Package: wlprof", "Version: 1.2.3~rc.1", "Architecture: arm64", "Depends: libc6 (>= 2.36), libgcc-s1"]
        {
            assert!(control.lines().any(|found| found == line), "{control}");
        }
        // The description goes on in lines that begin with a space.
        assert!(
            control
                .lines()
                .skip_while(|line| !line.starts_with("Description"))
                .skip(1)
                .all(|line| line.starts_with(' '))
        );
    }
}
