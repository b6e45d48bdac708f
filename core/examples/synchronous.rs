//! A host that runs WASI programs one after the other, on its own thread: `synchronous PROFILE GUEST…`.

use wasmtime::{Config, Engine, Linker, Store};
use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_sync};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};
use wlprof::{Attach, Profiler};

fn main() -> wasmtime::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().expect("the profile's file");

    let mut config = Config::new();
    wlprof::configure(&mut config);
    let engine = Engine::new(&config)?;
    let profiler = Profiler::builder().rate_hz(1000.0).start(&engine)?;

    let mut linker: Linker<WasiP1Ctx> = Linker::new(&engine);
    add_to_linker_sync(&mut linker, |state| state)?;
    for guest in arguments {
        let module = profiler.load(&guest, &std::fs::read(&guest)?)?;
        let mut store = Store::new(&engine, WasiCtxBuilder::new().inherit_stdio().build_p1());
        let attached = profiler.attach(&mut store, Attach::named(&guest))?;
        let instance = linker.instantiate(&mut store, &module)?;
        attached.instantiated(&mut store, &instance)?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        match start.call(&mut store, ()) {
            Err(error) if error.downcast_ref::<I32Exit>().is_none_or(|exit| exit.0 != 0) => return Err(error),
            _ => {}
        }
    }
    profiler.snapshot()?.save(profile)?;
    Ok(())
}
