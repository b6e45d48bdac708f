//! Checks that the walkers of a program keep to what [`Program::walker`] promises.

use super::Frozen;
use crate::{FrameKey, FrameSink, GuestMemory, Label, Program, SinkEntry, SourceFrame, Truncation, Walker, WasmFrame};
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// The input of one walk.
#[derive(Clone, Debug)]
pub struct Moment<G = Frozen> {
    /// The guest.
    pub guest: G,
    /// The guest's wasm stack, leaf first.
    pub wasm: Vec<WasmFrame>,
}

/// Walkers that are made one after the other on each thread, and walks of each.
const WALKERS: usize = 40;
const WALKS: usize = 5;
/// Walks in a row that may find the other thread at what they share, which may have been interrupted there.
const MOST_BUSY: usize = 10_000;

/// What a walk gave.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WalkOutcome {
    outcome: Result<(), Truncation>,
    entries: Vec<SinkEntry>,
    labels: Vec<u64>,
}

/// A stack as it is shown.
type NamedStack = (Vec<Vec<SourceFrame>>, Vec<Label>);

/// Checks that the walkers of one program give what a walker of another gives by itself, and that the program names what they give.
///
/// Walks two moments, of two instances of one module: first by themselves, then on two threads at once, each with one walker after the
/// other. `attach` makes a program that shares nothing with others.
///
/// # Panics
/// If the results differ, if there are no walkers, or if one is [busy](Truncation::Busy) over and over.
pub fn check_walkers<G>(attach: impl Fn() -> Arc<dyn Program>, moments: &[Moment<G>; 2])
where
    G: GuestMemory + Clone + Send,
{
    let alone = moments.each_ref().map(|moment| {
        let program = attach();
        let mut walker = program.walker().expect("a walker");
        let walked: Vec<WalkOutcome> = (0..WALKS).map(|_| walk(&mut *walker, moment)).collect();
        let shown: Vec<NamedStack> = walked.iter().map(|walked| show(&*program, moment, walked)).collect();
        (walked.into_iter().map(|stack| stack.outcome).collect::<Vec<_>>(), shown)
    });
    let program = attach();
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for number in 0..WALKERS {
        let walker = || program.walker().expect("a walker");
        if number == WALKERS / 2 {
            // What it found may be a hint to those that come, and no more.
            walk(&mut *walker(), &moments[0]);
        }
        ones.push(walker());
        others.push(walker());
    }
    let barrier = Barrier::new(2);
    let run = |walkers: Vec<Box<dyn Walker>>, moment: &Moment<G>| {
        let mut walked = Vec::new();
        for mut walker in walkers {
            barrier.wait();
            walked.push((0..WALKS).map(|_| not_busy(&mut *walker, moment)).collect::<Vec<_>>());
        }
        walked
    };
    let [one, other] = moments.clone();
    // They are over when what they saw is named.
    let walked = std::thread::scope(|scope| {
        let run = &run;
        let threads =
            [(ones, one), (others, other)].map(|(walkers, moment)| scope.spawn(move || run(walkers, &moment)));
        threads.map(|thread| thread.join().expect("the walks come back"))
    });
    for (at, (ends, shown)) in alone.iter().enumerate() {
        for walks in &walked[at] {
            for (number, (walked, busy)) in walks.iter().enumerate() {
                assert!(*busy <= MOST_BUSY, "{busy} walks in a row were busy");
                assert_eq!(walked.outcome, ends[number], "walk {number} of moment {at}");
                assert_eq!(&show(&*program, &moments[at], walked), &shown[number], "walk {number} of moment {at}");
            }
        }
    }
}

/// Checks that making `count` walkers takes no longer than attaching once. Of some tries each the quickest counts.
///
/// # Panics
/// If they take longer, or there are none.
pub fn check_walkers_are_cheap(attach: impl Fn() -> Arc<dyn Program>, count: usize) {
    const TRIES: usize = 5;
    let quickest = |run: &dyn Fn()| {
        let tries = (0..TRIES).map(|_| {
            let began = Instant::now();
            run();
            began.elapsed()
        });
        tries.min().unwrap_or_default()
    };
    let program = attach();
    let attached = quickest(&|| drop(attach()));
    let made = quickest(&|| (0..count).for_each(|_| drop(program.walker().expect("a walker"))));
    assert!(made < attached, "{count} walkers take {made:?}, and attaching takes {attached:?}");
}

/// A walk, and how many were busy before it.
fn not_busy(walker: &mut dyn Walker, moment: &Moment<impl GuestMemory>) -> (WalkOutcome, usize) {
    let mut busy = 0;
    loop {
        let walked = walk(walker, moment);
        if walked.outcome != Err(Truncation::Busy) {
            return (walked, busy);
        }
        busy += 1;
        std::thread::yield_now();
    }
}

fn walk(walker: &mut dyn Walker, moment: &Moment<impl GuestMemory>) -> WalkOutcome {
    let mut sink = FrameSink::new();
    let outcome = walker.walk(&moment.guest, &moment.wasm, &mut sink);
    WalkOutcome { outcome, entries: sink.entries().collect(), labels: sink.labels().to_vec() }
}

/// What `program` says that a stack is.
fn show<G>(program: &dyn Program, moment: &Moment<G>, walked: &WalkOutcome) -> NamedStack {
    let frames = walked.entries.iter().map(|entry| {
        let mut frames = Vec::new();
        match *entry {
            SinkEntry::Own(key) => program.symbolize(FrameKey::Own(key), &mut frames),
            SinkEntry::Wasm(index) => {
                let WasmFrame { module, function, code_offset } = moment.wasm[index];
                let function = format!("wasm frame {index}: {module} {function} {code_offset}");
                frames.push(SourceFrame { function, ..SourceFrame::default() });
            }
            SinkEntry::Elided => {}
        }
        frames
    });
    let frames = frames.collect();
    let mut labels = Vec::new();
    walked.labels.iter().for_each(|&key| program.labels(key, &mut labels));
    (frames, labels)
}
