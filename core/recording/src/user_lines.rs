//! Sums for guests of an interpreter: time in its native code is time of the line of the script that called it.

use super::totals::hottest;
use super::{Category, Doubt, Frame, FunctionId, Origin, Recording, StackId, Weight};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Time of a script's functions, and of the native code that they call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLines {
    /// The functions of the script's language, most self time first.
    pub functions: Vec<UserFunction>,
    /// What they call in native code, most self time first.
    pub native: Vec<NativeTotal>,
    /// Time without any frame of the language: starting, ending.
    pub outside: Weight,
}

/// Time of a function of the script's language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFunction {
    /// The function.
    pub function: FunctionId,
    /// Time in which it was the innermost function of the language.
    pub self_time: Weight,
    /// Of that, in native code that it had called, and in the host's.
    pub native_time: Weight,
    /// Time in which it was anywhere on the stack. Recursion counts once.
    pub total_time: Weight,
    /// Of its self time, what may be another's: of native code that was innermost, then.
    pub doubt: Doubt,
    /// Line on which most of its self time was spent, native code included, if lines are known.
    pub hottest_line: Option<u32>,
}

/// Time of something in native code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeTotal {
    /// What it is.
    pub what: Native,
    /// Time in which it was the innermost frame.
    pub self_time: Weight,
    /// Of that, what may be another's.
    pub doubt: Doubt,
    /// Time in which it was anywhere on the stack.
    pub total_time: Weight,
}

/// What native code is shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Native {
    /// A function, or a call of the host.
    Function(FunctionId),
    /// The runtime's allocator, and what counts references.
    Memory,
    /// The runtime's garbage collector.
    Collector,
}

#[derive(Default)]
struct Sum {
    self_time: Weight,
    native_time: Weight,
    total_time: Weight,
    doubt: Doubt,
    lines: HashMap<Option<u32>, u64>,
}

impl UserLines {
    /// Adds up `recording`, without an interpreter's own frames ([`View::Guest`](super::View::Guest)). `None` if no function of a
    /// language has called native code: such recordings have no more to tell than [`Totals`](super::Totals).
    pub fn of(recording: &Recording) -> Option<Self> {
        let weights = recording.stack_weights();
        if !weights.keys().any(|stack| recording.calls_native(*stack)) {
            return None;
        }
        let mut functions = BTreeMap::<FunctionId, Sum>::new();
        let mut native = BTreeMap::<Native, Sum>::new();
        let doubts = recording.doubts();
        let mut outside = Weight::default();
        for (stack, weight) in weights {
            let frames: Vec<&Frame> = recording.frames_of(stack).collect();
            let is_of_language = |frame: &&Frame| frame.is_of_language();
            let (Some(innermost), Some(outermost)) =
                (frames.iter().position(is_of_language), frames.iter().rposition(is_of_language))
            else {
                outside.add(weight);
                continue;
            };
            let doubt = doubts.get(&stack).copied().unwrap_or_default();
            let line = frames[innermost].lines[0];
            let sum = functions.entry(line.function).or_default();
            sum.self_time.add(weight);
            sum.doubt.add(doubt);
            *sum.lines.entry(line.line).or_default() += weight.ns;
            if innermost > 0 {
                sum.native_time.add(weight);
                let called = native.entry(recording.native(frames[0], frames[0].lines[0].function)).or_default();
                called.self_time.add(weight);
                called.doubt.add(doubt);
            }
            // Below the script: what started the interpreter is above it.
            let (of_language, called): (Vec<&Frame>, Vec<&Frame>) =
                frames[..=outermost].iter().partition(|frame| frame.is_of_language());
            let of_frame = |frame: &Frame| -> Vec<Native> {
                frame.lines.iter().map(|line| recording.native(frame, line.function)).collect()
            };
            let called = called.iter().flat_map(|frame| of_frame(frame));
            for what in called.collect::<BTreeSet<_>>() {
                native.entry(what).or_default().total_time.add(weight);
            }
            let lines = of_language.iter().flat_map(|frame| &frame.lines);
            for function in lines.map(|line| line.function).collect::<BTreeSet<_>>() {
                functions.entry(function).or_default().total_time.add(weight);
            }
        }
        let mut functions: Vec<UserFunction> = functions
            .into_iter()
            .map(|(function, sum)| UserFunction {
                function,
                self_time: sum.self_time,
                native_time: sum.native_time,
                total_time: sum.total_time,
                doubt: sum.doubt,
                hottest_line: hottest(&sum.lines),
            })
            .collect();
        functions.sort_by_key(|row| (std::cmp::Reverse((row.self_time.ns, row.total_time.ns)), row.function));
        let mut native: Vec<NativeTotal> = native
            .into_iter()
            .map(|(what, sum)| NativeTotal {
                what,
                self_time: sum.self_time,
                doubt: sum.doubt,
                total_time: sum.total_time,
            })
            .collect();
        native.sort_by_key(|row| (std::cmp::Reverse((row.self_time.ns, row.total_time.ns)), row.what));
        Some(Self { functions, native, outside })
    }
}

impl Frame {
    /// Whether it is a frame of a language's own stack, and not of wasm's.
    pub fn is_of_language(&self) -> bool {
        matches!(self.origin, Origin::Language { .. })
    }
}

impl Recording {
    /// Whether a function of a language has called native code on that stack.
    pub fn calls_native(&self, stack: StackId) -> bool {
        let mut frames = self.frames_of(stack).skip_while(|frame| !matches!(frame.origin, Origin::Wasm { .. }));
        frames.next().is_some() && frames.any(Frame::is_of_language)
    }

    /// What a function of native code, in that frame, is shown as.
    fn native(&self, frame: &Frame, function: FunctionId) -> Native {
        match self.functions[function as usize].category {
            // What joins two components is the runtime's, but allocates nothing.
            _ if frame.origin == Origin::Adapter => Native::Function(function),
            Category::Runtime => Native::Memory,
            Category::GarbageCollector => Native::Collector,
            _ => Native::Function(function),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TRACK, finish, with_modules};
    use crate::{Sample, State, View};
    use wlprof_plugin::{Category as Kind, SourceFrame};

    const START: Origin = Origin::Wasm { module: 0, function: 0, code_offset: 0 };
    const SORT: Origin = Origin::Wasm { module: 0, function: 1, code_offset: 0 };
    const MALLOC: Origin = Origin::Wasm { module: 0, function: 2, code_offset: 0 };
    const FREE: Origin = Origin::Wasm { module: 0, function: 3, code_offset: 0 };
    const EVALUATE: Origin = Origin::Wasm { module: 0, function: 4, code_offset: 0 };
    const WRITE: Origin = Origin::HostCall { module: 0, function: 5, code_offset: 0 };
    const MAIN: Origin = Origin::Language { module: 0, key: 0 };
    const LESS: Origin = Origin::Language { module: 0, key: 1 };

    fn named(origin: &Origin, out: &mut Vec<SourceFrame>) {
        let (function, category, line) = match *origin {
            START => ("_start", Kind::Library, None),
            SORT => ("sort", Kind::Library, Some(900)),
            MALLOC => ("malloc", Kind::Runtime, None),
            FREE => ("free", Kind::Runtime, None),
            EVALUATE => ("evaluate", Kind::Interpreter, None),
            WRITE => ("fd_write", Kind::User, None),
            MAIN => ("main", Kind::User, Some(7)),
            _ => ("less", Kind::User, Some(3)),
        };
        out.push(SourceFrame { function: function.to_owned(), category, line, ..SourceFrame::default() });
    }

    /// The recording of one sample, of one nanosecond, of each of these stacks, root first. The second may be another's.
    fn recording(stacks: &[&[Origin]]) -> Recording {
        let mut recorder = with_modules(1);
        for (cpu_ns, stack) in (0..).zip(stacks) {
            let frames: Vec<u32> = stack.iter().map(|origin| recorder.frame(*origin)).collect();
            let stack = recorder.stack(frames).unwrap();
            let state = if cpu_ns == 1 { State::Returned } else { State::Guest };
            let sample = Sample { time_ns: cpu_ns, cpu_delta_ns: 0, period_ns: 1, stack, state, labels: None };
            recorder.sample(TRACK, 10 * cpu_ns, sample);
        }
        finish(recorder, &mut named).view(View::Guest)
    }

    #[test]
    fn native_code_counts_for_the_line_that_called_it() {
        let recording = recording(&[
            &[START, EVALUATE, MAIN],
            &[START, EVALUATE, MAIN, SORT],
            &[START, EVALUATE, MAIN, SORT, MALLOC],
            &[START, EVALUATE, MAIN, SORT, EVALUATE, LESS],
            &[START, EVALUATE, MAIN, SORT, EVALUATE, LESS, EVALUATE, FREE],
            &[START, EVALUATE, MAIN, WRITE],
            &[START],
        ]);
        let lines = UserLines::of(&recording).unwrap();
        let name = |function: u32| recording.functions[function as usize].name.as_str();
        let row = |row: &UserFunction| {
            let times = (row.self_time.ns, row.native_time.ns, row.total_time.ns);
            (name(row.function), times, row.hottest_line)
        };
        let rows: Vec<_> = lines.functions.iter().map(row).collect();
        assert_eq!(rows, [("main", (4, 3, 6), Some(7)), ("less", (2, 1, 2), Some(3))]);
        assert_eq!(lines.outside.ns, 1);
        let what = |what: Native| match what {
            Native::Function(function) => name(function),
            Native::Memory => "memory",
            Native::Collector => "collector",
        };
        let native = |row: &NativeTotal| (what(row.what), row.self_time.ns, row.total_time.ns);
        let found: Vec<_> = lines.native.iter().map(native).collect();
        assert_eq!(found, [("memory", 2, 2), ("sort", 1, 4), ("fd_write", 1, 1)]);
        let doubts: Vec<u64> = lines.functions.iter().map(|row| row.doubt.returned_ns).collect();
        let of_native: Vec<u64> = lines.native.iter().map(|row| row.doubt.returned_ns).collect();
        assert_eq!((&doubts[..], &of_native[..]), (&[1, 0][..], &[0, 1, 0][..]), "main's, in sort");
    }

    #[test]
    fn languages_without_native_code_below_have_no_more_to_tell() {
        for stacks in
            [&[&[MAIN, LESS][..], &[MAIN]], &[&[START, MAIN][..], &[MAIN, WRITE]], &[&[START, SORT][..], &[START]]]
        {
            assert_eq!(UserLines::of(&recording(stacks)), None);
        }
    }
}
