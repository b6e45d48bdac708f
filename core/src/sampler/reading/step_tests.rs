//! Proves the walk at *every* instruction: runs modules step by step and compares each walk with a shadow stack kept from
//! the call and return instructions that went by.

#[cfg_attr(target_arch = "aarch64", path = "step_tests/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "step_tests/x86_64.rs")]
mod processor;

mod modules;

use crate::machine_code::GuestCode;
use crate::sampler::reading::activations::Activations;
use crate::sampler::reading::vm_context::{InstanceContext, StoreContext};
use crate::sampler::reading::walk::{Reads, Stack};
use std::cell::RefCell;
use std::sync::Arc;
use wasmtime::{Engine, Func, Instance, Module, Store};
use wlprof_module::ModuleImage;
use wlprof_run::guest::{EngineOptions, config};
use wlprof_walk::{CodeKind, CodeMap, FrameWord, Frames, MAX_FRAMES, Registers, Walk};

/// What an instruction did that has run.
enum Step {
    /// It called what returns to `return_pc`. The callee's frame is below `above`.
    Call { return_pc: usize, above: usize },
    /// It returned.
    Return,
    /// It left compiled code, to which the thread has come back, perhaps elsewhere.
    ThroughHost,
    /// Neither.
    Other,
}

struct Stepper {
    code: CodeMap,
    store: StoreContext,
    /// Return addresses into wasm functions and what their callees' frames are below, outermost first.
    shadow: Vec<(usize, usize)>,
    /// Registers at the instruction that runs now, if that is compiled code.
    last: Option<Registers>,
    words: Vec<u64>,
    stepped: u64,
    wrong: Vec<String>,
}

thread_local! {
    static STEPPER: RefCell<Option<Stepper>> = const { RefCell::new(None) };
}

impl Stepper {
    /// Takes note of the instruction that ran last, then compares the walk from `registers` with what is known.
    fn step(&mut self, registers: Registers) {
        self.follow(registers);
        self.last = self.code.contains(registers.pc).then_some(registers);
        let Some(code) = self.code.read().code(registers.pc) else { return };
        let CodeKind::Function { .. } = code.kind else { return };
        self.stepped += 1;
        let mut frames = Frames::new(&mut self.words);
        let activations = Activations::new();
        let stack = Stack {
            walk: Walk { code: self.code.read(), memory: Reads::InPlace },
            store: self.store,
            activations: &activations,
        };
        // SAFETY: the registers are those of this thread, which runs the store and stands still in the signal handler.
        let end = unsafe { stack.walk(registers, &mut frames) };
        let length = frames.len();
        let walked: Vec<usize> = self.words[1..length].iter().rev().map(|&word| FrameWord(word).pc()).collect();
        let called: Vec<usize> = self.shadow.iter().map(|&(return_pc, _)| return_pc).collect();
        if (end.is_err() || walked != called) && self.wrong.len() < 10 {
            self.wrong.push(format!(
                "at {:#x} of a function of {:#x} bytes: walked {walked:x?} ({end:?}), called {called:x?}",
                registers.pc - code.start,
                code.end - code.start,
            ));
        }
    }

    fn follow(&mut self, now: Registers) {
        // None: back from the host, or a first entry. The host's own calls and returns are not followed.
        let before = self.last;
        let step = before.map_or(Step::ThroughHost, |before| processor::step(before, now));
        let is_wasm = |address: usize| matches!(self.code.read().code(address), Some(code) if matches!(code.kind, CodeKind::Function { .. }));
        match step {
            // Where an exception is caught, the frames below are gone, and nothing has returned from them.
            Step::ThroughHost => self.shadow.retain(|&(_, above)| above >= now.sp),
            // Trampolines and the host are not in the walk, so calls by them are not in the shadow.
            Step::Call { return_pc, above } if is_wasm(return_pc - 1) && self.code.contains(now.pc) => {
                self.shadow.push((return_pc, above));
            }
            Step::Return if self.shadow.last().is_some_and(|&(return_pc, _)| return_pc == now.pc) => {
                self.shadow.pop();
            }
            Step::Call { .. } | Step::Return | Step::Other => {}
        }
    }
}

extern "C" fn on_trap(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: `context` is the third argument of this handler, which was installed with `SA_SIGINFO`.
    unsafe { processor::stopped(context) };
    STEPPER.with(|stepper| {
        // Stepping begins after the stepper has been put there and ends before it is taken, so the cell is free.
        if let Ok(mut stepper) = stepper.try_borrow_mut()
            && let Some(stepper) = &mut *stepper
        {
            // SAFETY: `context` is the third argument of this handler, which was installed with `SA_SIGINFO`.
            stepper.step(unsafe { Registers::interrupted(context) });
        }
    });
    // SAFETY: `context` is the third argument of this handler, which was installed with `SA_SIGINFO`. The thread goes on when this returns.
    unsafe { processor::go_on(context) };
}

/// Runs `run` of a module single-stepped. `host` is its one import. Gives the number of wasm instructions stepped.
fn step_through(text: &str, host: impl Fn(i32) -> i32 + Send + Sync + 'static) -> u64 {
    let mut config = config(EngineOptions { epoch_interruption: false, cache: false });
    let engine = Engine::new(config.wasm_wide_arithmetic(true)).unwrap();
    let bytes = wat::parse_str(text).unwrap();
    let module = Module::from_binary(&engine, &bytes).unwrap();
    let image = Arc::new(ModuleImage::parse(bytes, "stepped").unwrap());
    let mut store = Store::new(&engine, ());
    let import = Func::wrap(&mut store, host);
    let imports: Vec<_> = module.imports().map(|_| import.into()).collect();
    let instance = Instance::new(&mut store, &module, &imports).unwrap();
    let run = instance.get_func(&mut store, "run").unwrap();
    let store_context = InstanceContext::of(&mut store, &run).unwrap().store_context();
    let typed = run.typed::<(), i32>(&store).unwrap();

    // SAFETY: an all-zero sigaction is a valid one with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_trap as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the action is complete. Nothing else in the test process uses SIGTRAP.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) }, 0);
    let text = module.text().as_ptr_range();
    STEPPER.set(Some(Stepper {
        code: CodeMap::of(&GuestCode::of_module(module.clone(), image).mapped_image()),
        store: store_context,
        shadow: Vec::with_capacity(1024),
        last: None,
        words: vec![0; MAX_FRAMES],
        stepped: 0,
        wrong: Vec::new(),
    }));
    processor::begin(text.start as usize..text.end as usize);
    let result = typed.call(&mut store, ());
    processor::end();
    let stepper = STEPPER.take().unwrap();
    result.unwrap();
    assert!(stepper.wrong.is_empty(), "{:#?}", stepper.wrong);
    stepper.stepped
}
