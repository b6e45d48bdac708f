//! A host of many short stores on four threads, whose requests yield, panic and are dropped in the middle of host calls, while others
//! pause, look and let go of the profiler, in random order: no sample is another store's, every stack at a host call is what Wasmtime
//! says, and nothing is left over.
//!
//! `WLPROF_STRESS_SECONDS` has it go on for so long, if it is the only test that runs, and `WLPROF_STRESS_SEED` begins as another run
//! did.

use crate::guest::{fixture, run};
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::JoinError;
use wasmtime::{Caller, Config, Engine, InstancePre, Linker, Store, WasmBacktrace};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_async};
use wlprof::recording::{Recording, Thread};
use wlprof::{Attach, Profiler};

/// Set in the process that is the host: threads and open files are a process's.
const ALONE: &str = "WLPROF_TEST_STRESS";
const REQUESTS: u64 = 250;
const ROUNDS: u64 = 4;
const MAX_ROUNDS: u64 = 60;
/// Modules of wasm alone, whose functions have their number at the end of their names.
const VARIANTS: u64 = 4;
/// Of the guests' recursion.
const MAX_DEPTH: u64 = 30;
/// What a host function panics with.
const PLANNED: &str = "as planned";

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn variant(number: u64) -> String {
    format!(
        r#"(module
        (import "h" "f" (func $f (param i32) (result i32)))
        (func $work_{number} (param $n i32) (result i32)
            (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
            (local.get $n))
        (func $deep_{number} (param $depth i32) (param $n i32) (result i32)
            (if (result i32) (local.get $depth)
                (then (i32.or (i32.const 0)
                    (call $deep_{number} (i32.sub (local.get $depth) (i32.const 1)) (local.get $n))))
                (else (i32.or (call $work_{number} (local.get $n)) (call $f (local.get $n))))))
        (func $run_{number} (export "run") (param $depth i32) (param $n i32) (result i32)
            (i32.or (i32.const 0) (call $deep_{number} (local.get $depth) (local.get $n)))))"#
    )
}

/// What a host function does, once it is called.
#[derive(Clone, Copy, Debug)]
enum Act {
    Return,
    Yield,
    Panic,
    /// It never returns, and its future is dropped.
    Never,
}

struct Host {
    wasi: WasiP1Ctx,
    request: Arc<Request>,
}

/// What there is to know of a store.
struct Request {
    act: Act,
    /// Of wasm alone; `None` of a Go program.
    variant: Option<u64>,
    /// Names of the functions at its host calls, innermost first.
    backtraces: Mutex<BTreeSet<Vec<String>>>,
    /// Somebody waits to drop it.
    is_in_host: tokio::sync::Notify,
}

type Requests = Arc<Mutex<HashMap<String, Arc<Request>>>>;

fn spin() {
    (0..300_000_u32).for_each(|round| {
        std::hint::black_box(round);
    });
}

async fn host_call(caller: Caller<'_, Host>, number: i32) -> i32 {
    let frames = WasmBacktrace::capture(&caller);
    let names = frames.frames().iter().map(|frame| frame.func_name().unwrap().to_owned());
    let request = caller.data().request.clone();
    request.backtraces.lock().unwrap().insert(names.collect());
    spin();
    match request.act {
        Act::Return => {}
        Act::Yield => {
            for _ in 0..5 {
                tokio::task::yield_now().await;
                spin();
            }
        }
        Act::Panic => std::panic::resume_unwind(Box::new(PLANNED)),
        Act::Never => {
            request.is_in_host.notify_one();
            std::future::pending().await
        }
    }
    number
}

/// One request: a store that is attached in one of the ways there are, runs its guest, and goes.
async fn serve(
    name: String,
    profiler: Option<Profiler>,
    guest: InstancePre<Host>,
    request: Arc<Request>,
    mut random: Random,
) -> wasmtime::Result<()> {
    let wasi = WasiCtxBuilder::new().build_p1();
    let mut store = Store::new(guest.module().engine(), Host { wasi, request: request.clone() });
    let hooked = Arc::new(AtomicU64::new(0));
    let mut attached = None;
    if let Some(profiler) = &profiler {
        let mut attach = Attach::named(&name).label("tenant", tenant(&name));
        if random.below(2) == 0 {
            let hooked = hooked.clone();
            attach = attach.call_hook(move |_, _| {
                hooked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        }
        attached = Some(profiler.attach(&mut store, attach)?);
    }
    let (depth, rounds) = (random.below(MAX_DEPTH) as i32, 1000 + random.below(4_000_000) as i32);
    let (is_wasm, told) = (request.variant.is_some(), attached.clone());
    let calls = async move {
        let instance = guest.instantiate_async(&mut store).await?;
        if let Some(attached) = &told {
            attached.instantiated(&mut store, &instance)?;
        }
        if is_wasm {
            let run = instance.get_typed_func::<(i32, i32), i32>(&mut store, "run")?;
            run.call_async(&mut store, (depth, rounds)).await.map(drop)
        } else {
            let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
            start.call_async(&mut store, ()).await.or_else(|error| match error.downcast_ref() {
                Some(wasmtime_wasi::I32Exit(0)) => Ok(()),
                _ => Err(error),
            })
        }
    };
    let calls: std::pin::Pin<Box<dyn Future<Output = wasmtime::Result<()>> + Send>> = match &attached {
        Some(attached) if random.below(3) > 0 => Box::pin(attached.run(calls)),
        _ => Box::pin(calls),
    };
    if is_wasm && matches!(request.act, Act::Never) {
        let (mut calls, mut in_host) = (calls, std::pin::pin!(request.is_in_host.notified()));
        let either = |context: &mut Context<'_>| match calls.as_mut().poll(context) {
            Poll::Pending => in_host.as_mut().poll(context).map(Ok),
            ended => ended,
        };
        std::future::poll_fn(either).await
    } else {
        calls.await
    }
}

/// Whose a store is: the last digit of its number.
fn tenant(store: &str) -> &str {
    &store[store.len() - 1..]
}

/// Whether all that a recording has of a store can be that store's.
fn check(recording: &Recording, requests: &Requests) {
    let requests = requests.lock().unwrap();
    for thread in &recording.threads {
        let store = &recording.stores[thread.store as usize];
        let request = requests.get(&store.name).unwrap_or_else(|| panic!("no store is called {:?}", store.name));
        let tenant = ("tenant".to_owned(), tenant(&store.name).to_owned());
        assert_eq!(store.labels, std::slice::from_ref(&tenant));
        for sample in thread.samples.iter() {
            assert!(recording.label_sets[sample.labels.unwrap() as usize].contains(&tenant));
            let lines = recording.lines_of(sample.stack);
            let names: Vec<&str> = lines.map(|line| &*recording.functions[line.function as usize].name).collect();
            let about = || format!("{} {:?}: {names:?}, {sample:?}", store.name, request.act);
            // Of a stack that a panic is taking down there may be little left.
            if matches!(request.act, Act::Panic) && names.ends_with(&["[truncated]"]) {
                continue;
            }
            let of_wasm = names.iter().filter(|name| **name != "h.f" && **name != "[host]");
            match request.variant {
                Some(variant) => {
                    let ending = format!("_{variant}");
                    assert!(of_wasm.clone().all(|name| name.ends_with(&ending)), "{}", about());
                    let backtraces = request.backtraces.lock().unwrap();
                    // It may not have come to say what they are.
                    if names[0] == "h.f" && !backtraces.is_empty() {
                        let callers: Vec<String> = names[1..].iter().map(|name| (*name).to_owned()).collect();
                        assert!(backtraces.contains(&callers), "{}, not {backtraces:?}", about());
                    }
                }
                None => assert!(!names.iter().any(|name| name.starts_with("deep_")), "{}", about()),
            }
        }
    }
}

/// Pauses, looks and opens windows until it is told to end; gives how often it looked.
fn meddle(profiler: Profiler, requests: &Requests, is_over: &AtomicBool, mut random: Random) -> u64 {
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

/// Threads and open files of this process.
fn left_over() -> [usize; 2] {
    ["/proc/self/task", "/proc/self/fd"].map(|folder| std::fs::read_dir(folder).unwrap().count())
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Many requests of one engine. Gives how many samples were seen of how many stores at the end.
fn round(mut random: Random) -> (usize, usize) {
    let mut config = Config::new();
    config.wasm_backtrace_max_frames(NonZero::new(MAX_DEPTH as usize + 2));
    wlprof::configure(&mut config);
    let engine = Engine::new(&config).unwrap();
    let builder = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).keep(Duration::from_secs(5));
    let profiler = builder.start(&engine).unwrap();
    let mut linker: Linker<Host> = Linker::new(&engine);
    add_to_linker_async(&mut linker, |host: &mut Host| &mut host.wasi).unwrap();
    linker.func_wrap_async("h", "f", |caller, (number,): (i32,)| Box::new(host_call(caller, number))).unwrap();
    let load = |name: &str, bytes: &[u8]| linker.instantiate_pre(&profiler.load(name, bytes).unwrap()).unwrap();
    let guests: Vec<_> =
        (0..VARIANTS).map(|number| load(&format!("variant {number}"), variant(number).as_bytes())).collect();
    let go = load("go.wasm", &std::fs::read(fixture("go-naps-1.27.wasm")).unwrap());
    drop((linker, engine));

    let requests = Requests::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let meddler = std::thread::spawn({
        let (profiler, requests, is_over) = (profiler.clone(), requests.clone(), is_over.clone());
        let random = Random(random.below(u64::MAX) | 1);
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
    let mut profiler = Some(profiler);
    let mut tasks = Vec::new();
    for number in 0..REQUESTS {
        if number == lets_go_at {
            tasks.drain(..tasks.len() / 2).for_each(ended);
            is_over.store(true, Ordering::Relaxed);
            profiler = None;
        }
        let is_go = number % 50 == 7;
        let variant = (!is_go).then(|| random.below(VARIANTS));
        let guest = variant.map_or(&go, |variant| &guests[variant as usize]).clone();
        let name = format!("request {number}");
        let acts = [Act::Return, Act::Return, Act::Yield, Act::Yield, Act::Panic, Act::Never];
        let act = acts[random.below(acts.len() as u64) as usize];
        let (backtraces, is_in_host) = (Mutex::default(), tokio::sync::Notify::new());
        let request = Arc::new(Request { variant, act, backtraces, is_in_host });
        requests.lock().unwrap().insert(name.clone(), request.clone());
        let random = Random(random.below(u64::MAX) | 1);
        tasks.push(runtime.spawn(serve(name, profiler.clone(), guest, request, random)));
    }
    tasks.into_iter().for_each(ended);
    is_over.store(true, Ordering::Relaxed);
    println!("looked {} times", meddler.join().unwrap());
    let Some(profiler) = profiler else { return (0, 0) };
    if random.below(2) == 0 {
        drop(runtime);
    }
    profiler.resume();
    let last = profiler.snapshot().unwrap();
    check(last.recording(), &requests);
    (last.recording().samples().count(), last.recording().stores.len())
}

#[test]
fn many_stores_in_random_order_are_told_apart_and_leave_nothing() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let length = number("WLPROF_STRESS_SECONDS").map(Duration::from_secs);
    if std::env::var_os(ALONE).is_none() && length.is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "stress::many_stores_in_random_order_are_told_apart_and_leave_nothing";
        command.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
        let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        println!("{}", ran.stdout);
        assert!(ran.code == Some(0) && ran.stdout.contains("1 passed"), "{ran:?}");
        return;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("WLPROF_STRESS_SEED").unwrap_or(now.as_nanos() as u64) | 1;
    // Where it is seen if this fails.
    eprintln!("WLPROF_STRESS_SEED={seed}");
    let mut random = Random(seed);
    let began = Instant::now();
    let mut before = None;
    let (mut samples, mut stores) = (0, 0);
    for rounds in 1.. {
        let of_round = round(Random(random.below(u64::MAX) | 1));
        (samples, stores) = (samples + of_round.0, stores + of_round.1);
        // What a process needs once is there after the first.
        let before = *before.get_or_insert_with(left_over);
        let patience = Instant::now() + Duration::from_secs(60);
        let is_more = || left_over().iter().zip(before).any(|(now, before)| *now > before);
        while is_more() && Instant::now() < patience {
            std::thread::yield_now();
        }
        assert!(!is_more(), "threads and open files after round {rounds}: {:?}, not {before:?}", left_over());
        println!("round {rounds}: {of_round:?} samples and stores, {} KiB", resident_kib());
        let is_enough = rounds >= MAX_ROUNDS || rounds >= ROUNDS && samples > 500 && stores > 100;
        if length.map_or(is_enough, |length| began.elapsed() > length) {
            break;
        }
    }
    assert!(samples > 500 && stores > 100, "{samples} samples of {stores} stores");
}
