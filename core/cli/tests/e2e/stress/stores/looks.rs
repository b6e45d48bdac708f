//! Whoever pauses, looks and opens windows meanwhile, and checks that what is seen of a store can be that store's.

use super::WASM_ENDING;
use super::requests::{Act, Guest, Requests, tenant};
use crate::stress::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wlprof::Profiler;
use wlprof::recording::{Frame, Origin, Recording, Thread};

/// Whether all that a recording has of a store can be that store's. Gives how many samples show the lines of a script.
pub(super) fn check(recording: &Recording, requests: &Requests) -> usize {
    let requests = requests.lock().unwrap();
    let mut scripted = 0;
    for thread in &recording.threads {
        let store = &recording.stores[thread.store as usize];
        let request = requests.get(&store.name).unwrap_or_else(|| panic!("no store is called {:?}", store.name));
        let tenant = ("tenant".to_owned(), tenant(&store.name).to_owned());
        assert_eq!(store.labels, std::slice::from_ref(&tenant));
        for sample in thread.samples.iter() {
            assert!(recording.label_sets[sample.labels.unwrap() as usize].contains(&tenant));
            let frames = || recording.frames_of(sample.stack);
            let lines = recording.lines_of(sample.stack);
            let names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
            let about = || format!("{} {:?} {:?}: {names:?}, {sample:?}", store.name, request.guest, request.act);
            let is_own = |frame: &Frame| match frame.origin {
                Origin::Wasm { module, .. } | Origin::Language { module, .. } | Origin::HostCall { module, .. } => {
                    recording.modules[module as usize].name == request.guest.name()
                }
                Origin::Native { .. } | Origin::Host | Origin::Truncated | Origin::Elided | Origin::Adapter => true,
            };
            assert!(frames().all(is_own), "{}", about());
            scripted += usize::from(frames().any(|frame| matches!(frame.origin, Origin::Language { .. })));
            // Of a stack that a panic is taking down there may be little left, and of one whose module has gone.
            let may_be_cut = matches!(request.act, Act::Panic) || request.guest.goes_early();
            if may_be_cut && names.ends_with(&["[truncated]"]) {
                continue;
            }
            let of_wasm = names.iter().filter(|name| **name != "h.f" && **name != "[host]");
            let Guest::Wasm { number, .. } = request.guest else { continue };
            let ending = format!("{WASM_ENDING}{number}");
            assert!(of_wasm.clone().all(|name| name.ends_with(&ending)), "{}", about());
            let backtraces = request.backtraces.lock().unwrap();
            // It may not have come to say what they are.
            if names[0] == "h.f" && !backtraces.is_empty() {
                let callers: Vec<String> = names[1..].iter().map(|name| (*name).to_owned()).collect();
                assert!(backtraces.contains(&callers), "{}, not {backtraces:?}", about());
            }
        }
    }
    scripted
}

/// Pauses, looks and opens windows until it is told to end; gives how often it looked.
pub(super) fn meddle(profiler: Profiler, requests: &Requests, is_over: &AtomicBool, mut random: Random) -> u64 {
    let mut windows = Vec::new();
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let taken = match random.below(6) {
            0 => {
                profiler.pause();
                std::thread::yield_now();
                profiler.resume();
                continue;
            }
            1 => {
                windows.extend(profiler.window());
                continue;
            }
            2 if !windows.is_empty() => windows.swap_remove(random.below(windows.len() as u64) as usize).snapshot(),
            3 => profiler.last(Duration::from_millis(random.below(2000))),
            _ => profiler.snapshot(),
        };
        // Before the first guest there is nothing.
        let Ok(taken) = taken else { continue };
        check(taken.recording(), requests);
        let digit = random.below(10).to_string();
        let of_tenant = |recording: &Recording| {
            let of_thread = |thread: &&Thread| tenant(&recording.stores[thread.store as usize].name) == digit;
            let samples = recording.threads.iter().filter(of_thread).flat_map(|thread| thread.samples.iter());
            samples.map(|sample| sample.period_ns).sum::<u64>()
        };
        let expected = of_tenant(taken.recording());
        let own = taken.of_label("tenant", &digit);
        assert!(own.recording().stores.iter().all(|store| tenant(&store.name) == digit));
        assert_eq!(of_tenant(own.recording()), expected);
        looks += 1;
    }
    looks
}
