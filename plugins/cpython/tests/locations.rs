//! The decoder of location tables against CPython's own, for every code unit of every code object of `stacks.py`.
//! `testdata/python/locations.py` made the golden files with CPython 3.11.2, 3.12.1 and 3.13.0.

use wlprof_cpython::{LocationIndex, Position, locate};

fn golden(name: &str) -> String {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap();
    (0..hexadecimal.len()).step_by(2).map(digits).collect()
}

#[test]
fn positions_are_those_that_python_reads() {
    for name in ["locations-3.11.txt", "locations-3.12.txt", "locations-3.13.txt"] {
        let (mut table, mut first_line, mut unit, mut codes, mut compared) = (Vec::new(), 0, 0, 0, 0);
        let check_end = |table: &[u8], first_line: u32, unit: u32| {
            assert_eq!(locate(table, first_line, unit), None, "{name}: the table of line {first_line} ends");
        };
        for line in golden(name).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "code" {
                check_end(&table, first_line, unit);
                (first_line, table, unit) = (words[1].parse().unwrap(), bytes(words[2]), 0);
                codes += 1;
                continue;
            }
            let number = |word: &str| (word != "-").then(|| word.parse::<u32>().unwrap());
            let expected = Position {
                line: number(words[1]),
                end_line: number(words[2]),
                column: number(words[3]),
                end_column: number(words[4]),
            };
            for _ in 0..number(words[0]).unwrap() {
                assert_eq!(locate(&table, first_line, unit), Some(expected), "{name}: {first_line}, unit {unit}");
                unit += 1;
                compared += 1;
            }
        }
        check_end(&table, first_line, unit);
        assert!(codes > 50 && compared > 2000, "{name}: {codes} code objects, {compared} units");
    }
}

#[test]
fn forms_that_compilers_do_not_write_are_read() {
    // A line before the first, and a line that is none.
    assert_eq!(locate(&[0xe8, 0x07], 2, 0), Some(Position::default()));
    assert_eq!(locate(&[0xf8], 2, 0), Some(Position::default()));
    // A code unit that is covered by the eighth of an entry.
    assert_eq!(locate(&[0xef, 0x02], 5, 7).unwrap().line, Some(6));
    assert_eq!(locate(&[0xef, 0x02], 5, 8), None);
    // The largest numbers.
    let long = [0xf0, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x03, 0, 0x40 | 2, 1, 0];
    let position = locate(&long, 1, 0).unwrap();
    assert_eq!((position.line, position.column, position.end_column), (Some(1 << 31), Some(65), None));
}

#[test]
fn broken_tables_have_no_positions() {
    for table in [
        &[0x00][..],
        &[0x7f],
        &[0xf0],
        &[0xf0, 0x40],
        &[0xd0, 1],
        &[0x80],
        &[0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0],
    ] {
        assert_eq!(locate(table, 1, 0), None, "{table:x?}");
    }
    assert_eq!(locate(&[], 1, 0), None);
    // Whatever the bytes are, it ends.
    let mut state = 0x2545_f491_u32;
    for _ in 0..20_000 {
        let table: Vec<u8> = (0..40)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 20) as u8
            })
            .collect();
        let _ = locate(&table, state, state >> 26);
    }
}

#[test]
fn an_index_says_what_the_table_says() {
    // Tables of real functions one after the other, with an entry cut short behind them.
    for name in ["locations-3.11.txt", "locations-3.12.txt", "locations-3.13.txt"] {
        let text = golden(name);
        let tables = text.lines().filter_map(|line| line.strip_prefix("code "));
        let table: Vec<u8> = tables.flat_map(|code| bytes(code.split(' ').nth(1).unwrap())).chain([0xf0, 2]).collect();
        let index = LocationIndex::new(&table, 7);
        let mut unit = 0;
        while let Some(position) = locate(&table, 7, unit) {
            assert_eq!(index.locate(&table, 7, unit), Some(position), "{name}, unit {unit}");
            unit += 1;
        }
        assert!(unit > 1000, "{name}: {unit} units");
        for unit in [unit, unit + 1, unit + 10_000, u32::MAX] {
            assert_eq!((index.locate(&table, 7, unit), locate(&table, 7, unit)), (None, None), "{name}, unit {unit}");
        }
    }
}

/// The largest table that is kept, asked for at many of its code units: from its start each time, these are tens of thousands
/// of millions of entries.
#[test]
fn a_large_table_is_decoded_once() {
    // A line further, eight code units on.
    let table = [0xef, 0x02].repeat(1 << 19);
    let index = LocationIndex::new(&table, 0);
    for unit in (0..8 << 19).step_by(61) {
        let line = index.locate(&table, 0, unit).and_then(|position| position.line);
        assert_eq!(line, Some(unit / 8 + 1));
    }
}
