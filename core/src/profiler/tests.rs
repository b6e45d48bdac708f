//! Modules and stores that come and go while they are sampled.

use super::*;
use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wasmtime::TypedFunc;
use wlprof_recording::{Line, Recording};

/// How long what has to come about may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls itself so often, then loops: each depth is another stack.
fn guest(number: u32) -> String {
    format!(
        r#"(module (memory 1)
        (func $deep_{number} (export "run") (param $depth i32) (param $n i32)
            (if (local.get $depth)
                (then (call $deep_{number} (i32.sub (local.get $depth) (i32.const 1)) (local.get $n)))
                (else (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))))"#
    )
}

fn engine() -> Engine {
    let mut config = wasmtime::Config::new();
    configure(&mut config);
    Engine::new(&config).unwrap()
}

/// A store of guest `which`, and what runs it.
fn store(profiler: &Profiler, guest: &Module, which: usize, number: usize) -> (Store<()>, TypedFunc<(i32, i32), ()>) {
    let mut store = Store::new(guest.engine(), ());
    let attach = Attach::named(format!("{number} of {which}")).label("guest", which.to_string());
    let attached = profiler.attach(&mut store, attach).unwrap();
    let instance = wasmtime::Instance::new(&mut store, guest, &[]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    let run = instance.get_typed_func(&mut store, "run").unwrap();
    (store, run)
}

/// Whether all that is said of each store is of its guest. Gives how many samples there are of wasm.
fn check(recording: &Recording) -> usize {
    let mut seen = 0;
    for thread in &recording.threads {
        let store = &recording.stores[thread.store as usize];
        let (_, which) = store.name.split_once(" of ").unwrap();
        assert_eq!(store.labels, [("guest".to_owned(), which.to_owned())]);
        assert!(store.memory.iter().all(|size| [0, 1 << 16].contains(&size.bytes)), "{store:?}");
        for sample in thread.samples.iter() {
            let name = |line: &Line| &*recording.functions[line.function as usize].name;
            let names: Vec<&str> = recording.lines_of(sample.stack).map(|line| name(&line)).collect();
            let is_own = |name: &&str| *name == format!("deep_{which}");
            assert!(names == ["[host]"] || names.iter().all(is_own), "{names:?} in {}", store.name);
            seen += usize::from(names != ["[host]"]);
        }
    }
    seen
}

#[test]
fn modules_are_let_go_of_when_nothing_that_is_kept_is_of_them() {
    let engine = engine();
    let builder = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).keep(Duration::from_millis(250));
    let profiler = builder.start(&engine).unwrap();
    profiler.0.session.shared_recorder().set_small_limits();
    let images = || profiler.0.session.images_and_programs().0.into_iter();
    let (mut loaded, mut seen) = (Vec::new(), 0);
    let began = Instant::now();
    let is_there = |image: &Weak<ModuleImage>| image.strong_count() > 0;
    for number in 0.. {
        let name = number.to_string();
        let module = profiler.load(&name, guest(number).as_bytes()).unwrap();
        let image = images().find(|image| image.name() == name).unwrap();
        loaded.push(Arc::downgrade(&image));
        let (mut store, run) = store(&profiler, &module, number as usize, number as usize);
        // Not so deep that a quick machine makes more stacks in a quarter of a second than are told apart.
        run.call(&mut store, (number as i32 % 50, 4_000_000)).unwrap();
        drop((store, image));
        profiler.remove(&module);
        if number % 10 == 0 {
            seen += check(profiler.snapshot().unwrap().recording());
        }
        // Those that come take the places of those that went.
        if seen > 1000 && loaded.len() > 4 * images().count() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{} of {} modules are there", images().count(), loaded.len());
    }
    while loaded.iter().any(is_there) {
        assert!(
            began.elapsed() < 2 * PATIENCE,
            "{} modules are left",
            loaded.iter().filter(|image| is_there(image)).count()
        );
        std::thread::sleep(Duration::from_millis(10));
        // What names them goes with the next one.
        profiler.snapshot().unwrap();
    }
}

#[test]
fn stores_stay_apart_while_tables_are_compacted() {
    let engine = engine();
    let builder = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).keep(Duration::from_millis(250));
    let profiler = builder.start(&engine).unwrap();
    profiler.0.session.shared_recorder().set_small_limits();
    let guests: Vec<Module> =
        (0..20).map(|number| profiler.load(&number.to_string(), guest(number).as_bytes()).unwrap()).collect();
    // One stays, and its thread with it.
    let (mut long, run_long) = store(&profiler, &guests[0], 0, 0);
    let (mut compacted, mut seen) = (BTreeSet::new(), 0);
    let began = Instant::now();
    for number in 1.. {
        // Each guest is forgotten, and comes back.
        let which = 1 + number / 10 % (guests.len() - 1);
        let depth = (number * 7 % 300) as i32;
        run_long.call(&mut long, (depth, 500_000)).unwrap();
        let (mut short, run) = store(&profiler, &guests[which], which, number);
        run.call(&mut short, (depth, 4_000_000)).unwrap();
        // At first it has never been.
        compacted.insert(profiler.0.session.shared_recorder().compacted_at_ns());
        if number % 10 == 0 {
            seen += check(profiler.snapshot().unwrap().recording());
        }
        if compacted.len() > 8 && seen > 1000 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "compacted at {compacted:?}, {seen} samples");
    }
}

#[test]
fn a_module_stays_for_a_store_that_has_it_and_for_whoever_holds_ids() {
    let engine = engine();
    let profiler = Profiler::builder().keep(Duration::ZERO).start(&engine).unwrap();
    let session = &profiler.0.session;
    let load = |number: u32| {
        let module = profiler.load(&number.to_string(), guest(number).as_bytes()).unwrap();
        (Arc::downgrade(&session.images_and_programs().0[profiler.loaded(&module).unwrap().id as usize]), module)
    };
    // Time goes by from the first guest's beginning.
    let (_, running) = load(0);
    let (mut store, run) = store(&profiler, &running, 0, 0);
    let mut work_until = |is_over: &dyn Fn() -> bool, what: &str| {
        let began = Instant::now();
        while !is_over() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            run.call(&mut store, (1, 100_000)).unwrap();
            profiler.let_go_of_names();
        }
    };
    let (image, module) = load(1);
    let walked = profiler.loaded(&module).unwrap();
    profiler.remove(&module);
    let asked = load(2);
    let (later_id, later) = (profiler.loaded(&asked.1).unwrap().id, asked.1);
    profiler.remove(&later);
    work_until(&|| asked.0.strong_count() == 0, "one that nobody has goes");
    assert!(image.strong_count() > 0 && later_id != walked.id, "a store has it still");
    let ids = session.hold_ids();
    drop(walked);
    let (third, module) = load(3);
    profiler.remove(&module);
    profiler.snapshot().unwrap();
    assert!(image.strong_count() > 0 && third.strong_count() > 0, "somebody goes by their ids");
    drop(ids);
    work_until(&|| image.strong_count() + third.strong_count() == 0, "nobody has them");
}

#[test]
fn time_is_counted_while_somebody_wants_samples_and_of_stores_that_are_held() {
    let engine = engine();
    let profiler = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).paused().start(&engine).unwrap();
    let module = profiler.load("guest", guest(0).as_bytes()).unwrap();
    let mut store = Store::new(&engine, ());
    let attached = profiler.attach(&mut store, Attach::named("0 of 0").label("guest", "0")).unwrap();
    let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    let run = instance.get_typed_func::<(i32, i32), ()>(&mut store, "run").unwrap();
    let mut work = || run.call(&mut store, (1, 10_000_000)).unwrap();
    let counted_ns = || profiler.activity().unwrap().cpu_ns;
    work();
    assert_eq!(counted_ns(), 0, "nobody wants to know");
    let held = attached.hold().unwrap();
    work();
    drop(held);
    let of_held_ns = counted_ns();
    assert!(of_held_ns > 0);
    work();
    assert_eq!(counted_ns(), of_held_ns, "it is not held any more");
    // From within a call that was going on before.
    let is_over = AtomicBool::new(false);
    let window = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let window = profiler.window().unwrap();
            let began = Instant::now();
            while window.snapshot().unwrap().recording().samples().count() < 20 && began.elapsed() < PATIENCE {}
            is_over.store(true, Ordering::Relaxed);
            window
        });
        while !is_over.load(Ordering::Relaxed) {
            work();
        }
        looking.join().unwrap()
    });
    let seen = window.snapshot().unwrap();
    let sampled_ns: u64 = seen.recording().samples().map(|sample| sample.cpu_delta_ns).sum();
    let meta = &seen.recording().meta;
    assert!(check(seen.recording()) >= 20 && sampled_ns <= meta.cpu_ns, "{sampled_ns} ns sampled of {meta:?}");
    // What is not divided yet may be seen to be more the later one asks.
    let beside_ns = counted_ns().abs_diff(of_held_ns + meta.cpu_ns);
    assert!(beside_ns < 1_000_000, "the window's, and no more: {beside_ns} ns of {meta:?}");
    drop(window);
    drop(attached.hold().unwrap());
    let before_ns = counted_ns();
    work();
    let more_ns = counted_ns() - before_ns;
    assert!(more_ns < 1_000_000, "{more_ns} ns");
}

#[test]
fn the_time_of_short_threads_is_counted() {
    let engine = engine();
    let profiler = Profiler::builder().start(&engine).unwrap();
    let module = profiler.load("guest", guest(0).as_bytes()).unwrap();
    for number in 0..5 {
        let before_ns = profiler.activity().unwrap().cpu_ns;
        let (profiler_there, module) = (profiler.clone(), module.clone());
        let thread = std::thread::spawn(move || {
            let (mut store, run) = store(&profiler_there, &module, 0, number);
            run.call(&mut store, (1, 100_000)).unwrap();
        });
        // The system does not know any more then what it used.
        thread.join().unwrap();
        assert!(profiler.activity().unwrap().cpu_ns > before_ns, "thread {number}");
    }
}
