//! Known costs must come out as known shares.

use crate::sampled::{Shares, innermost_functions, profile, profile_fast, profile_until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use wlprof::recording::Recording;

/// Samples from which a share is taken, at least. Chance takes three quarters by about two points then.
const SAMPLES: u64 = 10_000;

/// How far a share may be off by itself, in points: equal work takes a little more time or less by where its code lies.
const POINTS: f64 = 0.5;

/// Profiles with so large a multiplier that there are enough samples, however fast the machine.
fn profile_enough(name: &str, sampler: &str) -> Recording {
    profile_until(SAMPLES, |times| profile_fast(name, sampler, &[&(2 * times).to_string()]))
}

#[test]
fn three_to_one_is_75_to_25() {
    let recording = profile_enough("c-shares.wasm", "signal");
    let shares = Shares::of(innermost_functions(&recording));
    shares.near("heavy", 75.0, POINTS).unwrap();
    shares.near("light", 25.0, POINTS).unwrap();
}

#[test]
fn ten_straight_line_functions_have_a_tenth_each() {
    let recording = profile_enough("c-straight.wasm", "signal");
    let shares = Shares::of(innermost_functions(&recording));
    let names: Vec<&str> = shares.keys().copied().filter(|name| name.starts_with("straight_")).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    for name in names {
        shares.near(name, 10.0, POINTS).unwrap();
    }
}

/// Between samples at first.
const PERIOD_NS: u64 = 1_000_000;

/// Samples stand for the CPU time that the guest used, however often it waits for the host or for a processor, but for what they
/// took themselves and what is told.
#[test]
fn samples_add_up_to_the_cpu_time() {
    let load = (0..2).map(|_| BusyThread::spinning()).collect::<Vec<_>>();
    for guest in ["c-hosty.wasm", "c-shares.wasm"] {
        let recording = profile(guest, &["--sampler", "signal", "--max-overhead", "100"], &["2"]);
        let stood_for: u64 = recording.samples().map(|sample| sample.period_ns).sum();
        let used = recording.meta.cpu_ns;
        println!("{guest}: samples for {stood_for} ns of {used} ns, {:?}", recording.ticks);
        assert_eq!(recording.ticks.ring_full, 0, "{guest}: samples were dropped");
        let told = recording.meta.sampling_ns + recording.meta.unsampled_ns;
        assert!((stood_for + told).abs_diff(used) <= PERIOD_NS, "{guest}: {stood_for} + {told} ns of {used} ns");
    }
    drop(load);
}

/// A thread that keeps a processor busy until it is dropped.
struct BusyThread(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl BusyThread {
    fn spinning() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || while !stopped.load(Ordering::Relaxed) {});
        Self(stop, Some(thread))
    }
}

impl Drop for BusyThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// The epoch sampler has its place, but not its rival's accuracy: it sees the functions, without loops of their own,
/// only when they are entered.
#[test]
fn the_epoch_sampler_finds_the_same_functions() {
    let recording = profile_enough("c-shares.wasm", "epoch");
    let shares = Shares::of(innermost_functions(&recording));
    let (heavy, light) = (shares.percent("heavy"), shares.percent("light"));
    println!("{} samples: {heavy:.1} % {light:.1} %", recording.ticks.sampled);
    assert!(heavy > 50.0 && light > 10.0);
    assert_eq!(recording.meta.sampler, "epoch");
    assert!(recording.meta.notes.iter().any(|note| note.contains("epoch sampler")), "{:?}", recording.meta.notes);
}
