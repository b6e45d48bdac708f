//! Runs some tests of a crate, by parts of their names.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Before a name whose tests are not run.
const SKIP: &str = "--skip=";

/// Builds tests and runs those that `filters` choose, or, if there are any, `arguments`. `cargo_test` is `cargo test` with what it is given
/// after its own arguments.
pub(crate) fn run(filters: &[&str], arguments: &[String], cargo_test: impl Fn(&[&str]) -> Command) -> Result<()> {
    process::visibly(&mut cargo_test(&["--no-run"]))?;
    let mut chosen: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if chosen.is_empty() {
        refuse_unmatched(&mut cargo_test(&["--quiet", "--", "--list"]), filters)?;
        chosen.extend(filters);
    }
    process::visibly(&mut cargo_test(&[&["--"], &chosen[..]].concat())).context("tests fail")
}

/// Refuses filters that no test answers to: those of a test that was renamed since would choose none and have all pass. `listed` prints
/// the names of tests.
fn refuse_unmatched(listed: &mut Command, filters: &[&str]) -> Result<()> {
    let tests = process::text(listed, "")?;
    let names: Vec<&str> = tests.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    match filters.iter().find(|filter| !is_matched(filter, &names)) {
        Some(filter) => bail!("no test's name has `{filter}` in it"),
        None => Ok(()),
    }
}

fn is_matched(filter: &str, names: &[&str]) -> bool {
    let part = filter.strip_prefix(SKIP).unwrap_or(filter);
    names.iter().any(|name| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_no_test_are_refused() {
        let said = |filter| {
            let mut listed = Command::new("echo");
            listed.arg("a::b: test\n\n1 test, 0 benchmarks");
            refuse_unmatched(&mut listed, &[filter]).err().map(|error| error.to_string())
        };
        assert_eq!(said("a::"), None);
        assert_eq!(said("--skip=b"), None);
        assert_eq!(said("--skip=benchmarks").as_deref(), Some("no test's name has `--skip=benchmarks` in it"));
    }
}
