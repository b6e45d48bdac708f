//! What `--memory` shows of guests that allocate little, and of little among much: exactly, or with bounds, and what to do for more.

use crate::guest::Place;
use crate::heap::counted;
use crate::heap_profile::{heap, profile};
use std::collections::BTreeMap;
use wlprof::recording::{Amount, Recording, SiteTotals};

/// What each function that calls the allocator has allocated.
fn by_function(recording: &Recording) -> BTreeMap<String, SiteTotals> {
    let mut found: BTreeMap<String, SiteTotals> = BTreeMap::new();
    for site in &heap(recording).sites {
        let leaf = recording.lines_of(site.stack).next().unwrap();
        found.entry(recording.functions[leaf.function as usize].name.clone()).or_default().add(&site.totals);
    }
    found
}

#[test]
fn a_guest_that_allocates_less_than_a_mebibyte_is_seen_exactly() {
    for guest in ["c-heap.wasm", "component-c-heap.wasm"] {
        let place = Place::new();
        let ran = profile(&place, &[], guest, &["500"]);
        let expected = counted(&ran.stdout);
        let bytes = expected.values().map(|[_, bytes, ..]| bytes).sum::<u64>();
        assert!((100_000..1 << 20).contains(&bytes), "{guest}: {expected:?}");
        let recording = place.recording("x.wlprof");
        let found = by_function(&recording);
        for (name, amounts) in expected {
            let SiteTotals { allocated, held, .. } = found[&name];
            let numbers = [allocated.blocks, allocated.bytes, held.blocks, held.bytes].map(|number| number as u64);
            assert_eq!(numbers, amounts, "{guest}: {name}");
        }
        assert_eq!(heap(&recording).rate, 1, "{guest}");
        assert!(ran.stderr.contains(" samples, every allocation)"), "{}", ran.stderr);
        assert!(!ran.stderr.contains(['±', '<']) && !ran.stderr.contains("--memory-rate"), "{}", ran.stderr);
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

/// Runs it with these options; gives what each function has allocated, and what was printed.
fn run(options: &[&str], small: u32, large: u32) -> (BTreeMap<String, SiteTotals>, String) {
    let place = Place::new();
    place.file("guest.wat", GUEST.replace("SMALL", &small.to_string()).replace("LARGE", &large.to_string()));
    let own = ["--sampler=off", "--memory", "-o", "x.wlprof"];
    let ran = place.run(own.into_iter().chain(options.iter().copied()).chain(["guest.wat"]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (by_function(&place.recording("x.wlprof")), ran.stderr)
}

/// Within five standard deviations, outside of which it is once in two million runs.
fn is_near(found: Amount, truth: f64) -> bool {
    (found.bytes - truth).abs() < 5.0 / 1.96 * found.bound()
}

#[test]
fn what_comes_after_the_first_mebibyte_is_sampled_ever_less_often() {
    // 1, 64 and 512 MB in blocks of 64 bytes, half a GB in large ones.
    for (small, large) in [(16_000, 0), (1_000_000, 0), (8_000_000, 0), (1_000_000, 500)] {
        let (found, printed) = run(&[], small, large.max(1));
        let SiteTotals { samples, allocated, held, .. } = found["small"];
        let bytes = f64::from(small) * 64.0;
        println!("{small}: {samples} samples, {allocated:?} of {bytes}");
        if small == 16_000 {
            assert_eq!((allocated.bytes, held.bytes, allocated.variance), (bytes, bytes / 4.0, 0.0), "{printed}");
            continue;
        }
        assert!(is_near(allocated, bytes) && is_near(held, bytes / 4.0), "{small}: {found:?}");
        // Blocks that are smaller than the rate have it as their mean error: a small part of the whole, however much that is.
        assert!(allocated.bound() < 0.07 * bytes && samples < 30_000, "{small}: {allocated:?} by {samples} samples");
        assert!(printed.contains(" samples, at least one each "), "{printed}");
        assert_eq!(found["first"].held.bytes, 1000.0, "{found:?}");
        if large > 0 {
            assert!(is_near(found["large"].allocated, f64::from(large) * 1_048_576.0), "{found:?}");
        }
    }
}

#[test]
fn no_figure_stands_without_its_bound_and_a_finer_rate_is_advised() {
    // 2 GiB, far more than it takes for the rate that was asked for.
    let (found, printed) = run(&[], 1, 2000);
    assert!(is_near(found["large"].allocated, 2000.0 * 1_048_576.0), "{found:?}");
    // 1,064 bytes are known of, and what no sample has hit may be three times as far as samples are apart.
    assert!(printed.contains(", < 1.6 MiB at the end"), "{printed}");
    let rows: Vec<&str> = printed.lines().filter(|row| row.contains("  first") || row.contains("  large")).collect();
    assert!(rows.len() >= 3, "{printed}");
    for row in rows {
        let figures = row.matches("iB").count();
        assert!(figures > 0 && figures == row.matches(['±', '<']).count() && !row.contains(" B "), "{row}");
    }
    assert!(printed.contains("\nfew samples: with --memory-rate=32768 "), "{printed}");
    let (_, exact) = run(&["--memory-rate=1"], 1, 2000);
    assert!(exact.contains(", 1.0 KiB at the end") && !exact.contains("--memory-rate"), "{exact}");
    assert!(!exact.contains(['±', '<']) && exact.contains(" in 2,002 blocks "), "{exact}");
}
