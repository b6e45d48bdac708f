//! A host with two threads that serves requests, each in a store of its own: `tokio_stores PROFILE REQUESTS`.

use std::time::Duration;
use wasmtime::{Caller, Config, Engine, InstancePre, Linker, Store};
use wlprof::{Attach, Profiler};

const GUEST: &str = r#"(module
    (import "host" "nap" (func $nap))
    (func $parse (param $n i32) (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
    (func $answer (param $n i32) (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
    (func (export "handle") (call $parse (i32.const 1000000)) (call $nap) (call $answer (i32.const 3000000))))"#;

fn main() -> wasmtime::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().expect("the profile's file");
    let requests: u32 = arguments.next().expect("how many requests").parse()?;

    let mut config = Config::new();
    wlprof::configure(&mut config);
    let engine = Engine::new(&config)?;
    let profiler = Profiler::builder().start(&engine)?;

    let module = profiler.load("handler.wasm", GUEST.as_bytes())?;
    let mut linker: Linker<u32> = Linker::new(&engine);
    linker.func_wrap_async("host", "nap", |_: Caller<'_, u32>, ()| {
        Box::new(tokio::time::sleep(Duration::from_micros(50)))
    })?;
    let handler = linker.instantiate_pre(&module)?;

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let serve = |number| runtime.spawn(handle(number, profiler.clone(), handler.clone()));
    let tasks: Vec<_> = (0..requests).map(serve).collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    profiler.snapshot()?.save(profile)?;
    Ok(())
}

async fn handle(number: u32, profiler: Profiler, handler: InstancePre<u32>) -> wasmtime::Result<()> {
    let mut store = Store::new(handler.module().engine(), number);
    let attached = profiler.attach(&mut store, Attach::named(format!("request {number}")))?;
    attached
        .run(async {
            let instance = handler.instantiate_async(&mut store).await?;
            instance.get_typed_func::<(), ()>(&mut store, "handle")?.call_async(&mut store, ()).await
        })
        .await
}
