//! CPython for WASI, built with Zig from the source package that Debian carries.
//!
//! Debian's because every machine that can install packages can reach it; the tarball in it is upstream's own and is
//! taken by hash. Building CPython for another machine needs a Python of the same minor release on this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::cache::{self, Cache};
use crate::progress::Step;
use crate::strip::without_custom_sections;
use crate::wheels::{self, Wheels};
use crate::{checkout, process};

/// The file that pins the releases, in `testdata`.
pub(crate) const RELEASES: &str = "python/releases.txt";
/// What packs the standard library, in `testdata`.
pub(crate) const PACKER: &str = "python/standard_library.py";

/// What a built CPython consists of: names in its folder, and what is added to the fixture's name for tests to find it.
pub(crate) const PARTS: [(&str, &str); 3] =
    [("python.wasm", ".wasm"), ("stripped.wasm", "-stripped.wasm"), ("lib", "-lib")];

const NO_TOOLS: &str = "install make, tar and a shell";

/// What Zig's headers promise and its libc for WASI lacks.
const ABSENT: &str = "\
ac_cv_header_libintl_h=no
ac_cv_header_sys_epoll_h=no
ac_cv_func_epoll_create=no
ac_cv_func_epoll_create1=no
ac_cv_func_setgroups=no
ac_cv_header_sys_timerfd_h=no
ac_cv_func_timerfd_create=no
py_cv_module__socket=n/a
";

/// One line of the file that pins the releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    minor: String,
    version: String,
    suite: String,
    package: String,
    sha256: String,
}

impl Release {
    /// Finds the release of that minor version.
    pub(crate) fn find(minor: &str) -> Result<Self> {
        let path = checkout::testdata().join(RELEASES);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = text.lines().find_map(Self::parse_line(minor));
        found.with_context(|| format!("{} does not pin CPython {minor}", path.display()))
    }

    fn parse_line(minor: &str) -> impl Fn(&str) -> Option<Self> {
        move |line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [found, version, suite, package, sha256] = words[..] else { return None };
            (found == minor).then(|| Self {
                minor: minor.to_owned(),
                version: version.to_owned(),
                suite: suite.to_owned(),
                package: package.to_owned(),
                sha256: sha256.to_owned(),
            })
        }
    }

    /// What distinguishes this release from others.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.version, self.sha256)
    }
}

/// Builds `release` into `output`, a new folder with [`PARTS`] in it.
pub(crate) fn build(release: &Release, cache: &Cache, wheels: &Wheels, output: &Path) -> Result<()> {
    let python = build_python(&release.minor)?;
    let tarball = tarball(release, cache)?;
    let step = Step::announced(format!("building CPython {}", release.version));
    // Always the same folder: its path gets into the guest in places where no option maps it away.
    let folder = cache.compiler_cache(&format!("cpython-{}", release.minor));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let (source, build) = (folder.join("source"), folder.join("build"));
    fs::create_dir_all(&source)?;
    fs::create_dir_all(&build)?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&tarball).arg("-C").arg(&source).arg("--strip-components=1");
    process::output(&mut tar, NO_TOOLS)?;
    make_pthread_stubs_agree(&source)?;
    write_tools(&folder, &source, wheels)?;
    configure(&folder, &source, &build, &python, cache)?;
    let mut make = Command::new("make");
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    // Exported, as the linker drops it otherwise; that early, the export would break configure's tests.
    make.current_dir(&build).arg(format!("-j{jobs}")).args(["LDFLAGS=-Wl,--export=Py_Version", "python.wasm"]);
    process::output(isolated(&mut make, cache)?, NO_TOOLS)?;

    fs::create_dir_all(output)?;
    let wasm = fs::read(build.join("python.wasm"))?;
    fs::write(output.join("stripped.wasm"), without_custom_sections(&wasm)?)?;
    fs::write(output.join("python.wasm"), wasm)?;
    let mut pack = Command::new(&python);
    pack.arg(checkout::testdata().join(PACKER)).arg(source.join("Lib")).arg(output.join("lib"));
    process::output(&mut pack, NO_TOOLS)?;
    fs::remove_dir_all(&folder)?;
    step.done();
    Ok(())
}

/// A Python of the same minor release, which runs those parts of the build that are written in Python.
fn build_python(minor: &str) -> Result<PathBuf> {
    let name = format!("python{minor}");
    let mut candidates = vec![PathBuf::from(&name), Path::new("/usr/bin").join(&name)];
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv")));
    let versions = pyenv.and_then(|root| fs::read_dir(root.join("versions")).ok());
    candidates.extend(versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin").join(&name)));
    // pyenv puts programs on the path that only say that the version is not the chosen one: ask each.
    let path = |candidate: &PathBuf| {
        let mut command = Command::new(candidate);
        let said = process::text(command.args(["-c", "import sys; print(sys.executable)"]), "").ok()?;
        Some(PathBuf::from(said.trim()))
    };
    candidates.iter().find_map(path).with_context(|| {
        format!(
            "building CPython {minor} for WASI needs a Python {minor} on this machine: install one so that `{name}` \
             runs (for example `pyenv install {minor}`, `uv python install {minor}` or Debian's package {name})"
        )
    })
}

/// The source, from the cache or from Debian.
fn tarball(release: &Release, cache: &Cache) -> Result<PathBuf> {
    let folder = cache.toolchain(&format!("cpython-{}-source", release.version));
    if !folder.exists() {
        let step = Step::announced(format!("downloading the source of CPython {}", release.version));
        let workplace = cache.workplace("cpython-source")?;
        let downloaded = download(release, &workplace.path).with_context(|| {
            format!(
                "cannot get the source of CPython {}; you can put python.org's tarball of it into {} instead",
                release.version,
                folder.display()
            )
        })?;
        let kept = workplace.path.join("kept");
        fs::create_dir(&kept)?;
        fs::rename(&downloaded, kept.join(downloaded.file_name().context("the tarball has a name")?))?;
        cache::publish(&kept, &folder)?;
        step.done();
    }
    let path = only_file(&folder)?;
    let digest: String = Sha256::digest(fs::read(&path)?).iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != release.sha256 {
        bail!("{} is not the source that {RELEASES} pins: remove it and try again", path.display());
    }
    Ok(path)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let mut files = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file());
    files.next().with_context(|| format!("{} is empty: remove it and try again", folder.display()))
}

/// Lets apt download the source package, with lists of our own: most machines know no source packages.
fn download(release: &Release, workplace: &Path) -> Result<PathBuf> {
    let (lists, archives, packages) = (workplace.join("lists"), workplace.join("archives"), workplace.join("packages"));
    for folder in [lists.join("partial"), archives.join("archives/partial"), packages.clone()] {
        fs::create_dir_all(folder)?;
    }
    let no_apt = "only Debian's package manager can download it";
    let known = process::text(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]), no_apt)?;
    let mut archives_of_debian: Vec<&str> =
        known.lines().filter(|uri| uri.trim_end_matches('/').ends_with("/debian")).collect();
    archives_of_debian.dedup();
    let Some(uri) = archives_of_debian.first() else { bail!("this machine's package sources have no Debian archive") };
    let sources = workplace.join("sources.list");
    fs::write(&sources, format!("deb-src {uri} {} main\n", release.suite))?;
    let apt = || {
        let mut command = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::sourcelist", sources.as_path()),
            ("Dir::Etc::sourceparts", Path::new("/dev/null")),
            ("Dir::State::lists", &lists),
            ("Dir::Cache", &archives),
        ] {
            command.arg("-o").arg(format!("{option}={}", value.display()));
        }
        command.current_dir(&packages);
        command
    };
    process::output(apt().arg("update"), no_apt)?;
    process::output(apt().args(["source", "--tar-only", &release.package]), no_apt)?;
    only_file(&packages)
}

/// Zig's headers have a real `pthread.h`, with which CPython's stubs must agree.
fn make_pthread_stubs_agree(source: &Path) -> Result<()> {
    for (file, from, to) in [
        ("Include/cpython/pthread_stubs.h", "PyAPI_FUNC(int) pthread_exit", "PyAPI_FUNC(void) pthread_exit"),
        ("Python/thread_pthread_stubs.h", "\nint\npthread_exit(", "\nvoid\npthread_exit("),
    ] {
        let path = source.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, text.replace(from, to))?;
    }
    Ok(())
}

/// Wrappers around Zig, and what configure cannot find out itself.
fn write_tools(folder: &Path, source: &Path, wheels: &Wheels) -> Result<()> {
    let zig = wheels.zig_path();
    // Zig already does what it is not told here, and the stack is to be large enough for deep recursion.
    let compiler = format!(
        "#!/bin/sh\n\
         for argument do\n\
         \x20   shift\n\
         \x20   case \"$argument\" in\n\
         \x20       -z|-Wl,--stack-first|-Wl,--initial-memory=*) ;;\n\
         \x20       stack-size=*) set -- \"$@\" -Wl,-z,stack-size=4194304 ;;\n\
         \x20       *) set -- \"$@\" \"$argument\" ;;\n\
         \x20   esac\n\
         done\n\
         exec \"{}\" cc -target wasm32-wasi \"$@\"\n",
        zig.display()
    );
    process::write_program(&folder.join("cc"), &compiler)?;
    for tool in ["ar", "ranlib"] {
        let text = format!("#!/bin/sh\nexec \"{}\" {tool} \"$@\"\n", zig.display());
        process::write_program(&folder.join(tool), &text)?;
    }
    let upstream = source.join("Tools/wasm/config.site-wasm32-wasi");
    fs::write(folder.join("config.site"), format!(". {}\n{ABSENT}", upstream.display()))?;
    Ok(())
}

fn configure(folder: &Path, source: &Path, build: &Path, python: &Path, cache: &Cache) -> Result<()> {
    let mut configure = Command::new(source.join("configure"));
    let compiler = folder.join("cc");
    for name in ["CC", "CXX", "LDSHARED"] {
        configure.env(name, &compiler);
    }
    configure
        .current_dir(build)
        .env("CPP", format!("{} -E", compiler.display()))
        .env("AR", folder.join("ar"))
        .env("RANLIB", folder.join("ranlib"))
        .env("CONFIG_SITE", folder.join("config.site"))
        .env("PKG_CONFIG_LIBDIR", "/nonexistent")
        .env("PKG_CONFIG_PATH", "")
        .env("HOSTRUNNER", "/bin/false")
        .args(["-C", "--host=wasm32-unknown-wasi", "--build=x86_64-pc-linux-gnu", "--prefix=/usr/local"])
        .args(["--disable-ipv6", "--disable-test-modules", "--with-ensurepip=no"])
        .arg(format!("--with-build-python={}", python.display()))
        .arg("OPT=-DNDEBUG -g -fwrapv -O2 -Wall")
        .arg(format!(
            "CFLAGS=-Wno-int-conversion -Wno-macro-redefined -Wno-date-time -ffile-prefix-map={}=/cpython \
             -ffile-prefix-map={}=/cpython/build",
            source.display(),
            build.display()
        ));
    process::output(isolated(&mut configure, cache)?, NO_TOOLS).map(drop)
}

/// Cuts a build off from what this machine happens to have set.
fn isolated<'a>(command: &'a mut Command, cache: &Cache) -> Result<&'a mut Command> {
    let folder = command.get_current_dir().map(Path::to_path_buf);
    wheels::with_zig_cache(command, cache)?;
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    for name in ["CFLAGS", "CPPFLAGS", "LDFLAGS", "RUSTFLAGS", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS"] {
        command.env_remove(name);
    }
    Ok(command
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LC_ALL", "C")
        // Dates in `__DATE__` and in the banner.
        .env("SOURCE_DATE_EPOCH", "1700000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_pinned_by_hash() -> Result<()> {
        for minor in ["3.11", "3.13"] {
            let release = Release::find(minor)?;
            assert!(release.version.starts_with(minor) && release.sha256.len() == 64, "{release:?}");
        }
        assert!(Release::find("3.1").is_err());
        Ok(())
    }
}
