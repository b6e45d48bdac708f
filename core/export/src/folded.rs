//! Folded stacks: `root;caller;leaf 12`, one line a stack, for flame graph scripts and for grep.

use super::Exporter;
use super::plain_text::{plain_name, short_path};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::path::Path;
use wlprof_recording::{Function, FunctionId, Recording, StackId};

/// `folded`: one line per distinct stack with its microseconds, or its bytes, sorted. Samples stand for different times, so that their
/// numbers would be no shares.
pub(super) struct Folded;

impl Exporter for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn description(&self) -> &'static str {
        "Folded stacks: a line for each with its microseconds, for flame graphs and for grep"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["folded", "collapsed"]
    }

    fn how_to_open(&self, path: &Path) -> String {
        format!("open {} at https://speedscope.app or with flamegraph.pl", path.display())
    }

    fn export(&self, recording: &Recording, _: &Path, out: &mut dyn Write) -> io::Result<Option<Vec<u8>>> {
        let unit = per_count(recording);
        let weights = sums(recording, &Homonyms::of(&[recording]));
        weights.iter().try_for_each(|(stack, weight)| writeln!(out, "{stack} {}", weight.div_ceil(unit)))?;
        Ok(None)
    }

    fn shows_differences(&self) -> bool {
        true
    }

    /// Writes lines as `difffolded.pl` does: `stack before after`, sorted. The numbers are microseconds: samples stand for
    /// different times. Of memory they are bytes.
    fn export_difference(&self, recordings: [&Recording; 2], out: &mut dyn Write) -> io::Result<()> {
        let homonyms = Homonyms::of(&recordings);
        let [before, after] = recordings.map(|recording| sums(recording, &homonyms));
        let stacks: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let unit = per_count(recordings[0]);
        let micros =
            |sums: &BTreeMap<String, u64>, stack: &String| sums.get(stack).copied().unwrap_or(0).div_ceil(unit);
        stacks
            .into_iter()
            .try_for_each(|stack| writeln!(out, "{stack} {} {}", micros(&before, stack), micros(&after, stack)))
    }
}

/// What a line counts one for: a microsecond, or a byte.
fn per_count(recording: &Recording) -> u64 {
    if recording.part.is_some() { 1 } else { 1000 }
}

/// Where a function is defined.
type Place<'a> = (Option<&'a str>, Option<u32>);

/// Functions of one name that are defined in different places: their names alone would make one of them.
struct Homonyms<'a>(HashMap<&'a str, BTreeSet<Place<'a>>>);

impl<'a> Homonyms<'a> {
    /// Finds those of all recordings together, so that a function has one name in all.
    fn of(recordings: &[&'a Recording]) -> Self {
        let mut places = HashMap::<&str, BTreeSet<Place<'_>>>::new();
        for recording in recordings {
            let lines = recording.stacks.iter().flat_map(|stack| &recording.frames[stack.frame as usize].lines);
            let seen: BTreeSet<FunctionId> = lines.map(|line| line.function).collect();
            for function in seen.into_iter().map(|id| &recording.functions[id as usize]) {
                places.entry(&function.name).or_default().insert(place(function));
            }
        }
        places.retain(|_, places| places.len() > 1);
        Self(places)
    }

    /// The name of a function, with its file where others have the name, and with its line where the file does not tell them apart.
    fn label(&self, function: &Function) -> String {
        let name = plain_name(&function.name);
        let others = self.0.get(&*function.name);
        let (Some(places), (Some(file), line)) = (others, place(function)) else { return name.into_owned() };
        let short = short_path(file);
        let of_file = places.iter().filter(|(other, _)| other.is_some_and(|other| short_path(other) == short));
        let at = match line.filter(|_| of_file.count() > 1) {
            Some(line) => format!("{short}:{line}"),
            None => short.to_owned(),
        };
        format!("{name} ({})", plain_name(&at))
    }
}

fn place(function: &Function) -> Place<'_> {
    (function.file.as_deref().filter(|file| !file.is_empty()), function.line)
}

/// What samples of each stack come to, as it is written.
fn sums(recording: &Recording, homonyms: &Homonyms<'_>) -> BTreeMap<String, u64> {
    let mut of_stacks = BTreeMap::<StackId, u64>::new();
    for sample in recording.samples() {
        let sum = of_stacks.entry(sample.stack).or_default();
        *sum = sum.saturating_add(sample.period_ns);
    }
    let labels: Vec<String> = recording.functions.iter().map(|function| homonyms.label(function)).collect();
    let mut sums = BTreeMap::<String, u64>::new();
    for (stack, of_stack) in of_stacks {
        let mut names: Vec<&str> = recording.lines_of(stack).map(|line| &*labels[line.function as usize]).collect();
        names.reverse();
        let sum = sums.entry(names.join(";")).or_default();
        *sum = sum.saturating_add(of_stack);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_recording::{Category, Line, Stack, example};

    #[test]
    fn differences_have_the_time_of_both() {
        let mut other = example();
        let thread = &mut other.threads[0];
        thread.samples = thread.samples.iter().take(1).collect();
        let mut out = Vec::new();
        Folded.export_difference([&example(), &other], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let sums = text.lines().fold((0, 0), |sums, line| {
            let mut fields = line.rsplit(' ').map(|field| field.parse::<u64>());
            let (after, before) = (fields.next().unwrap().unwrap(), fields.next().unwrap().unwrap());
            (sums.0 + before, sums.1 + after)
        });
        let micros = |recording: &Recording| recording.samples().map(|sample| sample.period_ns).sum::<u64>() / 1000;
        assert_eq!(sums, (micros(&example()), micros(&other)), "{text}");
    }

    #[test]
    fn functions_of_one_name_have_their_files_where_these_differ_and_their_lines_where_not() {
        let function = |name: &str, file: &str, line| Function {
            name: name.to_owned(),
            linkage_name: None,
            file: (!file.is_empty()).then(|| file.to_owned()),
            line: Some(line),
            category: Category::User,
            module: Some(0),
        };
        let functions = [
            function("work", "/src/app/a.c", 3),
            function("work", "/src/app/b.c", 3),
            function("twice", "/src/app/a.c", 3),
            function("twice", "/src/app/a.c", 9),
            function("mixed;", "/src/app/a.c", 1),
            function("mixed;", "", 1),
            function("alone", "/src/app/a.c", 3),
        ];
        let mut recording = example();
        recording.functions = functions.to_vec();
        // A function that is on no stack is nobody's namesake.
        recording.functions.push(function("alone", "/src/app/b.c", 3));
        recording.frames.truncate(1);
        let line = |function| Line { function, line: None, column: None };
        recording.frames[0].lines = (0..functions.len() as u32).map(line).collect();
        recording.stacks = vec![Stack { parent: None, frame: 0 }];
        let homonyms = Homonyms::of(&[&recording]);
        let labels = functions.each_ref().map(|function| homonyms.label(function));
        let expected = [
            "work (app/a.c)",
            "work (app/b.c)",
            "twice (app/a.c:3)",
            "twice (app/a.c:9)",
            "mixed: (app/a.c)",
            "mixed:",
            "alone",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn weights_are_the_time_that_samples_stand_for() {
        let mut out = Vec::new();
        let recording = example();
        Folded.export(&recording, Path::new("x.folded"), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let sum: u64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        let periods: BTreeSet<u64> = recording.samples().map(|sample| sample.period_ns).collect();
        assert!(periods.len() > 1, "they are counted otherwise");
        assert_eq!(sum, recording.samples().map(|sample| sample.period_ns).sum::<u64>() / 1000, "{text}");
    }
}
