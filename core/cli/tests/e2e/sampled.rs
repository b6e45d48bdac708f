//! Runs `wlprof` on a fixture and reads back what it recorded.

use crate::guest::output;
use crate::tested::wlprof;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::module::{ModuleImage, read_module};
use wlprof::recording::{Recording, Sample, file};

/// A fixture's path. Panics with what to do if it has not been built.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures").join(name);
    assert!(path.exists(), "{} is missing; run `cargo xtask test-fixtures`", path.display());
    path
}

/// The module of a fixture.
pub(crate) fn image(name: &str) -> ModuleImage {
    image_of(&fixture(name))
}

/// The module in a file.
pub(crate) fn image_of(file: &Path) -> ModuleImage {
    ModuleImage::parse(read_module(file).unwrap(), &file.display().to_string()).unwrap()
}

/// Profiles a fixture: `options` are wlprof's, `arguments` the guest's.
pub(crate) fn profile(name: &str, options: &[&str], arguments: &[&str]) -> Recording {
    let mut command = wlprof();
    command.args(options).arg(fixture(name)).args(arguments);
    profile_command(command, name)
}

/// Runs `command`, a run of wlprof without output files, and reads what it recorded.
pub(crate) fn profile_command(command: Command, name: &str) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.wlprof");
    let mut with_output = Command::new(command.get_program());
    with_output.arg("-o").arg(&path).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        with_output.current_dir(folder);
    }
    let ran = output(&mut with_output);
    let errors = &ran.stderr;
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{errors}"));
    let recording = file::read(&bytes).unwrap();
    assert!(recording.ticks.balanced(), "{name}: {:?}", recording.ticks);
    recording
}

/// As [`profile`] at ten times the usual rate, whatever it costs.
pub(crate) fn profile_fast(name: &str, sampler: &str, arguments: &[&str]) -> Recording {
    profile(name, &["--sampler", sampler, "--rate", "10000", "--max-overhead", "100"], arguments)
}

/// Calls `has_enough` with 1, 2, 4 … to multiply its work by, until it has seen enough: how many samples some work leaves
/// depends on the machine and on who else uses it.
pub(crate) fn with_ever_more_work(what: &str, mut has_enough: impl FnMut(u64) -> bool) {
    const MOST_TIMES: u64 = 1 << 8;
    let mut times = 1;
    while !has_enough(times) {
        times *= 2;
        assert!(times <= MOST_TIMES, "too few samples of {what}");
    }
}

/// Profiles with ever more work until there are as many samples as that. `run` is given what to multiply its work by.
pub(crate) fn profile_until(samples: u64, mut run: impl FnMut(u64) -> Recording) -> Recording {
    let mut enough = None;
    with_ever_more_work("a run", |times| {
        let recording = run(times);
        println!("{times}: {:?}", recording.ticks);
        enough = (recording.ticks.sampled >= samples).then_some(recording);
        enough.is_some()
    });
    enough.unwrap()
}

/// Whether no more of `samples` are some that should be few than `share` of them, and than chance may add to that.
pub(crate) fn are_few(some: u64, samples: u64, share: f64) -> bool {
    let expected = samples as f64 * share;
    some as f64 <= expected + SIGMAS * expected.sqrt()
}

/// How far chance may take a figure, in standard deviations: less than one in a million goes farther.
const SIGMAS: f64 = 5.0;

/// Time by what it was spent on.
pub(crate) struct Shares<K> {
    /// Of each, the time and how many samples stand for it.
    of: BTreeMap<K, (f64, f64)>,
    time: f64,
    samples: f64,
    /// Sum of the squares of what samples stand for: on a busy machine a sample stands for the ticks before it that were
    /// lost, too.
    squares: f64,
    largest: f64,
}

impl<K: Ord> Shares<K> {
    /// Adds up samples: what they are of, and what time they stand for.
    pub(crate) fn of(samples: impl IntoIterator<Item = (K, u64)>) -> Self {
        let mut shares = Self { of: BTreeMap::new(), time: 0.0, samples: 0.0, squares: 0.0, largest: 0.0 };
        for (of, time) in samples {
            let time = time as f64;
            let sum = shares.of.entry(of).or_default();
            *sum = (sum.0 + time, sum.1 + 1.0);
            shares.time += time;
            shares.samples += 1.0;
            shares.squares += time * time;
            shares.largest = shares.largest.max(time);
        }
        assert!(shares.time > 0.0, "no samples");
        shares
    }

    /// What was seen.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.of.keys()
    }

    /// A share of the time, in percent.
    pub(crate) fn percent<Q: Ord + ?Sized>(&self, of: &Q) -> f64
    where
        K: std::borrow::Borrow<Q>,
    {
        100.0 * self.of.get(of).map_or(0.0, |sum| sum.0) / self.time
    }

    /// A share of the samples, in percent.
    fn percent_of_samples<Q>(&self, of: &Q) -> f64
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        100.0 * self.of.get(of).map_or(0.0, |sum| sum.1) / self.samples
    }

    /// How far from a share of `truth` percent of the time chance may take what is found, in points: Bernstein's
    /// inequality, for sums of parts that differ. Where samples stand for much more than a tick, that is far.
    pub(crate) fn chance(&self, truth: f64) -> f64 {
        let deviation = (truth * (100.0 - truth) * self.squares).sqrt() / self.time;
        SIGMAS * deviation + SIGMAS * SIGMAS / 3.0 * 100.0 * self.largest / self.time
    }

    /// Whether a share is what it must be, in percent, but for `points` and chance: of the time, and of the samples, which
    /// tell more on a busy machine. The two are the same for guests that only compute, which lose their processor anywhere.
    pub(crate) fn near<Q>(&self, of: &Q, truth: f64, points: f64) -> Result<(), String>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized + std::fmt::Debug,
    {
        let chance_of_samples = SIGMAS * (truth * (100.0 - truth) / self.samples).sqrt();
        for (what, found, chance) in [
            ("the time", self.percent(of), self.chance(truth)),
            ("the samples", self.percent_of_samples(of), chance_of_samples),
        ] {
            let said = format!("{of:?}: {found:.2} % of {what}, truth {truth:.2} ± {:.2} %", points + chance);
            println!("{said}");
            if (found - truth).abs() > points + chance {
                return Err(said);
            }
        }
        Ok(())
    }
}

/// Why a measurement may be off by more than chance explains although the profiler is right, and how often it was: counted beside a
/// build that kept both of two processors busy.
#[derive(Clone, Copy)]
pub(crate) struct Luck {
    /// What the machine does that is not the profiler's fault.
    pub(crate) why: &'static str,
    /// How many first attempts were off.
    pub(crate) off: u32,
    /// Of so many.
    pub(crate) of: u32,
}

/// Measures up to four times, until `measure` returns no error.
///
/// A wrong profiler is off each time, so the test still fails. A right one fails as often as four attempts in a row are off. That is the
/// share of `luck` to the fourth power if attempts are independent, and more often if what disturbs them lasts.
pub(crate) fn measure_again_if_off(luck: Luck, mut measure: impl FnMut() -> Result<(), String>) {
    const ATTEMPTS: u32 = 4;
    for attempt in 1..=ATTEMPTS {
        let Err(error) = measure() else { return };
        println!("attempt {attempt}: {error}");
        if attempt == ATTEMPTS {
            let Luck { why, off, of } = luck;
            panic!("off {ATTEMPTS} times; of first attempts {off} of {of} were on a busy machine ({why}): {error}");
        }
    }
}

/// Functions of the innermost lines of a recording's samples, with the time that each sample stands for.
pub(crate) fn innermost_functions(recording: &Recording) -> impl Iterator<Item = (&str, u64)> {
    recording.samples().filter_map(|sample| {
        let line = recording.lines_of(sample.stack).next()?;
        Some((recording.functions[line.function as usize].name.as_str(), sample.period_ns))
    })
}

/// Share of a recording's time, in percent, that the samples of interest stand for. Their number is no share: the rate
/// is lowered while a guest runs.
pub(crate) fn percent_of_time(recording: &Recording, is_of_interest: impl Fn(&Sample) -> bool) -> f64 {
    Shares::of(recording.samples().map(|sample| (is_of_interest(&sample), sample.period_ns))).percent(&true)
}

/// Line of the source that ends with `marker`.
pub(crate) fn marked_line(source: &str, marker: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(source);
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().position(|line| line.ends_with(marker)).unwrap();
    line as u32 + 1
}
