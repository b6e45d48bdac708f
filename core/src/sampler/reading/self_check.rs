//! Compares what is read through Wasmtime's internals with what its public API says, before anything relies on it.
//!
//! A small module is instantiated in a store of the guests' engine. It calls back from some frames deep, and there its memory,
//! its globals and its stack are read both ways. That store is the check's own: a guest's may have no fuel yet, have its epoch's
//! deadline behind it, or count what is instantiated in it.

use super::activations::Activations;
use super::core_instances;
use super::vm_context::{InstanceContext, StoreContext};
use super::walk::{Reads, Stack};
use crate::machine_code::GuestCode;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use wasmtime::{
    Caller, Engine, Extern, Func, Instance, Memory, MemoryType, Module, Store, Trap, WasmBacktrace, bail, format_err,
};
use wlprof_module::ModuleImage;
use wlprof_recording::Origin;
use wlprof_walk::{Activation, CodeMap, CodeName, FrameWord, Frames, NativePc, Walk};

const PROBE: &str = r#"(module
  (import "" "check" (func $check (param i32) (result i32)))
  (memory (export "memory") 1)
  (global $hidden (mut i64) (i64.const 0))
  (global $shown (export "shown") (mut i32) (i32.const 7))
  (func $descend (param $depth i32) (result i32)
    (if (result i32) (local.get $depth)
      (then (i32.add (i32.const 1) (call $descend (i32.sub (local.get $depth) (i32.const 1)))))
      (else (call $check (i32.const 40)))))
  (func (export "run") (result i32)
    (global.set $shown (i32.const 11))
    (global.set $hidden (i64.const 0x123456789abcdef))
    (drop (memory.grow (i32.const 2)))
    (i32.store (i32.const 65540) (i32.const 42))
    (call $descend (i32.const 3))))"#;

/// Index of the global that the probe does not export, and what it holds when checked.
const HIDDEN: (u32, u64) = (0, 0x0123_4567_89ab_cdef);
const SHOWN: u32 = 1;

/// An empty module that shows where a store has what is read of it. Compiled once.
#[derive(Clone)]
pub(in crate::sampler) struct Probe {
    module: Module,
    /// Whether instances are found by their numbers, or why not; once that has been asked.
    numbers: Arc<OnceLock<Result<(), String>>>,
}

/// A moment in a store: what has been instantiated by then.
#[derive(Clone, Copy)]
pub(in crate::sampler) struct Moment(Instance);

impl Probe {
    /// Makes the whole check.
    ///
    /// # Errors
    /// What differs, or why it could not be compared.
    pub(in crate::sampler) fn new(engine: &Engine) -> wasmtime::Result<Self> {
        check(engine)?;
        let module = Module::from_binary(engine, &wat::parse_str(r#"(module (func (export "run")))"#)?)?;
        Ok(Self { module, numbers: Arc::default() })
    }

    /// Whether guests of the engine have the checks compiled into them at which the epoch sampler reads them. Its configuration is not the
    /// API's to say: a new store's deadline has passed, and only a check would see it.
    ///
    /// # Errors
    /// If the probe cannot be run.
    pub(in crate::sampler) fn guests_have_checks(&self) -> wasmtime::Result<bool> {
        let mut store = Store::new(self.module.engine(), ());
        // Engines whose guests use none refuse it.
        let _ = store.set_fuel(u64::MAX);
        let instance = Instance::new(&mut store, &self.module, &[])?;
        let run = instance.get_typed_func::<(), ()>(&mut store, "run")?;
        match run.call(&mut store, ()) {
            Ok(()) => Ok(false),
            Err(error) if error.downcast_ref() == Some(&Trap::Interrupt) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Gives the context of `store`, in which nothing runs yet, and this moment in it.
    ///
    /// # Errors
    /// If the store has no room for an instance of nothing.
    pub(in crate::sampler) fn context<T: 'static>(
        &self,
        store: &mut Store<T>,
    ) -> wasmtime::Result<(StoreContext, Moment)> {
        let instance = Instance::new(&mut *store, &self.module, &[])?;
        Ok((store_context(store, &instance)?, Moment(instance)))
    }

    /// The core instances that were made in `store` since a moment in it, as far as they export functions, and the moment that it is now.
    ///
    /// # Errors
    /// If the store has no room for an instance of nothing, or yields before that is made; or if the engine numbers instances otherwise
    /// than is known.
    pub(in crate::sampler) fn instances_since<T: 'static>(
        &self,
        store: &mut Store<T>,
        Moment(first): Moment,
    ) -> wasmtime::Result<(Vec<Instance>, Moment)> {
        let checked = || compare_instances(store.engine(), &self.module).map_err(|error| format!("{error:#}"));
        self.numbers.get_or_init(checked).clone().map_err(wasmtime::Error::msg)?;
        // A store that has called the host asynchronously takes nothing else. Nothing suspends here: one poll is enough.
        let making = Instance::new_async(&mut *store, &self.module, &[]);
        let Poll::Ready(last) = pin!(making).poll(&mut Context::from_waker(Waker::noop())) else {
            bail!("making an instance of nothing has to wait");
        };
        let last = last?;
        Ok((core_instances::between(store, &first, &last), Moment(last)))
    }
}

/// Looks whether instances that the API does not give are found by their numbers.
fn compare_instances(engine: &Engine, module: &Module) -> wasmtime::Result<()> {
    let mut store = Store::new(engine, ());
    let instance = |store: &mut Store<()>| Instance::new(store, module, &[]);
    let first = instance(&mut store)?;
    // What the embedder makes himself has a number among those of instances.
    Memory::new(&mut store, MemoryType::new(0, Some(0)))?;
    let made = instance(&mut store)?;
    let last = instance(&mut store)?;
    let found = core_instances::between(&mut store, &first, &last);
    if found != [made] {
        bail!("the instances between two others are {found:?} by their numbers and {made:?} by the API");
    }
    Ok(())
}

fn check(engine: &Engine) -> wasmtime::Result<()> {
    let (module, image) = probe(engine)?;
    let guest = GuestCode::of_module(module.clone(), image.clone());
    let mapped = guest.mapped_image();
    let pieces = mapped.parse().map(|image| image.pieces()).unwrap_or_default();
    let knows_entries = pieces.iter().any(|(name, _)| !matches!(name, CodeName::Function { .. }));
    if !knows_entries || module.address_map().is_none() {
        bail!("the engine keeps too little of its machine code: give its Config to `wlprof::configure` first");
    }
    let mut store = Store::new(engine, ());
    store.set_epoch_deadline(u64::MAX / 2);
    // Engines whose guests use none refuse it.
    let _ = store.set_fuel(u64::MAX);
    let code = CodeMap::of(&mapped);
    let check = Func::wrap(&mut store, move |mut caller: Caller<'_, ()>, value: i32| -> wasmtime::Result<i32> {
        compare(&mut caller, &code, &image)?;
        Ok(value)
    });
    let instance = Instance::new(&mut store, &module, &[check.into()])?;
    let run = instance.get_typed_func::<(), i32>(&mut store, "run")?;
    match run.call(&mut store, ())? {
        43 => Ok(()),
        other => bail!("the probe returned {other}"),
    }
}

/// The context of a store, by an instance in it that exports `run`.
fn store_context<T: 'static>(store: &mut Store<T>, instance: &Instance) -> wasmtime::Result<StoreContext> {
    let run = instance.get_func(&mut *store, "run").ok_or_else(|| format_err!("the probe has no `run`"))?;
    let context = InstanceContext::of(&mut *store, &run).ok_or_else(|| format_err!("the probe has no vmctx"))?;
    Ok(context.store_context())
}

/// Makes the whole check, and gives the context of `store`.
///
/// # Errors
/// What differs, or why it could not be compared.
#[cfg(test)]
pub(in crate::sampler) fn run<T: 'static>(store: &mut Store<T>) -> wasmtime::Result<StoreContext> {
    Ok(Probe::new(store.engine())?.context(store)?.0)
}

fn probe(engine: &Engine) -> wasmtime::Result<(Module, Arc<ModuleImage>)> {
    let bytes = wat::parse_str(PROBE)?;
    let module = Module::from_binary(engine, &bytes)?;
    Ok((module, Arc::new(ModuleImage::parse(bytes, "probe")?)))
}

fn compare(caller: &mut Caller<'_, ()>, code: &CodeMap, image: &ModuleImage) -> wasmtime::Result<()> {
    let export = |caller: &mut Caller<'_, ()>, name| {
        caller.get_export(name).ok_or_else(|| format_err!("the probe exports no {name}"))
    };
    let Extern::Func(run) = export(caller, "run")? else { bail!("`run` is no function") };
    let Some(context) = InstanceContext::of(&mut *caller, &run) else { bail!("the vmctx has another magic") };

    let Extern::Memory(memory) = export(caller, "memory")? else { bail!("`memory` is no memory") };
    let definition = context.memory(image.compiled_index_spaces(), 0).ok_or_else(|| format_err!("no memory 0"))?;
    // SAFETY: this thread is in a host call of the store, so the store is alive and its memory stands still.
    let read = unsafe { definition.read() };
    let said = (memory.data_ptr(&*caller) as usize, memory.data_size(&*caller));
    if read != said {
        bail!("memory is {read:x?} by Wasmtime's internals and {said:x?} by its API");
    }

    let global = |index| {
        let address = context.global(image.compiled_index_spaces(), index);
        // SAFETY: the address is that of a global of this live instance; globals are 16 bytes.
        address.map(|address| unsafe { address.cast::<u64>().read_volatile() })
    };
    if global(HIDDEN.0) != Some(HIDDEN.1) {
        bail!("global {} reads {:x?}", HIDDEN.0, global(HIDDEN.0));
    }
    let Extern::Global(shown) = export(caller, "shown")? else { bail!("`shown` is no global") };
    let said = shown.get(&mut *caller).i32().map(|value| value as u32);
    if global(SHOWN).map(|bits| bits as u32) != said {
        bail!("global {SHOWN} reads {:x?}, the API says {said:x?}", global(SHOWN));
    }
    compare_stacks(caller, code, image, context.store_context())
}

fn compare_stacks(
    caller: &Caller<'_, ()>,
    code: &CodeMap,
    image: &ModuleImage,
    store: StoreContext,
) -> wasmtime::Result<()> {
    let mut words = [0; 64];
    let mut frames = Frames::new(&mut words);
    let activations = Activations::new();
    // As the call hook would have said: wasm has been entered, and has called the host.
    activations.enter(Activation::default(), 0);
    // SAFETY: this thread is in a host call of the store, so the store is alive.
    activations.calling_host(unsafe { store.activation() });
    let stack = Stack { walk: Walk { code: code.read(), memory: Reads::InPlace }, store, activations: &activations };
    // SAFETY: this thread is in a host call of the store, so the stack that is read stands still.
    let end = unsafe { stack.walk_blocked(&mut frames) };
    let length = frames.len();
    let walked: Vec<(u32, u32)> = words[..length]
        .iter()
        .filter_map(|&word| match code.origin(NativePc::Return(FrameWord(word).pc()))? {
            Origin::Wasm { function, code_offset, .. } => Some((function, code_offset)),
            _ => None,
        })
        .collect();
    let said: Vec<(u32, u32)> = WasmBacktrace::force_capture(caller)
        .frames()
        .iter()
        .map(|frame| (frame.func_index(), frame.module_offset().unwrap_or(0) as u32 - image.code_start()))
        .collect();
    if end.is_err() || walked != said || walked.len() != 5 {
        bail!("the stack is {walked:?} ({end:?}) by its frame pointers and {said:?} by the API");
    }
    Ok(())
}
