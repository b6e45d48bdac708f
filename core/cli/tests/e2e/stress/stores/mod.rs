//! A host of many short stores on four threads, whose requests yield, panic and are dropped in the middle of host calls, while others
//! pause, look and let go of the profiler, in random order: no sample is another store's, every stack at a host call is what Wasmtime
//! says, and nothing is left over.
//!
//! With `WLPROF_STRESS_LANGUAGES` every request runs Go or Python; otherwise one in 25 does.

mod looks;
mod requests;

use super::{Random, length};
use crate::guest::run;
use looks::{check, meddle};
use requests::{Act, Guest, Host, Request, Requests, Unloading, host_call, serve};
use std::any::Any;
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinError;
use wasmtime::{Cache, Config, Engine, Linker};
use wasmtime_wasi::p1::add_to_linker_async;
use wlprof::Profiler;

/// Set in the process that is the host: threads and open files are a process's.
const ALONE: &str = "WLPROF_TEST_STRESS";
const REQUESTS: u64 = 250;
const ROUNDS: u64 = 4;
const MAX_ROUNDS: u64 = 60;
/// Modules of wasm alone that many requests run.
const VARIANTS: u64 = 4;
/// What the names of functions in wasm alone end with, before the number of their module.
const WASM_ENDING: &str = "_of_";
/// Which of each 50 requests run a language.
const OF_GO: u64 = 7;
const OF_PYTHON: u64 = 27;
/// Of the guests' recursion.
const MAX_DEPTH: u64 = 30;
/// What a host function panics with.
const PLANNED: &str = "as planned";

/// What was seen of a round when it was over.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    samples: usize,
    stores: usize,
    /// Samples with lines of a script.
    scripted: usize,
}

impl Seen {
    fn is_enough(self) -> bool {
        self.samples > 500 && self.stores > 100 && self.scripted > 50
    }
}

/// Threads and open files of this process.
fn left_over() -> [usize; 2] {
    ["/proc/self/task", "/proc/self/fd"].map(|folder| std::fs::read_dir(folder).unwrap().count())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Many requests of one engine.
fn round(mut random: Random) -> Seen {
    let mut config = Config::new();
    config.wasm_backtrace_max_frames(NonZero::new(MAX_DEPTH as usize + 2)).cache(Some(Cache::from_file(None).unwrap()));
    wlprof::configure(&mut config);
    let engine = Engine::new(&config).unwrap();
    // So short a time that modules' ids are others' within a round, or so long that snapshots are of nearly all of it.
    let kept = Duration::from_millis([250, 1000, 5000][random.below(3) as usize]);
    let builder = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).keep(kept);
    let profiler = builder.start(&engine).unwrap();
    let mut linker: Linker<Host> = Linker::new(&engine);
    add_to_linker_async(&mut linker, |host: &mut Host| &mut host.wasi).unwrap();
    linker.func_wrap_async("h", "f", |caller, (number,): (i32,)| Box::new(host_call(caller, number))).unwrap();
    let load = |guest: Guest, profiler: &Profiler| {
        linker.instantiate_pre(&profiler.load(&guest.name(), &guest.module()).unwrap()).unwrap()
    };
    let variant = |number| Guest::Wasm { number, unloading: Unloading::Never };
    let variants: Vec<_> = (0..VARIANTS).map(|number| load(variant(number), &profiler)).collect();
    let (go, python) = (load(Guest::Go(Unloading::Never), &profiler), load(Guest::Python(Unloading::Never), &profiler));
    drop(engine);

    let requests = Requests::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let meddler = std::thread::spawn({
        let (profiler, requests, is_over) = (profiler.clone(), requests.clone(), is_over.clone());
        let random = random.another();
        move || meddle(profiler, &requests, &is_over, random)
    });
    // Stores may come after the profiler has gone, and go on without it.
    let lets_go_at = if random.below(3) == 0 { random.below(REQUESTS) } else { REQUESTS };
    let ended = |task| {
        let is_planned = |panic: Box<dyn Any + Send>| panic.downcast_ref() == Some(&PLANNED);
        match runtime.block_on(task) {
            Ok(served) => wasmtime::Result::unwrap(served),
            Err(failed) => assert!(is_planned(JoinError::into_panic(failed)), "a host function panicked otherwise"),
        }
    };
    let only_languages = std::env::var_os("WLPROF_STRESS_LANGUAGES").is_some();
    let mut profiler = Some(profiler);
    let mut tasks = Vec::new();
    for number in 0..REQUESTS {
        if number == lets_go_at {
            tasks.drain(..tasks.len() / 2).for_each(ended);
            is_over.store(true, Ordering::Relaxed);
            profiler = None;
        }
        // Modules come and go as well, while there is somebody to be told.
        let unloading = match random.below(4) {
            _ if profiler.is_none() => Unloading::Never,
            0 => Unloading::Early,
            1 | 2 => Unloading::AtEnd,
            _ => Unloading::Never,
        };
        let number_of_own = VARIANTS + number;
        let kind = if only_languages { [OF_GO, OF_PYTHON][number as usize % 2] } else { number % 50 };
        let guest = match (kind, unloading) {
            (OF_GO, unloading) => Guest::Go(unloading),
            (OF_PYTHON, unloading) => Guest::Python(unloading),
            (rest, Unloading::Early | Unloading::AtEnd) if rest % 4 == 0 => {
                Guest::Wasm { number: number_of_own, unloading }
            }
            _ => variant(random.below(VARIANTS)),
        };
        let pre = match guest {
            Guest::Wasm { number, unloading: Unloading::Never } => variants[number as usize].clone(),
            Guest::Go(Unloading::Never) => go.clone(),
            Guest::Python(Unloading::Never) => python.clone(),
            of_its_own => load(of_its_own, profiler.as_ref().unwrap()),
        };
        let name = format!("request {number}");
        let acts = [Act::Return, Act::Return, Act::Yield, Act::Yield, Act::Panic, Act::Never];
        let request = Request::new(guest, acts[random.below(acts.len() as u64) as usize]);
        requests.lock().unwrap().insert(name.clone(), request.clone());
        let random = random.another();
        tasks.push(runtime.spawn(serve(name, profiler.clone(), pre, request, random)));
    }
    tasks.into_iter().for_each(ended);
    is_over.store(true, Ordering::Relaxed);
    println!("looked {} times", meddler.join().unwrap());
    let Some(profiler) = profiler else { return Seen::default() };
    if random.below(2) == 0 {
        drop(runtime);
    }
    profiler.resume();
    let last = profiler.snapshot().unwrap();
    let scripted = check(last.recording(), &requests);
    Seen { samples: last.recording().samples().count(), stores: last.recording().stores.len(), scripted }
}

#[test]
fn many_stores_in_random_order_are_told_apart_and_leave_nothing() {
    if std::env::var_os(ALONE).is_none() && length().is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "stress::stores::many_stores_in_random_order_are_told_apart_and_leave_nothing";
        command.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        println!("{}", ran.stdout);
        assert!(ran.code == Some(0) && ran.stdout.contains("1 passed"), "{ran:?}");
        return;
    }
    let mut random = Random::new();
    let began = Instant::now();
    let mut before = None;
    let mut seen = Seen::default();
    for rounds in 1.. {
        let of_round = round(random.another());
        seen.samples += of_round.samples;
        seen.stores += of_round.stores;
        seen.scripted += of_round.scripted;
        // What a process needs once is there after the first.
        let before = *before.get_or_insert_with(left_over);
        let patience = Instant::now() + Duration::from_secs(60);
        let is_more = || left_over().iter().zip(before).any(|(now, before)| *now > before);
        while is_more() && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert!(!is_more(), "threads and open files after round {rounds}: {:?}, not {before:?}", left_over());
        println!("round {rounds}: {of_round:?}, {} KiB", resident_kib());
        let is_enough = rounds >= MAX_ROUNDS || rounds >= ROUNDS && seen.is_enough();
        if length().map_or(is_enough, |length| began.elapsed() > length) {
            break;
        }
    }
    assert!(seen.is_enough(), "{seen:?}");
}
