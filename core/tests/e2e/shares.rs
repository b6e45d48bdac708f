//! Known costs must come out as known shares.

use crate::sampled::{measure_again_if_off, near, profile, profile_fast};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use wlprof::recording::{Recording, Totals};

/// Samples from which a share is taken. Its standard error is below a third of a percentage point then, and still below
/// half of one on a busy machine, where some samples stand for several ticks.
const SAMPLES: u64 = 20_000;

/// How far a share may be off, in points.
const POINTS: f64 = 1.5;

/// Shares of self time in percent, of the functions whose names begin with `prefix`, in order of their names.
fn shares(recording: &Recording, prefix: &str) -> Vec<(String, f64)> {
    let totals = Totals::of(recording);
    let mut shares: Vec<(String, f64)> = totals
        .functions
        .iter()
        .map(|total| (&recording.functions[total.function as usize].name, total.self_ns))
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, self_ns)| (name.clone(), 100.0 * self_ns as f64 / totals.all_ns as f64))
        .collect();
    shares.sort_by(|a, b| a.0.cmp(&b.0));
    shares
}

/// Profiles with so large a multiplier that there are enough samples, however fast the machine.
fn profile_enough(name: &str, sampler: &str) -> Recording {
    let mut multiplier = 2;
    loop {
        let recording = profile_fast(name, sampler, &[&multiplier.to_string()]);
        if recording.ticks.sampled >= SAMPLES {
            return recording;
        }
        multiplier *= 2;
    }
}

#[test]
fn three_to_one_is_75_to_25() {
    measure_again_if_off(|| {
        let recording = profile_enough("c-shares.wasm", "signal");
        let heavy = shares(&recording, "heavy");
        let light = shares(&recording, "light");
        println!("{} samples: {heavy:?} {light:?}", recording.ticks.sampled);
        near("heavy", heavy[0].1, 75.0, POINTS)?;
        near("light", light[0].1, 25.0, POINTS)
    });
}

#[test]
fn ten_straight_line_functions_have_a_tenth_each() {
    measure_again_if_off(|| {
        let recording = profile_enough("c-straight.wasm", "signal");
        let found = shares(&recording, "straight_");
        println!("{} samples: {found:?}", recording.ticks.sampled);
        assert_eq!(found.len(), 10);
        found.iter().try_for_each(|(name, share)| near(name, *share, 10.0, POINTS))
    });
}

/// Samples stand for the CPU time that the guest used, whole, however often it waits for the host or for a processor.
#[test]
fn samples_add_up_to_the_cpu_time() {
    let load = (0..2).map(|_| BusyThread::spinning()).collect::<Vec<_>>();
    for guest in ["c-hosty.wasm", "c-shares.wasm"] {
        let recording = profile(guest, &["--sampler", "signal", "--max-overhead", "100"], &["2"]);
        let stood_for: u64 = recording.samples().map(|sample| sample.period_ns).sum();
        let used = recording.meta.cpu_ns;
        println!("{guest}: samples for {stood_for} ns of {used} ns, {:?}", recording.ticks);
        // The last stretch, after the last tick, is nobody's.
        assert!(stood_for.abs_diff(used) < used / 20 + 5_000_000, "{guest}: {stood_for} ns of {used} ns");
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
    let (heavy, light) = (shares(&recording, "heavy"), shares(&recording, "light"));
    println!("{} samples: {heavy:?} {light:?}", recording.ticks.sampled);
    assert!(heavy[0].1 > 50.0 && light[0].1 > 10.0);
    assert_eq!(recording.meta.sampler, "epoch");
    assert!(recording.meta.notes.iter().any(|note| note.contains("epoch sampler")), "{:?}", recording.meta.notes);
}
