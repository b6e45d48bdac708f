//! What profiles of memory cost: whole processes of wlprof that profile what a guest allocates, beside one that only runs it.

use super::statistics::{Estimate, Spread};
use super::table::Table;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Ways to run a guest, of which the first is what the others are compared with.
const WAYS: [(&str, &[&str]); 5] = [
    ("plain", &["--sampler=off"]),
    ("plain again", &["--sampler=off"]),
    ("memory alone", &["--sampler=off", "--memory"]),
    ("time", &[]),
    ("time and memory", &["--memory"]),
];

/// Ticks of the system's accounts of CPU time in a second: [`cpu_of_children`].
const TICKS: f64 = 100.0;

/// Guests that do little but allocate: in C, in Python and in Go.
fn guests(fixtures: &Path) -> [(&'static str, Vec<PathBuf>); 3] {
    let fixture = |name: &str| fixtures.join(name);
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python");
    let folder = |from: &Path, to: &str| PathBuf::from(format!("--dir={}::{to}", from.display()));
    let words = |words: &[&str]| words.iter().map(PathBuf::from).collect::<Vec<_>>();
    let library = folder(&fixture("python-3.13-lib"), "/usr/local/lib");
    let python = vec![library, folder(&testdata, "/scripts"), fixture("python-3.13.wasm")];
    [
        ("c-heap", [vec![fixture("c-heap.wasm")], words(&["60000000"])].concat()),
        ("python-3.13", [python, words(&["/scripts/allocates.py", "700"])].concat()),
        ("go-heap-1.24", [vec![fixture("go-heap-1.24.wasm")], words(&["500000"])].concat()),
    ]
}

/// Runs each guest in each way, `rounds` times in turn, and prints a table of it.
pub(crate) fn bench(fixtures: &Path, rounds: usize) -> Result<()> {
    let place = tempfile::tempdir().context("there is no room for profiles")?;
    for (name, words) in guests(fixtures) {
        let mut seconds = [const { Vec::new() }; WAYS.len()];
        for round in 0..=rounds {
            eprintln!("memory of {name}: round {round} of {rounds}");
            for way in 0..WAYS.len() {
                // Each begins a round in its turn.
                let way = (way + round) % WAYS.len();
                let took =
                    run(place.path(), WAYS[way].1, &words).with_context(|| format!("{name}, {}", WAYS[way].0))?;
                // In the first one guests are compiled.
                if round > 0 {
                    seconds[way].push(took);
                }
            }
        }
        let plain = Spread::of(seconds[0].iter().copied());
        println!(
            "\nmemory of {name}: {:.2} s of CPU ({:.2}–{:.2}) without a profile",
            plain.median, plain.lowest, plain.highest
        );
        let mut table = Table::new(&["way", "process CPU", "fastest"]);
        for (way, (name, _)) in WAYS.iter().enumerate().skip(1) {
            let pairs = Estimate::of(seconds[way].iter().zip(&seconds[0]).map(|(own, plain)| own / plain));
            let fastest = Spread::of(seconds[way].iter().copied()).lowest / plain.lowest;
            table.row(vec![(*name).to_owned(), pairs.to_string(), format!("{fastest:.3}")]);
        }
        table.print();
    }
    Ok(())
}

/// Seconds of CPU time of a process of wlprof's, with those that it starts.
fn run(place: &Path, options: &[&str], words: &[PathBuf]) -> Result<f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wlprof"));
    command.arg("-q").args(options).current_dir(place).stdout(Stdio::null());
    if options != WAYS[0].1 {
        command.args(["-o", "x.wlprof"]);
    }
    let before = cpu_of_children()?;
    let status = command.args(words).status()?;
    ensure!(status.success(), "it ended with {status}");
    Ok(cpu_of_children()? - before)
}

/// Seconds of CPU time of all processes that this one has waited for, in steps of a hundredth.
fn cpu_of_children() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may have spaces in it, is the third column; times of children are in the 16th and 17th.
    let columns = stat.rsplit_once(')').context("/proc/self/stat has no name")?.1;
    let times = columns.split_whitespace().skip(13).take(2).map(str::parse::<f64>);
    Ok(times.sum::<Result<f64, _>>()? / TICKS)
}
