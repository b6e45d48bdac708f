//! Runs of guests that push, and the comparison of their recordings with what servers have stored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::{checkout, fixtures, process, wheels};

const C: &str = "c-shares.wasm";
const PYTHON: &str = "python-3.11.wasm";

/// The program that pushes, and what reads what servers have stored.
pub(super) struct Runs<'a> {
    folder: &'a Path,
    wlprof: PathBuf,
    packages: PathBuf,
}

/// A run as the programs of `testdata/push` take it: its service, and wlprof's rendering of its recording.
pub(super) type Rendered = String;

impl<'a> Runs<'a> {
    /// Builds what is missing of wlprof and of the guests. Files of the runs go to `folder`.
    pub(super) fn prepare(cache: &Cache, folder: &'a Path) -> Result<Self> {
        let wlprof = checkout::root().join("target/release/wlprof");
        if !wlprof.exists() {
            process::visibly(checkout::cargo().args(["build", "--release", "--package", "wlprof-cli"]))?;
        }
        fixtures::build(&[C, PYTHON].map(str::to_owned))?;
        let packages = wheels::packages(cache, "requirements-push.txt", &["grpc", "opentelemetry"])?;
        let runs = Self { folder, wlprof, packages };
        // Comparisons that find nothing would be worth nothing.
        let guest = fixture(C).display().to_string();
        runs.python("check_stored.py", &[runs.wlprof.display().to_string(), guest, "2".to_owned()])?;
        Ok(runs)
    }

    /// Has a C guest and a Python guest push to `url`. All of their profiles have to be taken.
    pub(super) fn push(&self, protocol: &str, url: &str) -> Result<Vec<Rendered>> {
        let guests = [("c", vec![fixture(C).display().to_string(), "6".to_owned()]), ("python", python_guest())];
        let push =
            |(language, guest): (&str, Vec<String>)| self.push_one(&format!("{language}-{protocol}"), url, &guest);
        guests.into_iter().map(push).collect()
    }

    fn push_one(&self, service: &str, url: &str, guest: &[String]) -> Result<Rendered> {
        let folder = self.folder.join(service);
        fs::create_dir(&folder)?;
        let mut run = Command::new(&self.wlprof);
        run.current_dir(&folder).args(["-o", "x.wlprof", "--push-interval=1s", "--push", url]);
        run.arg(format!("--push-resource=service.name={service}")).args(guest);
        let output =
            run.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", self.wlprof.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{service}: {}\n{said}", output.status);
        let count = pushed(&said, url).with_context(|| format!("{service}: not all profiles were pushed:\n{said}"))?;
        ensure!(count >= 2, "{service}: there were too few profiles to compare: {count}");
        let mut render = Command::new(&self.wlprof);
        render.current_dir(&folder).args(["render", "--format", "pprof", "-o", "x.pb.gz", "x.wlprof"]);
        process::output(&mut render, "build wlprof")?;
        Ok(format!("{service}={}", folder.join("x.pb.gz").display()))
    }

    /// Compares what is stored at `place`, an address or a file, with these runs.
    pub(super) fn compare(&self, program: &str, place: &str, runs: &[Rendered]) -> Result<()> {
        let arguments: Vec<String> = [place.to_owned()].into_iter().chain(runs.iter().cloned()).collect();
        self.python(program, &arguments)
    }

    fn python(&self, program: &str, arguments: &[String]) -> Result<()> {
        let mut python = Command::new("python3");
        python.arg(checkout::testdata().join("push").join(program)).args(arguments);
        process::visibly(python.env("PYTHONPATH", &self.packages).env("PYTHONDONTWRITEBYTECODE", "1"))
    }
}

fn fixture(name: &str) -> PathBuf {
    checkout::root().join("target/fixtures").join(name)
}

/// The interpreter with its library and a script, and the script's arguments.
fn python_guest() -> Vec<String> {
    let library = fixture("python-3.11-lib").display().to_string();
    let scripts = checkout::testdata().join("python").display().to_string();
    let folders = [format!("--dir={library}::/usr/local/lib"), format!("--dir={scripts}::/scripts")];
    let guest = [fixture(PYTHON).display().to_string(), "/scripts/shares.py".to_owned(), "3000".to_owned()];
    folders.into_iter().chain(guest).collect()
}

/// The number of profiles that wlprof says to have pushed, if it lost none and left none in its queue.
fn pushed(said: &str, url: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("pushed ") && line.ends_with(url))?;
    line.split_once("pushed ")?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_that_lost_nothing_count() {
        let url = "parca://h:7070";
        assert_eq!(pushed("1.2 s\npushed 3 profiles to parca://h:7070\n", url), Some(3));
        assert_eq!(pushed("pushed 3 profiles to parca://h:7070; lost 1 profile: refused by the server\n", url), None);
        assert_eq!(pushed("pushed 3 profiles to parca://h:7070; 1 profile left in the queue\n", url), None);
        assert_eq!(pushed("nothing\n", url), None);
    }
}
