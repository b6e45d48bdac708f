//! Heaps of stores that a program runs: whose they are, how long they are kept, and what the program's own limiter tells.

use crate::running::wait_until;
use std::time::Duration;
use wasmtime::{Caller, Engine, Func, Instance, ResourceLimiter, Store};
use wlprof::heap::Rate;
use wlprof::recording::{HeapPart, Recording};
use wlprof::{Attach, Attached, Profiler};

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
struct Host(Option<Attached>);

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
