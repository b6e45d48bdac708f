//! Whether what a plugin says of its guest's heap can be used: allocators that a module can be rewritten by, patches for what is there,
//! and a heap profile that is read whatever memory says.

use super::Outcome;
use super::damage;
use super::moment::Moment;
use super::subject::Subject;
use super::walking::TrialWalker;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use wlprof::heap::{Allocator, Call, NotRewritten, not_expected, rewrite};
use wlprof_module::ModuleImage;
use wlprof_plugin::{FrameKey, GuestMemory, HeapBucket, MemoryPatch, ModuleView, Program, Truncation};

/// Bytes between two samples that the runtime is asked for.
const RATE: u64 = 512 << 10;
/// How long damaged memory is read.
const DAMAGED_FOR: Duration = Duration::from_secs(3);
/// Frames of one profile that are named.
const MOST_NAMED: usize = 64;

/// Asks a new program about the module's heap, and about that of the guest at these moments.
pub(super) fn check(subject: &Subject<'_>, moments: &[Moment]) -> Outcome {
    match try_heap(subject, moments) {
        Ok(Some(said)) => Outcome::Passed(said),
        Ok(None) => {
            let reason = "it says nothing of heaps: --memory is told by C's allocator, if it has that";
            Outcome::Skipped(reason.to_owned())
        }
        Err(error) => Outcome::Failed(error),
    }
}

/// Asks a program what it says of the heap of its module, whatever comes of it.
pub(super) fn ask(program: &dyn Program, image: &ModuleImage) {
    program.allocators(image, &mut Vec::new());
    program.switch_heap_profiler_on(RATE);
}

fn try_heap(subject: &Subject<'_>, moments: &[Moment]) -> Result<Option<String>, String> {
    let image = &*subject.trial.image;
    let attached = subject.attach(image)?;
    let patches = attached.program.switch_heap_profiler_on(RATE);
    attached.not_failed()?;
    let again = attached.program.switch_heap_profiler_on(RATE);
    attached.not_failed()?;
    if again != patches {
        return Err(
            "switch_heap_profiler_on gives other patches when it is asked again: it is, for each instance".into()
        );
    }
    let allocators = attached.program.allocators(image, &mut Vec::new());
    attached.not_failed()?;
    let mut said = Vec::new();
    if !allocators.is_empty() {
        said.push(can_be_rewritten(image, &allocators)?);
    }
    if !patches.is_empty() {
        patches.iter().try_for_each(|patch| is_expected(image, patch))?;
        said.push(format!("patches: {}", patches.len()));
        if !moments.is_empty() {
            let mut walking = attached.walking()?;
            said.push(is_read(&mut walking, moments)?);
            walking.end()?;
            return Ok(Some(said.join("; ")));
        }
    }
    attached.end()?;
    Ok(Some(said.join("; ")).filter(|said| !said.is_empty()))
}

/// Whether the module can be rewritten so that these tell of their calls.
fn can_be_rewritten(image: &ModuleImage, allocators: &[Allocator]) -> Result<String, String> {
    if allocators.iter().all(|allocator| allocator.call == Call::Free) {
        return Err("allocators gives none that allocates: C's are taken then, and these are not".to_owned());
    }
    let count = format!("allocators: {}", allocators.len());
    match rewrite(image.bytes(), allocators) {
        Ok(_) => Ok(count),
        // This is the guest's, and not the plugin's to mend.
        Err(reason @ (NotRewritten::Memory(_) | NotRewritten::Name(_) | NotRewritten::Malformed(_))) => {
            Ok(format!("{count}, of a guest that is left as it is: {reason}"))
        }
        Err(reason) => Err(format!("with what allocators gives, the module cannot be rewritten: {reason}")),
    }
}

/// Whether a patch is for what the module begins with.
fn is_expected(image: &ModuleImage, patch: &MemoryPatch) -> Result<(), String> {
    let mut begins = vec![0; patch.bytes.len()];
    let begins = image.initial_data(patch.address, &mut begins).is_ok().then_some(begins);
    let found = begins.as_deref();
    if found.is_some_and(|found| patch.expected.iter().any(|expected| expected == found)) {
        return Ok(());
    }
    let advice = "an expected value has the length of `bytes` and is what initial_data gives";
    Err(format!("before the guest runs, {}; {advice}", not_expected(patch, found)))
}

/// Whether the heap profile can be read at any moment, and is not misled where memory is damaged.
fn is_read(walking: &mut TrialWalker, moments: &[Moment]) -> Result<String, String> {
    let (began, mut whole, mut damaged) = (Instant::now(), 0, 0);
    let mut last = None;
    for (number, moment) in moments.iter().enumerate() {
        let mut outcome = Ok(Ok(()));
        let addresses = damage::addresses_read(moment, |memory| outcome = read(walking, memory));
        match outcome.map_err(|error| format!("moment {number}: {error}"))? {
            Ok(()) => whole += 1,
            Err(reason) => last = Some(reason),
        }
        for (round, memory) in damage::memories(moment, addresses) {
            if began.elapsed() > DAMAGED_FOR {
                break;
            }
            let outcome = read(walking, &memory);
            // It may end anyhow, but for failing.
            let _ = outcome.map_err(|error| format!("damage {round} of moment {number}: {error}"))?;
            damaged += 1;
        }
    }
    match last {
        Some(reason) if whole == 0 => {
            Err(format!("heap_profile can be read at no moment, at the last one because {reason}"))
        }
        _ => Ok(format!("a heap profile at {whole} of {} moments, and of {damaged} damaged memories", moments.len())),
    }
}

/// Reads the heap profile and names some of its frames; how that ended, and a sentence if it was the plugin's failure.
fn read(walking: &mut TrialWalker, memory: &dyn GuestMemory) -> Result<Result<(), Truncation>, String> {
    let mut buckets: Vec<HeapBucket> = Vec::new();
    let ended = walking.walker.heap_profile(memory, &mut buckets);
    walking.not_failed()?;
    if ended == Err(Truncation::Failed) {
        return Err("heap_profile failed (in Rust: by a panic)".to_owned());
    }
    let frames: BTreeSet<u64> =
        buckets.iter().flat_map(|bucket| &bucket.frames).filter_map(own).take(MOST_NAMED).collect();
    frames.into_iter().for_each(|key| walking.attached.program.symbolize(FrameKey::Own(key), &mut Vec::new()));
    walking.not_failed()?;
    Ok(ended.map(drop))
}

fn own(frame: &FrameKey) -> Option<u64> {
    match frame {
        FrameKey::Own(key) => Some(*key),
        FrameKey::Wasm(_) | FrameKey::Elided => None,
    }
}
