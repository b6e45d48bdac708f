//! Checks that walkers which came from one another by [`Walker::fresh`] keep to what that promises.

use super::Frozen;
use crate::{FrameKey, FrameSink, GuestMemory, Label, SinkEntry, SourceFrame, Truncation, Walker, WasmFrame};
use std::sync::Barrier;
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
struct Walked {
    outcome: Result<(), Truncation>,
    entries: Vec<SinkEntry>,
    labels: Vec<u64>,
}

/// A stack as it is shown.
type Shown = (Vec<Vec<SourceFrame>>, Vec<Label>);

/// Checks that fresh walkers give what a walker on its own gives, whichever of them names it.
///
/// Walks two moments, of two instances of one module: first by themselves, then on two threads at once, each with one fresh walker after
/// the other. `attach` makes a walker that shares nothing with others.
///
/// # Panics
/// If the results differ, if there is no fresh walker, or if one is [busy](Truncation::Busy) over and over.
pub fn check_fresh<G>(attach: impl Fn() -> Box<dyn Walker>, moments: &[Moment<G>; 2])
where
    G: GuestMemory + Clone + Send,
{
    let alone = moments.each_ref().map(|moment| {
        let mut walker = attach();
        let walked: Vec<Walked> = (0..WALKS).map(|_| walk(&mut *walker, moment)).collect();
        let shown: Vec<Shown> = walked.iter().map(|walked| show(&mut *walker, moment, walked)).collect();
        (walked.into_iter().map(|stack| stack.outcome).collect::<Vec<_>>(), shown)
    });
    let mut first = attach();
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for number in 0..WALKERS {
        if number == WALKERS / 2 {
            // What it found then may be a hint to the others, and no more.
            walk(&mut *first, &moments[0]);
        }
        let fresh = || first.fresh().expect("a fresh walker");
        ones.push(fresh());
        others.push(fresh());
    }
    let barrier = Barrier::new(2);
    let run = |walkers: &mut Vec<Box<dyn Walker>>, moment: &Moment<G>| {
        let mut walked = Vec::new();
        for walker in walkers {
            barrier.wait();
            walked.push((0..WALKS).map(|_| not_busy(&mut **walker, moment)).collect::<Vec<_>>());
        }
        walked
    };
    let [one, other] = moments.clone();
    let walked = std::thread::scope(|scope| {
        let run = &run;
        let threads = [(&mut ones, one), (&mut others, other)]
            .map(|(walkers, moment)| scope.spawn(move || run(walkers, &moment)));
        threads.map(|thread| thread.join().expect("the walks come back"))
    });
    // Those that have walked the one guest, or none, name what was seen of the other.
    let mut namers =
        [others.pop().expect("walkers"), ones.pop().expect("walkers"), first.fresh().expect("a fresh walker")];
    drop((ones, others));
    for (at, (ends, shown)) in alone.iter().enumerate() {
        for walks in &walked[at] {
            for (number, (walked, busy)) in walks.iter().enumerate() {
                assert!(*busy <= MOST_BUSY, "{busy} walks in a row were busy");
                assert_eq!(walked.outcome, ends[number], "walk {number} of moment {at}");
                for namer in namers.iter_mut().chain([&mut first]) {
                    assert_eq!(
                        &show(&mut **namer, &moments[at], walked),
                        &shown[number],
                        "walk {number} of moment {at}"
                    );
                }
            }
        }
    }
}

/// Checks that `count` fresh walkers take no longer than attaching once. Of some tries each the quickest counts.
///
/// # Panics
/// If they take longer, or there are none.
pub fn check_fresh_is_cheap(attach: impl Fn() -> Box<dyn Walker>, count: usize) {
    const TRIES: usize = 5;
    let quickest = |run: &dyn Fn()| {
        let tries = (0..TRIES).map(|_| {
            let began = Instant::now();
            run();
            began.elapsed()
        });
        tries.min().unwrap_or_default()
    };
    let walker = attach();
    let attached = quickest(&|| drop(attach()));
    let made = quickest(&|| (0..count).for_each(|_| drop(walker.fresh().expect("a fresh walker"))));
    assert!(made < attached, "{count} fresh walkers take {made:?}, and attaching takes {attached:?}");
}

/// A walk, and how many were busy before it.
fn not_busy(walker: &mut dyn Walker, moment: &Moment<impl GuestMemory>) -> (Walked, usize) {
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

fn walk(walker: &mut dyn Walker, moment: &Moment<impl GuestMemory>) -> Walked {
    let mut sink = FrameSink::new();
    let outcome = walker.walk(&moment.guest, &moment.wasm, &mut sink);
    Walked { outcome, entries: sink.entries().collect(), labels: sink.labels().to_vec() }
}

/// What `walker` says that a stack is.
fn show<G>(walker: &mut dyn Walker, moment: &Moment<G>, walked: &Walked) -> Shown {
    let frames = walked.entries.iter().map(|entry| {
        let mut frames = Vec::new();
        match *entry {
            SinkEntry::Own(key) => walker.symbolize(FrameKey::Own(key), &mut frames),
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
    walked.labels.iter().for_each(|&key| walker.labels(key, &mut labels));
    (frames, labels)
}
