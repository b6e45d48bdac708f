//! Hosts as people write them, with one line of `wlprof-inside` and none at their stores: many async stores, components that were compiled
//! elsewhere, another profiler beside it.

use crate::guest::Place;
use crate::http;
use crate::inside::options;
use crate::pprof::{rows, times_by_pprof};
use crate::sampled::{Shares, are_few, with_ever_more_work};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wasmtime::component::{Component, Linker as ComponentLinker};
use wasmtime::{
    Cache, CacheConfig, Caller, Config, Engine, InstanceAllocationStrategy, Linker, Module, PoolingAllocationConfig,
    Store, UpdateDeadline, WasmBacktrace,
};
use wlprof::recording::{Origin, Recording};
use wlprof_inside::{Labels, PprofService, Profiler, Snapshot};

/// Has threads end when the test does, however it does.
struct UntilDropped(Arc<AtomicBool>);

impl Drop for UntilDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How far a share may be off by itself, in points.
const POINTS: f64 = 1.0;

/// A module that runs `heavy` three times as long as `light`, and calls the host in between.
const SHARES: &str = r#"(module
    (import "host" "pause" (func $pause))
    (func $spin (param $rounds i32)
        (loop (br_if 0 (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
    (func $many_heavy (call $spin (i32.const 60000)))
    (func $many_light (call $spin (i32.const 20000)))
    (func (export "run") (param $times i32)
        (loop
            (call $many_heavy)
            (call $pause)
            (call $many_light)
            (br_if 0 (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))))"#;

/// The names of the functions of each stack, innermost first, and what its samples stand for.
fn stacks(recording: &Recording) -> impl Iterator<Item = (Vec<&str>, u64)> {
    recording.samples().map(|sample| {
        let names = recording.lines_of(sample.stack).map(|line| &*recording.functions[line.function as usize].name);
        (names.collect(), sample.period_ns)
    })
}

/// Which of `parts` is on each stack that has one of them.
fn parts<'r>(recording: &'r Recording, parts: &'static [&'static str]) -> impl Iterator<Item = (&'r str, u64)> {
    stacks(recording).filter_map(|(names, time)| Some((names.into_iter().find(|name| parts.contains(name))?, time)))
}

/// A thousand stores, taken from a pool, that take turns on two threads: by epochs, by fuel, and where their host calls wait.
fn run_thousand_stores(engine: &Engine, module: &Module, times: i32, calls: &Arc<AtomicU64>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut linker = Linker::new(engine);
    linker.func_wrap_async("host", "pause", |_, (): ()| Box::new(tokio::task::yield_now())).unwrap();
    let before = Arc::new(linker.instantiate_pre(module).unwrap());
    let run = |number: u64| {
        let (engine, before, calls) = (engine.clone(), before.clone(), calls.clone());
        let tenant = if number.is_multiple_of(2) { "ada" } else { "bob" };
        let run = async move {
            let mut store = Store::new(&engine, number);
            store.set_fuel(u64::MAX).unwrap();
            store.fuel_async_yield_interval(Some(500_000)).unwrap();
            store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
            store.set_epoch_deadline(1);
            store.call_hook(move |_, _| {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
            let instance = before.instantiate_async(&mut store).await.unwrap();
            let run = instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap();
            run.call_async(&mut store, times).await.unwrap();
        };
        runtime.spawn(Labels::new([("tenant", tenant)]).run(run))
    };
    let tasks: Vec<_> = (0..1000).map(run).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_thousand_stores_that_take_turns_have_their_shares_and_labels() {
    let mut config = Config::new();
    config.consume_fuel(true).epoch_interruption(true);
    let mut pool = PoolingAllocationConfig::default();
    pool.total_core_instances(1000).total_stacks(1000);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    let engine = Engine::new(&config).unwrap();
    let module = Module::new(&engine, SHARES).unwrap();
    let (is_over, ticks) = (Arc::new(AtomicBool::new(false)), engine.clone());
    let until = UntilDropped(is_over.clone());
    let ticker = {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                ticks.increment_epoch();
            }
        })
    };
    let profiler = Profiler::with(options()).unwrap();
    with_ever_more_work("samples of a thousand stores", |times| {
        let (window, calls) = (profiler.window().unwrap(), Arc::new(AtomicU64::new(0)));
        run_thousand_stores(&engine, &module, 5 * times as i32, &calls);
        assert!(calls.load(Ordering::Relaxed) > 1000 * 5 * times, "the hook is the host's own");
        let snapshot = window.snapshot().unwrap();
        let of = |tenant| snapshot.clone().of_label("tenant", tenant);
        let (ada, bob) = (of("ada"), of("bob"));
        let time = |snapshot: &Snapshot, tenant: &'static str| {
            let samples: Vec<_> = snapshot.recording().samples().map(|sample| (tenant, sample.period_ns)).collect();
            samples
        };
        let of_both: Vec<_> = time(&ada, "ada").into_iter().chain(time(&bob, "bob")).collect();
        if of_both.len() < 1000 {
            return false;
        }
        Shares::of(of_both).near("ada", 50.0, POINTS).unwrap();
        for snapshot in [&ada, &bob] {
            let recording = snapshot.recording();
            Shares::of(parts(recording, &["many_heavy", "many_light"])).near("many_heavy", 75.0, POINTS).unwrap();
        }
        // What has no label is of other tests, or was read while its label changed.
        let all = parts(snapshot.recording(), &["many_heavy", "many_light"]).count() as u64;
        let labelled = [&ada, &bob].map(|snapshot| parts(snapshot.recording(), &["many_heavy", "many_light"]).count());
        assert!(are_few(all - labelled.iter().sum::<usize>() as u64, all, 0.001), "{labelled:?} of {all}");
        let recording = snapshot.recording();
        let cut: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
        assert!(are_few(cut, recording.ticks.sampled, 0.001), "{:?}", recording.truncated);
        true
    });
    drop(until);
    ticker.join().unwrap();
}

/// A component of one module, as a framework has it: compiled by another engine, and read from bytes.
#[test]
fn a_component_that_was_compiled_elsewhere_is_seen() {
    let component = r#"(component
        (core module $shares
            (func $spin (param $rounds i32)
                (loop (br_if 0 (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
            (func $compiled_heavy (call $spin (i32.const 60000)))
            (func $compiled_light (call $spin (i32.const 20000)))
            (func (export "run") (param $times i32)
                (loop
                    (call $compiled_heavy)
                    (call $compiled_light)
                    (br_if 0 (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))))
        (core instance $instance (instantiate $shares))
        (func (export "run") (param "times" u32) (canon lift (core func $instance "run"))))"#;
    let place = Place::new();
    let mut cached = CacheConfig::new();
    cached.with_directory(place.path("cache"));
    let cache = Cache::new(cached).unwrap();
    let mut config = Config::new();
    config.cache(Some(cache.clone()));
    Component::new(&Engine::new(&config).unwrap(), component).unwrap();
    let engine = Engine::new(&config).unwrap();
    let profiler = Profiler::with(options()).unwrap();
    let component = Component::new(&engine, component).unwrap();
    assert_eq!(cache.cache_hits(), 1, "it is deserialized");
    with_ever_more_work("samples of a component", |times| {
        let window = profiler.window().unwrap();
        let labels = Labels::new([("component", "compiled elsewhere")]);
        let scope = labels.scope();
        let mut store = Store::new(&engine, ());
        let instance = ComponentLinker::new(&engine).instantiate(&mut store, &component).unwrap();
        let run = instance.get_typed_func::<(u32,), ()>(&mut store, "run").unwrap();
        run.call(&mut store, (5000 * times as u32,)).unwrap();
        drop(scope);
        let snapshot = window.snapshot().unwrap().of_label("component", "compiled elsewhere");
        let recording = snapshot.recording();
        if recording.ticks.sampled < 400 {
            return false;
        }
        let parts = parts(recording, &["compiled_heavy", "compiled_light"]);
        Shares::of(parts).near("compiled_heavy", 75.0, POINTS).unwrap();
        true
    });
}

/// A module that calls the host from different places, some of them deep.
const CALLERS: &str = r#"(module
    (import "host" "probe" (func $probe))
    (func $probe_here (call $probe))
    (func $probe_below (call $probe_here) (call $probe))
    (func $probe_deep (param $depth i32)
        (if (local.get $depth)
            (then (call $probe_deep (i32.sub (local.get $depth) (i32.const 1))))
            (else (call $probe_below))))
    (func (export "run") (param $times i32)
        (loop
            (call $probe_here)
            (call $probe_below)
            (call $probe_deep (i32.const 10))
            (br_if 0 (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))))"#;

#[test]
fn stacks_at_host_calls_are_those_of_wasmtimes_own_backtrace() {
    let engine = Engine::default();
    let module = Module::new(&engine, CALLERS).unwrap();
    let known: Arc<Mutex<BTreeSet<Vec<String>>>> = Arc::default();
    let mut linker = Linker::new(&engine);
    let noted = known.clone();
    let probe = move |caller: Caller<'_, ()>| {
        let backtrace = WasmBacktrace::force_capture(&caller);
        let name = |frame: &wasmtime::FrameInfo| frame.func_name().unwrap_or("run").to_owned();
        noted.lock().unwrap().insert(backtrace.frames().iter().map(name).collect());
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(50) {}
    };
    linker.func_wrap("host", "probe", probe).unwrap();
    let profiler = Profiler::with(options()).unwrap();
    profiler.add("callers.wat", wat::parse_str(CALLERS).unwrap()).unwrap();
    let (mut store, labels) = (Store::new(&engine, ()), Labels::new([("test", "backtraces")]));
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap();
    with_ever_more_work("samples of host calls", |times| {
        let (window, scope) = (profiler.window().unwrap(), labels.scope());
        run.call(&mut store, 1000 * times as i32).unwrap();
        drop(scope);
        let snapshot = window.snapshot().unwrap().of_label("test", "backtraces");
        let recording = snapshot.recording();
        let frames = |stack| recording.frames_of(stack).map(|frame| frame.origin).collect::<Vec<_>>();
        let in_calls: Vec<_> = recording
            .samples()
            .filter(|sample| matches!(frames(sample.stack).first(), Some(Origin::HostCall { .. })))
            .map(|sample| recording.lines_of(sample.stack).skip(1))
            .map(|lines| lines.map(|line| recording.functions[line.function as usize].name.clone()).collect())
            .collect::<Vec<Vec<String>>>();
        if in_calls.len() < 400 {
            return false;
        }
        let (known, seen) = (known.lock().unwrap(), in_calls.into_iter().collect::<BTreeSet<_>>());
        assert_eq!(known.len(), 5, "{known:?}");
        assert!(known.iter().eq(&seen), "{known:?} {seen:?}");
        true
    });
}

/// Two profilers of the same process, one by `SIGPROF`: it comes first, or later, and goes while the other stays.
#[test]
fn another_profiler_has_its_signals_and_wlprof_its_samples() {
    let engine = Engine::default();
    let came = Arc::new(AtomicBool::new(false));
    let (signals, seen) = (Arc::new(AtomicU64::new(0)), came.clone());
    let mut linker = Linker::new(&engine);
    let counted = signals.clone();
    let pause = move || _ = counted.fetch_add(u64::from(seen.swap(false, Ordering::Relaxed)), Ordering::Relaxed);
    linker.func_wrap("host", "pause", pause).unwrap();
    let module = Module::new(&engine, SHARES.replace("many", "watched")).unwrap();
    let (mut store, labels) = (Store::new(&engine, ()), Labels::new([("test", "two profilers")]));
    let instance = linker.instantiate(&mut store, &module).unwrap();
    let run = instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap();
    let mut sampled = |profiler: &Profiler, other: Option<OtherProfiler>| {
        with_ever_more_work("samples of both", |times| {
            let (window, scope) = (profiler.window().unwrap(), labels.scope());
            signals.store(0, Ordering::Relaxed);
            run.call(&mut store, 5000 * times as i32).unwrap();
            drop(scope);
            let snapshot = window.snapshot().unwrap().of_label("test", "two profilers");
            let recording = snapshot.recording();
            if recording.ticks.sampled < 400 || (other.is_some() && signals.load(Ordering::Relaxed) < 50) {
                return false;
            }
            let parts = parts(recording, &["watched_heavy", "watched_light"]);
            Shares::of(parts).near("watched_heavy", 75.0, POINTS).unwrap();
            true
        });
    };
    let other = || Some(OtherProfiler::start(&came));
    let first = other();
    let profiler = Profiler::with(options()).unwrap();
    sampled(&profiler, first);
    sampled(&profiler, None);
    sampled(&profiler, other());
    drop(profiler);
    let profiler = Profiler::with(options()).unwrap();
    sampled(&profiler, other());
}

/// As profilers with `SIGPROF` do: a handler, and a timer of the process's CPU time.
struct OtherProfiler {
    _timer: Timer,
    handler: signal_hook::SigId,
}

impl OtherProfiler {
    fn start(came: &Arc<AtomicBool>) -> Self {
        let handler = signal_hook::flag::register(Signal::SIGPROF as i32, came.clone()).unwrap();
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: Signal::SIGPROF, si_value: 0 });
        let mut timer = Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, event).unwrap();
        let often = Expiration::Interval(Duration::from_millis(10).into());
        timer.set(often, TimerSetTimeFlags::empty()).unwrap();
        Self { _timer: timer, handler }
    }
}

impl Drop for OtherProfiler {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.handler);
    }
}

/// Pauses a profiler when the test ends, however it does.
struct PausedAtLast(Profiler);

impl Drop for PausedAtLast {
    fn drop(&mut self) {
        self.0.pause();
    }
}

/// Serves the profiles of this process on a port of its own, for ever. Returns the address.
fn serve_profiles(profiler: Profiler) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let service = TowerToHyperService::new(PprofService::new(profiler));
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service.clone()));
            }
        });
    });
    address
}

#[test]
fn profiles_are_served_as_go_serves_its_own() {
    let engine = Engine::default();
    let mut linker = Linker::new(&engine);
    linker.func_wrap("host", "pause", || ()).unwrap();
    let module = Module::new(&engine, SHARES.replace("many", "served")).unwrap();
    let (is_over, labels) = (Arc::new(AtomicBool::new(false)), Labels::new([("tenant", "ada")]));
    let until = UntilDropped(is_over.clone());
    let guest = std::thread::spawn(move || {
        let _scope = labels.scope();
        let mut store = Store::new(&engine, ());
        let instance = linker.instantiate(&mut store, &module).unwrap();
        let run = instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap();
        while !is_over.load(Ordering::Relaxed) {
            run.call(&mut store, 100).unwrap();
        }
    });
    let profiler = Profiler::with(options()).unwrap();
    let address = serve_profiles(profiler.clone());
    // The server does not end.
    let _paused = PausedAtLast(profiler);
    let place = Place::new();
    with_ever_more_work("a profile", |times| {
        let answer = http::get(&address, &format!("/debug/pprof/profile?seconds={times}&label=tenant:ada"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        place.file("profile.pb.gz", &answer.body);
        let times = times_by_pprof(&place.path("profile.pb.gz"));
        let of = |name: &str| times.get(name).map_or(0.0, |(_, total)| *total as f64);
        assert_eq!(of("many_heavy"), 0.0, "what others run has another label");
        if rows(&answer.body).values().sum::<i64>() < 1000 {
            return false;
        }
        // Of a thousand samples, each of which may stand for twice the time of another.
        let heavy = 100.0 * of("served_heavy") / (of("served_heavy") + of("served_light"));
        assert!((61.0..=89.0).contains(&heavy), "{heavy} %");
        true
    });
    assert_eq!(http::get(&address, "/debug/pprof/heap").status, 404);
    drop(until);
    guest.join().unwrap();
}
