//! `cargo xtask demo`: rebuilds the committed demo guest and compares it byte for byte.
//!
//! No libc is linked, and no path of this machine gets into the file, so every checkout builds
//! the same bytes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::fixtures::source_path_flags;
use crate::progress::{self, Step};
use crate::wheels::{Pins, Wheels};
use crate::{checkout, process};

const COMPILE: &[&str] =
    &["cc", "-target", "wasm32-freestanding", "-c", "-g", "-O2", "-fno-builtin", "-Wall", "-Wextra", "-Werror"];
const LINK: &[&str] = &["wasm-ld", "--no-entry", "--gc-sections", "--stack-first", "-z", "stack-size=65536"];
const REBUILD: &str = "remove the toolchains folder of the cache and try again";

/// Compares, or replaces the committed file if told `--bless`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let bless = match arguments {
        [] => false,
        [flag] if flag == "--bless" => true,
        _ => bail!("the only argument is --bless"),
    };
    let step = Step::quietly("demo");
    let built = build()?;
    let committed_path = folder().join("demo.wasm");
    if bless {
        fs::write(&committed_path, &built).with_context(|| format!("cannot write {}", committed_path.display()))?;
        progress::say(format_args!("demo: wrote {} bytes", built.len()));
        return Ok(());
    }
    let committed = fs::read(&committed_path).with_context(|| format!("cannot read {}", committed_path.display()))?;
    if let Some(difference) = first_difference(&committed, &built) {
        bail!(
            "testdata/demo/demo.wasm is not what its sources build: {difference}; \
             if the sources are right, run `cargo xtask demo --bless`"
        );
    }
    step.done();
    Ok(())
}

fn folder() -> PathBuf {
    checkout::testdata().join("demo")
}

fn build() -> Result<Vec<u8>> {
    let cache = Cache::open()?;
    let pins = Pins::read()?;
    let wheels = {
        let _lock = cache.lock()?;
        Wheels::get(&cache, &pins)?
    };
    let workplace = cache.workplace("demo")?;
    let testdata = checkout::testdata();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            names.push(path.file_name().context("a source has a name")?.to_owned());
        }
    }
    // The order of linking shows in the file.
    names.sort();
    let mut objects = Vec::new();
    for name in names {
        let source = folder().join(&name);
        let object = workplace.path.join(&name).with_extension("o");
        let mut zig = wheels.zig(&cache)?;
        zig.args(COMPILE).args(source_path_flags(&testdata, &wheels));
        process::output(zig.arg("-o").arg(&object).arg(&source), REBUILD)?;
        objects.push(object);
    }
    let output = workplace.path.join("demo.wasm");
    let mut zig = wheels.zig(&cache)?;
    process::output(zig.args(LINK).arg("-o").arg(&output).args(&objects), REBUILD)?;
    fs::read(&output).with_context(|| format!("cannot read {}", output.display()))
}

fn first_difference(committed: &[u8], built: &[u8]) -> Option<String> {
    if committed == built {
        return None;
    }
    let offset = committed.iter().zip(built).take_while(|(a, b)| a == b).count();
    Some(format!("they differ from byte {offset}, committed {} bytes, built {}", committed.len(), built.len()))
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn differences_are_located() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert!(first_difference(b"abc", b"abX").is_some_and(|text| text.contains("byte 2")));
        assert!(first_difference(b"abc", b"ab").is_some_and(|text| text.contains("byte 2")));
    }
}
