//! wlprof as a library: the examples, as programs that Wasmtime's users would write, and what the profiler leaves its embedder.

use crate::guest::{Place, fixture, run};
use crate::sampled::{Shares, with_ever_more_work};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wasmtime::{CallHook, Caller, Config, Engine, Instance, Linker, Module, Store, StoreLimits, StoreLimitsBuilder};
use wlprof::export;
use wlprof::recording::{Clock, Recording, View};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof::{Attach, Profiler};

/// Runs an example, which writes its profile to the file that it is given first.
fn example(name: &str, arguments: &[&str]) -> Recording {
    let place = Place::new();
    // Cargo puts examples beside the folder of the tests.
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().with_file_name("examples").join(name);
    let mut command = Command::new(program);
    command.arg("run.wlprof").args(arguments).current_dir(place.path(""));
    let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.recording("run.wlprof")
}

/// The time of each store's samples with a function of that name on the stack.
fn time_in(recording: &Recording, function: &str) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    for thread in &recording.threads {
        let store = &recording.stores[thread.store as usize].name;
        for sample in thread.samples.iter() {
            if recording.lines_of(sample.stack).any(|line| recording.functions[line.function as usize].name == function)
            {
                *times.entry(store.clone()).or_default() += sample.period_ns;
            }
        }
    }
    times
}

/// Whether `most` has three quarters of the time that it and `rest` have, as well as the samples tell.
fn assert_three_quarters(recording: &Recording, most: &str, rest: &str) {
    let part = |stack| {
        let mut names = recording.lines_of(stack).map(|line| &*recording.functions[line.function as usize].name);
        names.find(|name| [most, rest].contains(name))
    };
    let parts = recording.samples().filter_map(|sample| Some((part(sample.stack)?, sample.period_ns)));
    let shares = Shares::of(parts);
    let (share, chance) = (shares.percent(most), shares.chance(75.0));
    assert!((share - 75.0).abs() <= chance, "{share} ±{chance} % in {most}: {:?}", recording.ticks);
}

/// Functions that were seen in each store.
fn functions(recording: &Recording) -> BTreeMap<String, BTreeSet<&str>> {
    let mut functions: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for thread in &recording.threads {
        let store = recording.stores[thread.store as usize].name.clone();
        let seen = functions.entry(store).or_default();
        for sample in thread.samples.iter() {
            let lines = recording.lines_of(sample.stack);
            seen.extend(lines.map(|line| recording.functions[line.function as usize].name.as_str()));
        }
    }
    functions
}

#[test]
fn a_synchronous_host_sees_lines_and_goroutines() {
    let (c, go) = (fixture("c-shares.wasm"), fixture("go-goroutines-1.27.wasm"));
    let (c, go) = (c.to_str().unwrap(), go.to_str().unwrap());
    with_ever_more_work("two goroutines", |times| {
        let guests: Vec<&str> = [c].into_iter().chain((0..times).map(|_| go)).collect();
        let recording = example("synchronous", &guests).view(View::Guest);
        // `heavy` runs the same loop three times as often as `light`.
        assert!(time_in(&recording, "heavy").keys().eq([c]));
        assert_three_quarters(&recording, "heavy", "light");
        let functions = functions(&recording);
        assert!(functions[c].contains("main") && !functions[c].contains("main.main"), "{functions:?}");
        assert!(!functions[go].contains("heavy"), "{functions:?}");
        assert!(recording.label_sets.iter().flatten().any(|(key, _)| key == "goroutine"), "{:?}", recording.label_sets);
        ["main.hash", "main.digits"].iter().all(|name| functions[go].contains(name))
    });
}

#[test]
fn a_tokio_host_sees_each_request() {
    with_ever_more_work("samples of many requests, of both functions", |times| {
        let recording = example("tokio_stores", &[&(200 * times).to_string()]);
        let (parse, answer) = (time_in(&recording, "parse"), time_in(&recording, "answer"));
        let requests: BTreeSet<&String> = parse.keys().chain(answer.keys()).collect();
        assert!(requests.iter().all(|name| name.starts_with("request ")), "{requests:?}");
        let is_enough = requests.len() > 20;
        if is_enough {
            assert_three_quarters(&recording, "answer", "parse");
        }
        is_enough
    });
}

#[test]
fn a_host_with_wasm_threads_sees_both() {
    with_ever_more_work("both threads", |times| {
        let recording = example("threads", &[&(20_000_000 * times).to_string()]);
        let counts = time_in(&recording, "count");
        let threads: BTreeSet<u64> = recording.threads.iter().map(|thread| thread.tid).collect();
        assert!(counts.keys().all(|name| ["thread 0", "thread 1"].contains(&name.as_str())), "{counts:?}");
        counts.len() == 2 && threads.len() == 2
    });
}

#[test]
fn a_plugin_system_sees_what_ran_while_it_was_not_paused() {
    with_ever_more_work("the plugins of the second half", |times| {
        let recording = example("plugin_system", &[&(10_000_000 * times).to_string(), "10"]);
        let functions = functions(&recording);
        for (store, functions) in &functions {
            let number: u32 = store.strip_prefix("plugin ").unwrap().parse().unwrap();
            assert!(number >= 5 || functions.is_empty(), "{functions:?}");
            let own = format!("plugin_{number}");
            assert!(functions.iter().all(|name| !name.starts_with("plugin_") || **name == own), "{functions:?}");
        }
        functions.values().filter(|functions| !functions.is_empty()).count() >= 4
    });
}

fn engine(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config::new();
    change(&mut config);
    wlprof::configure(&mut config);
    Engine::new(&config).unwrap()
}

const GUEST: &str = r#"(module
    (import "h" "f" (func $f (param i32) (result i32)))
    (func $work (param $n i32) (result i32)
        (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (local.get $n))
    (func (export "run") (param $n i32) (result i32) (i32.add (call $work (local.get $n)) (call $f (local.get $n)))))"#;

fn linked<T: 'static>(engine: &Engine) -> Linker<T> {
    let mut linker = Linker::new(engine);
    linker.func_wrap("h", "f", |_: Caller<'_, T>, n: i32| n).unwrap();
    linker
}

fn call<T: 'static>(store: &mut Store<T>, module: &Module, rounds: i32) -> wasmtime::Result<i32> {
    let instance = linked(store.engine()).instantiate(&mut *store, module)?;
    instance.get_typed_func::<i32, i32>(&mut *store, "run")?.call(&mut *store, rounds)
}

#[test]
fn an_embedders_fuel_epochs_and_limits_are_its_own() {
    let engine = engine(|config| {
        config.consume_fuel(true).epoch_interruption(true);
    });
    let profiler = Profiler::builder().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let limits = || StoreLimitsBuilder::new().instances(2).memories(0).tables(0).build();
    // A deadline that has passed, and no fuel: what is made of the store does not run.
    engine.increment_epoch();
    let mut store: Store<StoreLimits> = Store::new(&engine, limits());
    store.limiter(|limits| limits);
    profiler.attach(&mut store, Attach::named("limited")).unwrap();
    assert_eq!(store.get_fuel().unwrap(), 0);
    store.set_fuel(1_000_000).unwrap();
    store.set_epoch_deadline(1);
    let profiled = call(&mut store, &module, 1000).unwrap();
    let spent = 1_000_000 - store.get_fuel().unwrap();

    let mut alone: Store<StoreLimits> = Store::new(&engine, limits());
    alone.set_fuel(1_000_000).unwrap();
    alone.set_epoch_deadline(1);
    assert_eq!(profiled, call(&mut alone, &module, 1000).unwrap());
    assert_eq!(spent, 1_000_000 - alone.get_fuel().unwrap());
}

#[test]
fn with_epochs_stores_are_sampled_or_left_alone_and_all_go_on() {
    let engine = engine(|config| {
        config.epoch_interruption(true);
    });
    let options = SamplerOptions {
        kind: SamplerKind::Epoch,
        rate_hz: 1000.0,
        on_demand: true,
        keep: Some(Duration::from_secs(60)),
        counts_host_calls: true,
        ..SamplerOptions::default()
    };
    for (fraction, is_sampled) in [(1.0, true), (f64::MIN_POSITIVE, false)] {
        let builder = Profiler::builder().sampler_options(options.clone()).fraction(fraction);
        let profiler = builder.start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let mut calls = 0;
        with_ever_more_work("ten samples", |times| {
            let mut store = Store::new(&engine, ());
            profiler.attach(&mut store, Attach::named("store")).unwrap();
            call(&mut store, &module, 10_000_000 * times as i32).unwrap();
            calls += u64::from(is_sampled);
            profiler.snapshot().map_or(0, |snapshot| snapshot.recording().samples().count()) >= 10 || !is_sampled
        });
        // Of `f` alone: checks, at which Wasmtime calls the host as well, are none.
        let counted: u64 = profiler.activity().map_or(0, |activity| activity.host_calls.values().sum());
        assert_eq!(counted, calls);
    }
}

/// What a call hook is told, in order; a refusal of calls of the host if `refuses`.
fn told(profiler: Option<&Profiler>, engine: &Engine, module: &Module, refuses: bool) -> (Vec<String>, Option<String>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = told.clone();
    let hook = move |_: wasmtime::StoreContextMut<'_, ()>, hook: CallHook| {
        telling.lock().unwrap().push(format!("{hook:?}"));
        match (hook, refuses) {
            (CallHook::CallingHost, true) => Err(wasmtime::format_err!("not now")),
            _ => Ok(()),
        }
    };
    let mut store = Store::new(engine, ());
    match profiler {
        Some(profiler) => drop(profiler.attach(&mut store, Attach::named("told").call_hook(hook)).unwrap()),
        None => store.call_hook(hook),
    }
    let failed = call(&mut store, module, 10).err().map(|error| error.root_cause().to_string());
    // Whatever was refused, the store works as before.
    let again = call(&mut store, module, 10).err().map(|error| error.root_cause().to_string());
    assert_eq!(failed, again);
    drop(store);
    (told.lock().unwrap().clone(), failed)
}

#[test]
fn an_embedders_call_hook_is_told_what_it_is_told_without_a_profiler() {
    let engine = engine(|_| ());
    let profiler = Profiler::builder().rate_hz(5000.0).start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    for refuses in [false, true] {
        let alone = told(None, &engine, &module, refuses);
        assert!(alone.0.iter().any(|hook| hook == "CallingHost"), "{alone:?}");
        assert_eq!(alone.1.as_deref(), refuses.then_some("not now"));
        assert_eq!(told(Some(&profiler), &engine, &module, refuses), alone);
    }
}

#[test]
fn what_the_profiler_cannot_do_is_told() {
    let engine = engine(|_| ());
    let profiler = Profiler::builder().start(&engine).unwrap();
    let failed = |result: wasmtime::Result<()>, expected: &str| {
        let error = format!("{:#}", result.expect_err(expected));
        assert!(error.contains(expected), "{error}");
    };
    failed(profiler.snapshot().map(drop), "has not begun");
    failed(profiler.load("text", b"fn main() {}").map(drop), "expected");

    let other = Engine::default();
    let binary = wat::parse_str(GUEST).unwrap();
    let module = Module::new(&other, &binary).unwrap();
    failed(profiler.add(&module, "guest.wasm", &binary), "another engine");
    failed(profiler.attach(&mut Store::new(&other, ()), Attach::named("x")).map(drop), "another engine");
    let module = Module::new(&engine, &binary).unwrap();
    let longer = "(i32.mul (i32.const 1) ".repeat(50) + "(local.get $n)" + &")".repeat(50);
    let longer = wat::parse_str(GUEST.replace("        (local.get $n))\n", &format!("{longer})\n"))).unwrap();
    failed(profiler.add(&module, "guest.wasm", &longer), "compiled from other bytes");
    let mut asynchronous = Store::new(&engine, ());
    asynchronous.set_epoch_deadline(1);
    asynchronous.epoch_deadline_async_yield_and_update(1);
    failed(profiler.attach(&mut asynchronous, Attach::named("x")).map(drop), "before it is configured for async");
    for builder in [
        Profiler::builder().rate_hz(f64::NAN),
        Profiler::builder().rate_hz(0.0),
        Profiler::builder().max_overhead(2.0),
        Profiler::builder().sampler(SamplerKind::Epoch).clock(Clock::Wall),
    ] {
        failed(builder.start(&engine).map(drop), "");
    }

    let unconfigured = Engine::new(Config::new().generate_address_map(false)).unwrap();
    failed(Profiler::builder().start(&unconfigured).map(drop), "wlprof::configure");
    let unconfigured = Engine::new(Config::new().debug_symbols(false)).unwrap();
    failed(Profiler::builder().start(&unconfigured).map(drop), "wlprof::configure");
    failed(Profiler::builder().sampler(SamplerKind::Epoch).start(&engine).map(drop), "epoch_interruption(true)");

    let mut store = Store::new(&engine, ());
    let attached = profiler.attach(&mut store, Attach::named("x")).unwrap();
    let module = Module::new(&engine, &binary).unwrap();
    let instance = linked(&engine).instantiate(&mut store, &module).unwrap();
    failed(attached.instantiated(&mut store, &instance), "Profiler::add");
    profiler.add(&module, "guest.wasm", &binary).unwrap();
    profiler.add(&module, "guest.wasm", &binary).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    let mut another = Store::new(&engine, ());
    profiler.attach(&mut another, Attach::named("y")).unwrap();
    let instance = linked(&engine).instantiate(&mut another, &module).unwrap();
    failed(attached.instantiated(&mut another, &instance), "another store");
}

#[test]
fn profilers_stores_and_engines_go_in_any_order() {
    for order in 0..6 {
        let engine = engine(|_| ());
        let profiler = Profiler::builder().rate_hz(5000.0).start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let mut store = Store::new(&engine, ());
        let attached = profiler.attach(&mut store, Attach::named("store")).unwrap();
        call(&mut store, &module, 1_000_000).unwrap();
        let window = profiler.window().unwrap();
        drop(engine);
        match order {
            0 => (drop(profiler), drop(attached), drop(store), drop(window)).3,
            1 => (drop(store), drop(profiler), drop(window), drop(attached)).3,
            2 => (drop(window), drop(attached), drop(profiler), call(&mut store, &module, 1_000_000).map(drop))
                .3
                .unwrap(),
            3 => {
                drop((profiler, attached, window));
                call(&mut store, &module, 1_000_000).unwrap();
                // Another one takes the store over: the first has gone.
                let next = Profiler::builder().start(store.engine()).unwrap();
                next.add(&module, "guest.wasm", &wat::parse_str(GUEST).unwrap()).unwrap();
                next.attach(&mut store, Attach::named("again")).unwrap();
                call(&mut store, &module, 1_000_000).unwrap();
            }
            4 => {
                drop((store, module));
                window.snapshot().unwrap();
                profiler.snapshot().unwrap();
            }
            _ => std::thread::spawn(move || drop((store, profiler, attached, window))).join().unwrap(),
        }
    }
}

#[test]
fn windows_and_the_past_are_parts_of_the_whole() {
    with_ever_more_work("samples in each part", |times| {
        let engine = engine(|_| ());
        let builder = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).keep(Duration::from_secs(15));
        let profiler = builder.start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let mut store = Store::new(&engine, ());
        profiler.attach(&mut store, Attach::named("store")).unwrap();
        let mut work = || call(&mut store, &module, 30_000_000 * times as i32).unwrap();
        let samples = |recording: &Recording| recording.samples().count();
        let cpu_ns = |recording: &Recording| recording.meta.cpu_ns;
        work();
        let window = profiler.window().unwrap();
        work();
        let of_window = window.snapshot().unwrap();
        drop(window);
        let past = profiler.last(Duration::ZERO).unwrap();
        let whole = profiler.snapshot().unwrap();
        profiler.pause();
        // The timer that was set may still expire.
        work();
        let after = profiler.snapshot().unwrap();
        work();
        let paused = profiler.snapshot().unwrap();
        assert_eq!(samples(after.recording()), samples(paused.recording()), "it is paused");
        assert_eq!(cpu_ns(after.recording()), cpu_ns(paused.recording()), "it is not counted either");
        // A window is sampled all the same.
        let window = profiler.window().unwrap();
        work();
        let while_paused = samples(window.snapshot().unwrap().recording());
        let times = [&of_window, &past, &whole].map(|part| cpu_ns(part.recording()));
        let [of_window, past, all] = [&of_window, &past, &whole].map(|part| samples(part.recording()));
        let mut folded = Vec::new();
        whole.write(export::by_name("folded").unwrap(), &mut folded).unwrap();
        let folded = String::from_utf8(folded).unwrap();
        let seen = folded.contains("run;work ");
        assert!(whole.write(export::by_name("perf").unwrap(), &mut Vec::new()).is_err(), "it is two files");
        println!("{of_window} and {while_paused} in windows, {past} of the past, {all} of all");
        // The past begins at a mark, of which there is one each quarter of a second.
        let are_parts = past < all && of_window < all && times[0] < times[2] && times[1] < times[2];
        of_window >= 10 && while_paused >= 10 && are_parts && seen
    });
}

/// Set for a run of this test alone, in a process of its own: signal handlers are a process's.
const ALONE: &str = "WLPROF_TEST_ALONE";

#[test]
fn another_profilers_handler_goes_on() {
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "embedding::another_profilers_handler_goes_on"]).env(ALONE, "1");
        let ran = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        assert!(ran.code == Some(0) && ran.stdout.contains("1 passed"), "{ran:?}");
        return;
    }
    let signalled = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(libc::SIGPROF, signalled.clone()).unwrap();
    with_ever_more_work("samples", |times| {
        let engine = engine(|_| ());
        let profiler = Profiler::builder().rate_hz(1000.0).start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let mut store = Store::new(&engine, ());
        profiler.attach(&mut store, Attach::named("store")).unwrap();
        call(&mut store, &module, 50_000_000 * times as i32).unwrap();
        assert!(!signalled.load(Ordering::SeqCst), "wlprof's own signals are nobody else's");
        // From elsewhere, and as V8 sends it to its own threads.
        for send in [
            || nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGPROF),
            || nix::sys::signal::raise(nix::sys::signal::SIGPROF),
        ] {
            send().unwrap();
            while !signalled.swap(false, Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        profiler.snapshot().unwrap().recording().samples().count() > 10
    });
}

#[test]
fn host_functions_that_panic_cost_the_profiler_nothing() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let engine = engine(|_| ());
    let profiler = Profiler::builder().rate_hz(5000.0).start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    for _ in 0..20 {
        let mut store = Store::new(&engine, ());
        profiler.attach(&mut store, Attach::named("panics")).unwrap();
        let mut linker = Linker::new(&engine);
        let panicking = |_: Caller<'_, ()>, n: i32| -> i32 {
            CALLS.fetch_add(1, Ordering::Relaxed);
            if n > 0 { std::panic::resume_unwind(Box::new("panicked")) } else { n }
        };
        linker.func_wrap("h", "f", panicking).unwrap();
        let instance: Instance = linker.instantiate(&mut store, &module).unwrap();
        let run = instance.get_typed_func::<i32, i32>(&mut store, "run").unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.call(&mut store, 100_000)));
        assert!(panicked.is_err());
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 20);
    let mut store = Store::new(&engine, ());
    profiler.attach(&mut store, Attach::named("after")).unwrap();
    // Its time counts as well as before.
    with_ever_more_work("samples after panics", |times| {
        call(&mut store, &module, 10_000_000 * times as i32).unwrap();
        let snapshot = profiler.snapshot().unwrap();
        time_in(snapshot.recording(), "work").get("after").is_some_and(|time_ns| *time_ns > 5_000_000)
    });
}

/// Requests that own their stores, as tasks do: the last poll drops the store.
#[test]
fn time_counts_though_the_store_goes_within_the_future() {
    with_ever_more_work("a second of requests", |times| {
        let engine = engine(|_| ());
        let profiler = Profiler::builder().max_overhead(1.0).start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let own_cpu = || Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = own_cpu();
        for request in 0..100 * times {
            let mut store = Store::new(&engine, ());
            let attached = profiler.attach(&mut store, Attach::named(format!("request {request}"))).unwrap();
            let module = module.clone();
            runtime.block_on(attached.run(async move {
                let instance = linked(store.engine()).instantiate_async(&mut store, &module).await.unwrap();
                let run = instance.get_typed_func::<i32, i32>(&mut store, "run").unwrap();
                run.call_async(&mut store, 5_000_000).await.unwrap();
            }));
        }
        let used_ns = (own_cpu() - before).as_nanos() as f64;
        let snapshot = profiler.snapshot().unwrap();
        let recording = snapshot.recording();
        let sampled_ns = recording.samples().map(|sample| sample.period_ns).sum::<u64>() as f64;
        println!("{used_ns} ns used, {} in stores, {sampled_ns} sampled", recording.meta.cpu_ns);
        assert!(recording.meta.cpu_ns as f64 > 0.9 * used_ns, "{:?}", recording.meta);
        assert!(sampled_ns + recording.meta.unsampled_ns as f64 > 0.9 * used_ns, "{:?}", recording.meta);
        used_ns > 3e8 && sampled_ns > 0.5 * used_ns
    });
}

/// Two tenants' stores on one thread, and a host that has names of its own.
#[test]
fn a_tenant_sees_its_own_stores_alone() {
    with_ever_more_work("samples of both tenants", |times| {
        let engine = engine(|_| ());
        let builder = Profiler::builder().name("the host's own name").rate_hz(1000.0).max_overhead(1.0);
        let profiler = builder.start(&engine).unwrap();
        let guest = |tenant: &str| {
            let text = GUEST.replace("$work", &format!("$work_of_{tenant}"));
            profiler.load(&format!("{tenant}.wasm"), text.as_bytes()).unwrap()
        };
        let modules = ["ada", "bob"].map(|tenant| (tenant, guest(tenant)));
        for round in 0..10 {
            for (tenant, module) in &modules {
                let mut store = Store::new(&engine, ());
                let attach = Attach::named(format!("{tenant}'s {round}")).label("tenant", *tenant).label("plan", "x");
                profiler.attach(&mut store, attach).unwrap();
                call(&mut store, module, 3_000_000 * times as i32).unwrap();
            }
        }
        profiler.pause();
        let whole = profiler.snapshot().unwrap();
        let all = whole.recording().samples().count();
        let of_ada = profiler.snapshot().unwrap().of_label("tenant", "ada").view(View::Guest);
        let seen = of_ada.recording();
        if seen.samples().count() < 20 || all - seen.samples().count() < 20 {
            return false;
        }
        let text = format!("{seen:?}");
        assert!(text.contains("work_of_ada") && text.contains("ada's "), "{text}");
        for others in ["bob", "host's own name", std::thread::current().name().unwrap()] {
            assert!(!text.contains(others), "{others}: {text}");
        }
        assert_eq!((seen.modules.len(), &*seen.modules[0].name), (1, "ada.wasm"));
        let time_ns: u64 = seen.samples().map(|sample| sample.period_ns).sum();
        let of_hers = |name: &String| name.starts_with("ada's ");
        let times = whole
            .recording()
            .threads
            .iter()
            .filter(|thread| of_hers(&whole.recording().stores[thread.store as usize].name));
        assert_eq!(times.flat_map(|thread| thread.samples.iter()).map(|sample| sample.period_ns).sum::<u64>(), time_ns);
        // In pprof each sample says whose it is.
        let labels = |recording: &Recording| -> BTreeSet<String> {
            recording.label_sets.iter().flatten().map(|(name, value)| format!("{name}={value}")).collect()
        };
        let expected: BTreeSet<String> = ["tenant=ada", "plan=x"].map(str::to_owned).into();
        assert_eq!(labels(seen), expected);
        assert!(labels(whole.recording()).contains("tenant=bob"), "{:?}", whole.recording().label_sets);
        for format in ["pprof", "firefox", "folded", "speedscope", "flamegraph"] {
            let mut written = Vec::new();
            of_ada.write(export::by_name(format).unwrap(), &mut written).unwrap();
            assert!(!String::from_utf8_lossy(&written).contains("bob"), "{format}");
        }
        // Who does not exist sees nothing, and that is a profile, too.
        let nobody = profiler.snapshot().unwrap().of_label("tenant", "eve");
        assert_eq!((nobody.recording().samples().count(), nobody.recording().frames.len()), (0, 0));
        nobody.write(export::by_name("firefox").unwrap(), &mut Vec::new()).unwrap();
        true
    });
}

/// A host call of a sampled store runs the wasm of one that is not: that is no stack of the sampled one's.
#[test]
fn wasm_of_other_stores_is_not_taken_for_that_of_the_caller() {
    let engine = engine(|_| {});
    let profiler = Profiler::builder().start(&engine).unwrap();
    let inner = profiler.load("inner.wasm", GUEST.as_bytes()).unwrap();
    let outer = r#"(module (import "host" "inner" (func $host)) (func $outer (export "run") (param i32) (result i32)
        (call $host) (local.get 0)))"#;
    let outer = profiler.load("outer.wasm", outer.as_bytes()).unwrap();
    for holds in [false, true] {
        let mut linker = Linker::new(&engine);
        let (other, inner) = (engine.clone(), inner.clone());
        let runs_inner = move || {
            call(&mut Store::new(&other, ()), &inner, 300_000_000).unwrap();
        };
        linker.func_wrap("host", "inner", runs_inner).unwrap();
        let mut store = Store::new(&engine, ());
        let name = if holds { "held" } else { "called" };
        let attached = profiler.attach(&mut store, Attach::named(name)).unwrap();
        let instance = linker.instantiate(&mut store, &outer).unwrap();
        attached.instantiated(&mut store, &instance).unwrap();
        let held = holds.then(|| attached.hold().unwrap());
        let run = instance.get_typed_func::<i32, i32>(&mut store, "run").unwrap();
        assert_eq!(run.call(&mut store, 7).unwrap(), 7);
        drop(held);
    }
    let mut store = Store::new(&engine, ());
    let _attached = profiler.attach(&mut store, Attach::named("its own")).unwrap();
    call(&mut store, &inner, 300_000_000).unwrap();
    let snapshot = profiler.snapshot().unwrap();
    let seen = time_in(snapshot.recording(), "work");
    assert!(seen.keys().eq(["its own"]), "{seen:?}");
}

#[test]
fn a_fraction_of_the_stores_is_sampled() {
    let engine = engine(|_| ());
    let profiler = Profiler::builder().fraction(0.5).start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let mut sampled = 0;
    for _ in 0..200 {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        let mut store = Store::new(&engine, ());
        let attach = Attach::named("store").call_hook(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let attached = profiler.attach(&mut store, attach).unwrap();
        sampled += u64::from(attached.is_sampled());
        let instance = linked(&engine).instantiate(&mut store, &module).unwrap();
        attached.instantiated(&mut store, &instance).unwrap();
        instance.get_typed_func::<i32, i32>(&mut store, "run").unwrap().call(&mut store, 10).unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 4, "the embedder's hook is called in any case");
    }
    // Six standard deviations.
    assert!((57..=143).contains(&sampled), "{sampled} of 200");
}
