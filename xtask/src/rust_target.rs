//! A Rust compiler that can build for `wasm32-wasip1`.
//!
//! Usually the user's own, with that target installed. Where rustup cannot install it, Debian's, with Zig as linker and
//! libc.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, Cache};
use crate::debian_rust::DebianRust;
use crate::process;
use crate::wheels::{self, Pins, Wheels};

const TARGET: &str = "wasm32-wasip1";
const FOLDER: &str = "rust-wasip1-debian-1";
const NO_TARGET: &str = "the Rust target wasm32-wasip1 is missing: run `rustup target add wasm32-wasip1`";

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
    let folder = workplace.path.join("toolchain");
    let compiler = DebianRust::unpack(&workplace.path, &folder, &[])?;
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
    let library = folder.join("sysroot/lib/rustlib").join(TARGET).join("lib");
    compiler.build_library(TARGET, "std,panic_abort", &library, |_| {})?;
    compiler.remove_source()?;
    fs::write(folder.join("identity"), compiler.identity())?;
    cache::publish(&folder, &cache.toolchain(FOLDER))
}
