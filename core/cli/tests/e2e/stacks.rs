//! Every stack must be possible: each caller stands at a call instruction that can have called the next frame.

use crate::attach::{self, Host};
use crate::guest::{Place, fixture};
use crate::sampled::{image, image_of, profile_fast, with_ever_more_work};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use wasmtime_environ::wasmparser::{BinaryReader, FunctionBody, Operator, OperatorsReader};
use wlprof::module::ModuleImage;
use wlprof::recording::{Origin, Recording, Sample, Truncation};
use wlprof_plugin::ModuleView;

/// C, C++ and Rust guests, with deep recursion, traps, `memory.grow`, host calls, tail calls, exceptions and objects among them.
const GUESTS: [(&str, &[&str]); 16] = [
    ("c-calls.wasm", &[]),
    ("c-deep.wasm", &["900"]),
    ("c-hosty.wasm", &[]),
    ("c-inlined.wasm", &[]),
    ("c-interp.wasm", &[]),
    ("c-traps.wasm", &["unreachable"]),
    ("c-traps.wasm", &["overflow"]),
    ("cpp-inlined.wasm", &[]),
    ("cpp-shapes.wasm", &[]),
    ("rust-inlined.wasm", &[]),
    ("rust-mix.wasm", &[]),
    ("wat-tail-calls.wat", &[]),
    ("wat-call-ref.wat", &[]),
    ("wat-gc.wat", &[]),
    ("wat-proposals.wat", &[]),
    ("wat-start-function.wat", &[]),
];

/// Samples to check altogether.
const SAMPLES: u64 = 20_000;

/// What an instruction calls.
enum Callee {
    Function(u32),
    /// Through a table or a reference.
    Any,
}

fn callee(operator: &Operator<'_>) -> Option<Callee> {
    match *operator {
        Operator::Call { function_index } => Some(Callee::Function(function_index)),
        Operator::CallIndirect { .. } | Operator::CallRef { .. } => Some(Callee::Any),
        _ => None,
    }
}

fn tail_callee(operator: &Operator<'_>) -> Option<Callee> {
    match *operator {
        Operator::ReturnCall { function_index } => Some(Callee::Function(function_index)),
        Operator::ReturnCallIndirect { .. } | Operator::ReturnCallRef { .. } => Some(Callee::Any),
        _ => None,
    }
}

/// What a module's functions may turn into by tail calls.
struct TailCalls {
    /// Functions that each function tail-calls; `None` stands for any.
    direct: BTreeMap<u32, BTreeSet<Option<u32>>>,
}

impl TailCalls {
    fn of(image: &ModuleImage) -> Self {
        let mut direct: BTreeMap<u32, BTreeSet<Option<u32>>> = BTreeMap::new();
        for function in image.first_body().. {
            let Some(body) = image.function_body(function) else { break };
            let code = image.code_at(function, body.start).unwrap();
            let mut operators = FunctionBody::new(BinaryReader::new(code, 0)).get_operators_reader().unwrap();
            while !operators.eof() {
                match tail_callee(&operators.read().unwrap()) {
                    Some(Callee::Function(callee)) => direct.entry(function).or_default().insert(Some(callee)),
                    Some(Callee::Any) => direct.entry(function).or_default().insert(None),
                    None => continue,
                };
            }
        }
        Self { direct }
    }

    /// Whether `called`'s frame may by now be `seen`'s.
    fn may_become(&self, called: u32, seen: u32) -> bool {
        let mut reached = BTreeSet::from([called]);
        let mut open = vec![called];
        while let Some(function) = open.pop() {
            if function == seen {
                return true;
            }
            for next in self.direct.get(&function).into_iter().flatten() {
                match next {
                    None => return true,
                    Some(next) if reached.insert(*next) => open.push(*next),
                    Some(_) => {}
                }
            }
        }
        false
    }
}

/// Checks every pair of frames of every distinct stack. Gives the number of samples and of pairs in them.
fn check(name: &str, recording: &Recording, image: &ModuleImage) -> (u64, u64) {
    let tail_calls = TailCalls::of(image);
    let mut samples_of = BTreeMap::<u32, u64>::new();
    for sample in recording.samples() {
        *samples_of.entry(sample.stack).or_default() += 1;
    }
    let (mut samples, mut pairs) = (0, 0);
    for (stack, count) in samples_of {
        let origins: Vec<Origin> = recording.frames_of(stack).map(|frame| frame.origin).collect();
        for pair in origins.windows(2) {
            let [callee_frame, caller_frame] = pair else { unreachable!("windows of two") };
            assert!(
                possible(callee_frame, caller_frame, image, &tail_calls),
                "{name}: {callee_frame:?} called by {caller_frame:?} in {origins:?}"
            );
            pairs += count;
        }
        if let Some(Origin::Wasm { function, .. }) = origins.last() {
            // What the embedder called: an export, or the start function.
            let root = image.function_name(*function);
            assert!(root.is_some(), "{name}: the root is function {function}");
        }
        samples += count;
    }
    (samples, pairs)
}

fn possible(callee_frame: &Origin, caller_frame: &Origin, image: &ModuleImage, tail_calls: &TailCalls) -> bool {
    if matches!(caller_frame, Origin::Truncated | Origin::Elided) || matches!(callee_frame, Origin::Elided) {
        return true;
    }
    let Origin::Wasm { function: caller, code_offset, .. } = *caller_frame else { return false };
    let Some(code) = image.code_at(caller, code_offset) else { return false };
    let Ok(operator) = OperatorsReader::new(BinaryReader::new(code, 0)).read() else { return false };
    match (callee_frame, callee(&operator)) {
        (Origin::Wasm { function, .. }, Some(Callee::Function(called))) => tail_calls.may_become(called, *function),
        (Origin::Wasm { .. }, Some(Callee::Any)) => true,
        // The call of an import, or an operation that Wasmtime carries out itself: `memory.grow` and its kin.
        (Origin::HostCall { code_offset: at, .. }, Some(Callee::Function(called))) => {
            *at == code_offset && called < image.first_body()
        }
        (Origin::HostCall { code_offset: at, .. }, _) => *at == code_offset,
        _ => false,
    }
}

#[test]
fn every_caller_stands_at_a_call_of_its_callee() {
    let (mut samples, mut pairs) = (0, 0);
    with_ever_more_work("stacks", |_| {
        for (name, arguments) in GUESTS {
            let recording = profile_fast(name, "signal", arguments);
            let broken = recording.truncated.iter().find(|(reason, _)| *reason == Truncation::BrokenChain);
            assert_eq!(broken, None, "{name}: a chain of frames does not hold");
            let checked = check(name, &recording, &image(name));
            println!("{name}: {} samples, {} pairs", checked.0, checked.1);
            samples += checked.0;
            pairs += checked.1;
        }
        samples >= SAMPLES
    });
    println!("{samples} samples, {pairs} pairs, all possible");
}

#[test]
fn every_caller_stands_at_a_call_of_its_callee_in_a_process_that_runs_already() {
    let place = Place::new();
    for name in ["c-calls.wasm", "c-hosty.wasm", "cpp-shapes.wasm", "rust-mix.wasm"] {
        let host = Host::of(&place, fixture(name).to_str().unwrap());
        check_process(&fixture(name), &place, &host);
    }
}

/// Checks the stacks of a host that runs the module in that file.
pub(crate) fn check_process(file: &Path, place: &Place, host: &Host) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let recording = attach::recording(place, host, &["--guest", file.to_str().unwrap()]);
    assert!(recording.truncated.is_empty(), "{name}: {:?}", recording.truncated);
    let (samples, pairs) = check(name, &recording, &image_of(file));
    println!("{name}: {samples} samples, {pairs} pairs");
    assert!(pairs > samples, "{pairs} of {samples}");
}

#[test]
fn a_stack_deeper_than_a_sample_keeps_both_ends() {
    let mut found = None;
    with_ever_more_work("deep stacks", |times| {
        let recording = profile_fast("c-deep.wasm", "signal", &["6000", &(300 * times).to_string()]);
        let too_deep = recording.truncated.iter().find(|(reason, _)| *reason == Truncation::TooDeep);
        found = too_deep.map(|(_, count)| *count).map(|count| (recording, count));
        found.is_some()
    });
    let (recording, deep) = found.unwrap();
    let is_elided = |sample: &Sample| recording.frames_of(sample.stack).any(|frame| frame.origin == Origin::Elided);
    let labelled: Vec<Sample> = recording.samples().filter(is_elided).collect();
    for sample in &labelled {
        let root = recording.lines_of(sample.stack).last().unwrap();
        assert_eq!(recording.functions[root.function as usize].name, "_start");
    }
    let labelled = labelled.len();
    assert_eq!(deep, labelled as u64);
    let (samples, _) = check("c-deep.wasm", &recording, &image("c-deep.wasm"));
    assert!(samples > 0 && labelled > 0);
}

#[test]
fn a_dump_of_a_deep_stack_says_where_frames_are_left_out() {
    let place = Place::new();
    let guest = place.file(
        "deep.wat",
        r#"(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 1)
  (func $down (param $depth i32) (result i32)
    (if (result i32) (local.get $depth)
      (then (i32.add (call $down (i32.sub (local.get $depth) (i32.const 1))) (i32.const 1)))
      (else (call $yield))))
  (func (export "_start") (drop (call $down (i32.const 5000)))))"#,
    );
    let ran = place.run(["dump", "--at-import", "sched_yield", guest.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let stack: Vec<&str> = ran.stderr.lines().filter(|line| line.ends_with("(...)")).collect();
    let left_out = stack.iter().position(|line| *line == "[elided](...)").unwrap();
    assert!(stack[..left_out].iter().all(|line| *line == "down(...)"), "{}", ran.stderr);
    assert_eq!(stack.iter().filter(|line| **line == "[elided](...)").count(), 1);
    assert_eq!((stack.last(), stack.len()), (Some(&"_start(...)"), 2048), "{}", ran.stderr);
}
