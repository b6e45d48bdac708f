//! `wlprof diff` tells differences from chance, `wlprof merge` makes one recording of several.

use crate::guest::{Place, fixture};
use crate::sampled::{Luck, measure_again_if_off};
use std::fmt::Write;
use wlprof::recording::{Recording, Totals, View};

/// The luck of measurements for comparisons.
const LUCK: Luck =
    Luck { why: "other programs share the processor's caches, so that equal work takes unequal time", off: 1, of: 12 };

/// A guest of ten functions that work for so many steps each, in turn.
fn guest_of(steps: &[u32; 10]) -> String {
    let mut text = "(module\n".to_owned();
    for (number, steps) in steps.iter().enumerate() {
        write!(
            text,
            "(func $work{number} (result i64) (local $i i32) (local $x i64)
                (local.set $x (i64.const {number}))
                (loop $again
                    (local.set $x (i64.add (i64.mul (local.get $x) (i64.const 6364136223846793005)) (i64.const 1)))
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $again (i32.lt_u (local.get $i) (i32.const {steps}))))
                (local.get $x))\n"
        )
        .unwrap();
    }
    text.push_str("(func (export \"_start\") (local $round i32) (loop $again\n");
    (0..steps.len()).for_each(|number| writeln!(text, "(drop (call $work{number}))").unwrap());
    text.push_str(
        "(local.set $round (i32.add (local.get $round) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $round) (i32.const 60000))))))",
    );
    text
}

const STEPS: [u32; 10] = [9000, 6000, 4000, 3000, 2500, 2000, 1500, 1000, 500, 500];

/// The functions that work and that `wlprof diff` calls different. The host may take more time or less.
fn compared(place: &Place, before: &str, after: &str) -> Vec<String> {
    let ran = place.run(["diff", before, after]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    println!("{}", ran.stdout);
    let is_row = |line: &&str| line.trim_start().starts_with(|first: char| first.is_ascii_digit());
    let rows: Vec<&str> = ran.stdout.lines().filter(is_row).collect();
    assert_eq!(rows.is_empty(), ran.stdout.contains("no difference above chance"), "{}", ran.stdout);
    let name = |row: &&str| row.split_whitespace().find(|word| word.starts_with("work")).map(str::to_owned);
    rows.iter().filter_map(name).collect()
}

#[test]
fn a_tenth_more_is_found_and_chance_is_not() {
    let mut slower = STEPS;
    slower[0] += slower[0] / 10;
    measure_again_if_off(LUCK, || {
        let place = Place::new();
        for (guest, text) in [("before.wat", guest_of(&STEPS)), ("after.wat", guest_of(&slower))] {
            place.file(guest, text);
        }
        for (guest, recording) in [("before.wat", "a.wlprof"), ("before.wat", "b.wlprof"), ("after.wat", "c.wlprof")] {
            let ran = place.run(["-q", "--rate=10000", "--max-overhead=100", "-o", recording, guest]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
        let real = compared(&place, "a.wlprof", "b.wlprof");
        if !real.is_empty() {
            return Err(format!("of one guest {real:?} are called different"));
        }
        let real = compared(&place, "a.wlprof", "c.wlprof");
        if real.first().is_none_or(|first| first != "work0") {
            return Err(format!("work0 is a tenth slower, and {real:?} are called different"));
        }
        Ok(())
    });
}

#[test]
fn recordings_are_compared_and_merged() {
    let place = Place::new();
    let guest = fixture("c-random.wasm");
    let guest = guest.to_str().unwrap();
    for (name, seed) in [("a.wlprof", "1"), ("b.wlprof", "2")] {
        let ran = place.run(["-q", "--rate=2500", "--max-overhead=100", "-o", name, guest, "1", seed]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let compared = place.run(["diff", "a.wlprof", "b.wlprof", "-o", "d.folded"]);
    assert_eq!(compared.code, Some(0), "{compared:?}");
    assert!(
        compared.stdout.contains(" functions (5 % level") || compared.stdout.contains(" above chance (5 % level"),
        "{}",
        compared.stdout
    );
    let folded = std::fs::read_to_string(place.path("d.folded")).unwrap();
    let micros = |field: usize| -> u64 {
        folded.lines().map(|line| line.rsplit(' ').nth(field).unwrap().parse::<u64>().unwrap()).sum()
    };
    for (field, name) in [(1, "a.wlprof"), (0, "b.wlprof")] {
        let sampled_ns: u64 = place.recording(name).samples().map(|sample| sample.period_ns).sum();
        // Each line is rounded up.
        let most = sampled_ns / 1000 + folded.lines().count() as u64;
        assert!((sampled_ns / 1000..=most).contains(&micros(field)), "{name}: {sampled_ns} ns, {} µs", micros(field));
    }

    let drawn = place.run(["diff", "a.wlprof", "b.wlprof", "-o", "d.svg"]);
    assert_eq!(drawn.code, Some(0), "{drawn:?}");
    let svg = std::fs::read_to_string(place.path("d.svg")).unwrap();
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&svg, options).unwrap();
    let titles = document.descendants().filter(|node| node.has_tag_name("title")).filter_map(|node| node.text());
    let work: Vec<&str> = titles.filter(|title| title.starts_with("work (")).collect();
    assert!(!work.is_empty() && work.iter().all(|title| title.ends_with("%)") && title.contains("%; ")), "{work:?}");
    let refused = place.run(["diff", "a.wlprof", "b.wlprof", "-o", "d.json"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("x.svg or x.folded"), "{refused:?}");

    let merged = place.run(["merge", "-q", "a.wlprof", "b.wlprof", "-o", "all.wlprof"]);
    assert_eq!(merged.code, Some(0), "{merged:?}");
    let time = |recording: &Recording| -> u64 {
        Totals::of(recording).functions.iter().map(|total| total.total_time.ns).sum()
    };
    let [a, b, all] = ["a.wlprof", "b.wlprof", "all.wlprof"].map(|name| place.recording(name).view(View::All));
    assert_eq!(time(&all), time(&a) + time(&b));
    assert_eq!(all.threads.len(), a.threads.len() + b.threads.len());
    assert!(all.thread_name(&all.threads[0]).starts_with("a.wlprof: "), "{}", all.thread_name(&all.threads[0]));
    let wall = place.run(["-q", "--clock=wall", "-o", "w.wlprof", fixture("c-traps.wasm").to_str().unwrap()]);
    assert_eq!(wall.code, Some(0), "{wall:?}");
    for arguments in [["diff", "a.wlprof", "w.wlprof", "-q"], ["merge", "a.wlprof", "w.wlprof", "-oy.wlprof"]] {
        let refused = place.run(arguments.into_iter().filter(|argument| *argument != "-q"));
        assert!(refused.code == Some(125) && refused.stderr.contains("wall time"), "{refused:?}");
    }
}
