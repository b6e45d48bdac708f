//! A language with frames of its own in linear memory: the toy interpreter of `c-frames`, walked by a plugin of this
//! test's own at arbitrary instructions.

use crate::sampled::{Shares, are_few, fixture, profile_until};
use std::sync::Arc;
use wlprof::languages::{self, Choice, ChooseError};
use wlprof::recording::{self, LanguageTruncation, Origin, Recording};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, KeyTable, Label, Language, ModuleView, Program,
    SourceFrame, Truncation, Walker, WasmFrame,
};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_run::profile::{Run, RunEnd, RunOptions, symbolize};
use wlprof_wasi::WasiOptions;

/// The toy interpreter, or a plugin for it that misbehaves.
struct Toy(Behaviour);

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Good,
    Panics,
    Endless,
}

impl Language for Toy {
    fn name(&self) -> &str {
        "toy"
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        let is_toy = (0..1000).any(|index| module.function_name(index) == Some("outer_body"));
        if is_toy { Detection::Yes("toy 1".into()) } else { Detection::No }
    }

    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        let evaluate = (0..1000).find(|&index| module.function_name(index) == Some("evaluate"));
        let evaluate = evaluate.ok_or_else(|| AttachError("no function `evaluate`".into()))?;
        let names = Arc::new(KeyTable::new(100, 10_000));
        Ok(Arc::new(ToyProgram { behaviour: self.0, frame_top: frame_top(module.bytes()), evaluate, names }))
    }
}

/// Index of the exported global `frame_top`.
fn frame_top(module: &[u8]) -> u32 {
    use wasmtime_environ::wasmparser::{ExternalKind, Parser, Payload};
    Parser::new(0)
        .parse_all(module)
        .find_map(|payload| match payload.unwrap() {
            Payload::ExportSection(exports) => exports
                .into_iter()
                .map(Result::unwrap)
                .find(|export| export.kind == ExternalKind::Global && export.name == "frame_top")
                .map(|export| export.index),
            _ => None,
        })
        .expect("the guest exports frame_top")
}

#[derive(Clone)]
struct ToyProgram {
    behaviour: Behaviour,
    frame_top: u32,
    evaluate: u32,
    names: Arc<KeyTable<String>>,
}

impl ToyProgram {
    fn read_frames(&self, guest: &dyn GuestMemory, out: &mut FrameSink) -> Result<(), Truncation> {
        let variable = guest.global(self.frame_top).expect("the global was asked for");
        let mut frame = guest.read_u32(variable)?;
        if frame == 0 {
            return Err(Truncation::NoStack);
        }
        while frame != 0 {
            let line = guest.read_u32((frame + 4).into())?;
            let mut name = Vec::new();
            let mut at = guest.read_u32((frame + 8).into())?;
            while let byte @ 1.. = guest.read_u8(at.into())? {
                name.push(byte);
                at += 1;
            }
            let name = String::from_utf8(name).unwrap();
            let index = self.names.keep(name, 1).map_err(|_| Truncation::Busy)?;
            out.push(u64::from(index) << 32 | u64::from(line))?;
            if self.behaviour == Behaviour::Endless {
                continue;
            }
            frame = guest.read_u32(frame.into())?;
        }
        Ok(())
    }
}

impl Program for ToyProgram {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(ToyWalker(self.clone())))
    }

    fn wanted_globals(&self) -> &[u32] {
        std::slice::from_ref(&self.frame_top)
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        if let FrameKey::Own(key) = frame {
            out.push(SourceFrame {
                function: self.names.get((key >> 32) as u32).unwrap().clone(),
                file: Some("toy.txt".into()),
                line: Some(key as u32),
                ..SourceFrame::default()
            });
        }
    }

    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        out.push(Label { name: "answer".into(), value: key.to_string() });
    }
}

struct ToyWalker(ToyProgram);

impl Walker for ToyWalker {
    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let Self(toy) = self;
        assert!(toy.behaviour != Behaviour::Panics, "a plugin's bug");
        out.set_labels(7);
        // The work itself is native code below the frame that called it.
        if wasm.first().is_some_and(|leaf| leaf.function == toy.evaluate) {
            out.push_wasm(0)?;
        }
        toy.read_frames(guest, out)
    }
}

/// Samples enough to tell what is so from what is not.
const SAMPLES: u64 = 1000;

fn profile(guest: &str, behaviour: Behaviour) -> Recording {
    profile_until(SAMPLES, |times| profile_once(guest, behaviour, times))
}

fn profile_once(guest: &str, behaviour: Behaviour, times: u64) -> Recording {
    let guest = Guest::load(&fixture(guest), &LoadOptions::default()).unwrap();
    let image = guest.code.images[0].clone();
    let toy = Toy(behaviour);
    let chosen = languages::choose(&Choice::Auto, &[&toy], &*image).unwrap();
    let options = RunOptions {
        wasi: WasiOptions { arguments: vec!["guest".into(), times.to_string()], ..WasiOptions::default() },
        invoke: None,
        sampler: Some(SamplerOptions {
            kind: SamplerKind::Signal,
            max_overhead: 1.0,
            ..SamplerOptions::at_rate(5000.0)
        }),
    };
    let run = Run::start(&guest, vec![chosen.program], options).unwrap();
    assert!(matches!(run.wait(), RunEnd::Exit(_)));
    symbolize(run.finish().unwrap(), &[image], |_| ()).unwrap()
}

/// The time of each stack, root first.
fn stacks(recording: &Recording) -> Shares<String> {
    Shares::of(recording.samples().map(|sample| {
        let mut names: Vec<String> = recording
            .lines_of(sample.stack)
            .map(|line| match (&recording.functions[line.function as usize].name, line.line) {
                (name, Some(line)) => format!("{name}:{line}"),
                (name, None) => name.clone(),
            })
            .collect();
        names.reverse();
        (names.join(" "), sample.period_ns)
    }))
}

#[test]
fn a_plugins_frames_take_the_place_of_its_interpreters() {
    let recording = profile("c-frames.wasm", Behaviour::Good);
    let stacks = stacks(&recording);
    let under = |prefix: &str| {
        let stacks_under = stacks.keys().filter(|stack| stack.starts_with(prefix));
        stacks_under.map(|stack| stacks.percent(stack)).sum::<f64>()
    };
    let all = recording.ticks.sampled;
    let (left, right) = (under("module:41 outer:31 left:11"), under("module:41 outer:32 right:21"));
    // Three to one, but for what the interpreter does between its frames: three points at most, and chance.
    println!("{all} samples, {left:.2} % {right:.2} %");
    for (found, truth) in [(left, 75.0), (right, 25.0)] {
        assert!((found - truth).abs() <= 3.0 + stacks.chance(truth), "{left} % {right} %");
    }
    assert!(stacks.keys().any(|stack| stack.starts_with("module:41 outer:31 left:11 evaluate")));
    assert_eq!(recording.label_sets, [[("answer".to_owned(), "7".to_owned())]]);
    // Before `main` and after it the toy has no stack, and in host code beside host calls it cannot be asked. Everything
    // else was read whole.
    for (reason, count) in &recording.truncated {
        let allowed =
            [LanguageTruncation::NoStack, LanguageTruncation::InHostCode].map(recording::Truncation::Language);
        assert!(allowed.contains(reason) && are_few(*count, all, 0.01), "{reason:?} {count} of {all}");
    }
}

#[test]
fn a_panicking_plugin_costs_its_frames_and_nothing_else() {
    let recording = profile("c-frames.wasm", Behaviour::Panics);
    // Samples in builtins have no moment at which the plugin could be asked.
    let reasons = [LanguageTruncation::Panicked, LanguageTruncation::InHostCode].map(recording::Truncation::Language);
    assert!(recording.truncated.iter().all(|(reason, _)| reasons.contains(reason)), "{:?}", recording.truncated);
    // Before the guest begins, the plugin may not have been there to be asked.
    let is_of_guest = |stack| recording.frames_of(stack).any(|frame| frame.origin != Origin::Host);
    let of_guest = recording.samples().filter(|sample| is_of_guest(sample.stack)).count() as u64;
    assert!(of_guest > SAMPLES / 2);
    let truncated = recording.truncated.iter().map(|(_, count)| count).sum::<u64>();
    assert!((of_guest..=recording.ticks.sampled).contains(&truncated), "{truncated} of {of_guest}");
    assert!(recording.frames.iter().all(|frame| !matches!(frame.origin, Origin::Language { .. })));
}

#[test]
fn an_endless_stack_ends_and_is_labelled() {
    let recording = profile("c-frames.wasm", Behaviour::Endless);
    assert!(recording.ticks.balanced());
    let deep = recording
        .truncated
        .iter()
        .find(|(reason, _)| *reason == recording::Truncation::Language(LanguageTruncation::TooDeep));
    assert!(deep.is_some_and(|(_, count)| *count > SAMPLES / 2), "{:?}", recording.truncated);
}

#[test]
fn a_language_that_does_not_fit_is_refused_and_the_known_ones_are_named() {
    let guest = Guest::load(&fixture("c-calls.wasm"), &LoadOptions::default()).unwrap();
    let image = &*guest.code.images[0];
    let toy = Toy(Behaviour::Good);
    let named = |name: &str| languages::choose(&name.into(), &[&toy], image).err().map(|error| error.to_string());
    assert!(named("toy").unwrap().contains("does not look like a toy program"));
    assert!(named("cobol").unwrap().contains("known: auto, native, toy"));
    assert_eq!(named("auto"), None);
    assert!(matches!(languages::choose(&Choice::Named("toy".into()), &[], image), Err(ChooseError::Unknown { .. })));
}
