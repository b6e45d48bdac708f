//! A program that profiles its own guests: `wlprof-inside` in this process, beside Wasmtime as anybody uses it.

use crate::attach::{self, POINTS};
use crate::guest::fixture_bytes;
use crate::running::wait_until;
use crate::sampled::{Shares, are_few, innermost_functions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wasmtime::{Engine, Linker, Module, Store};
use wlprof::recording::{Function, Recording};
use wlprof_inside::{Options, Profiler};

/// Guests that run on threads of this process until this is dropped.
struct Guests {
    is_over: Arc<AtomicBool>,
    /// How often one has ended.
    runs: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Guests {
    /// Runs `_start` of the module again and again, on so many threads.
    fn run(engine: &Engine, module: &Module, arguments: &'static [&'static str], threads: usize) -> Self {
        let (is_over, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = |_| {
            let (engine, module) = (engine.clone(), module.clone());
            let (is_over, runs) = (is_over.clone(), runs.clone());
            std::thread::spawn(move || {
                let mut linker = Linker::new(&engine);
                wasmtime_wasi::p1::add_to_linker_sync(&mut linker, |wasi| wasi).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let wasi = wasmtime_wasi::WasiCtxBuilder::new().args(arguments).build_p1();
                    let mut store = Store::new(&engine, wasi);
                    let instance = linker.instantiate(&mut store, &module).unwrap();
                    let start = instance.get_typed_func::<(), ()>(&mut store, "_start").unwrap();
                    // Go ends by leaving, with 0.
                    let ended = start.call(&mut store, ());
                    let left = |error: wasmtime::Error| error.downcast::<wasmtime_wasi::I32Exit>().map(|exit| exit.0);
                    assert_eq!(ended.map_or_else(left, |()| Ok(0)).unwrap(), 0);
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        Self { threads: (0..threads).map(thread).collect(), is_over, runs }
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Samples this process until `is_enough`.
fn sampled(profiler: &Profiler, is_enough: impl Fn(&Recording) -> bool) -> Recording {
    let window = profiler.window().unwrap();
    let begun = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let snapshot = window.snapshot().unwrap();
        if is_enough(snapshot.recording()) {
            return snapshot.recording().clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", snapshot.recording().ticks);
    }
}

/// What ran last, of the two functions that have all of the guest's time, and for how long.
fn innermost(recording: &Recording) -> impl Iterator<Item = (&str, u64)> {
    innermost_functions(recording).filter(|(name, _)| ["heavy", "light"].contains(name))
}

fn has_many(recording: &Recording) -> bool {
    innermost(recording).count() > 400
}

/// Fast, and for as long as it takes: threads may stand still while the sampler waits for a processor.
pub(crate) fn options() -> Options {
    Options { rate_hz: 1000.0, max_overhead: 1.0, ..Options::default() }
}

#[test]
fn shares_are_right_though_no_store_is_attached() {
    let engine = Engine::default();
    // Before there is a profiler, and without it.
    let module = Module::new(&engine, fixture_bytes("c-shares.wasm")).unwrap();
    let profiler = Profiler::with(options()).unwrap();
    let guests = Guests::run(&engine, &module, &["c-shares.wasm", "1"], 2);
    Shares::of(innermost(&sampled(&profiler, has_many))).near("heavy", 75.0, POINTS).unwrap();
    profiler.add("c-shares.wasm", fixture_bytes("c-shares.wasm")).unwrap();
    let recording = sampled(&profiler, has_many);
    Shares::of(innermost(&recording)).near("heavy", 75.0, POINTS).unwrap();
    let has_lines = |function: &Function| function.name == "heavy" && function.file.is_some();
    assert!(recording.functions.iter().any(has_lines), "{:?}", recording.functions);
    let cut: u64 = recording.truncated.iter().map(|(_, count)| count).sum();
    assert!(are_few(cut, recording.ticks.sampled, 0.001), "{:?}", recording.truncated);
    drop(guests);
}

#[test]
fn a_guests_own_stacks_are_read() {
    let engine = Engine::default();
    let profiler = Profiler::with(options()).unwrap();
    profiler.add("go-work-1.27.wasm", fixture_bytes("go-work-1.27.wasm")).unwrap();
    let module = Module::new(&engine, fixture_bytes("go-work-1.27.wasm")).unwrap();
    let guests = Guests::run(&engine, &module, &["go-work-1.27.wasm", "channels", "10"], 1);
    let is_go = |recording: &Recording| {
        recording.ticks.sampled > 400 && recording.functions.iter().any(|function| function.name == "runtime.goexit")
    };
    attach::check_go(&sampled(&profiler, is_go));
    drop(guests);
}

#[test]
fn a_paused_profiler_takes_no_samples() {
    let engine = Engine::default();
    let module = Module::new(&engine, fixture_bytes("c-shares.wasm")).unwrap();
    let guests = Guests::run(&engine, &module, &["c-shares.wasm", "1"], 1);
    let profiler = Profiler::with(options()).unwrap();
    sampled(&profiler, |recording| innermost(recording).count() > 10);
    profiler.pause();
    let window = profiler.window().unwrap();
    let taken = profiler.progress().samples;
    let ran = guests.runs.load(Ordering::Relaxed);
    wait_until("the guest runs on", || guests.runs.load(Ordering::Relaxed) > ran);
    assert_eq!((profiler.progress().samples, window.snapshot().unwrap().recording().samples().count()), (taken, 0));
    profiler.resume().unwrap();
    wait_until("it samples again", || profiler.progress().samples > taken + 10);
    drop((window, guests));
}
