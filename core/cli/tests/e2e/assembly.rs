//! `wlprof annotate --asm`: the instructions are those that objdump reads in the same code, that code is what the run executed, and
//! the times are the recording's.

use crate::guest::{Place, fixture, output, tool};
use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof::machine_code::Compiled;
use wlprof::recording::{Origin, Recording};
use wlprof_run::guest::{Guest, LoadOptions};

fn objdump(file: &Path, options: &[String]) -> BTreeMap<u64, String> {
    let ran = output(Command::new(tool("objdump")).arg("-d").arg("--no-show-raw-insn").args(options).arg(file));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let row = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, normal(text)))
    };
    ran.stdout.lines().filter_map(row).collect()
}

/// An instruction without the names that objdump and wlprof add, each in its own way, with one space between its words, and
/// without what either of them may leave out.
fn normal(text: &str) -> String {
    let text = text.split(['#', '<']).next().unwrap();
    // A prefix that changes nothing.
    let mut words: Vec<String> =
        text.split_whitespace().filter(|word| !word.starts_with("rex")).map(str::to_owned).collect();
    let Some(mnemonic) = words.first().cloned() else { return text.trim().to_owned() };
    if mnemonic.starts_with('j') || mnemonic == "call" {
        let target = words.last_mut().unwrap();
        if u64::from_str_radix(target, 16).is_ok() {
            target.insert_str(0, "0x");
        }
    }
    let mut text = words.join(" ").replace(",1)", ")").replace(" 0x0(", " (").replace(",0x0(", ",(");
    // `imul $3,%eax,%eax` is `imul $3,%eax`, too.
    if let Some((rest, last)) = text.rsplit_once(',').filter(|_| mnemonic == "imul")
        && rest.matches(',').count() == 1
        && rest.rsplit(',').next() == Some(last)
    {
        text.truncate(rest.len());
    }
    if ["shl", "shr", "sar", "rol", "ror"].iter().any(|shift| mnemonic.starts_with(shift)) {
        text = text.replace(" $0x1,", " ");
    }
    text
}

/// A row of a listing.
#[derive(Debug)]
struct Row {
    function: u32,
    /// File offset of the wasm instruction whose code begins there, and its own share.
    wasm: Option<(u32, Option<f64>)>,
    address: u64,
    text: String,
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

fn rows(listing: &str) -> Vec<Row> {
    let mut function = None;
    let mut rows = Vec::new();
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix("wasm function ") {
            function = rest.split([',', ' ']).next().unwrap().parse().ok();
        }
        let column = |from: usize, to: usize| line.chars().skip(from).take(to - from).collect::<String>();
        let (Some(address), Some(function)) = (hex(&column(38, 47)), function) else { continue };
        let own = column(0, 13).split_whitespace().next().map(|share| share.parse().unwrap());
        let wasm = hex(&column(28, 37)).map(|offset| (offset as u32, own));
        rows.push(Row { function, wasm, address, text: normal(&column(47, usize::MAX)) });
    }
    rows
}

fn is_data(row: &Row) -> bool {
    row.text.starts_with('.') || row.text == "(bad)"
}

/// A run of a guest, its recording and a dump of its code.
struct Subject {
    place: Place,
    guest: PathBuf,
    compiled: Guest,
}

impl Subject {
    fn new(guest: &str, options: &[&str], arguments: &[&str]) -> Self {
        let place = Place::new();
        let guest = fixture(guest);
        let output = ["-q", "-o", "x.wlprof", "--format=jitdump"];
        let ran = place.run([&output[..], options, &[guest.to_str().unwrap()], arguments].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let compiled = Guest::load(&guest, &LoadOptions::default()).unwrap();
        Self { place, guest, compiled }
    }

    fn listing(&self, options: &[&str]) -> String {
        let guest = ["annotate", "--asm", "--guest", self.guest.to_str().unwrap(), "x.wlprof"];
        let ran = self.place.run([&guest[..], options].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    }

    /// The code of all functions that the run had.
    fn code_of_run(&self) -> BTreeSet<Vec<u8>> {
        let dump = self.place.files().into_iter().find(|name| name.starts_with("jit-")).unwrap();
        let mut reader = JitDumpReader::new(File::open(self.place.path(&dump)).unwrap()).unwrap();
        let mut code = BTreeSet::new();
        while let Some(record) = reader.next_record().unwrap() {
            if let JitDumpRecord::CodeLoad(load) = record.parse().unwrap() {
                code.insert(load.code_bytes.as_slice().to_vec());
            }
        }
        code
    }

    /// What objdump says of the code that `rows` are of. It takes data for instructions, so behind data it begins anew.
    fn objdump(&self, rows: &[Row]) -> BTreeMap<u64, String> {
        let serialized = match &self.compiled.code.compiled {
            Compiled::Module(module) => module.serialize(),
            Compiled::Component(component) => component.serialize(),
        };
        let file = self.place.file("guest.cwasm", serialized.unwrap());
        let mut all = objdump(&file, &[]);
        for (before, row) in rows.iter().zip(&rows[1..]) {
            if is_data(before) && !is_data(row) && before.function == row.function {
                let behind = rows.iter().skip_while(|other| other.address < row.address);
                let end = behind.take_while(|other| !is_data(other) && other.function == row.function).last().unwrap();
                // The last one may be as long as instructions get.
                let [start, stop] = [("start", row.address), ("stop", end.address + 15)]
                    .map(|(which, address)| format!("--{which}-address={address:#x}"));
                let again = objdump(&file, &[start, stop]);
                all.extend(again.into_iter().filter(|(address, _)| (row.address..=end.address).contains(address)));
            }
        }
        all
    }
}

/// The share of each wasm instruction that was executed, by its function and its offset in the file.
fn own_shares(recording: &Recording, code_start: u32) -> BTreeMap<(u32, u32), f64> {
    let all: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let mut shares = BTreeMap::new();
    for sample in recording.samples() {
        if let Origin::Wasm { function, code_offset, .. } = recording.frames_of(sample.stack).next().unwrap().origin {
            let share = 100.0 * sample.period_ns as f64 / all as f64;
            *shares.entry((function, code_start + code_offset)).or_default() += share;
        }
    }
    shares
}

#[test]
fn the_instructions_are_those_of_the_run_as_objdump_reads_them() {
    // Both have jump tables and constants.
    for (guest, arguments) in [("c-shares.wasm", &["1"][..]), ("rust-mix.wasm", &["1"])] {
        let subject = Subject::new(guest, &[], arguments);
        let code = &subject.compiled.code;
        let (module, image) = (code.compiled.module().unwrap(), &code.images[0]);
        let code = subject.code_of_run();
        for function in module.functions() {
            let own = &module.text()[function.offset..function.offset + function.len];
            assert!(code.contains(own), "{guest}: the run had other code of function {}", function.index.as_u32());
        }

        // A name with nothing in it is a part of all.
        let rows = rows(&subject.listing(&[""]));
        let functions: BTreeSet<u32> = rows.iter().map(|row| row.function).collect();
        assert_eq!(functions.len(), module.functions().count(), "{guest}");
        let expected = subject.objdump(&rows);
        let instructions: Vec<&Row> = rows.iter().filter(|row| !is_data(row)).collect();
        for row in &instructions {
            assert_eq!(expected.get(&row.address), Some(&row.text), "{guest}: {row:x?}");
        }
        println!("{guest}: {} functions, {} instructions", functions.len(), instructions.len());
        assert!(instructions.len() > 1000 && !rows.iter().any(|row| row.text == "(bad)"));

        let shares = own_shares(&subject.place.recording("x.wlprof"), image.code_start());
        let mut told = BTreeMap::new();
        for row in &rows {
            if let Some((offset, Some(share))) = row.wasm {
                assert!(told.insert((row.function, offset), share).is_none(), "{offset:#x} is told twice");
            }
        }
        let is_told = |(place, share): (&(u32, u32), &f64)| (told.get(place).unwrap_or(&0.0) - share).abs() < 0.051;
        assert!(shares.iter().all(is_told), "{guest}: {shares:?} {told:?}");
        assert!(told.keys().all(|place| shares.contains_key(place)), "{guest}: {shares:?} {told:?}");
    }
}

#[test]
fn the_instructions_of_a_component_are_those_of_its_modules() {
    let subject = Subject::new("component-c-shares.wasm", &[], &["1"]);
    let Compiled::Component(component) = &subject.compiled.code.compiled else { panic!("it is a component") };
    let code = subject.code_of_run();
    let known = component
        .functions()
        .filter(|function| code.contains(&component.text()[function.offset..function.offset + function.len]));
    assert_eq!(known.count(), component.functions().count(), "the run had other code");

    let rows = rows(&subject.listing(&[""]));
    let expected = subject.objdump(&rows);
    let instructions: Vec<&Row> = rows.iter().filter(|row| !is_data(row)).collect();
    for row in &instructions {
        assert_eq!(expected.get(&row.address), Some(&row.text), "{row:x?}");
    }
    assert!(instructions.len() > 1000 && !rows.iter().any(|row| row.text == "(bad)"));

    // Each module has a function of this index.
    let recording = subject.place.recording("x.wlprof");
    let heavy = subject.listing(&["heavy"]);
    let title = heavy.lines().find(|line| line.starts_with("wasm function ")).unwrap();
    let (index, module) = title["wasm function ".len()..].split(',').next().unwrap().split_once(" of ").unwrap();
    let all: u64 = recording.samples().map(|sample| sample.period_ns).sum();
    let own = recording.samples().filter(|sample| match recording.frames_of(sample.stack).next().unwrap().origin {
        Origin::Wasm { module: of, function, .. } => {
            recording.modules[of as usize].name == module && function.to_string() == index
        }
        _ => false,
    });
    let own: u64 = own.map(|sample| sample.period_ns).sum();
    let told: f64 = self::rows(&heavy).iter().filter_map(|row| row.wasm?.1).sum();
    let rows = self::rows(&heavy).len() as f64;
    assert!(own > all / 2 && (told - 100.0 * own as f64 / all as f64).abs() < 0.051 * rows, "{told}: {own} of {all}");
}

#[test]
fn a_listing_has_source_lines_and_names_of_what_is_called() {
    let subject = Subject::new("c-shares.wasm", &[], &["1"]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    let listing = subject.listing(&["main", "--source-dir", folder.to_str().unwrap()]);
    for wanted in ["shares.c:", "state = heavy(state);", "<heavy>", " bytes of machine code\n", "ret"] {
        assert!(listing.contains(wanted), "{wanted}: {listing}");
    }
    // Without a name it is the function with the most time of its own.
    let hottest = subject.listing(&[]);
    assert!(hottest.starts_with("heavy\n"), "{hottest}");
}

#[test]
fn what_no_instructions_are_known_of_is_refused() {
    let subject = Subject::new("c-shares.wasm", &[], &["1"]);
    let refused = |arguments: &[&str]| {
        let ran = subject.place.run([&["annotate", "--asm"][..], arguments].concat());
        assert_eq!(ran.code, Some(125), "{ran:?}");
        ran.stderr
    };
    assert!(refused(&["x.wlprof"]).contains("--guest"));
    let other = fixture("c-spin.wasm");
    assert!(refused(&["--guest", other.to_str().unwrap(), "x.wlprof"]).contains("not the program that was run"));
    let own = subject.guest.to_str().unwrap();
    let unknown = refused(&["--guest", own, "x.wlprof", "no such thing"]);
    assert!(unknown.contains("called no such thing; hot ones are heavy"), "{unknown}");
}
