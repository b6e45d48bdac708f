//! Whether walkers that a plugin makes of others for other instances keep to what they promise.

use super::Outcome;
use super::moment::Moment;
use super::subject::Subject;
use super::walking::{Walked, difference};
use std::collections::BTreeSet;
use wlprof_plugin::{FrameKey, FrameSink, Label, SinkEntry, SourceFrame, Truncation, Walker};

/// Walks in a row that may be busy: the other thread may have been interrupted with what they share.
const MOST_BUSY: u32 = 10_000;

/// What a plugin says of keys, of frames and of labels.
type Names = (Vec<Vec<SourceFrame>>, Vec<Vec<Label>>);

/// Asks fresh walkers about these moments, alone and on two threads at once.
pub(super) fn check(subject: &Subject<'_>, moments: &[Moment]) -> Outcome {
    match try_fresh(subject, moments) {
        Ok(Some(said)) => Outcome::Passed(said),
        Ok(None) => {
            let reason =
                "its walker has no `fresh`, or that gives none: the language is attached anew for each instance";
            Outcome::Skipped(reason.to_owned())
        }
        Err(error) => Outcome::Failed(error),
    }
}

fn try_fresh(subject: &Subject<'_>, moments: &[Moment]) -> Result<Option<String>, String> {
    let mut first = subject.attach(&subject.trial.image)?;
    let expected = walk_settled(&mut *first.walker, moments)?;
    first.not_failed()?;
    let keys = keys(&expected);
    let names = names(&mut *first.walker, &keys);
    let mut walkers = Vec::new();
    for _ in 0..3 {
        let walker = first.walker.fresh();
        first.not_failed()?;
        let Some(walker) = walker else { return Ok(None) };
        if walker.wanted_globals() != first.walker.wanted_globals() {
            return Err("a fresh walker wants other globals than the one that it came of".to_owned());
        }
        walkers.push(walker);
    }
    // What one has pushed, another names that has walked nothing.
    let mut unused = walkers.pop().into_iter();
    if unused.any(|mut walker| self::names(&mut *walker, &keys) != names) {
        return Err(
            "a fresh walker names frames or labels otherwise than the one that it came of: keys must mean the same"
                .into(),
        );
    }
    let walked = std::thread::scope(|scope| {
        let walk = |walker| scope.spawn(move || walk_settled(walker, moments));
        let threads: Vec<_> = walkers.iter_mut().map(|walker| walk(&mut **walker)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a walk panicked".to_owned()))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    first.not_failed()?;
    for stacks in &walked {
        if let Some((one, other)) = expected.iter().zip(stacks).find(|(one, other)| one != other) {
            return Err(format!("a walker and a fresh one at one moment: {}", difference(one, other)));
        }
    }
    // The others go on without those that are over.
    drop(walkers);
    first.not_failed()?;
    if self::names(&mut *first.walker, &keys) != names {
        return Err("once fresh walkers are destroyed, frames or labels have other names".to_owned());
    }
    first.end()?;
    Ok(Some(format!("{} moments, two of them on two threads", moments.len())))
}

/// What a walker gives at each moment once it has seen them all.
fn walk_settled(walker: &mut dyn Walker, moments: &[Moment]) -> Result<Vec<Walked>, String> {
    let mut sink = FrameSink::new();
    let mut walk = |moment: &Moment| {
        for _ in 0..MOST_BUSY {
            sink.clear();
            let outcome = walker.walk(moment, &moment.wasm, &mut sink);
            if outcome != Err(Truncation::Busy) {
                return Ok(Walked { outcome, entries: sink.entries().collect(), labels: sink.labels().to_vec() });
            }
            std::thread::yield_now();
        }
        Err(format!("{MOST_BUSY} walks in a row are busy, and no other goes on for so long"))
    };
    moments.iter().try_for_each(|moment| walk(moment).map(|_| ()))?;
    moments.iter().map(walk).collect()
}

/// Keys of frames and of labels.
fn keys(stacks: &[Walked]) -> [BTreeSet<u64>; 2] {
    let own = |entry: &SinkEntry| match *entry {
        SinkEntry::Own(key) => Some(key),
        SinkEntry::Wasm(_) | SinkEntry::Elided => None,
    };
    let frames = stacks.iter().flat_map(|walked| walked.entries.iter().filter_map(own)).collect();
    [frames, stacks.iter().flat_map(|walked| walked.labels.iter().copied()).collect()]
}

fn names(walker: &mut dyn Walker, [frames, labels]: &[BTreeSet<u64>; 2]) -> Names {
    let mut frame = |&key: &u64| {
        let mut found = Vec::new();
        walker.symbolize(FrameKey::Own(key), &mut found);
        found
    };
    let frames = frames.iter().map(&mut frame).collect();
    let mut label = |&key: &u64| {
        let mut found = Vec::new();
        walker.labels(key, &mut found);
        found
    };
    (frames, labels.iter().map(&mut label).collect())
}
