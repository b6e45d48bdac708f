//! Runs some tests of a crate, by parts of their names. Parts that no test answers to are refused: those of a test that was renamed since,
//! or mistyped, would choose none and have all pass.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Before a name whose tests are not run.
const SKIP: &str = "--skip=";

/// Builds tests and runs those that `filters` choose. `cargo_test` is `cargo test` with what it is given after its own arguments.
pub(crate) fn run(filters: &[&str], cargo_test: impl Fn(&[&str]) -> Command) -> Result<()> {
    let names = names(&cargo_test)?;
    refuse(&unmatched(filters, &names))?;
    process::visibly(&mut cargo_test(&[&["--"], filters].concat())).context("tests fail")
}

/// Builds tests and runs those that a user's `arguments` choose: names, and what comes after them. Gives the names that no test answers to,
/// as other programs may have tests that do.
pub(crate) fn run_named<'a>(arguments: &[&'a str], cargo_test: impl Fn(&[&str]) -> Command) -> Result<Vec<&'a str>> {
    let filters: Vec<&str> = arguments.iter().copied().take_while(|argument| !argument.starts_with('-')).collect();
    let unmatched = unmatched(&filters, &names(&cargo_test)?);
    if filters.is_empty() || unmatched.len() < filters.len() {
        process::visibly(&mut cargo_test(&[&["--"], arguments].concat())).context("tests fail")?;
    }
    Ok(unmatched)
}

/// Refuses names that no test answers to.
pub(crate) fn refuse(unmatched: &[&str]) -> Result<()> {
    match unmatched.first() {
        Some(filter) => bail!("no test's name has `{filter}` in it"),
        None => Ok(()),
    }
}

/// Runs the tests of these names, which were built, with these options.
pub(crate) fn run_exactly(names: &[String], options: &[&str], cargo_test: impl Fn(&[&str]) -> Command) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut tests = cargo_test(&[&["--", "--exact"], options, &names[..]].concat());
    let status = tests.status().context("cannot run cargo")?;
    // The command has hundreds of names.
    if status.success() { Ok(()) } else { bail!("tests fail, see above") }
}

/// Builds tests, and gives their names.
pub(crate) fn names(cargo_test: &impl Fn(&[&str]) -> Command) -> Result<Vec<String>> {
    process::visibly(&mut cargo_test(&["--no-run"]))?;
    let listed = process::text(&mut cargo_test(&["--quiet", "--", "--list"]), "")?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Those of `filters` that no test answers to.
pub(crate) fn unmatched<'a>(filters: &[&'a str], names: &[String]) -> Vec<&'a str> {
    let part = |filter: &'a str| filter.strip_prefix(SKIP).unwrap_or(filter);
    filters.iter().copied().filter(|filter| !names.iter().any(|name| name.contains(part(filter)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `cargo test` that knows one test, and prints what it is to run into `ran`.
    fn cargo_test(ran: &std::path::Path) -> impl Fn(&[&str]) -> Command {
        move |options: &[&str]| {
            let mut shell = Command::new("sh");
            let script = r#"case "$*" in --no-run) ;; *--list) echo "a::b: test" ;; *) echo "$*" >> "$0" ;; esac"#;
            shell.args(["-c", script]).arg(ran).args(options);
            shell
        }
    }

    #[test]
    fn parts_of_no_tests_name_are_refused_and_run_nothing() {
        let ran = std::env::temp_dir().join(format!("wlprof-chosen-tests-{}", std::process::id()));
        let said = |filters: &[&str]| run(filters, cargo_test(&ran)).err().map(|error| error.to_string());
        assert_eq!(said(&["a::", "--skip=b"]), None);
        assert_eq!(said(&["a::", "--skip=c"]).as_deref(), Some("no test's name has `--skip=c` in it"));
        let named = |arguments: &[&str]| -> usize { run_named(arguments, cargo_test(&ran)).unwrap().len() };
        assert_eq!([named(&["b", "--exact"]), named(&["c", "b"]), named(&["c"]), named(&["--ignored"])], [0, 1, 1, 0]);
        let found = std::fs::read_to_string(&ran).unwrap();
        std::fs::remove_file(&ran).unwrap();
        assert_eq!(found, "-- a:: --skip=b\n-- b --exact\n-- c b\n-- --ignored\n");
    }
}
