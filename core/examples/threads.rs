//! A host whose guest has threads: a store and an instance each, over one shared memory. `threads PROFILE ROUNDS`.

use wasmtime::{Config, Engine, Linker, MemoryType, SharedMemory, Store};
use wlprof::{Attach, Profiler};

const GUEST: &str = r#"(module
    (import "env" "memory" (memory 1 1 shared))
    (func $count (param $rounds i32)
        (loop
            (drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1)))
            (br_if 0 (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1))))))
    (func (export "work") (param $rounds i32) (call $count (local.get $rounds))))"#;

fn main() -> wasmtime::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().expect("the profile's file");
    let rounds: i32 = arguments.next().expect("how many rounds").parse()?;

    let mut config = Config::new();
    config.shared_memory(true);
    wlprof::configure(&mut config);
    let engine = Engine::new(&config)?;
    let profiler = Profiler::builder().start(&engine)?;
    let module = profiler.load("counter.wasm", GUEST.as_bytes())?;
    let memory = SharedMemory::new(&engine, MemoryType::shared(1, 1))?;

    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (engine, profiler, module, memory) = (&engine, &profiler, &module, &memory);
                scope.spawn(move || -> wasmtime::Result<()> {
                    let mut store = Store::new(engine, ());
                    let attached = profiler.attach(&mut store, Attach::named(format!("thread {number}")))?;
                    let mut linker = Linker::new(engine);
                    linker.define(&store, "env", "memory", memory.clone())?;
                    let instance = linker.instantiate(&mut store, module)?;
                    attached.instantiated(&mut store, &instance)?;
                    instance.get_typed_func::<i32, ()>(&mut store, "work")?.call(&mut store, rounds)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    profiler.snapshot()?.save(profile)?;
    Ok(())
}
