//! Builds plugins' dynamic libraries, as those who write them do.

use crate::tested::c_compiler;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Takes from `command` what cargo says of this package to its tests. A build script that looks at it (ring's) would run again, and all
/// that is built on it be compiled again, now and when cargo is run otherwise next: minutes each time.
pub(crate) fn forget_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// Has cargo build `target` of the workspace, and gives the library `file` of it, from the folder of its programs.
pub(crate) fn with_cargo(target: &[&str], file: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    forget_package(&mut cargo).current_dir(root()).args(["build", "--release", "--package"]);
    let built = cargo.args(target).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Path::new(env!("CARGO_BIN_EXE_wlprof")).parent().unwrap().join(file)
}

/// Compiles `source` of `testdata` into `library`, without a warning, for the command that is tested.
pub(crate) fn from_c(source: &str, library: PathBuf, options: &[&str]) -> PathBuf {
    let mut compiler = c_compiler();
    compiler.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fPIC", "-shared"]).args(options);
    compiler.arg("-I").arg(root().join("plugins/api/include")).arg(root().join("testdata").join(source));
    let compiled = compiler.arg("-o").arg(&library).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}
