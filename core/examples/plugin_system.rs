//! A host that loads plugins, calls each for a while, and drops it for the next: `plugin_system PROFILE ROUNDS PLUGINS`. The profiler is
//! paused but for the last half of them.

use wasmtime::{Config, Engine, Instance, Store};
use wlprof::{Attach, Profiler};

fn plugin(number: u32) -> String {
    format!(
        r#"(module
            (func $plugin_{number} (param $n i32)
                (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))
            (func (export "run") (param $n i32) (call $plugin_{number} (local.get $n))))"#
    )
}

fn main() -> wasmtime::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().expect("the profile's file");
    let rounds: i32 = arguments.next().expect("how many rounds").parse()?;
    let plugins: u32 = arguments.next().expect("how many plugins").parse()?;

    let mut config = Config::new();
    wlprof::configure(&mut config);
    let engine = Engine::new(&config)?;
    let profiler = Profiler::builder().paused().start(&engine)?;
    for number in 0..plugins {
        if number == plugins / 2 {
            profiler.resume();
        }
        let name = format!("plugin {number}");
        let module = profiler.load(&name, plugin(number).as_bytes())?;
        let mut store = Store::new(&engine, ());
        let attached = profiler.attach(&mut store, Attach::named(&name))?;
        let instance = Instance::new(&mut store, &module, &[])?;
        attached.instantiated(&mut store, &instance)?;
        instance.get_typed_func::<i32, ()>(&mut store, "run")?.call(&mut store, rounds)?;
        drop(store);
        profiler.remove(&module);
    }
    profiler.snapshot()?.save(profile)?;
    Ok(())
}
