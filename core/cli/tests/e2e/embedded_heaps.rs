//! Heaps of stores that a program runs: whose they are, how long they are kept, and what the program's own limiter tells.

use crate::running::wait_until;
use std::time::Duration;
use wasmtime::{Caller, Engine, Func, Instance, Ref, ResourceLimiter, Store, Val};
use wlprof::heap::Rate;
use wlprof::recording::{HeapPart, Recording};
use wlprof::{Attach, Profiler, StoreHandle};

/// Takes a page for each block.
const GUEST: &str = r#"(module
    (memory (export "memory") 1)
    (func $malloc (param i32) (result i32)
        (i32.mul (memory.grow (i32.const 1)) (i32.const 65536)))
    (func $free (param i32))
    (func $keeps (drop (call $malloc (i32.const 1000))))
    (func $gives (call $free (call $malloc (i32.const 500))))
    (func (export "run") (call $keeps) (call $gives) (call $keeps)))"#;

/// Tells the profiler of growth, as embedders' own limiters do.
#[derive(Default)]
struct Host(Option<StoreHandle>);

impl ResourceLimiter for Host {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if let Some(attached) = self.0.as_ref().filter(|_| current > 0) {
            attached.memory_grows((desired - current) as u64);
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

fn engine() -> Engine {
    let mut config = wasmtime::Config::new();
    wlprof::configure(&mut config);
    Engine::new(&config).unwrap()
}

/// A store that has run the guest once.
fn store(profiler: &Profiler, engine: &Engine, module: &wasmtime::Module, tenant: &str) -> Store<Host> {
    let mut store = Store::new(engine, Host::default());
    let attached = profiler.attach(&mut store, Attach::named("guest").label("tenant", tenant)).unwrap();
    store.data_mut().0 = Some(attached.clone());
    store.limiter(|host| host);
    let instance = Instance::new(&mut store, module, &[]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    instance.get_typed_func::<(), ()>(&mut store, "run").unwrap().call(&mut store, ()).unwrap();
    store
}

/// Bytes of a part of what each heap has, by the function.
fn bytes(recording: &Recording, part: HeapPart) -> Vec<Vec<(String, f64)>> {
    let heaps = recording.stores.iter().filter_map(|store| store.heap.as_ref());
    let of_heap = heaps.map(|heap| {
        let name = |stack| {
            let leaf = recording.lines_of(stack).next().unwrap();
            recording.functions[leaf.function as usize].name.clone()
        };
        let sites = heap.sites.iter().map(|site| (name(site.stack), site.totals.part(part).bytes));
        let mut sites: Vec<(String, f64)> = sites.filter(|(_, bytes)| *bytes > 0.0).collect();
        sites.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        sites
    });
    of_heap.collect()
}

#[test]
fn each_store_has_its_own_heap_and_its_owner_sees_no_other() {
    let engine = engine();
    let profiler = Profiler::builder().heap(Rate::bytes(1)).paused().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let stores = ["ada", "eve", "ada"].map(|tenant| store(&profiler, &engine, &module, tenant));
    let snapshot = profiler.snapshot().unwrap();
    // By two places of `run` each.
    let keeps = || ("keeps".to_owned(), 1000.0);
    let held = bytes(snapshot.recording(), HeapPart::Held);
    assert_eq!(held, vec![vec![keeps(), keeps()]; 3], "without a sample of time");
    let grown = bytes(snapshot.recording(), HeapPart::Grown);
    let grown: f64 = grown.iter().flatten().map(|(_, bytes)| bytes).sum();
    assert_eq!(grown, 9.0 * 65_536.0);
    let of_eve = profiler.snapshot().unwrap().of_label("tenant", "eve").of_memory(HeapPart::Allocated).unwrap();
    assert_eq!(bytes(of_eve.recording(), HeapPart::Allocated).len(), 1);
    let shown: u64 = of_eve.recording().samples().map(|sample| sample.period_ns).sum();
    assert_eq!(shown, 2500);
    let nobody = profiler.snapshot().unwrap().of_label("tenant", "bob");
    assert!(nobody.recording().stores.is_empty() && nobody.of_memory(HeapPart::Held).is_err());
    drop(stores);
}

#[test]
fn heaps_of_stores_that_have_gone_go_with_the_samples_of_their_time() {
    let engine = engine();
    let keep = Duration::from_millis(300);
    let profiler = Profiler::builder().heap(Rate::bytes(1)).keep(keep).paused().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let lasting = store(&profiler, &engine, &module, "lasting");
    (0..500).for_each(|_| drop(store(&profiler, &engine, &module, "passing")));
    wait_until("only that of the store that is there is left", || {
        let snapshot = profiler.snapshot().unwrap();
        let heaps = snapshot.recording().stores.iter().filter(|store| store.heap.is_some());
        let tenants: Vec<&str> = heaps.map(|store| &*store.labels[0].1).collect();
        tenants == ["lasting"]
    });
    drop(lasting);
}

#[test]
fn an_engine_without_room_for_what_is_added_runs_modules_as_they_are() {
    let mut config = wasmtime::Config::new();
    wlprof::configure(&mut config);
    config.wasm_multi_memory(false);
    let engine = Engine::new(&config).unwrap();
    let profiler = Profiler::builder().heap(Rate::DEFAULT).start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let store = store(&profiler, &engine, &module, "ada");
    let snapshot = profiler.snapshot().unwrap();
    let notes = &snapshot.recording().meta.notes;
    assert!(notes.iter().any(|note| note.starts_with("what guest.wasm allocates is not profiled: ")), "{notes:?}");
    assert_eq!(bytes(snapshot.recording(), HeapPart::Allocated), [[]], "growth is known all the same");
    drop(store);
}

#[test]
fn growth_that_is_told_of_from_elsewhere_has_no_stack() {
    let engine = engine();
    let profiler = Profiler::builder().heap(Rate::bytes(1)).start(&engine).unwrap();
    let text = r#"(module
        (import "host" "elsewhere" (func $elsewhere (param i32)))
        (memory (export "memory") 1)
        (func $waits (param i32) (call $elsewhere (local.get 0)))
        (func (export "run") (call $waits (i32.const 0)) (call $waits (i32.const 1))))"#;
    let module = profiler.load("guest.wasm", text.as_bytes()).unwrap();
    let mut store = Store::new(&engine, Host::default());
    let attached = profiler.attach(&mut store, Attach::named("guest")).unwrap();
    store.data_mut().0 = Some(attached.clone());
    // On the store's own thread its stack can be read, on another one it may be running.
    let elsewhere = Func::wrap(&mut store, |caller: Caller<'_, Host>, is_here: i32| {
        let attached = caller.data().0.clone().unwrap();
        match is_here {
            0 => std::thread::spawn(move || attached.memory_grows(7)).join().unwrap(),
            _ => attached.memory_grows(11),
        }
    });
    let instance = Instance::new(&mut store, &module, &[elsewhere.into()]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    instance.get_typed_func::<(), ()>(&mut store, "run").unwrap().call(&mut store, ()).unwrap();
    let snapshot = profiler.snapshot().unwrap();
    let recording = snapshot.recording();
    let heap = recording.stores[0].heap.as_ref().unwrap();
    let mut found: Vec<(f64, bool)> = Vec::new();
    for site in &heap.sites {
        let mut names = recording.lines_of(site.stack).map(|line| &*recording.functions[line.function as usize].name);
        found.push((site.totals.grown.bytes, names.any(|name| name == "waits")));
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(found, [(7.0, false), (11.0, true)]);
}

#[test]
fn a_host_that_reaches_what_is_added_makes_its_own_figures_wrong_and_nothing_else() {
    let engine = engine();
    let profiler = Profiler::builder().heap(Rate::bytes(1)).paused().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
    let honest = store(&profiler, &engine, &module, "eve");
    let mut liar = Store::new(&engine, Host::default());
    let attached = profiler.attach(&mut liar, Attach::named("guest").label("tenant", "mallory")).unwrap();
    let instance = Instance::new(&mut liar, &module, &[]).unwrap();
    attached.instantiated(&mut liar, &instance).unwrap();
    let table = instance.get_table(&mut liar, "wlprof:heap/table").unwrap();
    let function = |store: &mut Store<Host>, place| match table.get(&mut *store, place) {
        Some(Ref::Func(Some(function))) => function,
        other => panic!("{other:?}"),
    };
    let (allocated, freed) = (function(&mut liar, 0), function(&mut liar, 1));
    let countdown = instance.get_global(&mut liar, "wlprof:heap/countdown").unwrap();
    instance.get_memory(&mut liar, "wlprof:heap/filter").unwrap().data_mut(&mut liar).fill(255);
    for number in 0..5000 {
        for call in [(-1_i64, number, 7, 99), (i64::MAX, -1, number, 2), (0, 0, -1, 4), (5, number, 0, 0)] {
            countdown.set(&mut liar, Val::I64(i64::MIN)).unwrap();
            let (size, block, before, call) = call;
            let parameters = [Val::I64(size), Val::I32(block), Val::I32(before), Val::I32(call)];
            allocated.call(&mut liar, &parameters, &mut []).unwrap();
        }
        freed.call(&mut liar, &[Val::I32(number)], &mut []).unwrap();
    }
    let snapshot = profiler.snapshot().unwrap();
    let of_eve = snapshot.of_label("tenant", "eve");
    let held = bytes(of_eve.recording(), HeapPart::Held);
    assert_eq!(held, [vec![("keeps".to_owned(), 1000.0); 2]]);
    drop((honest, liar));
}

/// Traps in its allocator where it is asked for 13 bytes: in one that something is put around, and in one that is called once more when a sample
/// is due.
const TRAPS: &str = r#"(module
    (memory (export "memory") 1)
    (func $malloc (export "malloc") (param i32) (result i32)
        (if (i32.eq (local.get 0) (i32.const 13)) (then unreachable)) (i32.const 64))
    (func $calloc (export "calloc") (param i32 i32) (result i32) (call $malloc (local.get 0)))
    (func $free (export "free") (param i32))
    (func $keeps (drop (call $malloc (i32.const 1000))) (drop (call $calloc (i32.const 70) (i32.const 10))))
    (func (export "malloc_traps") (drop (call $malloc (i32.const 13))))
    (func (export "calloc_traps") (drop (call $calloc (i32.const 13) (i32.const 1))))
    (func (export "run") (call $keeps)))"#;

#[test]
fn an_allocator_that_traps_is_seen_when_its_instance_is_called_again() {
    let engine = engine();
    let profiler = Profiler::builder().heap(Rate::bytes(1)).paused().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", TRAPS.as_bytes()).unwrap();
    let mut store = Store::new(&engine, ());
    let attached = profiler.attach(&mut store, Attach::named("guest")).unwrap();
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    attached.instantiated(&mut store, &instance).unwrap();
    for (number, name) in (1..).zip(["run", "calloc_traps", "run", "malloc_traps", "run"]) {
        let function = instance.get_typed_func::<(), ()>(&mut store, name).unwrap();
        assert_eq!(function.call(&mut store, ()).is_err(), name.ends_with("traps"), "{number}");
    }
    let snapshot = profiler.snapshot().unwrap();
    let heap = snapshot.recording().stores[0].heap.as_ref().unwrap();
    let all = heap.total(HeapPart::Allocated);
    assert_eq!((all.blocks, all.bytes), (6.0, 3.0 * 1700.0));
    let told = heap.notes.iter().filter(|note| note.contains("has ended calls of the allocator (2 times)"));
    assert_eq!(told.count(), 1, "{:?}", heap.notes);
}

/// Gives addresses that there are not, as many as it is asked for.
const MAKES_UP: &str = r#"(module
    (memory (export "memory") 1) (global $next (mut i32) (i32.const 0))
    (func $malloc (export "malloc") (param i32) (result i32)
        (global.set $next (i32.add (global.get $next) (i32.const 1)))
        (global.get $next))
    (func $free (export "free") (param i32))
    (func (export "run") (param $left i32)
        (loop $again
            (drop (call $malloc (i32.const 1)))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

#[test]
fn stores_have_room_for_blocks_together_and_those_that_go_give_it_back() {
    const MANY: i32 = 1_000_000;
    let engine = engine();
    let profiler = Profiler::builder().heap(Rate::bytes(1)).paused().start(&engine).unwrap();
    let module = profiler.load("guest.wasm", MAKES_UP.as_bytes()).unwrap();
    let run = || {
        let mut store = Store::new(&engine, ());
        let attached = profiler.attach(&mut store, Attach::named("guest")).unwrap();
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        attached.instantiated(&mut store, &instance).unwrap();
        instance.get_typed_func::<i32, ()>(&mut store, "run").unwrap().call(&mut store, MANY).unwrap();
        store
    };
    // Of each heap what is held, and whether a note says that there is more.
    let heaps = || {
        let snapshot = profiler.snapshot().unwrap();
        let heaps = snapshot.recording().stores.iter().filter_map(|store| store.heap.as_ref());
        let of_heap = |heap: &wlprof::recording::Heap| {
            assert_eq!(heap.total(HeapPart::Allocated).blocks, f64::from(MANY));
            let is_told =
                heap.notes.iter().any(|note| note.contains("so many blocks are held, by all stores together"));
            (heap.total(HeapPart::Held).blocks, is_told)
        };
        heaps.map(of_heap).collect::<Vec<_>>()
    };
    let all = (f64::from(MANY), false);
    let first = run();
    assert_eq!(heaps(), [all]);
    drop(first);
    // What a store held is given back when its heap has been recorded.
    heaps();
    let second = run();
    assert_eq!(heaps().last(), Some(&all));
    let third = run();
    assert_eq!(heaps().last(), Some(&(835_008.0, true)), "there is room for 1,835,008");
    drop((second, third));
}
