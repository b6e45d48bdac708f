//! Memory profiles of Go guests, which Go's own profiler samples: compared with what the guests count themselves.

use crate::guest::Place;
use crate::heap::counted;
use crate::heap_profile::{heap, profile};
use crate::pprof::sums_by_pprof;
use std::collections::BTreeMap;
use wlprof::recording::{HeapPart, SiteTotals};

#[test]
fn what_go_allocates_is_what_it_counts_itself() {
    ["1.21", "1.27"].into_iter().for_each(check_go);
}

#[test]
fn what_go_allocates_is_what_it_counts_itself_in_every_other_release() {
    ["1.22", "1.23", "1.24", "1.25", "1.26"].into_iter().for_each(check_go);
}

fn check_go(release: &str) {
    let place = Place::new();
    let ran = profile(&place, &["--memory-rate=1"], &format!("go-heap-{release}.wasm"), &["2000"]);
    let mut expected = counted(&ran.stdout);
    let [total, ..] = expected.remove("TotalAlloc").unwrap();
    let recording = place.recording("x.wlprof");
    let mut found: BTreeMap<&str, SiteTotals> = BTreeMap::new();
    for site in &heap(&recording).sites {
        let leaf = recording.lines_of(site.stack).next().unwrap();
        found.entry(&recording.functions[leaf.function as usize].name).or_default().add(&site.totals);
    }
    assert_eq!(expected.len(), 5, "{expected:?}");
    let mut for_collections = 0;
    for (name, amounts) in expected {
        let SiteTotals { allocated, held, .. } = found[&*name];
        let numbers = [allocated.blocks, allocated.bytes, held.blocks, held.bytes].map(|number| number as u64);
        assert_eq!(numbers[2..], amounts[2..], "{release}: {name}");
        // An allocation may begin a collection, for which the runtime allocates a little itself, on that stack.
        let more = [0, 1].map(|index| numbers[index].checked_sub(amounts[index]));
        assert!(matches!(more, [Some(..=8), Some(..=1024)]), "{release}: {name}: {numbers:?} of {amounts:?}");
        for_collections += more[0].unwrap();
    }
    assert!(for_collections <= 8, "{release}: {for_collections} blocks");
    // What is read comes a little after what it says itself, and before its runtime began nothing was counted.
    let all = heap(&recording).total(HeapPart::Allocated).bytes as u64;
    assert!(all.abs_diff(total) < 16 << 10, "{release}: {all} of {total}");
    assert!(heap(&recording).total(HeapPart::Peak).bytes >= heap(&recording).total(HeapPart::Held).bytes);
}

#[test]
fn a_go_guest_that_sets_the_rate_itself_is_counted_by_that() {
    let place = Place::new();
    let ran = profile(&place, &[], "go-heap-1.27.wasm", &["2000", "1"]);
    let expected = counted(&ran.stdout);
    let found = sums_by_pprof(&place.path("x.pb.gz"), &["-sample_index=alloc_space", "-unit=B"], "B");
    for name in ["main.churn", "main.buffer", "main.link", "main.leak"] {
        let (own, _) = found[name];
        assert!((expected[name][1]..=expected[name][1] + 1024).contains(&own), "{name}: {own} of {:?}", expected[name]);
    }
    assert!(ran.stderr.contains("sample an allocation each 1 bytes, and not each 524288"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("for how long"), "how long blocks were held is not known: {}", ran.stderr);
}

#[test]
fn of_go_a_sample_says_how_much_there_is() {
    let place = Place::new();
    let ran = profile(&place, &[], "go-heap-1.27.wasm", &["400000"]);
    let expected = counted(&ran.stdout);
    let found = sums_by_pprof(&place.path("x.pb.gz"), &["-sample_index=alloc_space", "-unit=B"], "B");
    for name in ["main.churn", "main.buffer", "main.big", "main.leak"] {
        let (own, _) = found[name];
        let [_, bytes, ..] = expected[name];
        // One sample each 512 KiB: of so many it is within five standard deviations but once in two million times.
        let samples = bytes as f64 / f64::from(512 << 10);
        assert!((own as f64 / bytes as f64 - 1.0).abs() < 5.0 / samples.sqrt(), "{name}: {own} of {bytes}");
    }
    let (held, _) = sums_by_pprof(&place.path("x.pb.gz"), &["-sample_index=inuse_space", "-unit=B"], "B")["main.leak"];
    assert!(held > 0 && ran.stderr.contains("main.leak"), "{}", ran.stderr);
}
