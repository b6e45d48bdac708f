//! What samples stand for on a machine that does a lot else, in scheduling groups of their own as containers are: the same as on
//! a quiet one.

use crate::sampled::{Shares, profile};
use std::process::{Child, Command, Stdio};
use wlprof::recording::{Recording, Sample, StackId, State};

const RATE_HZ: u64 = 250;
/// Samples in a second of the guest's CPU time, at least.
const ENOUGH_HZ: f64 = 240.0;
/// The most that one sample may stand for.
const MAX_PERIODS: u64 = 5;
/// How far a share may be off beyond chance, in points.
const POINTS: f64 = 0.5;

/// A process that does nothing, as fast as it can.
struct BusyProcess(Child);

impl BusyProcess {
    fn start() -> Self {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", "while :; do :; done"]).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap_or_else(|error| panic!("setsid (of util-linux): {error}")))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        // It is there until it is waited for.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The innermost functions of samples and the time that they stand for. Samples of one stack that follow each other are put
/// together: those of one wait for a processor are no independent looks.
fn independent(recording: &Recording) -> Vec<(&str, u64)> {
    let mut stacks: Vec<(StackId, u64)> = Vec::new();
    for sample in recording.samples() {
        match stacks.last_mut() {
            Some((last, sum)) if *last == sample.stack => *sum += sample.period_ns,
            _ => stacks.push((sample.stack, sample.period_ns)),
        }
    }
    let name = |stack| recording.lines_of(stack).next().map(|line| &*recording.functions[line.function as usize].name);
    stacks.into_iter().map(|(stack, time)| (name(stack).unwrap_or_default(), time)).collect()
}

/// Time in seconds that a virtual machine was given no processor, though its own clocks went on: nothing can be sampled then.
fn stolen() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: f64 = stat.lines().next().unwrap().split_ascii_whitespace().nth(8).unwrap().parse().unwrap();
    // In this file they are hundredths of a second on every machine.
    ticks / 100.0
}

#[test]
fn a_busy_machine_takes_no_samples_away() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let busy: Vec<BusyProcess> = (0..2 * processors).map(|_| BusyProcess::start()).collect();
    for clock in ["cpu", "wall"] {
        let options = [format!("--clock={clock}"), format!("--rate={RATE_HZ}"), "--sampler=signal".to_owned()];
        let stolen_before = stolen();
        let recording = profile("c-shares.wasm", &options.each_ref().map(String::as_str), &["4"]);
        let about = format!("{clock}: {:?}", recording.meta);
        // A signal whose sample stands for long is several samples, of which the first has the CPU time. With the wall clock the
        // others are its wait for a processor, and count.
        let is_signal =
            |sample: &Sample| sample.state != State::Blocked && (clock == "wall" || sample.cpu_delta_ns > 0);
        let running = recording.samples().filter(is_signal).count() as f64;
        let stolen = stolen() - stolen_before;
        let used = (recording.meta.cpu_ns - recording.meta.sampling_ns) as f64 / 1e9 - stolen;
        assert!(running >= used * ENOUGH_HZ, "{:.1} Hz, {stolen} s stolen, {about}", running / used);
        let heaviest = recording.samples().map(|sample| sample.period_ns).max().unwrap();
        assert!(heaviest <= MAX_PERIODS * 1_000_000_000 / RATE_HZ, "{heaviest} ns, {about}");
        let whole = if clock == "cpu" { recording.meta.cpu_ns } else { recording.meta.duration_ns };
        let unsampled = recording.meta.unsampled_ns as f64 / 1e9;
        assert!(unsampled <= stolen + whole as f64 / 1e9 / 50.0, "{stolen} s stolen, {about}");
        let shares = Shares::of(independent(&recording));
        let (heavy, chance) = (shares.percent("heavy"), shares.chance(75.0));
        println!("{clock}: {:.1} Hz, heavy {heavy:.2} % ± {chance:.2} %", running / used);
        assert!((heavy - 75.0).abs() <= POINTS + chance, "{heavy} ± {chance}, {about}");
    }
    drop(busy);
}
