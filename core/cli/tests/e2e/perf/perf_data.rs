//! wlprof's own samples as perf.data: perf shows the frames that wlprof's other outputs show.

use super::output;
use crate::guest::{Place, fixture, fixture_bytes, sampled_stacks};
use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use wlprof::recording::{Line, Recording, View};

/// Runs `command` with output as perf.data, folded stacks and a recording.
fn profile(place: &Place, command: &str) {
    output(place, &format!("wlprof -q -o x.perf.data -o x.folded -o x.wlprof {command}"));
}

fn python() -> Place {
    let place = Place::new();
    place.file("python.wasm", fixture_bytes("python-3.11.wasm"));
    place.folder("python-lib", &fixture("python-3.11-lib"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/python/shop.py");
    std::fs::copy(script, place.path("script.py")).unwrap();
    profile(&place, "--lang=python --dir . python.wasm script.py");
    place
}

/// Stacks as scripts fold what `perf script` prints: a paragraph a sample, a line a frame, leaf first.
fn fold(script: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let frames = sample.lines().skip_while(|line| line.is_empty()).skip(1);
        let mut names: Vec<&str> = frames.map(|frame| frame.trim_start().split_once(' ').unwrap().1).collect();
        names.reverse();
        *stacks.entry(names.join(";")).or_default() += 1;
    }
    stacks
}

/// How many samples a recording has of each of its stacks.
fn counted(recording: &Recording) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for sample in recording.samples() {
        let name = |line: Line| recording.functions[line.function as usize].name.replace(';', ":");
        let mut names: Vec<String> = recording.lines_of(sample.stack).map(name).collect();
        names.reverse();
        *stacks.entry(names.join(";")).or_default() += 1;
    }
    stacks
}

fn assert_folds_alike(place: &Place) {
    let script = output(place, "perf script -i x.perf.data -F comm,ip,sym --max-stack 10000");
    let recording = place.recording("x.wlprof").view(View::Guest);
    let stacks = counted(&recording);
    assert!(stacks.len() > 1, "{stacks:?}");
    assert_eq!(fold(&script), stacks);
    // The folded stacks have the time of the same samples, each line rounded up.
    let text = std::fs::read_to_string(place.path("x.folded")).unwrap();
    let micros: u64 = text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let expected = recording.samples().map(|sample| sample.period_ns).sum::<u64>() / 1000;
    assert!((expected..=expected + text.lines().count() as u64).contains(&micros), "{micros} of {expected}");
}

#[test]
fn perf_script_folds_to_the_stacks_of_the_recording() {
    assert_folds_alike(&python());
    for (guest, arguments) in [
        ("c-inlined.wasm", ""),
        ("c-deep.wasm", ""),
        ("cpp-shapes.wasm", ""),
        ("rust-mix.wasm", ""),
        ("go-bench.wasm", "1"),
    ] {
        let place = Place::new();
        profile(&place, &format!("{} {arguments}", fixture(guest).display()));
        assert_folds_alike(&place);
    }
}

#[test]
fn perf_report_shows_python_functions_with_their_lines() {
    let place = python();
    let report = output(&place, "perf report -i x.perf.data --stdio --no-children -g none --sort sym,srcline");
    let recording = place.recording("x.wlprof").view(View::Guest);
    let mut shares: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    let mut all = 0;
    for sample in recording.samples() {
        let line = recording.lines_of(sample.stack).next().unwrap();
        let function = &recording.functions[line.function as usize];
        all += sample.period_ns;
        if function.file.as_deref().is_some_and(|file| file.ends_with("script.py")) {
            *shares.entry((&function.name, line.line.unwrap_or(0))).or_default() += sample.period_ns;
        }
    }
    assert!(shares.keys().any(|(name, _)| *name == "fib"), "{shares:?}");
    for ((function, line), period) in shares {
        let share = format!("{:.2}%", 100.0 * period as f64 / all as f64);
        let place = format!("script.py:{line}");
        let is_row = |row: &&str| row.contains(function) && row.contains(&place) && row.contains(&share);
        assert!(report.lines().any(|row| is_row(&row)), "{function} {place} {share}\n{report}");
    }
    assert!(report.contains("of event 'wasm-cpu"), "{report}");
}

/// Line by line as `addr2line` understands the ELF file, of every frame of every sample.
#[test]
fn every_frame_has_its_line() {
    let place = python();
    let recording = place.recording("x.wlprof").view(View::Guest);
    let script =
        output(&place, "perf script -i x.perf.data -F comm,ip,sym,srcline --full-source-path --max-stack 10000");
    let shown: Vec<&str> = script.lines().map(str::trim).filter(|line| line.contains(".py:")).collect();
    let lines = recording.samples().flat_map(|sample| recording.lines_of(sample.stack));
    let expected: Vec<String> = lines
        .filter_map(|line| {
            let file = recording.functions[line.function as usize].file.as_deref()?;
            let line = line.line?;
            file.ends_with(".py").then(|| format!("{file}:{line}"))
        })
        .collect();
    assert!(expected.len() > 100);
    assert_eq!(shown, expected);
}

#[test]
fn another_reader_finds_the_same_samples() {
    let place = python();
    let recording = place.recording("x.wlprof");
    let PerfFileReader { mut perf_file, mut record_iter } =
        PerfFileReader::parse_file(File::open(place.path("x.perf.data")).unwrap()).unwrap();
    assert_eq!(perf_file.event_attributes()[0].name(), Some("wasm-cpu"));
    assert_eq!(perf_file.cmdline().unwrap().unwrap(), ["wlprof", "python.wasm", "script.py"]);
    let (mut samples, mut mapped) = (Vec::new(), None);
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        match record.parse().unwrap() {
            EventRecord::Sample(sample) => samples.push((sample.timestamp.unwrap(), sample.period.unwrap())),
            EventRecord::Mmap2(mapping) => mapped = Some(mapping.path.as_slice().into_owned()),
            _ => {}
        }
    }
    let expected: Vec<_> = recording.samples().map(|sample| (sample.time_ns, sample.period_ns)).collect();
    assert_eq!(samples, expected);
    let elf = String::from_utf8(mapped.unwrap()).unwrap();
    assert_eq!(Path::new(&elf), std::fs::canonicalize(place.path("x.perf.data.elf")).unwrap());
    let symbols = std::fs::read(&elf).unwrap();
    let elf = goblin::elf::Elf::parse(&symbols).unwrap();
    let names: Vec<_> = elf.syms.iter().filter_map(|symbol| elf.strtab.get_at(symbol.st_name)).collect();
    assert!(names.contains(&"Shop.price") && names.contains(&"fib"), "{names:?}");
}

/// What perf makes of the whole file, lost samples among it.
#[test]
fn perf_converts_the_file() {
    let place = python();
    let mut recording = place.recording("x.wlprof");
    recording.ticks.coalesced += 41;
    recording.ticks.fired += 41;
    let mut bytes = Vec::new();
    wlprof::recording::file::write(&recording, &mut bytes).unwrap();
    place.file("lost.wlprof", bytes);
    output(&place, "wlprof render -q lost.wlprof -o lost.perf.data");
    let report = output(&place, "perf report -i lost.perf.data --stdio --sort sym");
    let lost = format!("Total Lost Samples: {}", recording.ticks.lost());
    assert!(report.contains(&lost), "{lost} not in {report}");
    output(&place, "perf data convert -i x.perf.data --to-json x.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("x.json")).unwrap()).unwrap();
    assert_eq!(json["samples"].as_array().unwrap().len() as u64, place.recording("x.wlprof").ticks.sampled);
}

/// A profile made from a recording is the one that the run made, and a changed ELF file is not taken for its own.
#[test]
fn the_elf_file_belongs_to_its_profile() {
    let place = python();
    let read = |name: &str| std::fs::read(place.path(name)).unwrap();
    let (data, elf) = (read("x.perf.data"), read("x.perf.data.elf"));
    output(&place, "wlprof render -q x.wlprof -o x.perf.data");
    assert!(read("x.perf.data") == data && read("x.perf.data.elf") == elf, "not the same");
    let report = "perf report -i x.perf.data --stdio --no-children -g none --sort sym";
    assert!(output(&place, report).contains("Shop.price"));
    profile(&place, &fixture("c-inlined.wasm").display().to_string());
    place.file("x.perf.data", data);
    let mismatched = output(&place, report);
    assert!(!mismatched.contains("Shop.price") && !mismatched.contains("mix_"), "{mismatched}");
}

/// Found before the guest runs.
#[test]
fn two_files_need_room_for_both() {
    let place = Place::new();
    std::fs::create_dir(place.path("x.perf.data.elf")).unwrap();
    for (path, message) in
        [("/dev/stdout", "comes as two files"), ("x.perf.data", "x.perf.data.elf: it is not a regular")]
    {
        let ran = place.run(["-q", "--format=perf", "-o", path, fixture("c-traps.wasm").to_str().unwrap()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(125), ""));
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
    assert_eq!(place.files(), ["x.perf.data.elf"]);
}

/// The files are beside what a link points to, and what is printed says so.
#[test]
fn a_link_is_replaced() {
    let place = Place::new();
    std::fs::create_dir(place.path("there")).unwrap();
    place.file("there/real.perf.data", "old");
    std::os::unix::fs::symlink("there/real.perf.data", place.path("link.perf.data")).unwrap();
    let ran = place.run(["-o", "link.perf.data", fixture("c-traps.wasm").to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("perf report -i link.perf.data"), "{}", ran.stderr);
    assert!(output(&place, "perf report -i link.perf.data --stdio").contains(" work"));
    assert_eq!(place.files(), ["link.perf.data", "link.perf.data.elf", "there"]);
    assert_eq!(std::fs::read(place.path("there/real.perf.data")).unwrap(), b"old");
}

/// Deeper than perf looks by itself.
#[test]
fn deep_stacks_stay_whole() {
    let place = Place::new();
    profile(&place, &format!("--rate 200 {}", fixture("c-deep.wasm").display()));
    let recording = place.recording("x.wlprof");
    let deepest = sampled_stacks(&recording).map(|stack| stack.len()).max().unwrap();
    let script = output(&place, "perf script -i x.perf.data -F comm,ip,sym --max-stack 10000");
    let shown = fold(&script).keys().map(|stack| stack.split(';').count()).max().unwrap();
    assert!(deepest > 1000 && deepest == shown, "{deepest} {shown}");
}
