//! `cargo xtask stress`: runs every test guest over and over under the hardest sampling there is, and counts what goes
//! wrong: crashes, hangs, output that is not the guest's, profiles that cannot be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::progress::{self, Step};
use crate::recipes::{Language, RECIPES, Recipe};
use crate::{checkout, cross, fixtures, process};

const DEFAULT_RUNS: usize = 200;

/// The longest that any guest takes, many times over.
const HUNG: Duration = Duration::from_secs(120);
/// Likewise on a processor that is emulated.
const HUNG_EMULATED: Duration = Duration::from_secs(600);

const HARD: [&str; 4] = ["--sampler=signal", "--rate=10000", "--max-overhead=100", "--clock=wall"];

/// Never ends; the tests interrupt it.
const ENDLESS: &str = "c-spin";

/// The command that guests are run by.
struct Tested {
    wlprof: PathBuf,
    /// This machine's own, which says how guests end without a profiler and reads the recordings: an emulator takes minutes for each. Guests
    /// and recordings are the same on all processors.
    native: PathBuf,
    /// How long it may take.
    hung: Duration,
}

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Crash,
    Hang,
    ExitCode,
    Output,
    Profile,
}

impl Wrong {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Crash, "crashes"),
        (Self::Hang, "hangs"),
        (Self::ExitCode, "wrong exit codes"),
        (Self::Output, "wrong outputs"),
        (Self::Profile, "bad profiles"),
    ];
}

/// One way to run a guest, and how that ends without a profiler.
struct Case {
    name: String,
    guest: PathBuf,
    /// What the guest needs of wlprof.
    options: Vec<String>,
    arguments: Vec<&'static str>,
    code: Option<i32>,
    stdout: Vec<u8>,
}

/// These say how long something took, by their own clock.
const TELL_TIMES: [&str; 4] = ["c-phases", "c-waits", "go-naps", "go-waits"];

/// What `output` of the guest of that name has that is the same in each run: no addresses, which Go prints in its tracebacks, and no times.
fn without_what_differs(output: &[u8], name: &str) -> Vec<u8> {
    let tells_times = TELL_TIMES.iter().any(|guest| name.starts_with(guest));
    let mut kept = Vec::with_capacity(output.len());
    for &byte in output {
        let is_of_address = byte.is_ascii_hexdigit() && kept.ends_with(b"0x");
        let is_of_time = tells_times && byte.is_ascii_digit();
        if !is_of_address && !is_of_time {
            kept.push(byte);
        }
    }
    kept
}

/// Runs all guests in turn until there have been as many runs as `arguments` say.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (target, runs) = match arguments {
        [option, target, runs @ ..] if option == "--target" => (Some(target), runs),
        runs => (None, runs),
    };
    let runs = match runs {
        [] => DEFAULT_RUNS,
        [runs] => runs.parse().with_context(|| format!("{runs:?} is not a number of runs"))?,
        _ => bail!("too many arguments"),
    };
    fixtures::build(&[])?;
    process::visibly(checkout::cargo().args(["build", "--release", "--package", "wlprof-cli"]))?;
    let native = checkout::root().join("target/release/wlprof");
    let tested = match target {
        Some(target) => Tested { wlprof: cross::command_with_signals(target)?, native, hung: HUNG_EMULATED },
        None => Tested { wlprof: native.clone(), native, hung: HUNG },
    };
    let cases = tested.cases()?;
    let step = Step::announced(format!("{runs} runs of {} guests", cases.len()));
    let folder = checkout::root().join("target/stress");
    std::fs::create_dir_all(&folder)?;
    let mut counts = BTreeMap::<Wrong, usize>::new();
    for (number, case) in cases.iter().cycle().take(runs).enumerate() {
        // Both clocks: blocked threads are read by another thread, running ones in the handler.
        let options = if number / cases.len() % 2 == 0 { &HARD[..3] } else { &HARD[..] };
        for (wrong, what) in tested.try_once(case, options, &folder)? {
            *counts.entry(wrong).or_default() += 1;
            progress::say(format_args!("run {number}, {}: {wrong:?}: {what}", case.name));
        }
    }
    let summary: Vec<String> = Wrong::ALL
        .iter()
        .map(|(wrong, name)| format!("{} {name}", counts.get(wrong).copied().unwrap_or_default()))
        .collect();
    progress::say(format_args!("{runs} runs: {}", summary.join(", ")));
    step.done();
    if !counts.is_empty() {
        bail!("sampling disturbed the guests, see above");
    }
    Ok(())
}

/// What a guest is run with: all the ways it works and ends in.
fn ways(recipe: &Recipe) -> Vec<Vec<&'static str>> {
    match (recipe.name, recipe.language) {
        // Programs for `GOOS=js` import what no WASI host has.
        (ENDLESS, _) | (_, Language::GoForJs(_)) => vec![],
        // They answer requests, which nobody makes here.
        ("component-python-async", _) => vec![],
        (name, _) if name.starts_with("handler-") => vec![],
        // It has its own program.
        ("component-python-calls-rust", _) => vec![vec![]],
        // They print where their data is, and end before there is a sample.
        (name, Language::C | Language::Cpp) if name.contains("-layout") => vec![],
        ("c-traps", _) => vec![
            vec![],
            vec!["unreachable"],
            vec!["oob"],
            vec!["div0"],
            vec!["overflow"],
            vec!["exit", "3"],
            vec!["abort"],
        ],
        ("go-export", _) => vec![vec!["100"]],
        (name, _) if name.starts_with("go-work") => {
            vec![vec!["split"], vec!["channels", "20"], vec!["garbage", "20"], vec!["recursion", "20"]]
        }
        (_, Language::Python(_)) => vec![vec!["bench.py", "200"], vec!["stacks.py"], vec!["no-such-script.py"]],
        // What a script fails with ends it by a panic of its own, which is none of wlprof's.
        (_, Language::PythonComponent(_)) => vec![vec!["bench.py", "200"], vec!["stacks.py"]],
        (_, Language::QuickJs) => vec![vec!["shares.js", "loops", "10"], vec!["no-such-script.js"]],
        ("tiny", _) => vec![vec!["demo.tiny"]],
        _ => vec![vec![]],
    }
}

/// The folder of `testdata` that a guest is shown, if it runs scripts.
fn scripts(recipe: &Recipe) -> Option<&'static str> {
    match (recipe.name, recipe.language) {
        (_, Language::Python(_) | Language::PythonComponent(_)) => Some("python"),
        (_, Language::QuickJs) => Some("quickjs"),
        ("tiny", _) => Some("tiny"),
        _ => None,
    }
}

impl Tested {
    /// Every guest in all its ways.
    fn cases(&self) -> Result<Vec<Case>> {
        let step = Step::announced("runs without a profiler");
        let fixtures = checkout::root().join("target/fixtures");
        let mut cases = Vec::new();
        for recipe in RECIPES {
            for arguments in ways(recipe) {
                let mut options = match (recipe.name, scripts(recipe)) {
                    ("go-export", _) => vec!["--invoke=work".to_owned()],
                    (_, Some(folder)) => vec![format!("--dir={}::.", checkout::testdata().join(folder).display())],
                    _ => vec![],
                };
                if let Language::Python(_) = recipe.language {
                    // A link, which wlprof does not follow unasked.
                    let library = fixtures.join(format!("{}-lib", recipe.name));
                    options.push(format!("--dir={}::/usr/local/lib", library.display()));
                    // Else it writes compiled scripts into the checkout.
                    options.push("--env=PYTHONDONTWRITEBYTECODE=1".to_owned());
                }
                let file = match recipe.language {
                    Language::AssemblyScript | Language::Python(_) | Language::QuickJs => {
                        format!("{}.wasm", recipe.name)
                    }
                    _ => recipe.file_name(),
                };
                let guest = fixtures.join(file);
                let name = [&[recipe.name], &arguments[..]].concat().join(" ");
                let mut command = Command::new(&self.native);
                command.arg("--sampler=off").args(&options).arg(&guest).args(&arguments);
                let output = self.finish(&mut command)?.with_context(|| format!("{name} does not end"))?;
                cases.push(Case {
                    name,
                    guest,
                    options,
                    arguments,
                    code: output.status.code(),
                    stdout: without_what_differs(&output.stdout, recipe.name),
                });
            }
        }
        step.done();
        Ok(cases)
    }

    /// Runs a case once under the profiler and tells what was wrong.
    fn try_once(&self, case: &Case, options: &[&str], folder: &Path) -> Result<Vec<(Wrong, String)>> {
        let recording = folder.join("x.wlprof");
        let _ = std::fs::remove_file(&recording);
        let mut command = Command::new(&self.wlprof);
        command.args(options).args(&case.options).arg("-o").arg(&recording).arg(&case.guest).args(&case.arguments);
        let Some(output) = self.finish(&mut command)? else {
            return Ok(vec![(Wrong::Hang, format!("no end after {:?}", self.hung))]);
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        let mut wrong = Vec::new();
        if output.status.code().is_none() || errors.contains("panicked") {
            return Ok(vec![(Wrong::Crash, format!("{}: {errors}", output.status))]);
        }
        if output.status.code() != case.code {
            wrong.push((Wrong::ExitCode, format!("{} instead of {:?}: {errors}", output.status, case.code)));
        }
        let stdout = without_what_differs(&output.stdout, &case.name);
        if stdout != case.stdout {
            wrong.push((Wrong::Output, format!("{} bytes, {} expected", stdout.len(), case.stdout.len())));
        }
        // Reading a recording checks all its indices; the summary says if ticks are missing.
        let rendered =
            self.finish(Command::new(&self.native).arg("render").arg(&recording).arg("-o").arg(folder.join("x.json")))?;
        let rendered = rendered.context("rendering does not end")?;
        let summary = String::from_utf8_lossy(&rendered.stderr);
        if !rendered.status.success() || summary.contains("not accounted for") || summary.contains("no samples") {
            wrong.push((Wrong::Profile, summary.into_owned()));
        }
        Ok(wrong)
    }

    /// Runs `command` to its end, `None` if it has none.
    fn finish(&self, command: &mut Command) -> Result<Option<Output>> {
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("cannot run {shown}"))?;
        let pid = child.id();
        let (send, receive) = channel();
        thread::spawn(move || send.send(Child::wait_with_output(child)));
        match receive.recv_timeout(self.hung) {
            Ok(output) => Ok(Some(output?)),
            Err(RecvTimeoutError::Timeout) => {
                // The thread has the child, so it goes by its number; it has not been waited for, so that is its own.
                process::output(Command::new("kill").args(["-KILL", &pid.to_string()]), "install procps")?;
                Ok(None)
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the thread that waited for {shown} is gone"),
        }
    }
}
