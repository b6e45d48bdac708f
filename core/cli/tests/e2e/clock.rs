//! What samples stand for on a machine that does a lot else, some of it in scheduling groups of its own as containers are: the
//! same as on a quiet one.

use crate::sampled::{Luck, Shares, fixture, measure_again_if_off, profile};
use crate::tested::wlprof;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use wlprof::recording::{Meta, Recording, Sample, StackId, State, file};

/// The luck of measurements for clocks on a busy machine.
const LUCK: Luck = Luck {
    why: "a virtual machine's host may take the processor away, which counts as the guest's own time",
    off: 0,
    of: 4,
};

const RATE_HZ: u64 = 250;
const PERIOD_NS: u64 = 1_000_000_000 / RATE_HZ;
/// Samples in a second of the guest's CPU time, at least.
const ENOUGH_HZ: f64 = 240.0;
/// The most that one sample may stand for.
const MAX_PERIODS: u64 = 5;
/// The most that may be told as not sampled.
const MAX_UNSAMPLED: f64 = 0.02;
/// How far a share may be off beyond chance, in points: two loops of one shape take unequal time by where their code lies.
const POINTS: f64 = 0.5;
/// Busy processes for each processor, in the guest's own scheduling group and in groups of their own.
const BUSY: (usize, usize) = (3, 2);
const CLOCKS: [&str; 2] = ["cpu", "wall"];

/// Read by tests with a load, written by the one that is about what a guest has to pay without.
static LOADED: RwLock<()> = RwLock::new(());

/// Processes that do nothing, as fast as they can.
struct Load(Vec<Child>);

impl Load {
    /// The load that all tests of this file share while one of them needs it: two of them would be another load than what they
    /// are about.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Load>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap();
        shared.upgrade().unwrap_or_else(|| {
            let load = Arc::new(Self::start());
            *shared = Arc::downgrade(&load);
            load
        })
    }

    fn start() -> Self {
        let processors = std::thread::available_parallelism().unwrap().get();
        // With a limit, so that they end though this may be killed.
        let spin = ["sh", "-c", "ulimit -t 600; while :; do :; done"];
        // What this process starts is in its scheduling group; the kernel gives each session one of its own.
        let own = std::iter::repeat_n(&spin[..], BUSY.0 * processors);
        let with_session = ["setsid"].iter().chain(&spin).copied().collect::<Vec<_>>();
        let others = std::iter::repeat_n(&with_session[..], BUSY.1 * processors);
        let start = |command: &[&str]| {
            let child = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            child.unwrap_or_else(|error| panic!("{} (setsid is of util-linux): {error}", command[0]))
        };
        Self(own.chain(others).map(start).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It is there until it is waited for.
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Options of these tests, without a limit of what sampling may take: how much a sample takes is the machine's affair, and that a
/// limit lowers the rate is another test's.
fn options(clock: &str) -> [String; 4] {
    [
        format!("--clock={clock}"),
        format!("--rate={RATE_HZ}"),
        "--sampler=signal".to_owned(),
        "--max-overhead=100".to_owned(),
    ]
}

/// Whether there are samples enough, none weighs too much, and little time is told as not sampled: of `whole_ns`, beside which there may be
/// `beside_ns` in which the guest waited.
fn well_sampled(recording: &Recording, clock: &str, whole_ns: u64, beside_ns: u64) -> Result<(), String> {
    let about = format!("{clock}: {:?} {:?}", recording.meta, recording.ticks);
    // A signal whose sample stands for long is several samples, of which the first has the CPU time.
    let is_signal = |sample: &Sample| sample.state != State::Blocked && sample.cpu_delta_ns > 0;
    let signals = recording.samples().filter(is_signal).count() as f64;
    let used = (recording.meta.cpu_ns - recording.meta.sampling_ns) as f64 / 1e9;
    println!("{clock}: {:.1} Hz of {used:.2} s", signals / used);
    let heaviest = recording.samples().map(|sample| sample.period_ns).max().unwrap();
    let unsampled_ns = recording.meta.unsampled_ns;
    println!("{clock}: {unsampled_ns} ns not sampled of {whole_ns} ns and {beside_ns} ns");
    let holds = [
        ("samples enough", signals >= used * ENOUGH_HZ),
        ("no sample weighs too much", heaviest <= MAX_PERIODS * PERIOD_NS),
        ("little is not sampled", unsampled_ns <= most_unsampled_ns(whole_ns) + beside_ns),
    ];
    match holds.iter().find(|(_, holds)| !holds) {
        Some((what, _)) => Err(format!("not so: {what}: heaviest {heaviest} ns, {about}")),
        None => Ok(()),
    }
}

fn most_unsampled_ns(whole_ns: u64) -> u64 {
    (whole_ns as f64 * MAX_UNSAMPLED) as u64
}

/// The innermost functions that signals found, and the time that each stands for. Samples of one signal are put together: they
/// are no independent looks.
fn signals(recording: &Recording) -> Vec<(&str, u64)> {
    let mut signals: Vec<(&str, u64)> = Vec::new();
    for sample in recording.samples() {
        match signals.last_mut() {
            Some((_, sum)) if sample.cpu_delta_ns == 0 => *sum += sample.period_ns,
            _ => signals.push((innermost(recording, sample.stack), sample.period_ns)),
        }
    }
    signals
}

fn innermost(recording: &Recording, stack: StackId) -> &str {
    let line = recording.lines_of(stack).next();
    line.map(|line| &*recording.functions[line.function as usize].name).unwrap_or_default()
}

#[test]
fn a_busy_machine_takes_no_samples_of_cpu_time_away() {
    assert_busy_machine_takes_no_samples_away("cpu");
}

#[test]
fn a_busy_machine_takes_no_samples_of_wall_time_away() {
    assert_busy_machine_takes_no_samples_away("wall");
}

fn assert_busy_machine_takes_no_samples_away(clock: &str) {
    let _loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    let load = Load::shared();
    // The host of a virtual machine may take its processor away, which counts as the guest's own time.
    measure_again_if_off(LUCK, || {
        let recording = profile("c-shares.wasm", &options(clock).each_ref().map(String::as_str), &["4"]);
        let Meta { cpu_ns, duration_ns, .. } = recording.meta;
        well_sampled(&recording, clock, if clock == "cpu" { cpu_ns } else { duration_ns }, 0)?;
        let shares = Shares::of(signals(&recording));
        // Five standard deviations.
        let (heavy, chance) = (shares.percent("heavy"), shares.chance(75.0));
        let said = format!("{clock}: heavy {heavy:.2} % ± {chance:.2} %");
        println!("{said}");
        if (heavy - 75.0).abs() <= POINTS + chance { Ok(()) } else { Err(said) }
    });
    drop(load);
}

/// A run of the guest that does one thing for long, then another.
struct Phases {
    recording: Recording,
    /// CPU time of its thread in each of the two, from outside.
    cpu_ns: [u64; 2],
    /// CPU time of the process's other threads in both.
    others_ns: u64,
    /// Time that went by in each, by its own clock.
    wall_ns: [u64; 2],
}

impl Phases {
    /// How often the guest waits for its input.
    const WAITS: u64 = 3;

    fn run(options: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wlprof");
        let mut command = wlprof();
        command.args(options).arg("-o").arg(&path).arg(fixture("c-phases.wasm"));
        let mut wlprof = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut to_guest = wlprof.stdin.take().unwrap();
        let mut said = BufReader::new(wlprof.stdout.take().unwrap()).lines();
        let marks = [(); Self::WAITS as usize].map(|()| {
            let took_ns = said.next().unwrap().unwrap().parse::<u64>().unwrap();
            let (cpu_ns, others_ns) = cpu_ns_where_it_waits(wlprof.id());
            to_guest.write_all(b"\n").unwrap();
            (cpu_ns, took_ns, others_ns)
        });
        let ran = wlprof.wait_with_output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let recording = file::read(&std::fs::read(&path).unwrap()).unwrap();
        assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
        Self {
            recording,
            cpu_ns: [marks[1].0 - marks[0].0, marks[2].0 - marks[1].0],
            wall_ns: [marks[1].1, marks[2].1],
            others_ns: marks[2].2 - marks[0].2,
        }
    }
}

/// CPU time of the guest's thread of a process and of all others, as soon as the guest waits for its input.
fn cpu_ns_where_it_waits(process: u32) -> (u64, u64) {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let threads: Vec<PathBuf> = threads.map(|thread| thread.unwrap().path()).collect();
    let read = |thread: &Path, file: &str| std::fs::read_to_string(thread.join(file)).unwrap();
    let cpu_ns = |thread: &Path| read(thread, "schedstat").split(' ').next().unwrap().parse::<u64>().unwrap();
    let (guest, others): (Vec<_>, Vec<_>) = threads.iter().partition(|thread| read(thread, "comm") == "guest\n");
    while !read(guest[0], "status").lines().any(|line| line.starts_with("State:\tS")) {
        std::thread::yield_now();
    }
    (cpu_ns(guest[0]), others.into_iter().map(|thread| cpu_ns(thread)).sum())
}

/// The longest time from one signal's sample to the next.
fn longest_step_ns(recording: &Recording) -> u64 {
    let times: Vec<u64> =
        recording.samples().filter(|sample| sample.cpu_delta_ns > 0).map(|sample| sample.time_ns).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[test]
fn long_phases_keep_their_time_on_a_busy_machine() {
    let _loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
    let load = Load::shared();
    // As above: a processor that was taken away is more than a sample may stand for.
    CLOCKS.into_iter().for_each(|clock| measure_again_if_off(LUCK, || keeps_phases(clock)));
    drop(load);
}

/// Whether both phases have the time that they took, and no sample is on the wrong side of where they meet.
fn keeps_phases(clock: &str) -> Result<(), String> {
    let Phases { recording, cpu_ns, wall_ns, .. } = Phases::run(&options(clock));
    // On wall time what is between the phases is the guest's waiting, which another thread sees as soon as it is given a
    // processor: on this machine perhaps too late.
    let (whole_ns, beside_ns) = match clock {
        "cpu" => (recording.meta.cpu_ns, 0),
        _ => (wall_ns[0] + wall_ns[1], recording.meta.duration_ns.saturating_sub(wall_ns[0] + wall_ns[1])),
    };
    well_sampled(&recording, clock, whole_ns, beside_ns)?;
    let phase = |sample: &Sample| match innermost(&recording, sample.stack) {
        "first" => Some(0),
        "second" => Some(1),
        _ => None,
    };
    let phases: Vec<usize> = recording.samples().filter_map(|sample| phase(&sample)).collect();
    assert!(phases.is_sorted(), "{clock}: the two are mixed: {phases:?}");
    // No chance in that: a sample stands for the time since the one before, so that of a phase no more may be on the wrong side
    // of its two ends than goes by from one sample to the next, and what is told as not sampled or taken by sampling.
    let told_ns = recording.meta.sampling_ns + recording.meta.unsampled_ns.min(most_unsampled_ns(whole_ns));
    let (truth_ns, step_ns) = match clock {
        "cpu" => (cpu_ns, MAX_PERIODS * PERIOD_NS),
        _ => (wall_ns, longest_step_ns(&recording)),
    };
    for (index, name) in ["first", "second"].into_iter().enumerate() {
        let samples = recording.samples().filter(|sample| phase(sample) == Some(index));
        let found_ns: u64 = samples.map(|sample| sample.period_ns).sum();
        let about = format!("{clock}: {name} {found_ns} ns of {} ns, {step_ns} {told_ns}", truth_ns[index]);
        println!("{about}");
        if found_ns > truth_ns[index] + step_ns || found_ns + 2 * step_ns + told_ns < truth_ns[index] {
            return Err(about);
        }
    }
    Ok(())
}

/// What sampling may take beyond its share, in nanoseconds: what the governor gives in advance, for first walks, and what is
/// spent before it looks again.
const GIVEN_NS: f64 = 20e6 + 5e6;

/// All that the process does beside the guest is within what the user allows: handlers and what they interrupt, and the threads
/// that record.
#[test]
fn max_overhead_bounds_what_the_whole_process_takes() {
    const PERCENT: f64 = 1.0;
    let _without_load = LOADED.write().unwrap_or_else(PoisonError::into_inner);
    let options = ["--sampler=signal".to_owned(), "--rate=10000".to_owned(), format!("--max-overhead={PERCENT}")];
    let luck = Luck { why: "other programs make a tick dearer between two looks at what it costs", off: 7, of: 12 };
    measure_again_if_off(luck, || {
        let Phases { recording, cpu_ns, others_ns, .. } = Phases::run(&options);
        let meta = &recording.meta;
        let interrupts_ns = recording.ticks.fired * meta.pause.tick_ns;
        let whole_ns = (others_ns + meta.sampling_ns + interrupts_ns) as f64;
        let guest_ns = (cpu_ns[0] + cpu_ns[1]) as f64;
        let about = format!("{whole_ns} ns of {guest_ns} ns: others {others_ns}, interrupts {interrupts_ns}, {meta:?}");
        println!("{about}");
        // A tenth of what would be spent at the rate that was asked for is more than that.
        assert!(meta.allowed_hz < 5000.0, "{about}");
        assert!(meta.notes.iter().any(|note| note.contains("the rate was lowered")), "{about}");
        if whole_ns <= PERCENT / 100.0 * guest_ns + GIVEN_NS { Ok(()) } else { Err(about) }
    });
}
