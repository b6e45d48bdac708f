//! The figures of `--memory` for guests that allocate little, and for little memory among much: exact, or with bounds and advice.

use crate::guest::Place;
use crate::heap::counted;
use crate::heap_profile::{heap, profile};
use std::collections::{BTreeMap, BTreeSet};
use wlprof::recording::{Amount, Recording, SiteTotals};

/// The totals of each function and all that it called, by the last part of its name.
fn by_function(recording: &Recording) -> BTreeMap<String, SiteTotals> {
    let mut found: BTreeMap<String, SiteTotals> = BTreeMap::new();
    for site in &heap(recording).sites {
        let names = recording.lines_of(site.stack).map(|line| {
            let name = &recording.functions[line.function as usize].name;
            let path = name.strip_suffix("(unsigned long)").unwrap_or(name);
            path.rsplit("::").next().unwrap_or_default().to_owned()
        });
        for name in names.collect::<BTreeSet<String>>() {
            found.entry(name).or_default().add(&site.totals);
        }
    }
    found
}

#[test]
fn a_guest_of_a_few_hundred_allocations_is_counted_exactly() {
    for guest in ["c-heap.wasm", "component-c-heap.wasm", "cpp-heap.wasm", "rust-heap.wasm", "component-rust-heap.wasm"]
    {
        let place = Place::new();
        let ran = profile(&place, &["--sampler=off"], guest, &["500"]);
        let expected = counted(&ran.stdout);
        let blocks: u64 = expected.values().map(|[blocks, ..]| blocks).sum();
        assert!((300..900).contains(&blocks) && expected.len() > 4, "{guest}: {expected:?}");
        let recording = place.recording("x.wlprof");
        let found = by_function(&recording);
        for (name, amounts) in expected {
            let SiteTotals { allocated, held, .. } = found[&name];
            let numbers = [allocated.blocks, allocated.bytes, held.blocks, held.bytes].map(|number| number as u64);
            assert_eq!(numbers, amounts, "{guest}: {name}");
        }
        assert_eq!(heap(&recording).rate, 1, "{guest}");
        assert!(ran.stderr.contains(" samples, every allocation)"), "{}", ran.stderr);
        // Names have angle brackets without a space behind them.
        let has_bounds = ran.stderr.contains('±') || ran.stderr.contains("< ");
        assert!(!has_bounds && !ran.stderr.contains("--memory-rate"), "{}", ran.stderr);
    }
}

/// Gives out addresses that nobody uses. `first` keeps 1,000 bytes; `small` takes 64 bytes `SMALL` times and keeps a quarter of the blocks;
/// `large` takes 1 MiB `LARGE` times and keeps none.
const GUEST: &str = r#"(module
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 65536))
    (func $malloc (param $size i32) (result i32)
        (global.set $next (i32.add (global.get $next) (i32.const 64)))
        (global.get $next))
    (func $free (param i32))
    (func $first (drop (call $malloc (i32.const 1000))))
    (func $small (local $i i32) (local $block i32)
        (loop $again
            (local.set $block (call $malloc (i32.const 64)))
            (if (i32.and (local.get $i) (i32.const 3)) (then (call $free (local.get $block))))
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const SMALL)))))
    (func $large (local $i i32)
        (loop $again
            (call $free (call $malloc (i32.const 1048576)))
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const LARGE)))))
    (func (export "_start") (call $first) (call $small) (call $large)))"#;

/// Runs it with these options; gives the totals of each function, the rate in the end, and what was printed.
fn run(options: &[&str], small: u32, large: u32) -> (BTreeMap<String, SiteTotals>, u64, String) {
    let place = Place::new();
    place.file("guest.wat", GUEST.replace("SMALL", &small.to_string()).replace("LARGE", &large.to_string()));
    let own = ["--sampler=off", "--memory", "-o", "x.wlprof"];
    let ran = place.run(own.into_iter().chain(options.iter().copied()).chain(["guest.wat"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let recording = place.recording("x.wlprof");
    (by_function(&recording), heap(&recording).rate, ran.stderr)
}

/// Within five standard deviations, which an estimate leaves once in two million runs.
fn is_near(found: Amount, truth: f64) -> bool {
    (found.bytes - truth).abs() < 5.0 / 1.96 * found.bound()
}

#[test]
fn samples_come_ever_less_often_and_their_sums_have_bounds_of_a_tenth() {
    // 64 KB, 6.4, 64 and 512 MB in blocks of 64 bytes; and half a GB in large ones behind 64 MB.
    for (small, large) in [(1_000, 1), (100_000, 1), (1_000_000, 1), (8_000_000, 1), (1_000_000, 500)] {
        let (found, rate, printed) = run(&[], small, large);
        let SiteTotals { samples, allocated, held, .. } = found["small"];
        let bytes = f64::from(small) * 64.0;
        println!("{small}: {samples} samples, {allocated:?} of {bytes}");
        assert_eq!(found["first"].held.bytes, 1000.0, "{found:?}");
        if small == 1_000 {
            assert_eq!(
                (allocated.bytes, held.bytes, allocated.variance, rate),
                (bytes, bytes / 4.0, 0.0, 1),
                "{printed}"
            );
            continue;
        }
        assert!(is_near(allocated, bytes) && is_near(held, bytes / 4.0), "{small}: {found:?}");
        assert!(allocated.bound() < 0.13 * bytes && samples < 4_100, "{small}: {allocated:?} by {samples} samples");
        assert!(rate <= 512 << 10 && printed.contains(" samples, at least one each "), "{printed}");
        if large > 1 {
            assert!(is_near(found["large"].allocated, f64::from(large) * 1_048_576.0), "{found:?}");
        }
    }
}

#[test]
fn no_figure_stands_without_its_bound_and_a_finer_rate_is_advised() {
    // 4 GB in large blocks, each of which is a sample at first, and then many at the rate that was asked for.
    let (found, rate, printed) = run(&[], 1, 4000);
    assert!(is_near(found["large"].allocated, 4000.0 * 1_048_576.0) && rate == 512 << 10, "{rate}: {found:?}");
    // 1,064 bytes are known of, and what no sample has hit may be three times as far as samples are apart.
    assert!(printed.contains(", < 1.6 MiB at the end"), "{printed}");
    let rows: Vec<&str> = printed.lines().filter(|row| row.contains("  first") || row.contains("  large")).collect();
    assert!(rows.len() >= 3, "{printed}");
    for row in rows {
        let figures = row.matches("iB").count();
        assert!(figures > 0 && figures == row.matches(['±', '<']).count() && !row.contains(" B "), "{row}");
    }
    assert!(printed.contains("\nfew samples: --memory-rate=32768 "), "{printed}");
    let (_, rate, exact) = run(&["--memory-rate=1"], 1, 4000);
    assert!(rate == 1 && exact.contains(", 1.0 KiB at the end") && !exact.contains("--memory-rate"), "{exact}");
    assert!(!exact.contains(['±', '<']) && exact.contains(" in 4,002 blocks "), "{exact}");
}
