//! What plugins that are dynamic libraries tell of their guests' heaps, and what becomes of it if that cannot be.

use crate::dynamic::go_library;
use crate::guest::{Place, Ran, run, was_seen};
use crate::heap::counted;
use crate::heap_profile::heap;
use crate::library;
use crate::misbehaving::misbehaving;
use crate::sampled::{fixture, with_ever_more_work};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use wlprof::recording::{Recording, SiteTotals};

/// Compiles `testdata/plugins/heap.c`.
fn heap_library(place: &Place, options: &[&str]) -> PathBuf {
    library::from_c("plugins/heap.c", place.path("heap.so"), options)
}

/// Profiles what a guest allocates, every block, with a plugin and its language.
fn profile(place: &Place, plugin: Option<&Path>, language: &str, guest: &str, arguments: &[&str]) -> Ran {
    let mut command = place.command(["--memory", "--memory-rate=1", "-o", "x.wlprof", "--lang", language]);
    plugin.into_iter().for_each(|plugin| _ = command.arg("--plugin").arg(plugin));
    let ran = run(command.arg(fixture(guest)).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

/// What was allocated, by the innermost function.
fn by_function(recording: &Recording) -> BTreeMap<&str, SiteTotals> {
    let mut functions: BTreeMap<&str, SiteTotals> = BTreeMap::new();
    for site in heap(recording).sites.iter().filter(|site| site.totals.allocated.blocks > 0.0) {
        let leaf = recording.lines_of(site.stack).next().unwrap();
        functions.entry(&recording.functions[leaf.function as usize].name).or_default().add(&site.totals);
    }
    functions
}

/// Blocks and bytes that were allocated, and what is held of both.
fn numbers(totals: &SiteTotals) -> [u64; 4] {
    let SiteTotals { allocated, held, .. } = totals;
    [allocated.blocks, allocated.bytes, held.blocks, held.bytes].map(|number| number as u64)
}

#[test]
fn the_allocators_of_a_plugin_take_the_place_of_cs() {
    let place = Place::new();
    let library = heap_library(&place, &[]);
    let ran = profile(&place, Some(&library), "heap", "c-heap.wasm", &["20000"]);
    let [blocks, bytes, ..] = counted(&ran.stdout)["by_calloc"];
    let recording = place.recording("x.wlprof");
    let mut found = by_function(&recording);
    assert_eq!(numbers(&found.remove("by_calloc").unwrap())[..2], [blocks, bytes]);
    // Of the C library's own, for the arguments.
    assert_eq!(found.keys().collect::<Vec<_>>(), [&"__main_void"], "{}", ran.stderr);
    assert!(ran.stderr.contains("what is not allocated by calloc is not seen"), "{}", ran.stderr);
    // What the user names is taken in the place of both.
    let mut command = place.command(["--memory", "--memory-rate=1", "-o", "x.wlprof", "--lang=heap"]);
    command.arg("--alloc-functions=malloc=malloc").arg("--plugin").arg(&library).arg(fixture("c-heap.wasm"));
    let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let recording = place.recording("x.wlprof");
    assert!(!by_function(&recording).contains_key("by_calloc"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("what is not allocated by calloc is not seen"), "{}", ran.stderr);
}

#[test]
fn what_a_runtime_has_counted_is_what_is_told() {
    let place = Place::new();
    let library = heap_library(&place, &["-DCOUNTS_ITSELF"]);
    let ran = profile(&place, Some(&library), "heap", "c-heap.wasm", &["20000"]);
    let recording = place.recording("x.wlprof");
    let found = by_function(&recording).into_iter().map(|(name, totals)| (name, numbers(&totals)));
    let expected = [("first", [3, 300, 2, 200]), ("second", [5, 5000, 5, 5000])];
    assert_eq!(found.collect::<Vec<_>>(), expected, "{}", ran.stderr);
    let stack = |leaf: &str| {
        let mut sites = heap(&recording).sites.iter();
        let names = sites.find_map(|site| {
            let lines = recording.lines_of(site.stack);
            let names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
            (names[0] == leaf).then_some(names)
        });
        names.unwrap()
    };
    assert_eq!(stack("first"), ["first"]);
    assert_eq!(stack("second"), ["second", "[elided]", "all"]);
}

#[test]
fn a_patch_for_something_else_is_not_written() {
    let place = Place::new();
    let library = heap_library(&place, &["-DCOUNTS_ITSELF", "-DEXPECTS_OTHERS"]);
    with_ever_more_work("a guest that is not patched", |times| {
        let rounds = (20_000 * times).to_string();
        let alone = place.run(["-q", "--sampler=off", fixture("c-heap.wasm").to_str().unwrap(), &rounds]);
        let ran = profile(&place, Some(&library), "heap", "c-heap.wasm", &[&rounds]);
        assert_eq!((ran.code, &ran.stdout), (alone.code, &alone.stdout));
        let note = "what c-heap.wasm allocates is not profiled: at 0x";
        assert!(ran.stderr.contains(note) && ran.stderr.contains(", and a patch expects ["), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        assert!(by_function(&recording).is_empty(), "{}", ran.stderr);
        was_seen(&recording, "all")
    });
}

#[test]
fn go_tells_the_same_of_its_heap_by_a_library() {
    let guest = "go-heap-1.27.wasm";
    let of = |plugin: Option<&Path>| {
        let place = Place::new();
        let ran = profile(&place, plugin, "go", guest, &["2000"]);
        let recording = place.recording("x.wlprof");
        let mut expected = counted(&ran.stdout);
        expected.remove("TotalAlloc").unwrap();
        let found = by_function(&recording);
        let found = expected.keys().map(|name| (name.clone(), numbers(&found[&**name]))).collect::<BTreeMap<_, _>>();
        (expected, found)
    };
    let ((truth, built_in), (same_truth, loaded)) = (of(None), of(Some(go_library())));
    assert!(truth.len() == 5 && truth == same_truth, "{truth:?} {same_truth:?}");
    for (name, numbers) in &built_in {
        let other = loaded[name];
        assert_eq!((numbers[2..].to_vec(), other[2..].to_vec()), (truth[name][2..].to_vec(), numbers[2..].to_vec()));
        // An allocation may begin a collection, for which the runtime allocates a little itself, on that stack.
        assert!(numbers[0].abs_diff(other[0]) <= 8 && numbers[1].abs_diff(other[1]) <= 1024, "{name}: {other:?}");
    }
}

#[test]
fn what_cannot_be_costs_the_heap_alone_or_the_plugin() {
    let guest = fixture("c-frames.wasm");
    let alone = Place::new().run(["-q", "--sampler=off", guest.to_str().unwrap()]);
    let crashed = "it used an address that is not its own (SIGSEGV); it is not asked any more";
    let unread = "what the guest's runtime has counted of its allocations could not be read when it was last tried";
    for (wrong, message) in [
        ("CRASHES_IN_ALLOCATORS", format!("plugin misbehaving crashed in allocators: {crashed}")),
        ("WILD_ALLOCATORS", "what the guest allocates is not profiled: there is no function 4294967295".to_owned()),
        ("ENDLESS_ALLOCATORS", "functions are said to be its allocator (supported: 1000)".to_owned()),
        ("CRASHES_IN_SWITCH_ON", format!("plugin misbehaving crashed in switch_heap_profiler_on: {crashed}")),
        (
            "WILD_PATCHES",
            "c-frames.wasm allocates is not profiled: its memory does not reach to 0xffffffffffffffff".to_owned(),
        ),
        ("CRASHES_IN_HEAP_PROFILE", format!("plugin misbehaving crashed in heap_profile: {crashed}")),
        ("WILD_BUCKETS", format!("{unread} (what was read is not what the runtime's layout promises)")),
        ("WILD_RATE", "sample an allocation each 18446744073709551615 bytes, and not each 1".to_owned()),
        ("ENDLESS_BUCKETS", format!("{unread} (there is more than is taken at once)")),
    ] {
        let place = Place::new();
        let library = misbehaving(&place, wrong);
        let outputs = ["x.wlprof", "x.json", "x.folded", "x.pb.gz"].iter().flat_map(|file| ["-o", file]);
        // A guest this short needs more than the usual rate.
        let options = ["--memory", "--memory-rate=1", "--rate=5000", "--max-overhead=100", "--plugin"];
        let mut command = place.command(options);
        command.arg(library).args(outputs).arg(&guest).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ran = run(&mut command);
        assert_eq!((ran.code, &ran.stdout), (alone.code, &alone.stdout), "{wrong}: {}", ran.stderr);
        assert!(ran.stderr.contains(&message), "{wrong}: {}", ran.stderr);
        assert!(place.recording("x.wlprof").ticks.sampled > 50, "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn checks_say_what_is_wrong_with_what_is_told_of_heaps() {
    let place = Place::new();
    let check = |library: &Path, guest: &str, arguments: &[&str], expected: &str| {
        let mut command = place.command(["plugins", "check"]);
        command.arg(library).arg("--guest").arg(fixture(guest)).args(arguments);
        let checked = run(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let line = format!("check tells of its heap ... {expected}");
        assert!(checked.stdout.contains(&line), "{line}: {}", checked.stdout);
    };
    for (options, expected) in [
        (&[][..], "ok (allocators: 1)"),
        (&["-DCOUNTS_ITSELF"], "ok (patches: 1; a heap profile at "),
        (&["-DCOUNTS_ITSELF", "-DEXPECTS_OTHERS"], "FAILED (before the guest runs, at 0x"),
        (
            &["-DCOUNTS_ITSELF", "-DTRUSTS_THE_GUEST"],
            "FAILED (damage 2 of moment 0: plugin heap crashed in heap_profile",
        ),
    ] {
        check(&heap_library(&place, options), "c-heap.wasm", &["3000000"], expected);
    }
    for (wrong, expected) in [
        ("CRASHES_IN_ALLOCATORS", "FAILED (plugin misbehaving crashed in allocators: "),
        (
            "WILD_ALLOCATORS",
            "FAILED (with what allocators gives, the module cannot be rewritten: there is no function 4294967295)",
        ),
        ("WILD_PATCHES", "FAILED (before the guest runs, its memory does not reach to 0xffffffffffffffff"),
        ("CRASHES_IN_HEAP_PROFILE", "FAILED (moment 0: plugin misbehaving crashed in heap_profile: "),
    ] {
        check(&misbehaving(&place, wrong), "c-frames.wasm", &[], expected);
    }
    check(go_library(), "go-heap-1.27.wasm", &["400000"], "ok (patches: ");
}
