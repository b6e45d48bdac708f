//! The hot line of each guest must hold the time, under the functions that it was inlined into.

use crate::sampled::{fixture, marked_line, percent_of_time, profile_fast};
use wlprof::recording::{Line, Recording};

/// A function, by what its name contains, and a line in it; line 0 is any.
type Place<'a> = (&'a str, u32);

/// Share of the time, in percent, with these places next to each other on the stack, leaf first. What is inlined into or
/// called by the first of them counts as its time.
fn share(recording: &Recording, places: &[Place<'_>], file: &str) -> f64 {
    let is_at = |line: &Line, (name, number): &Place<'_>| {
        let function = &recording.functions[line.function as usize];
        function.name.contains(name)
            && (*number == 0 || line.line == Some(*number))
            && function.file.as_deref().is_some_and(|own| own.ends_with(file))
    };
    percent_of_time(recording, |sample| {
        let lines: Vec<Line> = recording.lines_of(sample.stack).collect();
        lines.windows(places.len()).any(|window| window.iter().zip(places).all(|(line, place)| is_at(line, place)))
    })
}

struct Case {
    guest: &'static str,
    source: &'static str,
    /// Inlined callers of the hot line, innermost first, and the physical function last.
    callers: &'static [&'static str],
    cold: &'static str,
    /// What the lines of the loops around the hot line end with.
    loops: &'static [&'static str],
}

const CASES: [Case; 4] = [
    Case {
        guest: "c-inlined.wasm",
        source: "c/inlined.c",
        callers: &["mix_row", "mix_table"],
        cold: "cold_table",
        loops: &["i < start + 64; i++) {", "start < CELLS; start += 64) {"],
    },
    Case {
        guest: "c-inlined-dwarf5.wasm",
        source: "c/inlined.c",
        callers: &["mix_row", "mix_table"],
        cold: "cold_table",
        loops: &["i < start + 64; i++) {", "start < CELLS; start += 64) {"],
    },
    Case {
        guest: "cpp-inlined.wasm",
        source: "cpp/inlined.cpp",
        callers: &["lab::mix_row<unsigned int>", "lab::Table<unsigned int>::mix"],
        cold: "lab::cold",
        loops: &["i < start + 64; i++) {", "start < cells; start += 64) {"],
    },
    Case {
        guest: "rust-inlined.wasm",
        source: "rust/inlined.rs",
        callers: &["{{closure}}", "mix_row", "lab::mix"],
        cold: "lab::cold",
        loops: &["for i in start..start + 64 {", "for row in 0..CELLS / 64 {"],
    },
];

#[test]
fn the_hot_line_holds_its_share_under_its_inlined_callers() {
    for case in CASES {
        fixture(case.guest);
        let hot = marked_line(case.source, "// HOT");
        let cold = marked_line(case.source, "// COLD");
        let recording = profile_fast(case.guest, "signal", &[]);
        let mut chain = vec![("mix_cell", hot)];
        chain.extend(case.callers.iter().map(|caller| (*caller, 0)));
        let hot_chain = share(&recording, &chain, case.source);
        let hot_alone = share(&recording, &[("mix_cell", hot)], case.source);
        let cold_line = share(&recording, &[(case.cold, cold)], case.source);
        // What the two functions take altogether, whatever the line. That is known to be right: see `shares`.
        let physical = case.callers[case.callers.len() - 1];
        let mix = share(&recording, &[(physical, 0)], case.source);
        let cold_function = share(&recording, &[(case.cold, 0)], case.source);
        println!(
            "{}: hot line {hot_chain:.1} % of {mix:.1} % in {physical}, cold line {cold_line:.1} % of {cold_function:.1} %",
            case.guest
        );
        assert_eq!(hot_chain, hot_alone, "{}: the hot line without its callers", case.guest);
        // The rest of these functions is the loop around the line, its counter and branches: 4 of 24 instructions in C. How much time
        // they take is the processor's affair, 3 to 9 % on those that this was run on.
        assert!(hot_chain >= 20.0 / 24.0 * mix, "{}: {hot_chain:.1} % of {mix:.1} %", case.guest);
        let loops: f64 = case
            .loops
            .iter()
            .map(|text| share(&recording, &[("mix", marked_line(case.source, text))], case.source))
            .sum();
        println!("{loops:.1} % in the loops");
        assert!(hot_chain + loops >= 0.99 * mix, "{}: {hot_chain:.1} and {loops:.1} % of {mix:.1} %", case.guest);
        assert!(cold_line >= 0.6 * cold_function, "{}: {cold_line:.1} % of {cold_function:.1} %", case.guest);
        assert!(mix + cold_function > 98.0, "{}: {mix:.1} % and {cold_function:.1} %", case.guest);
    }
}
