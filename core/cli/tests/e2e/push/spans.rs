//! `wlprof_inside`'s `Profiler::push`: spans of samples are links of OTLP and labels of pprof, and tenants are kept where they are asked for.

use super::receiver::{Message, Receiver, SCHEMES, taken_profiles};
use crate::inside::options;
use crate::running::wait_until;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wasmtime::{Engine, Instance, Module, Store};
use wlprof::recording::Recording;
use wlprof_inside::{Labels, Profiler, Push};

/// A function for each tenant of the test, whose names no other test has.
const GUEST: &str = r#"(module
    (func $work_of_one (export "work_of_one") (local $times i32) (local.set $times (i32.const 3000000))
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $work_of_two (export "work_of_two") (local $times i32) (local.set $times (i32.const 3000000))
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1))))))
    (func $work_of_nobody (export "work_of_nobody") (local $times i32) (local.set $times (i32.const 3000000))
        (loop $again (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))))"#;

/// What runs: the function, its tenant, and the ids that it is given.
const RUNS: [(&str, &str, &str, &str); 3] = [
    ("work_of_one", "pushed-one", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),
    ("work_of_two", "pushed-two", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"),
    // A trace without a span's id is no span.
    ("work_of_nobody", "pushed-nobody", "4bf92f3577b34da6a3ce929d0e0e4736", "no span"),
];

/// Time by function, tenant, and span, of the functions that are in `RUNS`.
type Parts = BTreeMap<(String, String, Option<(String, String)>), i64>;

fn tenant_of(tenant: &str, keeps_tenants: bool) -> String {
    if keeps_tenants { tenant.to_owned() } else { String::new() }
}

/// What a window has that was open all the time.
fn expected(recording: &Recording, keeps_tenants: bool) -> Parts {
    let mut parts = Parts::new();
    for thread in &recording.threads {
        for sample in thread.samples.iter() {
            let Some(line) = recording.lines_of(sample.stack).next() else { continue };
            let function = &recording.functions[line.function as usize].name;
            let Some((_, tenant, trace, span)) = RUNS.iter().find(|(name, ..)| name == function) else { continue };
            let span = (*span != "no span").then(|| (trace.to_string(), span.to_string()));
            let part = (function.clone(), tenant_of(tenant, keeps_tenants), span);
            *parts.entry(part).or_default() += sample.period_ns as i64;
        }
    }
    parts
}

/// What the server was sent.
fn found(messages: &[Message]) -> Parts {
    let mut parts = Parts::new();
    for part in taken_profiles(messages).flat_map(|profile| profile["parts"].as_array().unwrap()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (tenant, span) = (text(&part["labels"]["tenant"]), &part["span"]);
        let span = (!span.is_null()).then(|| (text(&span[0]), text(&span[1])));
        for (function, time) in part["leaves"]["cpu/nanoseconds"].as_object().into_iter().flatten() {
            if RUNS.iter().any(|(name, ..)| name == function) {
                let part = (function.clone(), tenant.clone(), span.clone());
                *parts.entry(part).or_default() += time.as_i64().unwrap();
            }
        }
    }
    parts
}

/// Runs the guest within the labels of each of `RUNS` until windows of them have been taken.
fn push_runs(scheme: &str, labels: &[&str]) -> (Parts, Vec<Message>) {
    let receiver = Receiver::start(&[]);
    let engine = Engine::default();
    let module = Module::new(&engine, GUEST).unwrap();
    let profiler = Profiler::with(options()).unwrap();
    let address = receiver.push(scheme);
    let push = Push::to(address.strip_prefix("--push=").unwrap()).unwrap();
    let push = push.service("pushed from inside").every(Duration::from_secs(1)).labels(labels.iter().copied());
    let window = profiler.window().unwrap();
    let pushing = profiler.push(push).unwrap();
    let mut store = Store::new(&engine, ());
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    wait_until("windows are taken", || {
        for (function, tenant, trace, span) in RUNS {
            let run = instance.get_typed_func::<(), ()>(&mut store, function).unwrap();
            let labels = Labels::new([("tenant", tenant), ("trace_id", trace), ("span_id", span), ("secret", "x")]);
            let _scope = labels.scope();
            run.call(&mut store, ()).unwrap();
        }
        receiver.taken() >= 3
    });
    let counts = pushing.end();
    let recording = window.recording().unwrap();
    let messages = receiver.end();
    assert_eq!((counts.delivered, counts.dropped_in_all()), (messages.len() as u64, 0), "{scheme}: {counts:?}");
    for message in &messages {
        assert_eq!(message.attribute("service.name"), Some("pushed from inside"));
    }
    let names: BTreeSet<&str> =
        messages.iter().flat_map(Message::label_sets).flat_map(|set| set.keys().map(|name| &**name)).collect();
    // Those of pprof have no other place for spans.
    let spans: &[&str] = if scheme.starts_with("otlp") { &[] } else { &["trace_id", "span_id"] };
    assert_eq!(names, labels.iter().chain(spans).copied().collect(), "{scheme}");
    (expected(&recording, !labels.is_empty()), messages)
}

#[test]
fn spans_are_links_and_tenants_are_kept_where_they_are_asked_for() {
    for scheme in SCHEMES {
        for labels in [&["tenant"][..], &[]] {
            let (expected, messages) = push_runs(scheme, labels);
            println!("{scheme}, {labels:?}: {expected:?}");
            assert_eq!(expected.len(), RUNS.len(), "{expected:?}");
            assert_eq!(found(&messages), expected, "{scheme}, {labels:?}");
            // Spans make no series.
            for profile in taken_profiles(&messages) {
                assert!(labels == ["tenant"] || profile["series"] == json!(1), "{profile}");
            }
        }
    }
}
