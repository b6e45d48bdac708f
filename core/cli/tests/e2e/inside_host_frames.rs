//! The host's own frames around those of guests: held against the backtrace that the standard library takes, through wasm.

use crate::inside::options;
use crate::running::{EndOnDrop, wait_until};
use std::backtrace::Backtrace;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wasmtime::{Caller, Engine, Linker, Module, Store};
use wlprof::recording::{Origin, Recording};
use wlprof_inside::{Labels, Options, Profiler};

/// What a call has on its stack by the standard library, leaf first.
type Captured = Arc<Mutex<Option<Vec<String>>>>;

const GUEST: &str = r#"(module
    (import "host" "work" (func $work))
    (import "host" "again" (func $again))
    (func $inner (export "inner") (call $work))
    (func $outer (export "outer") (call $again)))"#;

/// Works in the host for a while, after it has taken a backtrace.
#[inline(never)]
fn work_of_host(captured: &Captured) {
    captured.lock().unwrap().get_or_insert_with(|| functions(&Backtrace::force_capture()));
    spin();
}

#[inline(never)]
fn spin() {
    let begun = Instant::now();
    while std::hint::black_box(begun.elapsed()) < Duration::from_millis(2) {}
}

/// The functions of a backtrace whose names are known.
fn functions(backtrace: &Backtrace) -> Vec<String> {
    let text = backtrace.to_string();
    let numbered = text.lines().filter_map(|line| line.trim_start().split_once(": "));
    let functions = numbered.filter(|(number, _)| number.parse::<u32>().is_ok()).map(|(_, function)| function);
    functions.filter(|function| *function != "<unknown>").map(without_hash).collect()
}

fn without_hash(function: &str) -> String {
    let is_hash = |end: &&str| end.len() == 17 && end.starts_with('h');
    let cut = function.rsplit_once("::").filter(|(_, end)| is_hash(end));
    cut.map_or(function, |(name, _)| name).to_owned()
}

/// Native functions on each stack of a sample that has `leaf`, from its caller on, and the wasm functions among them as `wasm`.
fn stacks_above(recording: &Recording, leaf: &str) -> BTreeSet<Vec<String>> {
    let stack = |stack| {
        let frames: Vec<_> = recording.frames_of(stack).collect();
        let names = frames.iter().flat_map(|frame| {
            frame.lines.iter().map(|line| (frame.origin, recording.functions[line.function as usize].name.as_str()))
        });
        let mut names = names.skip_while(|(_, name)| !name.ends_with(leaf)).skip(1).peekable();
        names.peek()?;
        let named = names.filter_map(|(origin, name)| match origin {
            Origin::Native { .. } => (!name.starts_with('[')).then(|| without_hash(name)),
            Origin::HostCall { .. } => None,
            Origin::Wasm { .. } => Some("wasm".to_owned()),
            _ => Some(name.to_owned()),
        });
        Some(named.collect())
    };
    recording.samples().filter_map(|sample| stack(sample.stack)).collect()
}

/// Checks samples of stacks on which wasm was entered so often.
fn check(test: &str, captured: &Captured, entries: usize, run: impl Fn() + Send + Sync) {
    // Other tests run guests in this process.
    let labels = Labels::new([("test", test)]);
    let profiler = Profiler::with(Options { host_frames: true, ..options() }).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _scope = labels.scope();
            while !is_over.load(Ordering::Relaxed) {
                run();
            }
        });
        let _end = EndOnDrop(&is_over);
        let window = profiler.window().unwrap();
        let mut stacks = BTreeSet::new();
        wait_until("there are samples of host code", || {
            let own = window.snapshot().unwrap().of_label("test", test);
            stacks = stacks_above(own.recording(), "::work_of_host");
            !stacks.is_empty() && own.recording().samples().count() > 200
        });
        let mut backtrace = captured.lock().unwrap().clone().unwrap();
        let own = backtrace.iter().position(|name| name.ends_with("::work_of_host")).unwrap();
        backtrace.drain(..=own);
        for mut stack in stacks {
            let wasm: Vec<usize> = (0..stack.len()).filter(|at| stack[*at] == "wasm").collect();
            assert_eq!(wasm.len(), entries, "{stack:?}");
            let bounds: Vec<usize> = [0].into_iter().chain(wasm).chain([stack.len()]).collect();
            assert!(
                bounds.windows(2).all(|between| between[1] > between[0] + 1),
                "no host code around wasm: {stack:?}"
            );
            stack.retain(|name| name != "wasm");
            assert_eq!(stack, backtrace);
        }
    });
}

fn engine_and_module() -> (Engine, Module) {
    let engine = Engine::default();
    let module = Module::new(&engine, GUEST).unwrap();
    (engine, module)
}

#[test]
fn a_hosts_own_frames_are_those_of_the_standard_librarys_backtrace() {
    let captured = Captured::default();
    let (engine, module) = engine_and_module();
    check("synchronous", &captured, 2, || {
        let mut linker = Linker::new(&engine);
        linker.func_wrap("host", "work", |caller: Caller<'_, Captured>| work_of_host(caller.data())).unwrap();
        let again = |mut caller: Caller<'_, Captured>| {
            let inner = caller.get_export("inner").unwrap().into_func().unwrap();
            inner.typed::<(), ()>(&caller).unwrap().call(&mut caller, ())
        };
        linker.func_wrap("host", "again", again).unwrap();
        let mut store = Store::new(&engine, captured.clone());
        let instance = linker.instantiate(&mut store, &module).unwrap();
        instance.get_typed_func::<(), ()>(&mut store, "outer").unwrap().call(&mut store, ()).unwrap();
    });
}

#[test]
fn frames_of_who_polls_are_above_those_of_an_asynchronous_store() {
    let captured = Captured::default();
    let (engine, module) = engine_and_module();
    check("asynchronous", &captured, 1, || {
        let mut linker = Linker::new(&engine);
        linker.func_wrap("host", "work", |caller: Caller<'_, Captured>| work_of_host(caller.data())).unwrap();
        linker.func_wrap("host", "again", || ()).unwrap();
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let mut store = Store::new(&engine, captured.clone());
            let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
            instance.get_typed_func::<(), ()>(&mut store, "inner").unwrap().call_async(&mut store, ()).await.unwrap();
        });
    });
}
