//! `cargo xtask goldens`: the files that exporters have to write of an example recording, in `core/export/src/golden`.

use anyhow::{Context, Result, bail};

use crate::{checkout, process};

/// The test that compares them.
const TEST: &[&str] = &["test", "--release", "--package", "wlprof-export", "--lib", "golden"];

/// Tells the test to write them.
const BLESS: &str = "WLPROF_BLESS_GOLDENS";

/// Compares, or replaces the committed files if told `--bless`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut test = checkout::cargo();
    test.args(TEST);
    match arguments {
        [] => {}
        [flag] if flag == "--bless" => {
            test.env(BLESS, "1");
        }
        _ => bail!("the only argument is --bless"),
    }
    process::visibly(&mut test).context("exporters do not write the golden files")
}
