//! The printed table: its bounds are honest, it shows what was selected, and a script's lines have the time of the native code
//! that they called.

use crate::guest::{Place, fixture};
use crate::sampled::{marked_line, with_ever_more_work};

/// The share in percent and its bound that a row of `table` says for `name`: the last share of the row, the total.
fn total_of(table: &str, name: &str) -> (f64, f64) {
    let is_row = |line: &&str| line.contains(" ±") && line.split("  ").any(|cell| cell.trim() == name);
    let row = table.lines().rfind(is_row).unwrap_or_else(|| panic!("no {name} in {table}"));
    let number = |text: &str| text.trim().parse::<f64>().unwrap_or_else(|_| panic!("{row}"));
    let (before, after) = row.rsplit_once('±').unwrap();
    (number(before.rsplit(['%', ' ']).find(|text| !text.is_empty()).unwrap()), number(after.split('%').next().unwrap()))
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Of 20 runs, 19 are expected. Less than one in a hundred thousand has fewer than 14.
#[test]
fn bounds_hold_the_truth() {
    const RUNS: usize = 20;
    const AT_LEAST: usize = 14;
    let place = Place::new();
    let guest = fixture("c-random.wasm");
    let mut within = [0; 3];
    let mut widest = 0_f64;
    for run in 0..RUNS {
        let ran =
            place.run(["--rate=2500", "--max-overhead=100", "-o", "x.folded", text(&guest), "1", &run.to_string()]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for (count, (name, truth)) in within.iter_mut().zip([("seven", 7.0), ("twenty_three", 23.0), ("seventy", 70.0)])
        {
            let (share, bound) = total_of(&ran.stderr, name);
            *count += usize::from((share - truth).abs() <= bound);
            widest = widest.max(bound);
        }
    }
    println!("{within:?} of {RUNS}, bounds up to {widest}");
    assert!(within.iter().all(|count| *count >= AT_LEAST), "{within:?} of {RUNS}");
    assert!(widest < 15.0, "a bound of {widest} points says nothing");
}

/// The frames of a folded line.
fn frames_of(line: &str) -> impl Iterator<Item = &str> {
    line.rsplit_once(' ').map_or(line, |(stack, _)| stack).split(';')
}

#[test]
fn a_selection_is_told_and_other_formats_have_it() {
    let place = Place::new();
    let guest = fixture("c-random.wasm");
    let ran = place.run(["--rate=2500", "--max-overhead=100", "-o", "x.wlprof", text(&guest)]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rendered = place.run(["render", "--focus=seventy", "x.wlprof", "-o", "x.folded"]);
    let all = place.run(["render", "x.wlprof"]);
    let (share, _) = total_of(&all.stdout, "seventy");
    assert!(rendered.stdout.contains(&format!("shown is {share:.1} ±")), "{} {}", rendered.stdout, all.stdout);
    assert!(rendered.stdout.contains("through `seventy`; the shares below are of it"), "{}", rendered.stdout);
    let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
    assert!(
        !folded.is_empty() && folded.lines().all(|line| frames_of(line).any(|frame| frame == "seventy")),
        "{folded}"
    );
    let ignored = place.run(["render", "--ignore=seventy", "--top=2", "x.wlprof"]);
    assert!(!ignored.stdout.contains("  seventy"), "{}", ignored.stdout);
    let rows = ignored.stdout.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    assert!((2..=4).contains(&rows.count()), "two at most in each of two tables: {}", ignored.stdout);
    let nothing = place.run(["render", "--focus=NOBODY", "x.wlprof"]);
    assert!(nothing.code == Some(0) && nothing.stdout.contains("no samples are left"), "{nothing:?}");
    let callers = place.run(["render", "--callers-of=work", "x.wlprof"]);
    let position =
        |name: &str| callers.stdout.find(&format!("  {name}  ")).unwrap_or_else(|| panic!("{}", callers.stdout));
    assert!(position("seventy") < position("work") && position("seven") < position("work"), "{}", callers.stdout);
    let recording = place.recording("x.wlprof");
    let (mut called, mut all) = (0, 0);
    for sample in recording.samples() {
        let names = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        let names: Vec<&str> = names.collect();
        all += sample.period_ns;
        // Not what `seventy` does itself.
        called += if names.contains(&"seventy") && names.contains(&"work") { sample.period_ns } else { 0 };
    }
    let called = 100.0 * called as f64 / all as f64;
    let row = callers.stdout.lines().find(|line| line.contains("  seventy  ")).unwrap();
    assert!(row.contains(&format!(" {called:.1} ±")), "{called} {}", callers.stdout);
}

#[test]
fn counts_of_ticks_are_for_those_who_ask() {
    let place = Place::new();
    let guest = fixture("c-traps.wasm");
    let plain = place.run(["-o", "x.wlprof", text(&guest)]);
    assert!(plain.code == Some(0) && !plain.stderr.contains("ticks"), "{plain:?}");
    let verbose = place.run(["render", "--verbose", "x.wlprof"]);
    let ticks = place.recording("x.wlprof").ticks;
    let said = format!("ticks: {} fired, {} sampled, {} lost", ticks.fired, ticks.sampled, ticks.lost());
    assert!(verbose.stdout.contains(&said) && verbose.stdout.contains("sampler: signal at "), "{}", verbose.stdout);
}

/// `shares.py` has three lines that do all the work, in C: 75, 20 and 5 parts of it.
#[test]
fn a_scripts_line_has_the_time_of_what_it_called_in_c() {
    let place = Place::new();
    let scripts = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python");
    let folders = [
        format!("--dir={}::/scripts", scripts.display()),
        format!("--dir={}::/usr/local/lib", fixture("python-3.11-lib").display()),
    ];
    let guest = fixture("python-3.11.wasm");
    with_ever_more_work("a script's lines", |times| {
        let rounds = (1000 * times).to_string();
        let arguments = [text(&guest), "/scripts/shares.py", &rounds];
        let options = ["--rate=2500", "--max-overhead=100", "-o", "x.wlprof"];
        let ran = place.run(options.into_iter().chain(folders.iter().map(String::as_str)).chain(arguments));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let line = marked_line("python/shares.py", "[DATA] * 15))");
        let is_works = |row: &&str| row.contains("  work  scripts/shares.py:") && row.contains(&format!("  :{line}  "));
        let row = ran.stderr.lines().find(is_works);
        let Some(row) = row else {
            println!("{}", ran.stderr);
            return false;
        };
        let shares: Vec<f64> = row
            .split('±')
            .take(2)
            .map(|cell| cell.rsplit(['%', ' ']).find(|text| !text.is_empty()).unwrap().parse().unwrap())
            .collect();
        println!("{row}");
        assert!(shares[0] >= shares[1] && shares[0] <= total_of(&ran.stderr, "work").0, "{}", ran.stderr);
        assert!(ran.stderr.contains("\nin C: what the script called; "), "{}", ran.stderr);
        // Starting the interpreter takes the rest.
        shares[0] > 50.0 && shares[1] > 0.8 * shares[0]
    });
    // Wasm's frames alone are in the recording, too.
    let native = place.run(["render", "--frames=native", "x.wlprof", "-o", "native.folded"]);
    assert_eq!(native.code, Some(0), "{native:?}");
    let folded = std::fs::read_to_string(place.path("native.folded")).unwrap();
    assert!(folded.contains(";_PyEval_EvalFrame;") && !folded.contains("<module>"), "{folded}");
    assert!(!native.stdout.contains("in C"), "{}", native.stdout);
}

#[test]
fn frames_that_were_not_recorded_are_not_to_be_had() {
    let place = Place::new();
    let ran = place.run(["-q", "-o", "x.wlprof", text(&fixture("go-work-1.27.wasm")), "channels", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let native = place.run(["render", "--frames=native", "x.wlprof"]);
    assert!(native.code == Some(125) && native.stderr.contains("run the guest with --frames=native"), "{native:?}");
}
