//! Runs guests that print their own stacks, and reads their stacks when they are about to: what the tests of languages
//! compare.

use super::super::running::find_instance;
use super::super::shared::LoadedModule;
use super::activations::Activations;
use super::backtrace_tests::compiled;
use super::language::{LanguageWalk, Reading};
use super::self_check;
use super::vm_context::StoreContext;
use super::walk::{Reads, Stack};
use crate::machine_code::Compiled;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wasmtime::{CallHook, Instance, Store, component};
use wasmtime_wasi::p2::bindings::sync::Command;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{WasiCtxBuilder, p2, p3};
use wlprof_module::among;
use wlprof_plugin::{Detection, FrameKey, Language, Program, WasmFrame};
use wlprof_recording::{LanguageTruncation, Origin};
use wlprof_run::guest::{EngineOptions, engine};
use wlprof_walk::{
    CodeMap, Dump, FrameWord, Frames, LanguageEntry, LanguageStack, MAX_FRAMES, MAX_LANGUAGE_WORDS, Walk,
};
use wlprof_wasi::{Flags, GuestState, component_linker, linker};

/// A fixture's path.
pub(in crate::sampler) fn fixture(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/fixtures").join(name);
    assert!(path.exists(), "{} is missing; run `cargo xtask test-fixtures`", path.display());
    path
}

/// Whether all threads are read as well. That is a walk more, and the Python plugin looks for the interpreter in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) enum WithThreads {
    Yes,
    No,
}

/// What was read at a host call.
pub(in crate::sampler) struct Seen {
    /// Leaf first.
    pub(in crate::sampler) frames: Vec<FrameKey>,
    pub(in crate::sampler) truncation: Option<LanguageTruncation>,
    pub(in crate::sampler) labels: Vec<u64>,
    pub(in crate::sampler) stacks: Dump,
}

/// What the guest printed in a host call, and what was read when it did.
pub(in crate::sampler) struct Pair {
    pub(in crate::sampler) said: String,
    pub(in crate::sampler) seen: Seen,
}

struct Reader {
    code: CodeMap,
    store: StoreContext,
    activations: Activations,
    language: Option<LanguageWalk>,
    with_threads: bool,
}

impl Reader {
    fn read(&mut self) -> Option<Seen> {
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
        let language = self.language.as_mut()?;
        let mut record = vec![0; MAX_LANGUAGE_WORDS];
        // SAFETY: this thread runs the store and is in a host call, so the guest stands still. `self` is borrowed mutably: nobody else has
        // the walker.
        let written = unsafe { language.collect(&self.code.read(), &words[..length], Reading::Standing, &mut record) };
        let read = LanguageStack::read(&record[..written]);
        let mut stacks = Dump::default();
        if self.with_threads {
            // SAFETY: this thread is in a host call, so the guest stands still. `self` is borrowed mutably: nobody else has the walker.
            stacks = unsafe { language.threads(&self.code.read(), &words[..length], "running", false) };
        }
        let key = |entry: LanguageEntry| match entry {
            LanguageEntry::Key(key) => FrameKey::Own(key),
            LanguageEntry::Native(index) => match self.code.origin(FrameWord(words[index]).native_pc()) {
                Some(Origin::Wasm { function, code_offset, .. }) => {
                    FrameKey::Wasm(WasmFrame::attached(function, code_offset))
                }
                other => panic!("{other:?}"),
            },
            LanguageEntry::Elided => FrameKey::Elided,
        };
        let frames = read.entries().map(key).collect();
        Some(Seen { frames, truncation: read.truncation, labels: read.labels.to_vec(), stacks })
    }
}

/// The interface of commands of WASI 0.3.
const COMMAND_3: &str = "wasi:cli/run@0.3.0";

/// What starts a guest that has been instantiated.
type Start = Box<dyn FnOnce(&mut Store<GuestState>) -> wasmtime::Result<()>>;

/// Gives a component what it would answer requests with.
fn refuse_requests(linker: &mut component::Linker<GuestState>) -> wasmtime::Result<()> {
    let mut http = linker.instance("wasi:http/types@0.3.0")?;
    for resource in ["fields", "request", "response"] {
        http.resource(resource, component::ResourceType::host::<()>(), |_, _| Ok(()))?;
    }
    for function in [
        "[constructor]fields",
        "[method]request.get-path-with-query",
        "[static]response.new",
        "[method]response.set-status-code",
    ] {
        http.func_new(function, |_, _, _, _| wasmtime::bail!("there are no requests"))?;
    }
    Ok(())
}

/// Runs the guest at `path` with the world that `wasi` describes, and pairs what it printed, where that begins with `@`,
/// with what was read.
pub(in crate::sampler) fn run(
    path: &Path,
    wasi: &mut WasiCtxBuilder,
    language: &dyn Language,
    with_threads: WithThreads,
) -> (Vec<Pair>, Arc<dyn Program>) {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let code = compiled(&engine, path);
    let is_component = code.compiled.module().is_none();
    let output = MemoryOutputPipe::new(64 << 20);
    let flags = Flags::default();
    let mut store = Store::new(&engine, GuestState::new(wasi.stdout(output.clone()).build_p1(), &flags));
    let probe = self_check::Probe::new(&engine).unwrap();
    let (context, begun) = probe.context(&mut store).unwrap();
    let reader = Arc::new(Mutex::new(Reader {
        code: CodeMap::of(&code.mapped_image()),
        store: context,
        activations: Activations::new(),
        language: None,
        with_threads: with_threads == WithThreads::Yes,
    }));
    let pairs = Arc::new(Mutex::new((Vec::new(), None::<Seen>, 0)));
    let (hooked, pairing, printed) = (reader.clone(), pairs.clone(), output.clone());
    store.call_hook(move |_, hook| {
        let mut pairing = pairing.lock().unwrap();
        match hook {
            CallHook::CallingHost => {
                let mut reader = hooked.lock().unwrap();
                // SAFETY: the store's own call hook runs this, so the store is alive.
                reader.activations.calling_host(unsafe { reader.store.activation() });
                pairing.1 = reader.read();
            }
            CallHook::ReturningFromHost => {
                let reader = hooked.lock().unwrap();
                // SAFETY: the store's own call hook runs this, so the store is alive.
                let entry = reader.activations.returning_from_host(unsafe { reader.store.activation() }.entry_fp);
                entry.unwrap().host_call_is_over();
                let contents = printed.contents();
                let said = String::from_utf8(contents[pairing.2..].to_vec()).unwrap();
                pairing.2 = contents.len();
                let seen = pairing.1.take();
                match (said.starts_with('@'), seen, pairing.0.last_mut()) {
                    (true, Some(seen), _) => pairing.0.push(Pair { said, seen }),
                    // What a component's libraries write goes to the host in parts of 4 KiB.
                    (false, _, Some(last)) if is_component => last.said.push_str(&said),
                    _ => {}
                }
            }
            CallHook::CallingWasm => {
                let reader = hooked.lock().unwrap();
                // SAFETY: the store's own call hook runs this, so the store is alive.
                let (activation, fiber) = unsafe { (reader.store.activation(), reader.store.fiber()) };
                reader.activations.enter(activation, fiber);
            }
            CallHook::ReturningFromWasm => {
                let reader = hooked.lock().unwrap();
                // SAFETY: the store's own call hook runs this, so the store is alive.
                let _ = reader.activations.leave(unsafe { reader.store.fiber() });
            }
        }
        Ok(())
    });
    let start: Start = match &code.compiled {
        Compiled::Module(module) => {
            let linker = linker(&engine, &flags).unwrap();
            let instance = linker.instantiate(&mut store, module).unwrap();
            let start = instance.get_func(&mut store, "_start").unwrap();
            Box::new(move |store| start.call(store, &[], &mut []))
        }
        Compiled::Component(component) if component.get_export_index(None, COMMAND_3).is_some() => {
            let mut linker = component_linker(&engine, &flags).unwrap();
            refuse_requests(&mut linker).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let instantiating = p3::bindings::Command::instantiate_async(&mut store, component, &linker);
            let command = runtime.block_on(instantiating).unwrap();
            Box::new(move |store| {
                let run = store.run_concurrent(async |store| command.wasi_cli_run().call_run(store).await);
                runtime.block_on(run)??.map_err(|()| wasmtime::format_err!("failed"))
            })
        }
        Compiled::Component(component) => {
            let mut linker = component::Linker::new(&engine);
            p2::add_to_linker_sync(&mut linker).unwrap();
            let command = Command::instantiate(&mut store, component, &linker).unwrap();
            Box::new(move |store| command.wasi_cli_run().call_run(store)?.map_err(|()| wasmtime::format_err!("failed")))
        }
    };
    // The only one that is in the language.
    let is_it = |number: &usize| language.detect(&among(&code.images, *number).unwrap()) != Detection::No;
    let of_language: Vec<usize> = (0..code.images.len()).filter(is_it).collect();
    let [number] = of_language[..] else { panic!("{of_language:?}") };
    let (program, image) = (language.attach(&among(&code.images, number).unwrap()).unwrap(), &code.images[number]);
    let instances = probe.instances_since(&mut store, begun).unwrap();
    let is_its = |instance: &&Instance| {
        let functions = instance.module(&store).functions().next();
        functions.map(|function| function.module.as_u32()) == Some(number as u32)
    };
    let instance = *instances.0.iter().find(is_its).unwrap();
    let instance = find_instance(&mut store, &instance, image, &reader.lock().unwrap().code).unwrap();
    let modules = LoadedModule::all_of(&code);
    let walker = program.walker().unwrap();
    let walk = LanguageWalk::new(modules[number].clone(), program.clone(), walker, instance);
    reader.lock().unwrap().language = Some(walk);
    if let Err(error) = start(&mut store) {
        assert_eq!(error.downcast_ref::<wasmtime_wasi::I32Exit>().map(|exit| exit.0), Some(0), "{error:?}");
    }
    let pairs = std::mem::take(&mut pairs.lock().unwrap().0);
    (pairs, program)
}
