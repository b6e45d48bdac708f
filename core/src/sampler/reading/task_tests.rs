//! Proves the walk in a store whose tasks take turns, each on a fiber of its own: at every host call of three tasks of a
//! component, and in samples of them.

use super::super::options::SamplerOptions;
use super::super::session::Session;
use super::super::shared::Shared;
use super::activations::Activations;
use super::self_check;
use super::vm_context::StoreContext;
use super::walk::{Reads, Stack};
use crate::machine_code::{Compiled, GuestCode};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use wasmtime::component::{Component, Linker};
use wasmtime::{AsContext, CallHook, Config, Engine, Store, WasmBacktrace};
use wlprof_module::core_modules;
use wlprof_recording::{Journal, Meta, Recorder, State};
use wlprof_walk::{CodeMap, FrameWord, Frames, MAX_FRAMES, Walk};

/// A guest whose `run` works at several depths and waits at the innermost. `ROUNDS` times.
const COMPONENT: &str = r#"(component
  (import "nap" (func $nap async (param "n" u32) (result u32)))
  (core func $nap-lowered (canon lower (func $nap)))
  (core module $m
    (import "" "nap" (func $nap (param i32) (result i32)))
    (func $work (param $n i32) (result i32) (local $s i32)
      (loop $l (local.set $s (i32.add (i32.mul (local.get $s) (i32.const 31)) (local.get $n)))
        (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $s))
    (func $descend (param $d i32) (result i32)
      (if (result i32) (local.get $d)
        (then (i32.add (call $work (i32.const 3000)) (call $descend (i32.sub (local.get $d) (i32.const 1)))))
        (else (call $nap (i32.const 1)))))
    (func (export "run") (param $n i32) (result i32) (local $s i32)
      (loop $l (local.set $s (i32.add (local.get $s) (call $descend (i32.and (local.get $n) (i32.const 7)))))
        (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
      (local.get $s)))
  (core instance $i (instantiate $m (with "" (instance (export "nap" (func $nap-lowered))))))
  (func (export "run") async (param "n" u32) (result u32) (canon lift (core func $i "run"))))"#;

/// Calls of `nap` that each task makes, task by task.
const ROUNDS: [u32; 3] = [200, 201, 202];

fn engine() -> Engine {
    let mut config = Config::new();
    config.debug_symbols(true).generate_address_map(true).wasm_component_model_async(true);
    config.wasm_backtrace_max_frames(NonZeroUsize::new(MAX_FRAMES));
    Engine::new(&config).unwrap()
}

/// The component, compiled.
fn guest(engine: &Engine) -> (Component, GuestCode) {
    let bytes = wat::parse_str(COMPONENT).unwrap();
    let component = Component::new(engine, &bytes).unwrap();
    let images = core_modules(&bytes, "tasks").unwrap().into_iter().map(Arc::new).collect();
    (component.clone(), GuestCode { compiled: Compiled::Component(component), images })
}

/// Runs the tasks of `store`, all at once, by turns on two threads.
async fn run_tasks(mut store: Store<()>, component: Component, linker: Linker<()>) {
    let mut functions = Vec::new();
    for _ in ROUNDS {
        let instance = linker.instantiate_async(&mut store, &component).await.unwrap();
        functions.push(instance.get_typed_func::<(u32,), (u32,)>(&mut store, "run").unwrap());
    }
    store
        .run_concurrent(async |accessor| {
            let calls = functions.iter().zip(ROUNDS);
            let mut calls: Vec<_> =
                calls.map(|(run, rounds)| Some(Box::pin(run.call_concurrent(accessor, (rounds,))))).collect();
            std::future::poll_fn(|context| {
                for call in &mut calls {
                    if let Some(running) = call
                        && let Poll::Ready(result) = running.as_mut().poll(context)
                    {
                        result.unwrap();
                        *call = None;
                    }
                }
                if calls.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        })
        .await
        .unwrap();
}

fn linker(engine: &Engine) -> Linker<()> {
    let mut linker: Linker<()> = Linker::new(engine);
    linker
        .root()
        .func_wrap_concurrent("nap", |_, (n,): (u32,)| {
            Box::pin(async move {
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_micros(100)).await;
                wasmtime::error::Ok((n,))
            })
        })
        .unwrap();
    linker
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// What is compared at host calls.
struct Comparison {
    code: CodeMap,
    /// Text offsets and offsets in the component's file, in order of the former.
    offsets: Vec<(usize, Option<u32>)>,
    text: usize,
    store: StoreContext,
    activations: Activations,
    stacks: usize,
    /// The deepest nest of entries, and the fibers that they were on.
    fibers: BTreeSet<usize>,
}

impl Comparison {
    fn note(&mut self, hook: CallHook, context: impl AsContext) {
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let (activation, fiber) = unsafe { (self.store.activation(), self.store.fiber()) };
        match hook {
            CallHook::CallingWasm => self.activations.enter(activation, fiber),
            CallHook::ReturningFromWasm => drop(self.activations.leave(fiber)),
            CallHook::CallingHost => {
                self.fibers.insert(fiber);
                self.activations.calling_host(activation);
                self.compare(context);
            }
            CallHook::ReturningFromHost => {
                if let Some(entry) = self.activations.returning_from_host(activation.entry_fp) {
                    entry.host_call_is_over();
                }
            }
        }
    }

    /// The instruction before a return address, by its place in the file.
    fn file_offset(&self, word: u64) -> Option<u32> {
        let at = FrameWord(word).pc() - 1 - self.text;
        let next = self.offsets.partition_point(|(start, _)| *start <= at);
        self.offsets[..next].last()?.1
    }

    fn compare(&mut self, context: impl AsContext) {
        let mut words = vec![0; MAX_FRAMES];
        let mut frames = Frames::new(&mut words);
        let stack = Stack {
            walk: Walk { code: self.code.read(), memory: Reads::InPlace },
            store: self.store,
            activations: &self.activations,
        };
        // SAFETY: this thread runs the store and is in a host call, so the stack that is read stands still.
        let end = unsafe { stack.walk_blocked(&mut frames) };
        assert_eq!(end, Ok(()));
        let length = frames.len();
        let walked: Vec<Option<u32>> = words[..length].iter().map(|&word| self.file_offset(word)).collect();
        let backtrace = WasmBacktrace::force_capture(context);
        let said: Vec<Option<u32>> =
            backtrace.frames().iter().map(|frame| frame.module_offset().map(|offset| offset as u32)).collect();
        assert_eq!(walked, said);
        self.stacks += 1;
    }
}

#[test]
fn tasks_that_take_turns_have_the_stacks_that_wasmtime_says() {
    let engine = engine();
    let (component, guest) = guest(&engine);
    let mut store = Store::new(&engine, ());
    let context = self_check::run(&mut store).unwrap();
    let comparison = Arc::new(Mutex::new(Comparison {
        code: CodeMap::of(&guest.mapped_image()),
        offsets: component.address_map().unwrap().collect(),
        text: component.text().as_ptr() as usize,
        store: context,
        activations: Activations::new(),
        stacks: 0,
        fibers: BTreeSet::new(),
    }));
    let hooked = comparison.clone();
    store.call_hook(move |context, hook| {
        hooked.lock().unwrap().note(hook, context);
        Ok(())
    });
    let runtime = runtime();
    runtime.block_on(runtime.spawn(run_tasks(store, component, linker(&engine)))).unwrap();
    let compared = comparison.lock().unwrap();
    println!("{} stacks on {} fibers", compared.stacks, compared.fibers.len());
    assert!(compared.stacks >= ROUNDS.iter().sum::<u32>() as usize, "{}", compared.stacks);
    assert!(compared.fibers.len() >= 3, "{:?}", compared.fibers);
    assert!(!compared.activations.any(), "every entry has ended");
}

#[test]
fn samples_of_tasks_that_take_turns_are_whole() {
    let engine = engine();
    let (component, guest) = guest(&engine);
    let mut in_wasm = 0;
    // How many samples some work leaves depends on the machine and on who else uses it.
    for _ in 0..100 {
        let options = SamplerOptions { max_overhead: 1.0, ..SamplerOptions::at_rate(5000.0) };
        let shared = Shared::new(options, Recorder::new(Vec::new(), Meta::default(), Journal::default()));
        shared.load(&guest, Vec::new());
        let session = Session::of(shared);
        let mut store = Store::new(&engine, ());
        let attached = session.attach(&mut store, "tasks".into(), None).unwrap();
        let runtime = runtime();
        let tasks = attached.run(run_tasks(store, component.clone(), linker(&engine)));
        runtime.block_on(runtime.spawn(tasks)).unwrap();
        let finished = session.finish();
        assert!(finished.ticks.balanced(), "{:?}", finished.ticks);
        assert!(finished.recorder.truncated_counts().is_empty(), "{:?}", finished.ticks);
        in_wasm += finished.recorder.count_of(State::Guest);
        if in_wasm > 100 {
            return;
        }
    }
    panic!("{in_wasm} samples in wasm only");
}
