//! Several stores at once: async ones that move between threads and nest, threads that share a memory, stores and modules
//! that come and go. Every stack at a host call has to be what Wasmtime says it is, and no sample may be another store's.

use crate::sampled::{fixture, with_ever_more_work};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use wasmtime::{
    AsContext, Caller, Config, Engine, Instance, Linker, MemoryType, Module, SharedMemory, Store, WasmBacktrace,
};
use wlprof::languages::{self, Choice};
use wlprof::module::ModuleImage;
use wlprof::recording::{Journal, LanguageTruncation, Origin, Recording, Truncation};
use wlprof::sampler::{Dump, DumpedFrame, ImportWatch, SamplerKind, SamplerOptions};
use wlprof::{Attach, Profiler};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_run::profile::symbolize;
use wlprof_wasi::{Exit, Stdio, WasiOptions, call, linker};

/// A frame: module, function, and offset in the code section.
type Frame = (u32, u32, u32);

thread_local! {
    /// The stack that wlprof read when this thread last called the host.
    static READ: RefCell<Option<Vec<Frame>>> = const { RefCell::new(None) };
}

/// Keeps what was read for [`Compared::compare`], which the host function calls.
fn keep(_: usize, _: u64, dump: Dump) {
    let frame = |id: &u32| match dump.frames[*id as usize] {
        DumpedFrame::Unnamed(Origin::Wasm { module, function, code_offset }) => (module, function, code_offset),
        ref other => panic!("{other:?}"),
    };
    READ.set(Some(dump.threads[0].frames.iter().map(frame).collect()));
}

/// Compares stacks at host calls.
struct Compared {
    modules: Vec<(Module, Arc<ModuleImage>)>,
    stacks: AtomicU64,
    /// Stacks that begin in wasm which a host call has entered.
    nested: AtomicU64,
    different: Mutex<Vec<String>>,
}

impl Compared {
    fn new(modules: &[(Module, Arc<ModuleImage>)]) -> Arc<Self> {
        Arc::new(Self {
            modules: modules.to_vec(),
            stacks: AtomicU64::new(0),
            nested: AtomicU64::new(0),
            different: Mutex::default(),
        })
    }

    /// To be called first thing in a host function.
    fn compare(&self, context: impl AsContext, is_nested: impl Fn(&[Frame]) -> bool) {
        let backtrace = WasmBacktrace::force_capture(context);
        let frame = |frame: &wasmtime::FrameInfo| {
            let module = self.modules.iter().position(|(module, _)| Module::same(module, frame.module())).unwrap();
            let code_start = self.modules[module].1.code_start();
            (module as u32, frame.func_index(), frame.module_offset().unwrap() as u32 - code_start)
        };
        let said: Vec<Frame> = backtrace.frames().iter().map(frame).collect();
        let read = READ.take();
        if read.as_ref() != Some(&said) {
            self.different.lock().unwrap().push(format!("read {read:?}, Wasmtime says {said:?}"));
        }
        self.stacks.fetch_add(1, Ordering::Relaxed);
        self.nested.fetch_add(u64::from(is_nested(&said)), Ordering::Relaxed);
    }

    /// How many were compared, and of those how many were nested. All must have been equal.
    fn counts(&self) -> (u64, u64) {
        let different = self.different.lock().unwrap();
        assert!(different.is_empty(), "{} stacks differ, such as {}", different.len(), different[0]);
        (self.stacks.load(Ordering::Relaxed), self.nested.load(Ordering::Relaxed))
    }
}

fn engine() -> Engine {
    let mut config = Config::new();
    config.debug_symbols(true).generate_address_map(true).shared_memory(true);
    Engine::new(&config).unwrap()
}

fn compile(engine: &Engine, text: &str, name: &str) -> (Module, Arc<ModuleImage>) {
    let bytes = wat::parse_str(text).unwrap();
    (Module::from_binary(engine, &bytes).unwrap(), Arc::new(ModuleImage::parse(bytes, name).unwrap()))
}

/// Records a whole run of stores of `engine`.
fn profiler(engine: &Engine, options: SamplerOptions) -> Profiler {
    let options = SamplerOptions { kind: SamplerKind::Signal, ..options };
    Profiler::builder().journal(Journal::default()).sampler_options(options).start(engine).unwrap()
}

/// A profiler at a high rate that reads the stacks at all calls of each module's imports.
fn watching(engine: &Engine, modules: &[(Module, Arc<ModuleImage>)]) -> Profiler {
    let imports =
        (0..).zip(modules).flat_map(|(id, (module, _))| (0..module.imports().len() as u32).map(move |f| (id, f)));
    let options = SamplerOptions {
        max_overhead: 1.0,
        import_watch: Some(Arc::new(ImportWatch::new(imports.collect(), u64::MAX, keep))),
        ..SamplerOptions::at_rate(5000.0)
    };
    let profiler = profiler(engine, options);
    modules.iter().for_each(|(module, image)| _ = profiler.add_read(module, image, None).unwrap());
    profiler
}

/// Ends profiling, and checks what holds of every recording.
fn finish(profiler: &Profiler, modules: &[(Module, Arc<ModuleImage>)]) -> Recording {
    let images: Vec<_> = modules.iter().map(|(_, image)| image.clone()).collect();
    let recording = symbolize(profiler.finish(), &images, |_| ()).unwrap();
    assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
    let broken = recording.truncated.iter().find(|(reason, _)| *reason == Truncation::BrokenChain);
    assert_eq!(broken, None, "{:?}", recording.meta.notes);
    recording
}

/// The modules of wasm frames in the samples of each store, by its name, and the threads that it was sampled on.
fn seen(recording: &Recording) -> BTreeMap<String, (BTreeSet<u32>, BTreeSet<u64>)> {
    let mut seen: BTreeMap<String, (BTreeSet<u32>, BTreeSet<u64>)> = BTreeMap::new();
    for thread in &recording.threads {
        let (modules, threads) = seen.entry(recording.stores[thread.store as usize].name.clone()).or_default();
        for sample in thread.samples.iter() {
            for frame in recording.frames_of(sample.stack) {
                if let Origin::Wasm { module, .. } = frame.origin {
                    modules.insert(module);
                    threads.insert(thread.tid);
                }
            }
        }
    }
    seen
}

/// A guest that works, calls the host, waits, and is entered again from a host call. `tag` makes it another module.
fn async_guest(tag: usize) -> String {
    format!(
        r#"(module
          (import "h" "nap" (func $nap (param i32) (result i32)))
          (import "h" "busy" (func $busy (param i32) (result i32)))
          (import "h" "again" (func $again (param i32) (result i32)))
          (memory (export "memory") 1)
          (func $work (param $n i32) (result i64) (local $s i64)
            (loop $l
              (local.set $s (i64.add (i64.mul (local.get $s) (i64.const {})) (i64.extend_i32_u (local.get $n))))
              (i64.store (i32.and (local.get $n) (i32.const 0xfff8)) (local.get $s))
              (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
            (local.get $s))
          (func $descend (param $d i32) (result i64)
            (if (result i64) (local.get $d)
              (then (i64.add (call $work (i32.const 2000)) (call $descend (i32.sub (local.get $d) (i32.const 1)))))
              (else (i64.extend_i32_u (i32.add (call $busy (i32.const 300)) (call $nap (i32.const 1)))))))
          (func $inner (export "inner") (param $d i32) (result i64) (call $descend (local.get $d)))
          (func (export "run") (param $rounds i32) (result i64) (local $s i64)
            (loop $l
              (local.set $s (i64.add (local.get $s) (call $descend (i32.const 5))))
              (if (i32.eqz (i32.and (local.get $rounds) (i32.const 3)))
                (then (local.set $s (i64.add (local.get $s) (i64.extend_i32_u (call $again (i32.const 3)))))))
              (br_if $l (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
            (local.get $s)))"#,
        3 + 2 * tag
    )
}

/// Index of `inner`, which a host call enters, in [`async_guest`].
const INNER: u32 = 5;

fn async_linker(engine: &Engine, compared: &Arc<Compared>) -> Linker<()> {
    let is_nested = |frames: &[Frame]| frames.iter().any(|frame| frame.1 == INNER);
    let mut linker: Linker<()> = Linker::new(engine);
    let comparing = compared.clone();
    linker
        .func_wrap_async("h", "nap", move |caller, (n,): (i32,)| {
            comparing.compare(&caller, is_nested);
            Box::new(async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                tokio::time::sleep(Duration::from_micros(50)).await;
                n
            })
        })
        .unwrap();
    let comparing = compared.clone();
    linker
        .func_wrap("h", "busy", move |caller: Caller<'_, ()>, n: i32| {
            comparing.compare(&caller, is_nested);
            (0..2000).fold(n, |x, i| std::hint::black_box(x.wrapping_mul(31) + i)) & 1
        })
        .unwrap();
    let comparing = compared.clone();
    linker
        .func_wrap_async("h", "again", move |mut caller, (depth,): (i32,)| {
            comparing.compare(&caller, is_nested);
            Box::new(async move {
                let inner = caller.get_export("inner").unwrap().into_func().unwrap();
                let inner = inner.typed::<i32, i64>(&caller).unwrap();
                inner.call_async(&mut caller, depth).await.unwrap() as i32 & 1
            })
        })
        .unwrap();
    linker
}

/// Whether the polls say which thread runs a store, or its call hook alone.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    ByPolls,
    ByHooks,
}

fn run_async_guests(told: Told) {
    let names = ["guest 0", "guest 1"];
    with_ever_more_work("both guests on both threads", |times| {
        let engine = engine();
        let modules = [0, 1].map(|tag| compile(&engine, &async_guest(tag), names[tag]));
        let (profiler, compared) = (watching(&engine, &modules), Compared::new(&modules));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let tasks = [0, 1].map(|tag| {
            let linker = async_linker(&engine, &compared);
            let mut store = Store::new(&engine, ());
            let attached = profiler.attach(&mut store, Attach::named(names[tag])).unwrap();
            let module = modules[tag].0.clone();
            let work = async move {
                let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
                let run = instance.get_typed_func::<i32, i64>(&mut store, "run").unwrap();
                run.call_async(&mut store, 200 * times as i32).await.unwrap()
            };
            match told {
                Told::ByPolls => runtime.spawn(attached.run(work)),
                Told::ByHooks => runtime.spawn(work),
            }
        });
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        let (stacks, nested) = compared.counts();
        assert!(stacks >= 2 * 400 * times && nested >= 2 * 50 * times, "{stacks} stacks, {nested} nested");
        let recording = finish(&profiler, &modules);
        let seen = seen(&recording);
        for (tag, name) in names.iter().enumerate() {
            if let Some((of_modules, _)) = seen.get(*name) {
                assert!(of_modules.iter().all(|module| *module == tag as u32), "{name}: {of_modules:?}");
            }
        }
        let threads = |name: &str| seen.get(name).map_or(0, |(_, threads)| threads.len());
        println!("{stacks} stacks compared, {nested} nested; {:?}", recording.ticks);
        names.iter().all(|name| threads(name) >= 2)
    });
}

#[test]
fn async_guests_are_told_apart_by_their_polls() {
    run_async_guests(Told::ByPolls);
}

#[test]
fn async_guests_are_told_apart_by_their_call_hooks_alone() {
    run_async_guests(Told::ByHooks);
}

#[test]
fn futures_given_up_in_a_host_call_leave_nothing_behind() {
    const GIVEN_UP: usize = 60;
    let engine = engine();
    let modules = [compile(&engine, &async_guest(0), "guest")];
    let (profiler, compared) = (watching(&engine, &modules), Compared::new(&modules));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let start = |told: Told, name: String, rounds: i32| {
        let linker = async_linker(&engine, &compared);
        let mut store = Store::new(&engine, ());
        let attached = profiler.attach(&mut store, Attach::named(&name)).unwrap();
        let module = modules[0].0.clone();
        let work = async move {
            let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
            let run = instance.get_typed_func::<i32, i64>(&mut store, "run").unwrap();
            run.call_async(&mut store, rounds).await.unwrap()
        };
        match told {
            Told::ByPolls => runtime.spawn(attached.run(work)),
            Told::ByHooks => runtime.spawn(work),
        }
    };
    for told in [Told::ByPolls, Told::ByHooks] {
        // None of these would ever end.
        let endless: Vec<_> = (0..GIVEN_UP).map(|number| start(told, format!("given up {number}"), i32::MAX)).collect();
        let before = compared.stacks.load(Ordering::Relaxed);
        while compared.stacks.load(Ordering::Relaxed) < before + 4 * GIVEN_UP as u64 {
            std::thread::yield_now();
        }
        // They are dropped where they wait, by whichever thread looks at them next.
        endless.iter().for_each(tokio::task::JoinHandle::abort);
        for task in endless {
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        runtime.block_on(start(told, "last".to_owned(), 100)).unwrap();
    }
    compared.counts();
    let recording = finish(&profiler, &modules);
    let is_known = |name: &str| name == "last" || name.starts_with("given up ");
    assert!(recording.stores.iter().all(|store| is_known(&store.name)), "{:?}", recording.stores);
    assert!((1..=2 * (GIVEN_UP + 1)).contains(&recording.stores.len()), "{}", recording.stores.len());
}

const THREADS: &str = r#"(module
  (import "env" "told" (func $told (param i32)))
  (import "env" "memory" (memory 1 1 shared))
  (func $work (param $n i32) (param $at i32)
    (loop $l
      (drop (i32.atomic.rmw.add (local.get $at) (i32.const 1)))
      (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
  (func $descend (param $d i32) (param $n i32) (param $at i32)
    (if (local.get $d)
      (then
        (call $descend (i32.sub (local.get $d) (i32.const 1)) (local.get $n) (local.get $at))
        (call $work (i32.const 100) (local.get $at)))
      (else (call $told (local.get $at)) (call $work (local.get $n) (local.get $at)))))
  (func (export "run") (param $at i32) (param $n i32)
    (call $descend (i32.const 8) (local.get $n) (local.get $at))))"#;

#[test]
fn threads_over_a_shared_memory_have_stacks_of_their_own() {
    const COUNT: u32 = 4;
    with_ever_more_work("all threads", |times| {
        let engine = engine();
        let modules = [compile(&engine, THREADS, "threads")];
        let (profiler, compared) = (watching(&engine, &modules), Compared::new(&modules));
        let memory = SharedMemory::new(&engine, MemoryType::shared(1, 1)).unwrap();
        std::thread::scope(|scope| {
            for number in 0..COUNT {
                let (engine, module, profiler, memory) = (&engine, &modules[0].0, &profiler, &memory);
                let comparing = compared.clone();
                scope.spawn(move || {
                    let mut store = Store::new(engine, ());
                    profiler.attach(&mut store, Attach::named(format!("thread {number}"))).unwrap();
                    let mut linker: Linker<()> = Linker::new(engine);
                    linker.define(&store, "env", "memory", memory.clone()).unwrap();
                    let told = move |caller: Caller<'_, ()>, _: i32| comparing.compare(&caller, |_| false);
                    linker.func_wrap("env", "told", told).unwrap();
                    let instance = linker.instantiate(&mut store, module).unwrap();
                    let run = instance.get_typed_func::<(i32, i32), ()>(&mut store, "run").unwrap();
                    run.call(&mut store, (64 * number as i32, 300_000 * times as i32)).unwrap();
                });
            }
        });
        assert_eq!(compared.counts().0, u64::from(COUNT));
        let recording = finish(&profiler, &modules);
        let seen = seen(&recording);
        assert!(seen.values().all(|(_, threads)| threads.len() <= 1), "each store has run on one thread: {seen:?}");
        let tids: BTreeSet<u64> = seen.values().flat_map(|(_, threads)| threads).copied().collect();
        println!("{:?}", recording.ticks);
        tids.len() == COUNT as usize
    });
}

#[test]
fn stores_and_modules_come_and_go() {
    const STORES: u32 = 120;
    let engine = engine();
    let profiler = watching(&engine, &[]);
    let loaded = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (engine, profiler, loaded) = (&engine, &profiler, &loaded);
            scope.spawn(move || {
                for number in (worker..STORES).step_by(2) {
                    let text = format!(
                        r#"(module (func (export "run") (local $n i32)
                          (loop $l (br_if $l (i32.lt_u
                            (local.tee $n (i32.add (local.get $n) (i32.const 1)))
                            (i32.const {}))))))"#,
                        1_000_000 + number
                    );
                    let (module, image) = compile(engine, &text, &format!("module {number}"));
                    let id = {
                        // Ids follow the order of loading, and so must the list that names them.
                        let mut loaded = loaded.lock().unwrap();
                        loaded.push((module.clone(), image.clone()));
                        profiler.add_read(&module, &image, None).unwrap()
                    };
                    let mut store = Store::new(engine, ());
                    profiler.attach(&mut store, Attach::named(format!("store {id}"))).unwrap();
                    let instance = Instance::new(&mut store, &module, &[]).unwrap();
                    instance.get_typed_func::<(), ()>(&mut store, "run").unwrap().call(&mut store, ()).unwrap();
                }
            });
        }
    });
    let recording = finish(&profiler, &loaded.into_inner().unwrap());
    let seen = seen(&recording);
    for (name, (modules, _)) in &seen {
        let own: u32 = name.trim_start_matches("store ").parse().unwrap();
        assert!(modules.iter().all(|module| *module == own), "{name}: {modules:?}");
    }
    assert_eq!((recording.stores.len(), recording.modules.len()), (seen.len(), STORES as usize));
    assert!(seen.len() > STORES as usize / 2, "{} of {STORES} stores have samples", seen.len());
    let lost = |reason| recording.truncated.iter().any(|(other, _)| *other == Truncation::Language(reason));
    assert!(!lost(LanguageTruncation::InHostCode));
}

#[test]
fn profilers_that_take_turns_on_a_thread_are_sampled_both() {
    const TURNS: usize = 40;
    const RATE_HZ: f64 = 1000.0;
    let engine = engine();
    let options = SamplerOptions { max_overhead: 1.0, ..SamplerOptions::at_rate(RATE_HZ) };
    let mut guests = [0, 1].map(|tag| {
        let module = compile(&engine, &async_guest(tag), "guest");
        let profiler = profiler(&engine, options.clone());
        profiler.add_read(&module.0, &module.1, None).unwrap();
        let mut store = Store::new(&engine, ());
        profiler.attach(&mut store, Attach::named("store")).unwrap();
        let mut linker: Linker<()> = Linker::new(&engine);
        for name in ["nap", "busy", "again"] {
            linker.func_wrap("h", name, |n: i32| n).unwrap();
        }
        let instance = linker.instantiate(&mut store, &module.0).unwrap();
        let run = instance.get_typed_func::<i32, i64>(&mut store, "run").unwrap();
        (profiler, store, run, module)
    });
    for _ in 0..TURNS {
        for (_, store, run, _) in &mut guests {
            run.call(store, 400).unwrap();
        }
    }
    for (profiler, _, _, module) in &guests {
        let recording = finish(profiler, std::slice::from_ref(module));
        let used = recording.meta.cpu_ns as f64 / 1e9;
        let signals = recording.samples().filter(|sample| sample.cpu_delta_ns > 0).count() as f64;
        println!("{signals} samples of {used} s, {:?}", recording.ticks);
        assert!(signals >= used * RATE_HZ * 0.8, "{signals} samples of {used} s, {:?}", recording.ticks);
    }
}

#[test]
fn go_guests_in_several_stores_have_goroutines_of_their_own() {
    let guest = Guest::load(&fixture("go-work-1.27.wasm"), &LoadOptions::default()).unwrap();
    let (module, image) = (guest.code.compiled.module().unwrap(), &guest.code.images[0]);
    with_ever_more_work("both Go guests", |times| {
        let program = languages::choose(&Choice::Auto, languages::BUILT_IN, &**image).unwrap().program;
        let options = SamplerOptions { max_overhead: 1.0, ..SamplerOptions::at_rate(2000.0) };
        let profiler = profiler(&guest.engine, options);
        profiler.add_read(module, image, program).unwrap();
        let started = Barrier::new(2);
        std::thread::scope(|scope| {
            for kind in ["split", "recursion"] {
                let (guest, profiler, started) = (&guest, &profiler, &started);
                scope.spawn(move || {
                    let arguments = ["go-work", kind, &(2 * times).to_string()].map(str::to_owned).to_vec();
                    let world = WasiOptions { arguments, stdio: Stdio::Null, ..WasiOptions::default() };
                    let mut store = world.store(&guest.engine).unwrap();
                    let attached = profiler.attach(&mut store, Attach::named(kind)).unwrap();
                    let instance =
                        linker(&guest.engine, &guest.flags).unwrap().instantiate(&mut store, module).unwrap();
                    attached.instantiated(&mut store, &instance).unwrap();
                    started.wait();
                    assert!(matches!(call(&mut store, &instance, None, &[]), Exit::Returned(_) | Exit::Code(0)));
                });
            }
        });
        let recording = finish(&profiler, &[(module.clone(), image.clone())]);
        // How far the rate has to be lowered is up to the machine.
        let others: Vec<_> =
            recording.meta.notes.iter().filter(|note| !note.contains("the rate was lowered")).collect();
        assert!(others.is_empty(), "{others:?}");
        let mut functions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for thread in &recording.threads {
            let of_store = functions.entry(&recording.stores[thread.store as usize].name).or_default();
            let lines = thread.samples.iter().flat_map(|sample| recording.lines_of(sample.stack).collect::<Vec<_>>());
            of_store.extend(lines.map(|line| recording.functions[line.function as usize].name.as_str()));
        }
        let has = |store: &str, function: &str| functions.get(store).is_some_and(|names| names.contains(function));
        // Only what a guest does itself is on its goroutines.
        assert!(!has("recursion", "main.heavy") && !has("split", "main.descend"), "{functions:?}");
        has("split", "main.heavy") && has("split", "runtime.goexit") && has("recursion", "main.descend")
    });
}
