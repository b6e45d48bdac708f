//! Whether the walkers of one program, for several instances, keep to what they promise.

use super::moment::Moment;
use super::subject::Subject;
use super::walking::{WalkedStack, difference};
use std::collections::BTreeSet;
use wlprof_plugin::{FrameKey, FrameSink, Label, Program, SinkEntry, SourceFrame, Truncation, Walker};

/// Walks in a row that may be busy: the other thread may have been interrupted with what they share.
const MOST_BUSY: u32 = 10_000;

/// What a plugin says of keys, of frames and of labels.
type Names = (Vec<Vec<SourceFrame>>, Vec<Vec<Label>>);

/// Asks walkers of one program about these moments: one by itself, and two at once on two threads, while the program is asked for names.
pub(super) fn check(subject: &Subject<'_>, moments: &[Moment]) -> Result<String, String> {
    let mut first = subject.attach(&subject.trial.image)?.walking()?;
    let expected = walk_settled(&mut *first.walker, moments)?;
    first.not_failed()?;
    let keys = keys(&expected);
    let program = first.attached.program.clone();
    let names = names(&*program, &keys);
    let mut walkers = Vec::new();
    for _ in 0..2 {
        let walker = program.walker();
        first.not_failed()?;
        walkers.push(walker.ok_or("its program makes one walker and no others")?);
    }
    let walked = std::thread::scope(|scope| {
        let walk = |walker| scope.spawn(move || walk_settled(walker, moments));
        let threads: Vec<_> = walkers.iter_mut().map(|walker| walk(&mut **walker)).collect();
        let meanwhile = self::names(&*program, &keys);
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a walk panicked".to_owned()))
        };
        let walked = threads.into_iter().map(join).collect::<Result<Vec<_>, String>>()?;
        if meanwhile == names {
            Ok(walked)
        } else {
            Err("while walkers walk, frames or labels have other names".to_owned())
        }
    })?;
    first.not_failed()?;
    for stacks in &walked {
        if let Some((one, other)) = expected.iter().zip(stacks).find(|(one, other)| one != other) {
            return Err(format!("two walkers of one program at one moment: {}", difference(one, other)));
        }
    }
    // The program goes on without those that are over.
    drop(walkers);
    first.attached.plugin.end_walkers();
    first.not_failed()?;
    if self::names(&*program, &keys) != names {
        return Err("once walkers are destroyed, frames or labels have other names".to_owned());
    }
    drop(program);
    first.end()?;
    Ok(format!("{} moments, two of them on two threads", moments.len()))
}

/// What a walker gives at each moment once it has seen them all.
fn walk_settled(walker: &mut dyn Walker, moments: &[Moment]) -> Result<Vec<WalkedStack>, String> {
    let mut sink = FrameSink::new();
    let mut walk = |moment: &Moment| {
        for _ in 0..MOST_BUSY {
            sink.clear();
            let outcome = walker.walk(moment, &moment.wasm, &mut sink);
            if outcome != Err(Truncation::Busy) {
                return Ok(WalkedStack { outcome, entries: sink.entries().collect(), labels: sink.labels().to_vec() });
            }
            std::thread::yield_now();
        }
        Err(format!("{MOST_BUSY} walks in a row are busy, and no other goes on for so long"))
    };
    moments.iter().try_for_each(|moment| walk(moment).map(|_| ()))?;
    moments.iter().map(walk).collect()
}

/// Keys of frames and of labels.
fn keys(stacks: &[WalkedStack]) -> [BTreeSet<u64>; 2] {
    let own = |entry: &SinkEntry| match *entry {
        SinkEntry::Own(key) => Some(key),
        SinkEntry::Wasm(_) | SinkEntry::Elided => None,
    };
    let frames = stacks.iter().flat_map(|walked| walked.entries.iter().filter_map(own)).collect();
    [frames, stacks.iter().flat_map(|walked| walked.labels.iter().copied()).collect()]
}

fn names(program: &dyn Program, [frames, labels]: &[BTreeSet<u64>; 2]) -> Names {
    let frame = |&key: &u64| {
        let mut found = Vec::new();
        program.symbolize(FrameKey::Own(key), &mut found);
        found
    };
    let frames = frames.iter().map(frame).collect();
    let label = |&key: &u64| {
        let mut found = Vec::new();
        program.labels(key, &mut found);
        found
    };
    (frames, labels.iter().map(label).collect())
}
