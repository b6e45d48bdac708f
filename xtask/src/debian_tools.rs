//! Programs that the tests compare with and that Debian has: usually the machine's own. Where there are none, Debian's packages
//! are unpacked without root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::process;
use crate::progress::Step;

/// Programs that come together.
pub(crate) struct DebianTools {
    programs: &'static [&'static str],
    /// Where the programs are, below the packages' `/usr`.
    programs_in: &'static str,
    /// With all that these depend on.
    packages: &'static [&'static str],
    /// Its place among the toolchains of the cache.
    folder: &'static str,
    /// What tells the version of a program that runs.
    version_option: &'static str,
    /// What they need in their environment, in words of the shell; `$root` is the packages' `/usr`.
    environment: &'static str,
    /// What has to be run once, as installing the packages would.
    set_up: &'static [&'static str],
    remedy: &'static str,
}

/// perf, and the programs of binutils that it calls.
pub(crate) const PERF: DebianTools = DebianTools {
    programs: &["perf", "addr2line", "objdump"],
    programs_in: "bin",
    packages: &["linux-perf", "binutils"],
    folder: "perf-debian-1",
    version_option: "--version",
    environment: "",
    set_up: &[],
    remedy: "install perf and binutils (Debian: apt-get install linux-perf binutils)",
};

/// Graphviz. It looks for its plugins in a list that is made when it is installed.
pub(crate) const GRAPHVIZ: DebianTools = DebianTools {
    programs: &["dot"],
    programs_in: "bin",
    packages: &["graphviz"],
    folder: "graphviz-debian-1",
    version_option: "-V",
    environment: "GVBINDIR=$(echo \"$root\"/lib/*-linux-gnu/graphviz)",
    set_up: &["dot", "-c"],
    remedy: "install Graphviz (Debian: apt-get install graphviz)",
};

/// Chromium without windows. Its script in `bin` has the path of an installed one. Fonts are found beside it.
pub(crate) const CHROMIUM: DebianTools = DebianTools {
    programs: &["chromium-headless-shell"],
    programs_in: "lib/chromium",
    packages: &["chromium-headless-shell", "fonts-dejavu-core"],
    folder: "chromium-debian-1",
    version_option: "--version",
    environment: "FONTCONFIG_PATH=\"$top/etc/fonts\" XDG_DATA_HOME=\"$root/share\" \
                  LD_LIBRARY_PATH=$(echo \"$root\"/lib/*-linux-gnu/pulseaudio)",
    set_up: &[],
    remedy: "install Chromium's headless shell (Debian: apt-get install chromium-headless-shell)",
};

/// Comes with the machine, and must be of one piece with its loader.
const NOT_UNPACKED: &str = "libc6";

impl DebianTools {
    /// The programs, each with its path.
    pub(crate) fn programs(&self, cache: &Cache) -> Result<Vec<(&'static str, PathBuf)>> {
        let unpacked = cache.toolchain(self.folder);
        let mut found = Vec::new();
        for program in self.programs {
            let path = match self.installed(program) {
                Some(path) => path,
                None => {
                    cache.once(&unpacked, || self.unpack(cache, &unpacked)).context(self.remedy)?;
                    unpacked.join(program)
                }
            };
            found.push((*program, path));
        }
        Ok(found)
    }

    /// Where the machine has a program that runs. A `perf` that is only a script which looks for another one does not.
    fn installed(&self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())?;
        let mut command = Command::new(&found);
        let runs = command.arg(self.version_option).stdout(Stdio::null()).stderr(Stdio::null()).status();
        runs.is_ok_and(|status| status.success()).then_some(found)
    }

    fn unpack(&self, cache: &Cache, folder: &Path) -> Result<()> {
        let step = Step::announced(format!("downloading Debian's {}", self.packages.join(", ")));
        let workplace = cache.workplace(self.folder)?;
        let packages = Packages::open(&workplace.path, self.remedy)?;
        let options =
            ["--recurse", "--important", "--no-breaks", "--no-conflicts", "--no-replaces", "--no-pre-depends"];
        let names = package_names(&packages.dependencies(&options, self.packages)?);
        let files = packages.download(&names)?;
        let made = workplace.path.join("made");
        packages.unpack(&files, &made.join("root"))?;
        for program in self.programs {
            // One of them may call the others by their names.
            let script = format!(
                "#!/bin/sh\n\
                 top=$(dirname \"$(readlink -f \"$0\")\")/root\n\
                 root=$top/usr\n\
                 export PATH=\"$root/bin:$PATH\" {}\n\
                 LD_LIBRARY_PATH=$(echo \"$root\"/lib/*-linux-gnu):$(echo \"$top\"/lib/*-linux-gnu)${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec \"$root/{}/{program}\" \"$@\"\n",
                self.environment, self.programs_in,
            );
            process::write_program(&made.join(program), &script)?;
        }
        if let Some((program, arguments)) = self.set_up.split_first() {
            process::output(Command::new(made.join(program)).args(arguments), self.remedy)?;
        }
        cache::publish(&made, folder)?;
        for program in self.programs {
            process::output(Command::new(folder.join(program)).arg(self.version_option), self.remedy)?;
        }
        step.done();
        Ok(())
    }
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
