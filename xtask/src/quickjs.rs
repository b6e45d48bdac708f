//! QuickJS-ng for WASI: the `qjs` command, built with Zig from the C sources that a crate carries.
//!
//! The crate because every machine that builds wlprof can reach its registry, and because cargo checks it by hash.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::Cache;
use crate::strip::without_custom_sections;
use crate::wheels::Wheels;
use crate::{checkout, fixtures, process};

/// What pins the sources, in `testdata`. Its lock file has their hash.
pub(crate) const SOURCES: &str = "quickjs/Cargo.lock";

/// What a built QuickJS consists of: names in its folder, and what is added to the fixture's name for tests to find it.
pub(crate) const PARTS: [(&str, &str); 2] = [("qjs.wasm", ".wasm"), ("stripped.wasm", "-stripped.wasm")];

/// The command's sources, in the crate's folder.
const FILES: [&str; 8] =
    ["quickjs.c", "libregexp.c", "libunicode.c", "dtoa.c", "quickjs-libc.c", "qjs.c", "gen/repl.c", "gen/standalone.c"];

/// Builds the command into the folder `output`, with debug information and without custom sections.
pub(crate) fn build(flags: &[&str], cache: &Cache, wheels: &Wheels, output: &Path) -> Result<()> {
    let sources = sources(cache)?;
    fs::create_dir_all(output)?;
    let [(built, _), (stripped, _)] = PARTS.map(|(name, suffix)| (output.join(name), suffix));
    let mut zig = wheels.zig(cache)?;
    zig.args(["cc", "-target", "wasm32-wasi"]).args(flags);
    zig.args(fixtures::source_path_flags(&checkout::testdata(), wheels));
    zig.arg(format!("-ffile-prefix-map={}=/quickjs", sources.display())).arg("-I").arg(&sources);
    zig.arg("-o").arg(&built).args(FILES.map(|file| sources.join(file)));
    zig.args(["-lwasi-emulated-process-clocks", "-lwasi-emulated-signal"]);
    process::output(&mut zig, "remove the toolchains folder of the cache and try again")?;
    fs::write(stripped, without_custom_sections(&fs::read(built)?)?)?;
    Ok(())
}

/// The folder of the C sources. Its path is always the same, as Zig's cache depends on it.
fn sources(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.compiler_cache("quickjs-sources");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let manifest = checkout::testdata().join(SOURCES).with_file_name("Cargo.toml");
    let mut cargo = checkout::cargo();
    cargo.args(["vendor", "--locked", "--manifest-path"]).arg(manifest).arg(&folder);
    process::output(&mut cargo, "install cargo")?;
    Ok(folder.join("rquickjs-sys/quickjs"))
}
