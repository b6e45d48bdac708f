//! perf, and the programs of binutils that it calls: what the tests check formats with.
//!
//! Usually the machine's own. Where there is none, Debian's packages are unpacked without root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::process;
use crate::progress::Step;

const PROGRAMS: [&str; 3] = ["perf", "addr2line", "objdump"];
const PACKAGES: [&str; 2] = ["linux-perf", "binutils"];
const FOLDER: &str = "perf-debian-1";
const REMEDY: &str = "install perf and binutils (Debian: apt-get install linux-perf binutils)";
/// Comes with the machine, and must be of one piece with its loader.
const NOT_UNPACKED: &str = "libc6";

/// The programs, each with its path.
pub(crate) fn programs(cache: &Cache) -> Result<Vec<(&'static str, PathBuf)>> {
    let unpacked = cache.toolchain(FOLDER);
    let mut found = Vec::new();
    for program in PROGRAMS {
        let path = match installed(program) {
            Some(path) => path,
            None => {
                if !unpacked.exists() {
                    unpack(cache, &unpacked).context(REMEDY)?;
                }
                unpacked.join(program)
            }
        };
        found.push((program, path));
    }
    Ok(found)
}

/// Where the machine has a program that runs. A `perf` that is only a script which looks for another one does not.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())?;
    let mut command = Command::new(&found);
    let runs = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    runs.is_ok_and(|status| status.success()).then_some(found)
}

fn unpack(cache: &Cache, folder: &Path) -> Result<()> {
    let step = Step::announced("downloading Debian's perf");
    let _lock = cache.lock()?;
    let workplace = cache.workplace("perf")?;
    let packages = Packages::open(&workplace.path, REMEDY)?;
    let options = ["--recurse", "--important", "--no-breaks", "--no-conflicts", "--no-replaces", "--no-pre-depends"];
    let names = package_names(&packages.dependencies(&options, &PACKAGES)?);
    let files = packages.download(&names)?;
    let made = workplace.path.join("perf");
    packages.unpack(&files, &made.join("root"))?;
    for program in PROGRAMS {
        // perf calls the others by their names.
        let script = format!(
            "#!/bin/sh\n\
             root={}/root/usr\n\
             PATH=$root/bin:$PATH LD_LIBRARY_PATH=$(echo \"$root\"/lib/*-linux-gnu) exec \"$root/bin/{program}\" \"$@\"\n",
            folder.display()
        );
        process::write_program(&made.join(program), &script)?;
    }
    cache::publish(&made, folder)?;
    process::output(Command::new(folder.join("perf")).arg("--version"), REMEDY)?;
    step.done();
    Ok(())
}

/// The packages in what `apt-cache depends --recurse` prints, each on a line of its own before what it depends on.
fn package_names(dependencies: &str) -> Vec<String> {
    let is_package = |line: &&str| !line.starts_with([' ', '<', '|']) && !line.is_empty() && *line != NOT_UNPACKED;
    let mut names: Vec<String> = dependencies.lines().filter(is_package).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_listed_once_and_alone() {
        let printed = "linux-perf\n  Depends: libc6\n  Depends: libdw1\n    libdw1:i386\nlibc6\nlibdw1\n\
            \x20 Depends: libc6\n<perl:any>\n |Depends: libz1\nlibdw1\n";
        assert_eq!(package_names(printed), ["libdw1", "linux-perf"]);
    }
}
