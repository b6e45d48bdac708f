//! Where things are in the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets this when it runs the program; the path of the build is for direct runs.
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}

/// The folder of the guests' sources.
pub(crate) fn testdata() -> PathBuf {
    root().join("testdata")
}

/// The cargo that runs this program, so that tasks use the same toolchain.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo says of this package to this program. Build scripts that look at it (ring's) would run again, and all that is built on
    // them be compiled again, whenever tasks and plain `cargo build` take turns.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// What a user's environment asks of every build: other flags, another place, a program around the compiler.
const WISHES: [&str; 7] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_INCREMENTAL",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
];

/// The cargo that runs this program, for builds that are the same whoever asks for them.
pub(crate) fn cargo_alone() -> Command {
    let mut command = cargo();
    for wish in WISHES {
        command.env_remove(wish);
    }
    command
}

/// Every file that is in git or could be added to it, relative to the root.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listing = process::output(&mut git, "install git")?;
    let listing = String::from_utf8(listing).context("git lists a file name that is not UTF-8")?;
    let mut files: Vec<PathBuf> = listing.split_terminator('\0').map(PathBuf::from).collect();
    // A conflicted file is listed once for each side.
    files.sort();
    files.dedup();
    Ok(files)
}
