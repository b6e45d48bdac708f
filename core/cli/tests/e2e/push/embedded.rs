//! `wlprof`'s own `Profiler::push`: the stores of all tenants are in one message, each under its label.

use super::receiver::{Receiver, SCHEMES, sums, taken_profiles};
use crate::running::{EndOnDrop, wait_until};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wasmtime::{Config, Engine, Instance, Store};
use wlprof::{Attach, Profiler, Push};

const GUEST: &str = r#"(module
    (func $count (param $times i32)
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $heavy (call $count (i32.const 3000000)))
    (func $light (call $count (i32.const 1000000)))
    (func (export "run") (call $heavy) (call $light)))"#;

const TENANTS: [&str; 2] = ["ada", "bob"];

#[test]
fn windows_of_all_tenants_come_in_one_message() {
    for scheme in SCHEMES {
        let receiver = Receiver::start(&[]);
        let mut config = Config::new();
        wlprof::configure(&mut config);
        let engine = Engine::new(&config).unwrap();
        let profiler = Profiler::builder().rate_hz(1000.0).max_overhead(1.0).start(&engine).unwrap();
        let module = profiler.load("guest.wasm", GUEST.as_bytes()).unwrap();
        let address = receiver.push(scheme);
        let push = Push::to(address.strip_prefix("--push=").unwrap()).unwrap();
        let push = push.service("embedder").every(Duration::from_secs(1)).labels(["tenant"]);
        let pushing = profiler.push(push).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            for tenant in TENANTS {
                let (engine, module, profiler, is_over) = (&engine, &module, &profiler, &is_over);
                scope.spawn(move || {
                    let mut store = Store::new(engine, ());
                    let attach = Attach::named(format!("store of {tenant}")).label("tenant", tenant);
                    let attached = profiler.attach(&mut store, attach).unwrap();
                    let instance = Instance::new(&mut store, module, &[]).unwrap();
                    attached.instantiated(&mut store, &instance).unwrap();
                    let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        run.call(&mut store, ()).unwrap();
                    }
                });
            }
            wait_until("windows are taken", || receiver.taken() >= 3);
        });
        // They are kept for minutes, and there were seconds.
        let kept = profiler.snapshot().unwrap();
        let counts = pushing.end();
        let messages = receiver.end();
        assert_eq!((counts.delivered, counts.dropped_in_all()), (messages.len() as u64, 0), "{counts:?}");
        let begins: BTreeSet<u64> = messages.iter().map(|message| message.begin()).collect();
        assert_eq!(begins.len(), messages.len(), "{scheme}: a window in two messages");
        let tenants = |message: &super::Message| -> BTreeSet<String> {
            let sets = message.label_sets();
            sets.iter().filter_map(|set| Some(set.get("tenant")?.as_str()?.to_owned())).collect()
        };
        assert!(messages.iter().any(|message| tenants(message) == TENANTS.map(str::to_owned).into()), "{messages:?}");
        for tenant in TENANTS {
            let recording = kept.clone().of_label("tenant", tenant);
            let expected: u64 = recording.recording().samples().map(|sample| sample.period_ns).sum();
            let parts = taken_profiles(&messages).flat_map(|profile| profile["parts"].as_array().unwrap());
            let own = parts.filter(|part| part["labels"]["tenant"] == tenant);
            let found: i64 = sums(own, "cpu/nanoseconds", "leaves").values().sum();
            assert_eq!(found as u64, expected, "{scheme}, {tenant}");
            assert!(expected > 0);
        }
    }
}
