//! What two recordings differ in, function by function, and which differences are more than chance.

use super::{Recording, Share, Totals, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// How likely it is, in two recordings that do not differ, that any row of all is called different.
const ERROR_RATE: f64 = 0.05;

/// A function in two recordings.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: Option<String>,
    /// Share of its own time, in the first and in the second.
    pub shares: [Share; 2],
    /// Its own time, in nanoseconds, in the first and in the second.
    pub times_ns: [u64; 2],
    /// What the second has more, in points, with its 95 % bound.
    pub more: Share,
    /// Whether that is more than chance.
    ///
    /// # Accuracy
    /// By Holm's method over all functions: two recordings of equal shares have any row that is called different in at most 5 of
    /// 100 cases. What the machine did meanwhile is no chance: equal work that took another time is a difference.
    pub is_real: bool,
}

impl Difference {
    /// Compares the functions of two recordings by their own time: those that differ first, and the larger differences.
    /// Functions are the same if their names and files are, or if each recording has one of that name in a file of that name, in another
    /// folder: programs are built in several.
    pub fn of(first: &Recording, second: &Recording) -> Vec<Self> {
        let mut rows = Rows::new();
        let mut all = [Weight::default(); 2];
        for (side, recording) in [first, second].into_iter().enumerate() {
            let totals = Totals::of(recording);
            all[side] = totals.all;
            for total in totals.functions.iter().filter(|total| total.self_time.ns > 0) {
                let function = &recording.functions[total.function as usize];
                let key = (function.name.clone(), function.file.clone());
                rows.entry(key).or_default()[side].add(total.self_time);
            }
        }
        join_moved(&mut rows, [first, second]);
        let mut differences: Vec<Self> = rows
            .into_iter()
            .map(|((name, file), weights)| {
                let shares = [weights[0].share_of(all[0]), weights[1].share_of(all[1])];
                let percent = shares[1].percent - shares[0].percent;
                let more = Share { percent, bound: shares[0].bound.hypot(shares[1].bound) };
                let times_ns = weights.map(|weight| weight.ns);
                Self { name, file, shares, times_ns, more, is_real: false }
            })
            .collect();
        differences.sort_by(|one, other| {
            other.deviation().total_cmp(&one.deviation()).then_with(|| one.name.cmp(&other.name))
        });
        // Holm: the most deviant of n is held against the rate divided by n, the next by n - 1, up to the first that is chance.
        let count = differences.len();
        let real = differences
            .iter()
            .enumerate()
            .take_while(|(before, row)| chance_of(row.deviation()) <= ERROR_RATE / (count - before) as f64);
        let real = real.count();
        differences[..real].iter_mut().for_each(|row| row.is_real = true);
        let size = |row: &Self| row.more.percent.abs();
        differences.sort_by(|one, other| {
            other
                .is_real
                .cmp(&one.is_real)
                .then_with(|| size(other).total_cmp(&size(one)))
                .then_with(|| one.name.cmp(&other.name))
        });
        differences
    }

    /// How many standard errors they differ by.
    fn deviation(&self) -> f64 {
        self.more.percent.abs() / self.more.standard_error().max(1e-9)
    }
}

type Rows = BTreeMap<(String, Option<String>), [Weight; 2]>;

/// Makes one row, with the second's file, of functions of one name in files of one name, if each recording has one such function.
fn join_moved(rows: &mut Rows, recordings: [&Recording; 2]) {
    let mut files = BTreeMap::<(&str, &str), [BTreeSet<&str>; 2]>::new();
    for (side, recording) in recordings.into_iter().enumerate() {
        for function in &recording.functions {
            let Some(file) = &function.file else { continue };
            let file_name = file.rsplit(['/', '\\']).next().unwrap_or_default();
            files.entry((&function.name, file_name)).or_default()[side].insert(file);
        }
    }
    for ((name, _), [mut before, mut after]) in files {
        let (Some(before), Some(after), true, true) =
            (before.pop_first(), after.pop_first(), before.is_empty(), after.is_empty())
        else {
            continue;
        };
        if before != after
            && let Some(moved) = rows.remove(&(name.to_owned(), Some(before.to_owned())))
        {
            rows.entry((name.to_owned(), Some(after.to_owned()))).or_default()[0] = moved[0];
        }
    }
}

/// How likely a normal deviate is to be that far from 0, on either side.
fn chance_of(deviation: f64) -> f64 {
    libm::erfc(deviation / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Origin, Sample, State};
    use wlprof_plugin::SourceFrame;

    fn at(time_ns: u64, stack: u32) -> Sample {
        let (period_ns, state) = (1_000_000, State::Guest);
        Sample { time_ns, cpu_delta_ns: period_ns, period_ns, stack, state, labels: None }
    }

    /// A recording with these functions, each with its file, and a sample each.
    fn with_files(functions: &[(&str, &str)]) -> Recording {
        let mut recorder = with_modules(1);
        for (number, _) in (0..).zip(functions) {
            let frame = recorder.frame(Origin::Wasm { module: 0, function: number, code_offset: number });
            let stack = recorder.stack([frame]).unwrap();
            recorder.sample(TRACK, u64::from(number), at(u64::from(number) + 1, stack));
        }
        finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            let Origin::Wasm { function, .. } = origin else { panic!("{origin:?}") };
            let (name, file) = functions[*function as usize];
            out.push(SourceFrame { function: name.to_owned(), file: Some(file.to_owned()), ..SourceFrame::default() });
        })
    }

    #[test]
    fn functions_are_found_in_files_that_were_moved() {
        let first = with_files(&[
            ("moved", "/v1/a.c"),
            ("two", "/v1/a.c"),
            ("two", "/v1/b.c"),
            ("unclear", "/v1/x/a.c"),
            ("unclear", "/v1/y/a.c"),
            ("stays", "a.c"),
        ]);
        let second = with_files(&[
            ("moved", "/v2/a.c"),
            ("two", "/v2/b.c"),
            ("two", "/v2/a.c"),
            ("unclear", "/v2/x/a.c"),
            ("unclear", "/v2/y/a.c"),
            ("stays", "a.c"),
            ("stays", "b.c"),
        ]);
        let mut rows: Vec<_> = Difference::of(&first, &second)
            .into_iter()
            .map(|row| (row.name, row.file.unwrap(), row.shares.map(|share| share.percent > 0.0)))
            .collect();
        rows.sort();
        let expected = [
            ("moved", "/v2/a.c", [true, true]),
            ("stays", "a.c", [true, true]),
            ("stays", "b.c", [false, true]),
            ("two", "/v2/a.c", [true, true]),
            ("two", "/v2/b.c", [true, true]),
            ("unclear", "/v1/x/a.c", [true, false]),
            ("unclear", "/v1/y/a.c", [true, false]),
            ("unclear", "/v2/x/a.c", [false, true]),
            ("unclear", "/v2/y/a.c", [false, true]),
        ];
        assert_eq!(rows, expected.map(|(name, file, seen)| (name.to_owned(), file.to_owned(), seen)));
    }

    /// A recording of so many samples, of functions with these shares; random, by `seed`.
    fn recording(shares: &[f64], samples: u64, seed: u64) -> Recording {
        let mut recorder = with_modules(1);
        let stacks: Vec<u32> = (0..shares.len() as u32)
            .map(|function| {
                let frame = recorder.frame(Origin::Wasm { module: 0, function, code_offset: function });
                recorder.stack([frame]).unwrap()
            })
            .collect();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for number in 1..=samples {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut left = (random >> 11) as f64 / (1_u64 << 53) as f64 * shares.iter().sum::<f64>();
            let found = shares.iter().position(|share| {
                left -= share;
                left < 0.0
            });
            let stack = stacks[found.unwrap_or(0)];
            recorder.sample(TRACK, number, at(number, stack));
        }
        finish(recorder, &mut |origin: &Origin, out: &mut Vec<SourceFrame>| {
            let Origin::Wasm { function, .. } = *origin else { unreachable!("only wasm frames") };
            out.push(SourceFrame { function: function.to_string(), ..SourceFrame::default() });
        })
    }

    const SHARES: [f64; 12] = [30.0, 20.0, 15.0, 10.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.0, 0.7, 0.3];

    #[test]
    fn two_recordings_of_one_guest_hardly_ever_differ() {
        const PAIRS: u64 = 200;
        let differs = |pair: &u64| {
            let [one, other] = [2 * pair + 1, 2 * pair + 2].map(|seed| recording(&SHARES, 1000, seed));
            Difference::of(&one, &other).iter().any(|row| row.is_real)
        };
        let called = (0..PAIRS).filter(differs).count();
        // 5 in 100 are allowed to have a row that is; three standard deviations more is chance.
        assert!(called <= 19, "{called} of {PAIRS} pairs have a row that is called different");
    }

    #[test]
    fn a_tenth_more_of_one_function_is_found() {
        let mut slower = SHARES;
        slower[0] *= 1.1;
        let (before, after) = (recording(&SHARES, 40_000, 1), recording(&slower, 40_000, 2));
        let rows = Difference::of(&before, &after);
        let first = &rows[0];
        assert!(first.is_real && first.name == "0" && first.more.percent > 1.0, "{first:?}");
        // 33 of 103 is 32.04 %.
        assert!((first.more.percent - 2.04).abs() < first.more.bound, "{first:?}");
        let told: Vec<&str> = rows.iter().filter(|row| row.is_real).map(|row| row.name.as_str()).collect();
        assert!(told.len() <= 2, "{told:?}");
    }

    #[test]
    fn what_is_in_one_alone_is_a_difference() {
        let rows = Difference::of(&recording(&[1.0], 500, 1), &recording(&[0.5, 0.5], 500, 2));
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.is_real));
        assert!((chance_of(1.959_964) - 0.05).abs() < 1e-6 && chance_of(0.0) == 1.0);
    }
}
