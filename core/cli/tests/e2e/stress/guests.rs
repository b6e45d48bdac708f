//! Every guest in all its ways: however hard it is sampled, it ends as it does without, and leaves a whole profile.

use super::{Random, length};
use crate::guest::{Place, fixture};
use std::path::{Path, PathBuf};
use std::time::Instant;

const HARD: [&str; 5] = ["-q", "--sampler=signal", "--rate=10000", "--max-overhead=100", "--clock=wall"];
/// How many of all ways are tried, if nobody has said how long.
const RUNS: usize = 25;
/// These say how long something took, by their own clock.
const TELL_TIMES: [&str; 4] = ["c-phases", "c-waits", "go-naps", "go-waits"];

/// One way to run a guest.
struct Way {
    guest: PathBuf,
    /// What the guest needs of wlprof.
    options: Vec<String>,
    arguments: Vec<&'static str>,
}

/// All guests that are there, in all their ways.
fn ways() -> Vec<Way> {
    let entries = std::fs::read_dir(fixture("c-shares.wasm").parent().unwrap()).unwrap();
    let mut guests: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    guests.sort();
    let all = guests.into_iter().flat_map(|guest| {
        let name = guest.file_stem().unwrap().to_str().unwrap().to_owned();
        let ways = arguments(&name).into_iter();
        ways.map(move |arguments| Way { guest: guest.clone(), options: options(&name), arguments }).collect::<Vec<_>>()
    });
    all.collect()
}

/// What a guest is run with: all the ways it works and ends in.
fn arguments(name: &str) -> Vec<Vec<&'static str>> {
    let is_of = |kinds: &[&str]| kinds.iter().any(|kind| name.starts_with(kind));
    // They never end, or wait for requests, or import what no WASI host has, or print where their data is and end before there is a sample.
    if name.contains("-layout") || is_of(&["c-spin", "component-python-async", "handler-", "go-js"]) {
        return vec![];
    }
    match name {
        "c-traps" => ["unreachable", "oob", "div0", "overflow", "abort"]
            .map(|end| vec![end])
            .into_iter()
            .chain([vec![], vec!["exit", "3"]])
            .collect(),
        "go-export" => vec![vec!["100"]],
        "tiny" => vec![vec!["demo.tiny"]],
        "component-python-calls-rust" => vec![vec![]],
        _ if is_of(&["go-work"]) => {
            vec![vec!["split"], vec!["channels", "20"], vec!["garbage", "20"], vec!["recursion", "20"]]
        }
        _ if is_of(&["python-"]) => vec![vec!["bench.py", "200"], vec!["stacks.py"], vec!["no-such-script.py"]],
        // What a script fails with ends it by a panic of its own, which is none of wlprof's.
        _ if is_of(&["component-python-"]) => vec![vec!["bench.py", "200"], vec!["stacks.py"]],
        _ if is_of(&["quickjs-"]) => vec![vec!["shares.js", "loops", "10"], vec!["no-such-script.js"]],
        _ => vec![vec![]],
    }
}

fn options(name: &str) -> Vec<String> {
    let folders = [("python", "python"), ("component-python", "python"), ("quickjs", "quickjs"), ("tiny", "tiny")];
    let mut options = Vec::new();
    if let Some((_, folder)) = folders.iter().find(|(kind, _)| name.starts_with(kind)) {
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(folder);
        options.push(format!("--dir={}::.", testdata.display()));
    }
    if name.starts_with("python-") {
        let library = fixture(&format!("{}-lib", name.trim_end_matches("-stripped")));
        options.push(format!("--dir={}::/usr/local/lib", library.display()));
        // Else it writes compiled scripts into the checkout.
        options.push("--env=PYTHONDONTWRITEBYTECODE=1".to_owned());
    }
    if name == "go-export" {
        options.push("--invoke=work".to_owned());
    }
    options
}

/// What is the same in each run: no addresses, which Go prints in its tracebacks, and no times.
fn without_what_differs(output: &str, guest: &Path) -> String {
    let name = guest.file_stem().unwrap().to_str().unwrap();
    let tells_times = TELL_TIMES.iter().any(|guest| name.starts_with(guest));
    let mut kept = String::with_capacity(output.len());
    for character in output.chars() {
        let is_of_address = character.is_ascii_hexdigit() && kept.ends_with("0x");
        let is_of_time = tells_times && character.is_ascii_digit();
        if !is_of_address && !is_of_time {
            kept.push(character);
        }
    }
    kept
}

#[test]
fn guests_end_as_they_do_without_sampling() {
    let mut random = Random::new();
    let began = Instant::now();
    let mut ways = ways();
    for run in 0.. {
        if length().map_or(run == RUNS, |length| began.elapsed() > length) || ways.is_empty() {
            break;
        }
        let Way { guest, options, arguments } = match length() {
            Some(_) => &ways[random.below(ways.len() as u64) as usize],
            None => &ways.swap_remove(random.below(ways.len() as u64) as usize),
        };
        // Of both clocks: threads that wait are read by another thread, those that run in the handler.
        let hard = &HARD[..HARD.len() - random.below(2) as usize];
        let shown = format!("{hard:?} {} {arguments:?}", guest.display());
        println!("{shown}");
        let place = Place::new();
        let with = |sampling: &[&str]| {
            let options = sampling.iter().copied().chain(options.iter().map(String::as_str));
            place.run(options.chain([guest.to_str().unwrap()]).chain(arguments.iter().copied()))
        };
        let (without, sampled) = (with(&["-q", "--sampler=off"]), with(&[hard, &["-o", "p.wlprof"]].concat()));
        assert_eq!((sampled.code, sampled.signal), (without.code, None), "{shown}: {sampled:?}");
        let [stdout, expected] = [&sampled, &without].map(|ran| without_what_differs(&ran.stdout, guest));
        assert_eq!(stdout, expected, "{shown}");
        assert!(place.recording("p.wlprof").ticks.sampled > 0, "{shown}");
    }
}
