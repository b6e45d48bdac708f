//! `cargo xtask bounds`: whether the error bounds that wlprof prints are honest. Of a guest with known shares, how many runs have the
//! truth within the 95 % bound; of pairs of runs of one guest, how many rows `wlprof diff` calls different.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::progress::{self, Step};
use crate::{checkout, fixtures, process};

const DEFAULT_RUNS: usize = 200;

/// What `testdata/c/random.c` calls, and the truth in percent.
const SHARES: [(&str, f64); 3] = [("seven", 7.0), ("twenty_three", 23.0), ("seventy", 70.0)];

const OPTIONS: [&str; 2] = ["--rate=2500", "--max-overhead=100"];

/// Runs both, so many runs of each.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let runs = match arguments {
        [] => DEFAULT_RUNS,
        [runs] => runs.parse().with_context(|| format!("{runs:?} is not a number of runs"))?,
        _ => bail!("too many arguments"),
    };
    fixtures::build(&["c-random".to_owned()])?;
    process::visibly(checkout::cargo().args(["build", "--release", "--package", "wlprof-cli"]))?;
    let wlprof = checkout::root().join("target/release/wlprof");
    let folder = checkout::root().join("target/bounds");
    std::fs::create_dir_all(&folder)?;
    within(&wlprof, &folder, runs)?;
    called_different(&wlprof, &folder, runs)
}

/// What `wlprof` prints: its tables are on standard error where a guest runs, and on standard output elsewhere.
fn printed(wlprof: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(wlprof);
    let output = command.args(arguments).output().with_context(|| format!("cannot run {command:?}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if !output.status.success() {
        bail!("{command:?} failed ({}): {text}", output.status);
    }
    Ok(text)
}

fn within(wlprof: &Path, folder: &Path, runs: usize) -> Result<()> {
    let step = Step::announced(format!("{runs} runs of a guest whose shares are known"));
    let guest = text(&checkout::root().join("target/fixtures/c-random.wasm"))?;
    let folded = text(&folder.join("x.folded"))?;
    let mut within = [0; SHARES.len()];
    for run in 0..runs {
        let table = printed(
            wlprof,
            &[OPTIONS[0], OPTIONS[1], "--frames=native", "-o", &folded, &guest, "1", &run.to_string()],
        )?;
        for (count, (name, truth)) in within.iter_mut().zip(SHARES) {
            let (share, bound) = total(&table, name).with_context(|| format!("no {name} in {table}"))?;
            *count += usize::from((share - truth).abs() <= bound);
        }
    }
    for (count, (name, truth)) in within.iter().zip(SHARES) {
        let percent = 100.0 * *count as f64 / runs as f64;
        progress::say(format_args!("{name} ({truth} %): the truth is within the bound in {percent:.1} % of the runs"));
    }
    step.done();
    Ok(())
}

fn called_different(wlprof: &Path, folder: &Path, runs: usize) -> Result<()> {
    let pairs = runs / 2;
    let step = Step::announced(format!("{pairs} pairs of runs of one guest"));
    let guest = text(&checkout::testdata().join("demo/demo.wasm"))?;
    let recordings = ["a.wlprof", "b.wlprof"].map(|name| folder.join(name));
    let [one, other] = [text(&recordings[0])?, text(&recordings[1])?];
    let (mut functions, mut different, mut pairs_with_one) = (0_u32, 0_u32, 0_u32);
    for _ in 0..pairs {
        for recording in [&one, &other] {
            printed(wlprof, &["--quiet", OPTIONS[0], OPTIONS[1], "-o", recording, &guest])?;
        }
        let table = printed(wlprof, &["diff", "--top=1000", &one, &other])?;
        let (called, all) = differences(&table).with_context(|| format!("no number of functions in {table}"))?;
        functions += all;
        different += called;
        pairs_with_one += u32::from(called > 0);
    }
    progress::say(format_args!(
        "{different} of {functions} functions are called different, in {pairs_with_one} of {pairs} pairs"
    ));
    step.done();
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

/// How many functions `wlprof diff` calls different, and of how many.
fn differences(table: &str) -> Option<(u32, u32)> {
    let called = table.lines().filter(|line| line.matches('±').count() == 3).count();
    let (before, _) = table.split_once(" functions ")?;
    Some((called as u32, before.rsplit(' ').next()?.parse().ok()?))
}

/// The last share of the row of `name`, its total, and the bound of that.
fn total(table: &str, name: &str) -> Option<(f64, f64)> {
    let is_row = |line: &&str| line.contains(" ±") && line.split("  ").any(|cell| cell.trim() == name);
    let (before, after) = table.lines().rfind(is_row)?.rsplit_once('±')?;
    let share = before.rsplit(['%', ' ']).find(|text| !text.is_empty())?;
    Some((share.trim().parse().ok()?, after.split('%').next()?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_from_the_table() {
        let table = "  79.9 ±3.3 %  80.1 ±3.4 %    1.90 s  ████  sum  a.c:13\n   0.0 ±0.5 %  100.0 ±0.6 %  2.38 s  █  both  a.c\n";
        assert_eq!(total(table, "sum"), Some((80.1, 3.4)));
        assert_eq!(total(table, "both"), Some((100.0, 0.6)));
        assert_eq!(total(table, "bot"), None);
    }

    #[test]
    fn differences_are_read_from_the_table() {
        let none = "\nno difference above chance in the own time of 12 functions (5 % level, all together)\n";
        assert_eq!(differences(none), Some((0, 12)));
        let one = "\nself: the function's own code; 1 of 12 functions with a difference above chance; ± is the bound\n\
                   before  after  more  function\n7.0 ±0.1 %  1.00 s  9.0 ±0.1 %  1.30 s  +2.0 ±0.2 %  main  a.c\n";
        assert_eq!(differences(one), Some((1, 12)));
        assert_eq!(differences(""), None);
    }
}
