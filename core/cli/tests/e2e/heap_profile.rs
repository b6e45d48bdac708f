//! What `--memory` tells is what guests themselves count, and what others read of it; and guests that it is not for run as they do without.

use crate::guest::{Place, Ran, fixture};
use crate::heap::counted;
use crate::pprof::{Times, sums_by_pprof};
use crate::python;
use crate::running::wait_until;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use wlprof::recording::{Heap, HeapPart, Recording, SiteTotals, View, file};

/// Runs a guest with `--memory` and these options; writes `x.wlprof` and `x.pb.gz`.
pub(crate) fn profile(place: &Place, options: &[&str], guest: &str, arguments: &[&str]) -> Ran {
    let own = ["--memory", "-o", "x.wlprof", "-o", "x.pb.gz"].iter().copied();
    let guest = fixture(guest);
    let ran =
        place.run(own.chain(options.iter().copied()).chain([guest.to_str().unwrap()]).chain(arguments.iter().copied()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

pub(crate) fn heap(recording: &Recording) -> &Heap {
    recording.stores[0].heap.as_ref().expect("it was profiled")
}

/// What was allocated on each line of a file.
pub(crate) fn by_line(recording: &Recording, file: &str) -> BTreeMap<u32, SiteTotals> {
    let mut lines: BTreeMap<u32, SiteTotals> = BTreeMap::new();
    for site in &heap(recording).sites {
        let of_file = recording.lines_of(site.stack).find(|line| {
            recording.functions[line.function as usize].file.as_deref().is_some_and(|name| name.ends_with(file))
        });
        if let Some(line) = of_file.and_then(|line| line.line) {
            lines.entry(line).or_default().add(&site.totals);
        }
    }
    lines
}

/// What `pprof` reads of every function and all it calls: blocks and bytes allocated, and held.
fn amounts_by_pprof(profile: &Path) -> [Times; 4] {
    ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"].map(|index| {
        let is_space = index.ends_with("space");
        let unit = if is_space { "B" } else { "" };
        let index = format!("-sample_index={index}");
        sums_by_pprof(profile, &[&index, if is_space { "-unit=B" } else { "-unit=auto" }], unit)
    })
}

#[test]
fn every_allocation_is_what_c_cpp_and_rust_guests_count_themselves_and_what_pprof_reads() {
    // What the library has for itself beside it, at most: arguments, the output's buffer, what the sites are kept in.
    let guests = [
        ("c-heap", 200),
        ("component-c-heap", 200),
        ("cpp-heap", 200),
        ("rust-heap", 30_000),
        ("component-rust-heap", 30_000),
    ];
    for (guest, besides) in guests {
        let place = Place::new();
        let ran = profile(&place, &["--memory-rate=1"], &format!("{guest}.wasm"), &["20000"]);
        let expected = counted(&ran.stdout);
        assert!(expected.len() > 4, "{expected:?}");
        let sums = amounts_by_pprof(&place.path("x.pb.gz"));
        // C++ has parameters, and both it and Rust have paths.
        let of = |function: &str, name: &str| {
            let path = function.strip_suffix("(unsigned long)").unwrap_or(function);
            path.rsplit("::").next() == Some(name)
        };
        let found = |name: &str| {
            sums.each_ref().map(|sums| {
                let of_name = sums.iter().filter(|(function, _)| of(function, name));
                of_name.map(|(_, (_, total))| *total).sum::<u64>()
            })
        };
        for (name, amounts) in &expected {
            assert_eq!(found(name), *amounts, "{guest}: {name}");
        }
        let all = sums[1].values().map(|(own, _)| *own).sum::<u64>();
        let own = expected.values().map(|amounts| amounts[1]).sum::<u64>();
        assert!((own..own + besides).contains(&all), "{guest}: {all} of {own}");
        assert!(
            ran.stderr.contains(", every allocation)") && ran.stderr.contains("who still held memory"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn estimates_are_within_their_bounds_after_ten_million_allocations() {
    let place = Place::new();
    let ran = profile(&place, &[], "c-heap.wasm", &["10000000"]);
    let recording = place.recording("x.wlprof");
    let mut of_functions: BTreeMap<&str, SiteTotals> = BTreeMap::new();
    for site in &heap(&recording).sites {
        let leaf = recording.lines_of(site.stack).next().unwrap();
        let name = &*recording.functions[leaf.function as usize].name;
        of_functions.entry(name).or_default().add(&site.totals);
    }
    let expected = counted(&ran.stdout);
    assert!(expected.values().map(|[allocations, ..]| allocations).sum::<u64>() >= 10_000_000);
    for (name, [_, bytes, ..]) in expected {
        let SiteTotals { samples, allocated, .. } = of_functions[&*name];
        // What is told is for 95 of 100 recordings. This is for all but one in two million.
        let bound = allocated.bound() * 5.0 / 1.96;
        assert!(
            samples > 100 && (allocated.bytes - bytes as f64).abs() < bound,
            "{name}: {allocated:?} of {bytes} bytes"
        );
        assert!(bound < 0.5 * bytes as f64, "{name}: ± {bound} of {bytes}");
    }
}

/// Leaks on line 5, holds much for a moment on line 10, and frees all else.
const LEAKING: &str = "\
import os
kept = []
def leak(count):
    for _ in range(count):
        kept.append(bytearray(5000))
def churn(count):
    for _ in range(count):
        text = 'a' * 5000
def hold():
    much = [bytearray(100000) for _ in range(400)]
    return len(much)
leak(4000)
churn(20000)
hold()
leak(2000)
os._exit(0)
";

#[test]
fn a_leak_and_a_peak_are_on_their_lines_of_a_script() {
    ["3.11", "3.14", "3.11-stripped"].into_iter().for_each(check_leak);
}

#[test]
fn a_leak_and_a_peak_are_on_their_lines_of_a_script_in_every_other_release() {
    ["3.12", "3.13", "3.13-stripped"].into_iter().for_each(check_leak);
}

fn check_leak(release: &str) {
    let place = Place::new();
    place.file("leaking.py", LEAKING);
    let library = (!python::COMPONENTS.contains(&release)).then(|| python::library(release));
    let options: Vec<&str> = ["--dir=."].into_iter().chain(library.as_deref()).collect();
    profile(&place, &options, &python::guest(release), &["leaking.py"]);
    let recording = place.recording("x.wlprof").view(View::Guest);
    let lines = by_line(&recording, "leaking.py");
    let largest = |part: HeapPart| {
        let (line, totals) = lines
            .iter()
            .max_by(|(_, one), (_, other)| one.part(part).bytes.total_cmp(&other.part(part).bytes))
            .unwrap();
        (*line, totals.part(part))
    };
    let (line, held) = largest(HeapPart::Held);
    let is_near = |found: f64, bound: f64, truth: f64| (found - truth).abs() < 2.5 * bound;
    assert!(line == 5 && is_near(held.bytes, held.bound(), 6000.0 * 5001.0), "{release}: {lines:#?}");
    let (line, peak) = largest(HeapPart::Peak);
    assert!(line == 10 && is_near(peak.bytes, peak.bound(), 400.0 * 100_001.0), "{release}: {lines:#?}");
    let (line, allocated) = largest(HeapPart::Allocated);
    assert!(line == 8 && is_near(allocated.bytes, allocated.bound(), 20_000.0 * 5041.0), "{release}: {lines:#?}");
    let (oldest_ns, newest_ns) = lines[&5].held_since_ns.unwrap();
    assert!(oldest_ns < newest_ns && newest_ns < recording.meta.duration_ns, "{:?}", lines[&5]);
}

#[test]
fn every_object_of_a_script_is_counted() {
    check_objects("3.11");
}

#[test]
fn every_object_of_a_script_is_counted_in_every_other_release() {
    ["3.13", "3.13-stripped"].into_iter().for_each(check_objects);
}

fn check_objects(release: &str) {
    // Without the interpreter's free lists: objects of this size are the allocator's.
    let script = |count: u32| format!("import os\nkept = [bytearray(1000) for _ in range({count})]\nos._exit(0)\n");
    let library = python::library(release);
    let held = |count: u32| {
        let place = Place::new();
        place.file("script.py", script(count));
        let options = ["--memory-rate=1", "--dir=.", &library];
        profile(&place, &options, &format!("python-{release}.wasm"), &["script.py"]);
        let recording = place.recording("x.wlprof").view(View::Guest);
        by_line(&recording, "script.py")[&2].held
    };
    let (few, many) = (held(1000), held(3000));
    // An object and its buffer each; the list grows by itself.
    assert_eq!(many.blocks - few.blocks, 4000.0, "{release}");
    let each = (many.bytes - few.bytes) / 2000.0;
    assert!((1001.0 + 28.0..1001.0 + 60.0).contains(&each), "{release}: {each} bytes an object");
}

#[test]
fn guests_print_and_end_as_they_do_without() {
    for (guest, arguments) in [
        ("c-shares.wasm", &["1"][..]),
        ("c-traps.wasm", &["deep"]),
        ("c-traps.wasm", &["exit"]),
        ("cpp-shapes.wasm", &[]),
        ("rust-mix.wasm", &[]),
        ("rust-inlined.wasm", &[]),
        ("quickjs-0.16.wasm", &["-e", "let a = []; for (let i = 0; i < 1e5; i++) a.push({i}); print(a.length)"]),
        ("go-work-1.27.wasm", &["garbage", "1"]),
        ("tiny.wasm", &[]),
    ] {
        let place = Place::new();
        let run = |options: &[&str]| {
            let guest = fixture(guest);
            let words = options.iter().copied().chain(["-q", guest.to_str().unwrap()]).chain(arguments.iter().copied());
            let Ran { code, signal, stdout, .. } = place.run(words);
            (code, signal, stdout)
        };
        let alone = run(&[]);
        for rate in ["--memory-rate=16KiB", "--memory-rate=512KiB"] {
            assert_eq!(run(&["--memory", rate]), alone, "{guest} {arguments:?} {rate}");
        }
    }
}

/// Its allocator traps: in its own body, in one that something is put around, and in one that is called once more when a sample is due.
const TRAPS: &str = r#"(module (memory (export "memory") 1)
    (func $malloc (param i32) (result i32) (if (i32.eq (local.get 0) (i32.const 7)) (then unreachable)) (i32.const 8))
    (func $realloc (param i32 i32) (result i32) (call $malloc (local.get 1)))
    (func $free (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
    (func (export "malloc_traps") (drop (call $malloc (i32.const 1))) (drop (call $malloc (i32.const 7))))
    (func (export "realloc_traps") (drop (call $realloc (i32.const 8) (i32.const 7))))
    (func (export "free_traps") (call $free (i32.const 0))))"#;

#[test]
fn a_trap_is_where_it_is_without() {
    let place = Place::new();
    let guest = place.file("guest.wat", TRAPS);
    let guest = guest.to_str().unwrap();
    let traps = fixture("c-traps.wasm");
    let traps = traps.to_str().unwrap();
    let mut runs: Vec<Vec<&str>> =
        ["malloc_traps", "realloc_traps", "free_traps"].map(|function| vec!["--invoke", function, guest]).into();
    runs.extend(["oob", "unreachable", "abort"].map(|how| vec![traps, how]));
    for words in runs {
        let run = |options: &[&str]| place.run(options.iter().chain(&words).copied());
        let alone = run(&["-q", "--sampler=off"]);
        assert!(alone.stderr.contains("wasm backtrace"), "{words:?}: {}", alone.stderr);
        for rate in ["--memory-rate=1", "--memory-rate=512KiB"] {
            let ran = run(&["-q", "--sampler=off", "--memory", rate]);
            assert_eq!((ran.code, &ran.stderr), (alone.code, &alone.stderr), "{words:?} {rate}");
        }
    }
}

#[test]
fn memory_is_profiled_without_time() {
    let place = Place::new();
    let options = ["--sampler=off", "--memory-rate=1", "-o", "x.json"];
    let ran = profile(&place, &options, "c-heap.wasm", &["20000"]);
    let recording = place.recording("x.wlprof");
    assert_eq!((recording.ticks.sampled, recording.samples().count()), (0, 0));
    let all: u64 = counted(&ran.stdout).values().map(|amounts| amounts[1]).sum();
    let found: f64 = heap(&recording).sites.iter().map(|site| site.totals.allocated.bytes).sum();
    assert!((all as f64..all as f64 + 200.0).contains(&found), "{found} of {all}");
    assert!(ran.stderr.contains("who still held memory"), "{}", ran.stderr);
    let firefox: serde_json::Value = serde_json::from_slice(&std::fs::read(place.path("x.json")).unwrap()).unwrap();
    let weights = firefox["threads"][0]["nativeAllocations"]["weight"].as_array().unwrap();
    let positive = weights.iter().filter_map(serde_json::Value::as_i64).filter(|weight| *weight > 0);
    assert_eq!(positive.sum::<i64>() as f64, found);
    let refused = place.run(["--sampler=off", "--memory", "--show=time", "x.wasm"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("there is no time to show"), "{refused:?}");
}

#[test]
fn what_cannot_be_profiled_runs_and_is_told_why() {
    let page = "(memory (export \"memory\") 1)";
    let start = "(func (export \"_start\"))";
    for (text, why) in [
        (format!("(module {page} {start})"), "no functions by the names of C's allocator"),
        (format!("(module {page} {start} (func $malloc (param i64) (result i32) (i32.const 0)))"), "another signature"),
        (
            format!("(module {page} (memory 1) {start} (func $malloc (param i32) (result i32) (i32.const 0)))"),
            "several memories",
        ),
        (format!("(module (memory i64 1) {start} (func $malloc (param i32) (result i32) (i32.const 0)))"), "64-bit"),
        (format!("(module {start} (func $malloc (param i32) (result i32) (i32.const 0)))"), "no memory"),
        (
            format!(
                "(module {page} {start} (func $malloc (export \"wlprof:heap/table\") (param i32) (result i32) (i32.const 0)))"
            ),
            "a name of wlprof's own",
        ),
    ] {
        let place = Place::new();
        let guest = place.file("guest.wat", &text);
        let ran = place.run(["--memory", guest.to_str().unwrap()]);
        assert!(
            ran.code == Some(0) && ran.stderr.contains("is not profiled: ") && ran.stderr.contains(why),
            "{}",
            ran.stderr
        );
        // Nothing is said of what was not looked at.
        assert!(!ran.stderr.contains("allocation") && !ran.stderr.contains("at the peak"), "{}", ran.stderr);
    }
    let place = Place::new();
    let guest = fixture("c-heap.wasm");
    let guest = guest.to_str().unwrap();
    for (options, why) in [
        (&["--memory", "--alloc-functions=malloc=nobody"][..], "there is no function nobody"),
        (&["--memory", "--alloc-functions=malloc=by_malloc"], "another signature"),
    ] {
        let ran = place.run(options.iter().copied().chain([guest, "10"]));
        assert!(ran.code == Some(0) && ran.stderr.contains(why), "{}", ran.stderr);
    }
    for (options, why) in [
        (&["--memory", "--alloc-functions=mallok=x"][..], "mallok is none of malloc, "),
        (&["--memory-rate=1"], "--memory"),
        (&["--memory", "--format=perfmap"], "--memory is for profiles"),
        (&["--show=held"], "add --memory"),
        (&["--memory", "--memory-rate=0"], "expected bytes"),
    ] {
        let ran = place.run(options.iter().copied().chain([guest, "10"]));
        assert!(ran.code == Some(125) && ran.stderr.contains(why), "{}", ran.stderr);
    }
    place.run(["-q", "-o", "time.wlprof", guest, "10"]);
    let ran = place.run(["render", "--show=peak", "time.wlprof"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("run the guest with --memory"), "{}", ran.stderr);
}

/// An allocator by other names: it takes from the end of a memory that it makes grow, and counts what it gives.
const OWN_ALLOCATOR: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 65536))
    (func $take (param $size i32) (result i32)
        (drop (memory.grow (i32.const 1)))
        (global.get $next)
        (global.set $next (i32.add (global.get $next) (i32.const 65536))))
    (func $give (param i32))
    (func $keeper (drop (call $take (i32.const 1000))))
    (func $passer (call $give (call $take (i32.const 3000))))
    (func (export "_start") (local $left i32)
        (local.set $left (i32.const 7))
        (loop $again
            (call $keeper) (call $passer)
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

#[test]
fn allocators_by_other_names_and_growing_memories_are_told_of() {
    for functions in ["malloc=take,free=give", "malloc=1,free=2"] {
        let place = Place::new();
        let guest = place.file("own.wat", OWN_ALLOCATOR);
        let options = ["--memory", "--memory-rate=1", "--alloc-functions", functions, "-o", "x.wlprof"];
        let ran = place.run(options.iter().copied().chain([guest.to_str().unwrap()]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        let mut found: BTreeMap<&str, SiteTotals> = BTreeMap::new();
        for site in &heap(&recording).sites {
            let leaf = recording.lines_of(site.stack).next().unwrap();
            found.entry(&recording.functions[leaf.function as usize].name).or_default().add(&site.totals);
        }
        let amounts = |name: &str, part: HeapPart| (found[name].part(part).blocks, found[name].part(part).bytes);
        assert_eq!(amounts("keeper", HeapPart::Allocated), (7.0, 7000.0), "{found:#?}");
        assert_eq!(amounts("keeper", HeapPart::Held), (7.0, 7000.0));
        assert_eq!(amounts("passer", HeapPart::Allocated), (7.0, 21_000.0));
        assert_eq!(amounts("passer", HeapPart::Held), (0.0, 0.0));
        assert_eq!(amounts("passer", HeapPart::Grown), (7.0, 7.0 * 65_536.0));
    }
}

#[test]
fn time_is_on_the_same_lines_with_memory_beside_it() {
    // By the line, which part of all samples.
    let shares = |options: &[&str]| {
        let place = Place::new();
        let guest = fixture("rust-mix.wasm");
        let own = ["--rate=10000", "--max-overhead=100", "-q", "-o", "x.wlprof"];
        let ran = place.run(own.iter().chain(options).copied().chain([guest.to_str().unwrap()]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        let all = recording.samples().count();
        assert!(all > 2000, "{all} samples");
        let mut shares: BTreeMap<(String, Option<u32>), f64> = BTreeMap::new();
        for sample in recording.samples() {
            let leaf = recording.lines_of(sample.stack).next().unwrap();
            let name = recording.functions[leaf.function as usize].name.clone();
            *shares.entry((name, leaf.line)).or_default() += 1.0 / all as f64;
        }
        shares
    };
    let (alone, beside) = (shares(&[]), shares(&["--memory"]));
    let common = |one: &BTreeMap<(String, Option<u32>), f64>, other: &BTreeMap<(String, Option<u32>), f64>| {
        // Host code has no lines, and takes what the machine makes of it.
        let seen: Vec<_> = one.iter().filter(|((_, line), share)| line.is_some() && **share > 0.03).collect();
        assert!(seen.len() > 2, "{one:#?}");
        // Of so many samples one that has 3 % is not seen in fewer than 0.5 % by chance.
        seen.into_iter().for_each(|(line, share)| {
            let found = other.get(line).copied().unwrap_or_default();
            assert!(found > 0.005, "{line:?}: {share} and {found}");
        });
    };
    common(&alone, &beside);
    common(&beside, &alone);
}

#[test]
fn every_format_is_of_memory_or_of_time() {
    let place = Place::new();
    let files = ["x.json", "x.svg", "x.folded", "x.speedscope.json", "x.dot", "x.perf.data"];
    let outputs = files.iter().flat_map(|file| ["-o", file]);
    let guest = fixture("c-heap.wasm");
    let words = ["--memory", "--memory-rate=1", "--show=allocated"].into_iter().chain(outputs);
    let ran = place.run(words.chain([guest.to_str().unwrap(), "20000"]));
    let expected: u64 = counted(&ran.stdout).values().map(|amounts| amounts[1]).sum();
    let text = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let is_all = |bytes: u64| (expected..expected + 200).contains(&bytes);
    let folded: u64 =
        text("x.folded").lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert!(is_all(folded), "{folded} of {expected}");
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(&text(name)).unwrap();
    let speedscope = &json("x.speedscope.json")["profiles"][0];
    assert!(speedscope["unit"] == "bytes" && is_all(speedscope["endValue"].as_u64().unwrap()), "{speedscope}");
    assert!(text("x.svg").contains(" MiB allocated") && text("x.svg").contains(" bytes, "));
    assert!(text("x.dot").contains("MiB"));
    let firefox = &json("x.json")["threads"][0];
    let weights =
        firefox["nativeAllocations"]["weight"].as_array().unwrap().iter().map(|weight| weight.as_i64().unwrap());
    assert!(is_all(weights.filter(|weight| *weight > 0).sum::<i64>() as u64), "{firefox}");
    assert!(Path::new(&place.path("x.perf.data")).metadata().unwrap().len() > 100);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn two_heaps_are_compared() {
    let place = Place::new();
    let guest = fixture("c-heap.wasm");
    for (file, rounds) in [("a.wlprof", "1000"), ("b.wlprof", "3000")] {
        let ran = place.run(["--memory", "--memory-rate=1", "-q", "-o", file, guest.to_str().unwrap(), rounds]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    let ran = place.run(["diff", "--show=allocated", "-o", "d.folded", "a.wlprof", "b.wlprof"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("  by_malloc  "), "{}", ran.stdout);
    assert!(ran.stdout.contains("bytes allocated (±") && !ran.stdout.contains("own time"), "{}", ran.stdout);
    let all = ran.stdout.lines().find(|line| line.ends_with("  all together")).unwrap();
    assert!(all.contains(" +"), "{all}");
    let lines = std::fs::read_to_string(place.path("d.folded")).unwrap();
    let sums = lines.lines().fold([0, 0], |sums: [u64; 2], line| {
        let mut words = line.rsplit(' ');
        let after: u64 = words.next().unwrap().parse().unwrap();
        let before: u64 = words.next().unwrap().parse().unwrap();
        [sums[0] + before, sums[1] + after]
    });
    assert!(sums[1] > 2 * sums[0] && sums[0] > 0, "{sums:?}");
}

#[test]
fn a_killed_wlprof_leaves_what_was_allocated() {
    let place = Place::new();
    let endless = OWN_ALLOCATOR
        .replace("(br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1))))", "(br $again)");
    let endless =
        endless.replace("(drop (memory.grow (i32.const 1)))", "").replace("i32.const 65536))))", "i32.const 0))))");
    let guest = place.file("own.wat", endless);
    let options = ["--memory", "--memory-rate=1MiB", "--alloc-functions=malloc=take,free=give", "-o", "x.wlprof"];
    let mut command = place.command(options.iter().copied().chain([guest.to_str().unwrap()]));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("what it allocates is in the file", || {
        let read = std::fs::read(place.path("x.wlprof")).ok().and_then(|bytes| file::read(&bytes).ok());
        read.is_some_and(|recording| {
            recording.stores.iter().filter_map(|store| store.heap.as_ref()).any(|heap| heap.sites.len() > 1)
        })
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let rendered =
        place.run(["render", "--show=allocated", "--guest", guest.to_str().unwrap(), "-o", "x.folded", "x.wlprof"]);
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    let folded = std::fs::read_to_string(place.path("x.folded")).unwrap();
    assert!(folded.contains("_start;keeper ") && folded.contains("_start;passer "), "{folded}");
}

#[test]
fn callers_of_a_function_are_shown_in_bytes() {
    let place = Place::new();
    let ran = profile(&place, &["--memory-rate=1", "--callers-of=by_calloc"], "c-heap.wasm", &["2000"]);
    let head = ran.stderr.lines().find(|line| line.starts_with("c-heap.wasm: ")).unwrap();
    assert!(head.contains(" blocks allocated in ") && ran.stderr.contains("  by_calloc"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("a second of CPU time") && !ran.stderr.contains("no sample stands"), "{}", ran.stderr);
    let rendered = place.run(["render", "x.wlprof"]);
    assert!(rendered.stdout.contains("who held memory when most was held"), "{rendered:?}");
    let rendered = place.run(["render", "--show=time", "x.wlprof"]);
    assert!(!rendered.stdout.contains(" blocks allocated in "), "{rendered:?}");
}

#[test]
fn an_empty_module_has_no_heap_to_tell_of() {
    // Its allocator is never called.
    let place = Place::new();
    let guest = place.file("idle.wat", OWN_ALLOCATOR.replace("(call $keeper) (call $passer)", ""));
    let ran = place.run(["--memory", "--alloc-functions=malloc=take,free=give", guest.to_str().unwrap()]);
    assert!(ran.code == Some(0) && ran.stderr.contains("0 B in 0 blocks allocated"), "{}", ran.stderr);
}
