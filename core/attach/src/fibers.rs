//! Stores that wait: an asynchronous host call leaves its guest's stack on a fiber, where no thread is.
//!
//! The last words of a fiber's stack, as `src/stackswitch` of the crate wasmtime-internal-fiber 48.0.8 has them: at the top less 16 is the stack
//! pointer of the one that does not run. That is the fiber's own while it waits, and that of the thread which resumed it while it runs.

use crate::maps::Mapping;
use crate::process::Process;
use crate::reading::{FoundStack, StackReader};
use crate::samples::{Samples, Sighting, UntimedSample};
use crate::weights::Weights;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{Duration, Instant};
use wlprof_walk::{Dump, Registers};

/// Fibers that are looked at.
const MAX_FIBERS: usize = 2000;

/// Bytes of a stack by which it is known again.
const KNOWN_BY: usize = 16 << 10;

/// Numbers of fibers begin here, above those of threads.
const FIRST_NUMBER: i32 = 1 << 30;

/// How long a look may take. The next one begins with those that are left.
const LONGEST_LOOK: Duration = Duration::from_millis(10);

/// For how many times as long as a look took there is no other one.
const REST: u32 = 20;

/// How long a dump may take.
const LONGEST_DUMP: Duration = Duration::from_secs(10);

/// Below the top: the stack pointer of the one that does not run.
const LAST_SP: usize = 16;

/// Below the top: where the function that the fiber was made for returns to.
const RETURN: usize = 24;

/// The fibers of a process.
#[derive(Default)]
pub(crate) struct Fibers {
    /// Where stacks of fibers lie.
    stacks: Vec<Range<usize>>,
    /// By the tops of their stacks.
    known: BTreeMap<usize, Fiber>,
    /// Numbers that were another's.
    free: BTreeSet<i32>,
    /// Where the next look begins, and when.
    next: usize,
    due: Option<Instant>,
    hasher: RandomState,
}

struct Fiber {
    number: i32,
    weights: Weights<UntimedSample>,
    /// What was found when it was last seen to wait, by what it is known again.
    found: Option<((usize, u64), FoundStack)>,
}

impl Fibers {
    /// Finds the stacks of fibers among `mappings`: those that have been used.
    pub(crate) fn find(&mut self, process: &Process, mappings: &[Mapping]) {
        let is_code = |address: usize| {
            let after = mappings.partition_point(|mapping| mapping.range.start <= address);
            let mapping = after.checked_sub(1).map(|before| &mappings[before]);
            mapping.is_some_and(|mapping| mapping.is_executable && mapping.range.contains(&address))
        };
        let is_stack = |mapping: &&Mapping| {
            let word = |below: usize| word(process, mapping.range.end.checked_sub(below)?);
            mapping.is_readable
                && !mapping.is_executable
                && mapping.is_anonymous()
                && word(LAST_SP).is_some_and(|sp| sp != 0)
                && (!cfg!(target_arch = "x86_64") || word(RETURN).is_some_and(is_code))
        };
        self.stacks = mappings.iter().filter(is_stack).map(|mapping| mapping.range.clone()).take(MAX_FIBERS).collect();
    }

    /// Takes samples of those that wait. `time_ns` is the time since sampling began.
    pub(crate) fn look(&mut self, reader: &mut StackReader, samples: &mut Samples, time_ns: impl Fn() -> u64) {
        let began = Instant::now();
        if self.due.is_some_and(|due| began < due) {
            return;
        }
        let tops: BTreeSet<usize> = self.stacks.iter().map(|stack| stack.end).collect();
        let gone: Vec<usize> = self.known.keys().filter(|top| !tops.contains(top)).copied().collect();
        for top in gone {
            let Some(mut fiber) = self.known.remove(&top) else { continue };
            self.free.insert(fiber.number);
            // It is not known how long it has waited.
            let at_ns = fiber.weights.at_ns();
            fiber.weights.end(at_ns).into_iter().for_each(|sample| samples.add(sample));
        }
        for _ in 0..self.stacks.len() {
            if began.elapsed() > LONGEST_LOOK {
                break;
            }
            self.next = (self.next + 1) % self.stacks.len();
            let stack = &self.stacks[self.next];
            let Some(sp) = waiting(&reader.process, stack) else {
                let ran = self.known.get_mut(&stack.end).and_then(|fiber| {
                    fiber.found = None;
                    fiber.weights.next(time_ns(), None)
                });
                ran.into_iter().for_each(|sample| samples.add(sample));
                continue;
            };
            let next = FIRST_NUMBER + self.known.len() as i32 + self.free.len() as i32;
            let fiber = self.known.entry(stack.end).or_insert_with(|| Fiber {
                number: self.free.pop_first().unwrap_or(next),
                weights: Weights::since(time_ns()),
                found: None,
            });
            let mark = || {
                let mut bytes = [0; KNOWN_BY];
                let length = KNOWN_BY.min(stack.end - sp);
                reader.process.read(sp, &mut bytes[..length]).then(|| (sp, self.hasher.hash_one(bytes)))
            };
            let mark = mark();
            let known = fiber.found.take().filter(|(known, _)| Some(*known) == mark);
            let found = known.or_else(|| Some((mark?, reader.read(registers(sp), &[]))));
            // What was read while it ran again may be anything.
            fiber.found = found.filter(|_| waiting(&reader.process, stack) == Some(sp));
            let interned = fiber.found.as_ref().filter(|(_, found)| !found.words.is_empty()).and_then(|(_, found)| {
                let seen = Sighting {
                    tid: fiber.number,
                    labels: None,
                    is_blocked: true,
                    time_ns: time_ns(),
                    cpu_ns: 0,
                    cpu_delta_ns: 0,
                };
                samples.intern(&reader.code, found, seen)
            });
            samples.ticks.fired += u64::from(interned.is_some());
            samples.ticks.sampled += u64::from(interned.is_some());
            fiber.weights.next(time_ns(), interned).into_iter().for_each(|sample| samples.add(sample));
        }
        self.due = Some(began + began.elapsed() * REST);
    }

    /// Begins again: what has passed since [`Fibers::end`] nobody has seen.
    pub(crate) fn begin(&mut self, time_ns: u64) {
        self.known.values_mut().for_each(|fiber| fiber.weights = Weights::since(time_ns));
    }

    /// Adds the last sample of each.
    pub(crate) fn end(&mut self, samples: &mut Samples, time_ns: u64) {
        for fiber in self.known.values_mut() {
            fiber.weights.end(time_ns).into_iter().for_each(|sample| samples.add(sample));
        }
    }

    /// Returns what those have on their stacks that wait. What is of one without wasm is empty.
    pub(crate) fn dumps(&self, reader: &mut StackReader) -> Vec<Dump> {
        let began = Instant::now();
        let dump = |stack: &Range<usize>| {
            if began.elapsed() > LONGEST_DUMP {
                return None;
            }
            let sp = waiting(&reader.process, stack)?;
            let dump = reader.dump(registers(sp), &[], "suspended store", "waiting");
            (waiting(&reader.process, stack) == Some(sp)).then_some(dump)
        };
        self.stacks.iter().filter_map(dump).collect()
    }
}

/// The stack pointer of a fiber that waits; `None` while it runs.
fn waiting(process: &Process, stack: &Range<usize>) -> Option<usize> {
    let end = stack.end.checked_sub(LAST_SP)?;
    word(process, end).filter(|sp| (stack.start..end).contains(sp))
}

/// Those with which its stack is walked: of the host's code nothing else is needed.
fn registers(sp: usize) -> Registers {
    Registers { sp, ..Registers::default() }
}

fn word(process: &Process, address: usize) -> Option<usize> {
    let mut bytes = [0; size_of::<usize>()];
    process.read(address, &mut bytes).then(|| usize::from_le_bytes(bytes))
}
