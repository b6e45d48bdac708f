//! What a picture is about: functions, lines or threads, each with its time.

use std::collections::{BTreeMap, BTreeSet};
use wlprof_recording::{Line, Recording, View, Weight};
use wlprof_show::escape::single_line;
use wlprof_show::table::{OUTSIDE_OF_THE_SCRIPT, place_of};

/// What a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Of {
    #[default]
    Functions,
    Lines,
    Threads,
}

/// One of them. Its texts are safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    /// Where it is.
    pub(super) place: String,
    pub(super) self_time: Weight,
    pub(super) total_time: Weight,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// The time of all samples.
    pub(super) all: Weight,
    pub(super) rows: Vec<Row>,
}

#[derive(Default)]
struct Sum {
    self_time: Weight,
    total_time: Weight,
}

impl Rows {
    /// Adds up what `view` shows of `recording`. In a script's guest, time in native code counts for the line of the script that
    /// called it, as in the table after a run.
    pub(super) fn of(recording: &Recording, of: Of, view: View) -> Self {
        let mut all = Weight::default();
        recording.draws().for_each(|draw| all.add_draw(draw.period_ns));
        let rows = match of {
            Of::Functions => functions(recording, view),
            Of::Lines => lines(recording, view),
            Of::Threads => threads(recording, view),
        };
        Self { all, rows }
    }

    /// Those with the most time first: in total, or of their own.
    pub(super) fn sort(&mut self, by_total: bool) {
        let time = |row: &Row| match by_total {
            true => (row.total_time.ns, row.self_time.ns),
            false => (row.self_time.ns, row.total_time.ns),
        };
        self.rows.sort_by(|one, other| time(other).cmp(&time(one)).then_with(|| one.name.cmp(&other.name)));
    }
}

fn functions(recording: &Recording, view: View) -> Vec<Row> {
    let row = |(function, sum): (u32, Sum)| {
        let function = &recording.functions[function as usize];
        Row {
            name: single_line(&function.name),
            place: place_of(function, function.line),
            self_time: sum.self_time,
            total_time: sum.total_time,
        }
    };
    let (sums, outside) = sums(recording, view, |line| line.function);
    sums.into_iter().map(row).chain(outside_row(outside)).collect()
}

fn lines(recording: &Recording, view: View) -> Vec<Row> {
    let row = |((function, line), sum): ((u32, Option<u32>), Sum)| {
        let function = &recording.functions[function as usize];
        Row {
            name: single_line(&function.name),
            place: place_of(function, line),
            self_time: sum.self_time,
            total_time: sum.total_time,
        }
    };
    let (sums, outside) = sums(recording, view, |line| (line.function, line.line));
    sums.into_iter().map(row).chain(outside_row(outside)).collect()
}

/// A row for the time of which a script has no part.
fn outside_row(outside: Weight) -> Option<Row> {
    let name = OUTSIDE_OF_THE_SCRIPT.to_owned();
    (outside.ns > 0).then_some(Row { name, place: String::new(), self_time: outside, total_time: outside })
}

/// Whether it is about a script that calls native code, which is not shown then.
fn is_script(recording: &Recording, view: View) -> bool {
    view == View::Guest && recording.stack_weights().keys().any(|stack| recording.calls_native(*stack))
}

/// The time by what `key` says of lines, and the time without any.
fn sums<K: Ord + Copy>(recording: &Recording, view: View, key: impl Fn(Line) -> K) -> (BTreeMap<K, Sum>, Weight) {
    let is_script = is_script(recording, view);
    let (mut sums, mut outside) = (BTreeMap::<K, Sum>::new(), Weight::default());
    for (stack, weight) in recording.stack_weights() {
        let frames = recording.frames_of(stack).filter(|frame| !is_script || frame.is_of_language());
        let keys: Vec<K> = frames.flat_map(|frame| &frame.lines).map(|line| key(*line)).collect();
        match keys.first() {
            Some(innermost) => sums.entry(*innermost).or_default().self_time.add(weight),
            None => outside.add(weight),
        }
        for key in keys.into_iter().collect::<BTreeSet<K>>() {
            sums.entry(key).or_default().total_time.add(weight);
        }
    }
    (sums, outside)
}

/// Time of a thread with some labels, and of the functions that it was in.
#[derive(Default)]
struct OfThread {
    time: Weight,
    functions: BTreeMap<u32, u64>,
}

/// Threads, and what samples of them belong to: goroutines, for instance. Beside each, the function it was in most.
fn threads(recording: &Recording, view: View) -> Vec<Row> {
    let is_script = is_script(recording, view);
    let mut sums = BTreeMap::<(usize, Option<u32>), OfThread>::new();
    for (index, thread) in recording.threads.iter().enumerate() {
        for draw in thread.draws() {
            let sum = sums.entry((index, draw.labels)).or_default();
            sum.time.add_draw(draw.period_ns);
            let innermost = recording.frames_of(draw.stack).find(|frame| !is_script || frame.is_of_language());
            if let Some(line) = innermost.and_then(|frame| frame.lines.first()) {
                *sum.functions.entry(line.function).or_default() += draw.period_ns;
            }
        }
    }
    let row = |((thread, labels), OfThread { time, functions }): ((usize, Option<u32>), OfThread)| {
        let labels = labels.map_or(&[][..], |set| &recording.label_sets[set as usize]);
        let labels = labels.iter().map(|(name, value)| format!(" {name}={value}"));
        let name = recording.thread_name(&recording.threads[thread]) + &labels.collect::<String>();
        let hottest = functions.into_iter().max_by_key(|(function, time_ns)| (*time_ns, std::cmp::Reverse(*function)));
        let function = hottest.map(|(function, _)| &recording.functions[function as usize].name);
        let place = function.map_or_else(String::new, |name| format!("mostly in {}", single_line(name)));
        Row { name: single_line(&name), place, self_time: time, total_time: time }
    };
    sums.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::{Totals, UserLines, example};

    #[test]
    fn functions_are_those_of_the_table_after_a_run() {
        for view in [View::All, View::Native] {
            let recording = example().view(view);
            let totals = Totals::of(&recording);
            let rows = Rows::of(&recording, Of::Functions, view);
            assert_eq!(rows.all, totals.all);
            for total in &totals.functions {
                let name = single_line(&recording.functions[total.function as usize].name);
                let same = |row: &&Row| (row.self_time, row.total_time) == (total.self_time, total.total_time);
                assert!(rows.rows.iter().filter(|row| row.name == name).any(|row| same(&row)), "{name}: {rows:#?}");
            }
        }
        let recording = example().view(View::Guest);
        let lines = UserLines::of(&recording).unwrap();
        let rows = Rows::of(&recording, Of::Functions, View::Guest);
        let mut expected: Vec<(Weight, Weight)> =
            lines.functions.iter().map(|function| (function.self_time, function.total_time)).collect();
        expected.extend((lines.outside.ns > 0).then_some((lines.outside, lines.outside)));
        let mut found: Vec<(Weight, Weight)> = rows.rows.iter().map(|row| (row.self_time, row.total_time)).collect();
        let key = |times: &(Weight, Weight)| (times.0.ns, times.1.ns);
        expected.sort_by_key(key);
        found.sort_by_key(key);
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_and_threads_have_the_time_of_all_samples() {
        let recording = example();
        for of in [Of::Lines, Of::Threads] {
            let mut rows = Rows::of(&recording, of, View::All);
            rows.sort(false);
            let times: Vec<u64> = rows.rows.iter().map(|row| row.self_time.ns).collect();
            assert_eq!(times.iter().sum::<u64>(), rows.all.ns);
            assert!(times.len() > 1 && times.is_sorted_by(|one, other| one >= other), "{times:?}");
            let raw = |row: &Row| [&row.name, &row.place].iter().any(|text| text.contains(char::is_control));
            assert!(!rows.rows.iter().any(raw));
        }
    }
}
