//! The compilers for other platforms: Debian's Rust with standard libraries for all of them, and what compiles their C.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::compilers::{self, TARGETS, Target};
use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::debian_rust::DebianRust;
use crate::wheels::{Pins, Wheels};
use crate::{checkout, process};

/// In the cache. Its number is raised with whatever is made otherwise: targets, the programs that compile C, or a newer Rust of Debian, of
/// which there has to be one at least as new as `rust-version`.
const FOLDER: &str = "rust-cross-debian-1";
const NO_DEBIAN: &str = "compilers for other platforms are Debian's packages: run this on Debian";
/// What of the standard library programs and tests are linked with.
const LIBRARY: &str = "std,panic_unwind,panic_abort,proc_macro,test";

/// Where cargo puts what it builds with them. In the cache: Wasmtime takes long to build, and is the same for every checkout. It is one
/// checkout's at a time.
const BUILT: &str = "cross-built";

/// The compilers, ready to be used.
pub(crate) struct Toolchain {
    folder: PathBuf,
    built: PathBuf,
    zig: PathBuf,
    zig_cache: PathBuf,
    /// Keeps other processes from building into `built`: what this one built there is what it tests.
    _built_lock: File,
    /// How far wlprof's own code is optimized: `opt-level` of its profile.
    optimization: u8,
}

impl Toolchain {
    /// Finds them, or downloads and builds what is missing.
    pub(crate) fn get(cache: &Cache) -> Result<Self> {
        let folder = cache.toolchain(FOLDER);
        let wheels = {
            let _lock = cache.lock()?;
            Wheels::get(cache, &Pins::read()?)?
        };
        cache.once(&folder, || make(cache, &folder))?;
        let (built, zig_cache) = (cache.compiler_cache(BUILT), cache.compiler_cache("zig-cache"));
        fs::create_dir_all(&built)?;
        let lock = built.join("lock");
        let built_lock = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
        built_lock.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
        forget_other_checkouts(&built)?;
        Ok(Self { folder, built, zig: wheels.zig_path(), zig_cache, _built_lock: built_lock, optimization: 1 })
    }

    /// Leaves wlprof's own code as it is, for tests that say nothing of time.
    pub(crate) fn without_optimization(self) -> Self {
        Self { optimization: 0, ..self }
    }

    /// `cargo` with `task`, for `targets`.
    pub(crate) fn cargo(&self, task: &[&str], targets: &[Target]) -> Command {
        let programs = self.folder.join("bin");
        let mut cargo = checkout::cargo_alone();
        // Before the arguments of a program that cargo runs.
        cargo.arg(task[0]).arg("--target-dir").arg(&self.built);
        // All of it as it is released would take more than ten minutes of a processor. WASI's functions are called seldom; Wasmtime, which
        // compiles the guests, is as it is released.
        for (package, level) in [("wlprof", self.optimization), ("wlprof-cli", self.optimization), ("wlprof-wasi", 0)] {
            cargo.arg("--config").arg(format!("profile.release.package.{package}.opt-level={level}"));
        }
        for target in targets {
            let Target { triple, .. } = target;
            let (cc, ar) = (self.c_compiler(*target), programs.join(format!("ar-{triple}")));
            let lower = triple.replace('-', "_");
            cargo.args(["--target", triple]).env(format!("CARGO_TARGET_{}_LINKER", target.variable()), &cc);
            cargo.env(format!("CC_{lower}"), cc).env(format!("AR_{lower}"), ar);
        }
        cargo.args(&task[1..]).env("RUSTC", self.folder.join("rustc"));
        self.for_zig(&mut cargo).env("PATH", with_programs(&programs));
        cargo
    }

    /// Tells what `command` runs of C compilers where Zig is.
    pub(crate) fn for_zig<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("WLPROF_ZIG", &self.zig);
        command.env("ZIG_GLOBAL_CACHE_DIR", &self.zig_cache).env("ZIG_LOCAL_CACHE_DIR", &self.zig_cache)
    }

    /// What compiles C for `target`.
    pub(crate) fn c_compiler(&self, target: Target) -> PathBuf {
        self.folder.join("bin").join(format!("cc-{}", target.triple))
    }

    /// Builds the command for `target`, and gives it a place in the checkout: another checkout builds its own where this one was built.
    pub(crate) fn build_wlprof(&self, target: Target) -> Result<PathBuf> {
        let name = if target.triple.contains("windows") { "wlprof.exe" } else { "wlprof" };
        let build = ["build", "--release", "--package", "wlprof-cli", "--bin", "wlprof"];
        process::visibly(&mut self.cargo(&build, &[target]))
            .with_context(|| format!("wlprof cannot be built for {}", target.triple))?;
        let folder = checkout::root().join("target/cross").join(target.triple);
        fs::create_dir_all(&folder)?;
        let command = folder.join(name);
        // A program that runs cannot be written to, and is to be whole for whoever starts it.
        let copy = folder.join(format!("{name}.new"));
        fs::copy(self.built.join(target.triple).join("release").join(name), &copy)?;
        fs::rename(&copy, &command)?;
        Ok(command)
    }
}

/// Has what another checkout built of its own crates built again: cargo tells new files from old ones by their times alone, and those
/// of a checkout that was made earlier are older whatever is in them.
fn forget_other_checkouts(built: &Path) -> Result<()> {
    let note = built.join("checkout");
    let root = checkout::root();
    let is_own = fs::read(&note).is_ok_and(|path| path == root.as_os_str().as_encoded_bytes());
    if is_own {
        return Ok(());
    }
    for target in TARGETS {
        let mut clean = checkout::cargo_alone();
        clean.args(["clean", "--quiet", "--workspace", "--target", target.triple, "--target-dir"]).arg(built);
        process::output(clean.args(["--profile", "release"]), "")?;
    }
    fs::write(&note, root.as_os_str().as_encoded_bytes()).with_context(|| format!("cannot write {}", note.display()))
}

/// `PATH` with this folder before all others.
fn with_programs(folder: &Path) -> std::ffi::OsString {
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("PATH") {
        path.push(":");
        path.push(others);
    }
    path
}

fn make(cache: &Cache, folder: &Path) -> Result<()> {
    let workplace = cache.workplace("cross")?;
    let made = workplace.path.join("toolchain");
    let packaged: Vec<&str> = TARGETS.iter().filter_map(|target| target.packaged).collect();
    let rust = DebianRust::unpack(&workplace.path.join("rust"), &made, &packaged)?;
    compilers::unpack_mingw(&Packages::open(&workplace.path.join("mingw"), NO_DEBIAN)?, &made)?;
    let programs = made.join("bin");
    compilers::write_programs(&programs)?;
    for Target { triple, .. } in TARGETS.into_iter().filter(|target| target.packaged.is_none()) {
        rust.build_library(triple, LIBRARY, &rust.own_library(triple), |cargo| {
            cargo.env("PATH", with_programs(&programs));
        })?;
    }
    rust.remove_source()?;
    cache::publish(&made, folder)
}
