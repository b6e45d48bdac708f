//! Proves the walk against Wasmtime's own backtrace: at host calls of fixtures, frame for frame.

use super::activations::Activations;
use super::self_check;
use super::self_report_tests::fixture;
use super::vm_context::StoreContext;
use super::walk::{Reads, Stack};
use crate::machine_code::{Compiled, GuestCode};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wasmtime::component::{self, Component};
use wasmtime::{AsContext, CallHook, Caller, Engine, Func, Instance, Module, Store, WasmBacktrace};
use wasmtime_wasi::p2::{self, bindings::sync::Command};
use wlprof_module::{Binary, ModuleImage, read_binary};
use wlprof_plugin::ModuleView;
use wlprof_recording::Origin;
use wlprof_run::guest::{EngineOptions, config};
use wlprof_walk::{CodeMap, FrameWord, Frames, MAX_FRAMES, MAX_ROOTS, NativePc, Walk, WalkTruncation};
use wlprof_wasi::{CallableComponent, Stdio, WasiOptions, linker};

/// Host calls compared in one guest. Some make millions.
const MOST_CALLS: usize = 5000;

/// What the comparisons of one guest came to.
#[derive(Default)]
struct Compared {
    calls: usize,
    frames: usize,
    adapters: usize,
    deepest: usize,
}

struct Comparison {
    code: CodeMap,
    images: Vec<Arc<ModuleImage>>,
    store: StoreContext,
    activations: Activations,
    compared: Compared,
}

impl Comparison {
    /// Takes note of what the call hook says.
    fn note(&self, hook: CallHook) {
        // SAFETY: the store's own call hook runs this, so the store is alive.
        let (activation, fiber) = unsafe { (self.store.activation(), self.store.fiber()) };
        match hook {
            CallHook::CallingWasm => self.activations.enter(activation, fiber),
            CallHook::ReturningFromWasm => drop(self.activations.leave(fiber)),
            CallHook::CallingHost => drop(self.activations.calling_host(activation)),
            CallHook::ReturningFromHost => {
                if let Some(entry) = self.activations.returning_from_host(activation.entry_fp) {
                    entry.host_call_is_over();
                }
            }
        }
    }

    /// Compares the two stacks of a thread that is in a host call.
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
        let is_whole = frames.finish();
        let (length, leaves) = (frames.len(), frames.leaves());
        let mut adapters = 0;
        let mut walked_of = |words: &[u64]| -> Vec<Option<(u32, u32)>> {
            let frames = words.iter();
            let frames = frames.filter_map(|&word| match self.code.origin(NativePc::Return(FrameWord(word).pc()))? {
                Origin::Wasm { module, function, code_offset } => {
                    Some(Some((function, self.images[module as usize].file_offset(code_offset))))
                }
                Origin::Adapter => {
                    adapters += 1;
                    Some(None)
                }
                _ => None,
            });
            frames.collect()
        };
        let (walked, roots) = (walked_of(&words[..leaves]), walked_of(&words[leaves..length]));
        let said: Vec<Option<(u32, u32)>> = WasmBacktrace::force_capture(context)
            .frames()
            .iter()
            .map(|frame| {
                let module = frame.module().functions().next().unwrap().module.as_u32() as usize;
                // An adapter is of no module in the file.
                let is_known = module < self.images.len();
                is_known.then(|| (frame.func_index(), frame.module_offset().unwrap() as u32))
            })
            .collect();
        self.compared.adapters += adapters;
        if roots.is_empty() {
            assert_eq!(is_whole, Ok(()));
            assert_eq!(walked, said);
        } else {
            assert_eq!((is_whole, words[leaves]), (Err(WalkTruncation::Elided), FrameWord::ELIDED.0));
            assert_eq!((walked.len() + roots.len(), roots.len()), (MAX_FRAMES - 1, MAX_ROOTS));
            assert_eq!(walked, said[..walked.len()]);
            assert_eq!(roots, said[said.len() - roots.len()..]);
        }
        self.compared.calls += 1;
        self.compared.frames += walked.len();
        self.compared.deepest = self.compared.deepest.max(walked.len());
    }
}

fn fixtures() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/fixtures");
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}; run `cargo xtask test-fixtures`", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // One never ends, the other needs a JavaScript host; and some wait for requests.
    let ends = |stem: String| stem != "c-spin" && stem != "go-js" && !stem.starts_with("handler-");
    paths.retain(|path| path.is_file() && ends(stem(path)));
    paths.sort();
    assert!(paths.len() > 10, "{} fixtures only; run `cargo xtask test-fixtures`", paths.len());
    paths
}

/// An engine like the guests', whose backtraces are whole instead of 20 frames. With a cache: to compile all fixtures takes
/// minutes on an emulated processor.
fn engine() -> Engine {
    let mut config = config(EngineOptions { epoch_interruption: false, cache: true });
    config.wasm_backtrace_max_frames(NonZeroUsize::new(1 << 20));
    Engine::new(&config).unwrap()
}

/// What is in a file, compiled.
pub(super) fn compiled(engine: &Engine, path: &Path) -> GuestCode {
    match read_binary(path, None).unwrap().0 {
        Binary::Module(image) => {
            GuestCode::of_module(Module::from_binary(engine, image.bytes()).unwrap(), Arc::new(*image))
        }
        Binary::Component { bytes, modules } => GuestCode {
            compiled: Compiled::Component(Component::from_binary(engine, &bytes).unwrap()),
            images: modules.into_iter().map(Arc::new).collect(),
        },
    }
}

/// Compares at the calls of the host that are made in `store`, which `code` is about to run in.
fn comparison<T: 'static>(store: &mut Store<T>, code: &GuestCode) -> Arc<Mutex<Comparison>> {
    let context = self_check::run(store).unwrap();
    let comparison = Arc::new(Mutex::new(Comparison {
        code: CodeMap::of(&code.mapped_image()),
        images: code.images.clone(),
        store: context,
        activations: Activations::new(),
        compared: Compared::default(),
    }));
    let hooked = comparison.clone();
    store.call_hook(move |context, hook| {
        let mut comparison = hooked.lock().unwrap();
        comparison.note(hook);
        if matches!(hook, CallHook::CallingHost) {
            // An interpreter without a script may ask for input for ever.
            wasmtime::ensure!(comparison.compared.calls < MOST_CALLS, "compared enough");
            comparison.compare(&context);
        }
        Ok(())
    });
    comparison
}

fn compared(comparison: Arc<Mutex<Comparison>>) -> Compared {
    Arc::into_inner(comparison).unwrap().into_inner().unwrap().compared
}

fn compare_in(engine: &Engine, code: &GuestCode) -> Compared {
    let world = WasiOptions { arguments: vec!["guest".into()], stdio: Stdio::Null, ..WasiOptions::default() };
    let mut store = world.store(engine).unwrap();
    let comparison = comparison(&mut store, code);
    // Some guests end in a trap or an exit code; what counts is the calls before that.
    match &code.compiled {
        Compiled::Module(module) => {
            let linker = linker(engine, &world.flags).unwrap();
            let instance = linker.instantiate(&mut store, module).unwrap();
            if let Some(start) = instance.get_func(&mut store, "_start") {
                let _ = start.call(&mut store, &[], &mut []);
            }
        }
        Compiled::Component(component) => {
            let mut linker = component::Linker::new(engine);
            p2::add_to_linker_sync(&mut linker).unwrap();
            let command = Command::instantiate(&mut store, component, &linker).unwrap();
            let _ = command.wasi_cli_run().call_run(&mut store);
        }
    }
    drop(store);
    compared(comparison)
}

/// The same of a component on fibers, as the command runs it; with WASI 0.3 as well.
fn compare_async(engine: &Engine, code: &GuestCode) -> Compared {
    let Compiled::Component(component) = &code.compiled else { panic!("not a component") };
    let mut world = WasiOptions { arguments: vec!["guest".into()], stdio: Stdio::Null, ..WasiOptions::default() };
    // Of what answers requests as well.
    world.flags.wasi.http = Some(true);
    let mut store = world.store(engine).unwrap();
    let comparison = comparison(&mut store, code);
    let component = CallableComponent::find(engine, component, &world.flags, None).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let instance = component.instantiate(&mut store).await.unwrap();
        let _ = component.call(&mut store, &instance).await;
    });
    drop(store);
    compared(comparison)
}

/// One of each compiler, and of what joins and calls components.
const FEW: [&str; 8] = [
    "c-hosty.wasm",
    "component-c-hosty.wasm",
    "component-fused.wat",
    "component-python-calls-rust.wasm",
    "cpp-shapes.wasm",
    "go-work-1.27.wasm",
    "rust-mix.wasm",
    "wat-tail-calls.wat",
];

#[test]
fn at_every_host_call_the_stacks_are_equal() {
    compare_fixtures(FEW.map(fixture));
}

#[test]
fn at_every_host_call_of_every_fixture_the_stacks_are_equal() {
    compare_fixtures(fixtures());
}

fn compare_fixtures(paths: impl IntoIterator<Item = PathBuf>) {
    let mut calls = 0;
    for path in paths {
        let name = path.file_name().unwrap().display().to_string();
        // Once for both ways: compiling takes longest.
        let engine = engine();
        let code = compiled(&engine, &path);
        let mut compared = Vec::new();
        let is_component = name.starts_with("component-");
        // What is `async` in WASI 0.3 can be called on fibers alone.
        if !name.contains("async") {
            compared.push(compare_in(&engine, &code));
        }
        if is_component {
            compared.push(compare_async(&engine, &code));
        }
        for Compared { calls: own, frames, adapters, deepest } in compared {
            println!("{name}: {own} calls, {frames} frames, {adapters} of adapters, deepest {deepest}");
            assert!(own > 0 || !is_component, "{name}");
            if name == "component-python-calls-rust.wasm" {
                // What is called through an adapter calls the host.
                assert!(adapters > 100, "{adapters} adapters");
            }
            if name == "component-fused.wat" {
                // Each call of the host is an adapter's, at most of the second.
                assert!(own == MOST_CALLS && adapters >= own * 3 / 2, "{own} calls, {adapters} adapters");
            }
            calls += own;
        }
    }
    assert!(calls > 1000, "the fixtures made {calls} host calls only");
}

/// wasm calls the host, which calls wasm, five times over; at the innermost the whole stack is compared.
#[test]
fn nested_entries_into_wasm_are_walked_through() {
    let text = r#"(module
        (import "" "down" (func $down (param i32)))
        (func $step (param i32) (call $down (local.get 0)))
        (func (export "up") (param i32) (call $step (i32.sub (local.get 0) (i32.const 1)))))"#;
    let engine = engine();
    let bytes = wat::parse_str(text).unwrap();
    let module = Module::from_binary(&engine, &bytes).unwrap();
    let image = Arc::new(ModuleImage::parse(bytes, "nested").unwrap());
    let mut store = Store::new(&engine, ());
    let context = self_check::run(&mut store).unwrap();
    let comparison = Arc::new(Mutex::new(Comparison {
        code: CodeMap::of(&GuestCode::of_module(module.clone(), image.clone()).mapped_image()),
        images: vec![image],
        store: context,
        activations: Activations::new(),
        compared: Compared::default(),
    }));
    let hooked = comparison.clone();
    store.call_hook(move |_, hook| {
        hooked.lock().unwrap().note(hook);
        Ok(())
    });
    let comparing = comparison.clone();
    let down = Func::wrap(&mut store, move |mut caller: Caller<'_, ()>, depth: i32| {
        comparing.lock().unwrap().compare(&caller);
        if depth > 0 {
            let up = caller.get_export("up").and_then(|export| export.into_func()).unwrap();
            up.typed::<i32, ()>(&caller).unwrap().call(&mut caller, depth).unwrap();
        }
    });
    let instance = Instance::new(&mut store, &module, &[down.into()]).unwrap();
    let up = instance.get_typed_func::<i32, ()>(&mut store, "up").unwrap();
    up.call(&mut store, 5).unwrap();
    let compared = &comparison.lock().unwrap().compared;
    assert_eq!((compared.calls, compared.deepest), (5, 10));
}
