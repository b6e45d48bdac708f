//! Proves the walk at *every* instruction: runs modules under the processor's single-step flag and compares each walk
//! with a shadow stack kept from the call and return instructions that went by.

use super::super::arch::Registers;
use super::super::code_map::{CodeKind, CodeMap};
use super::activations::Activations;
use super::vm_context::{InstanceContext, StoreContext};
use super::walk::{FrameWord, Frames, MAX_FRAMES, Reads, Stack};
use crate::guest::{EngineOptions, config};
use crate::module::{GuestCode, ModuleImage};
use std::cell::RefCell;
use std::sync::Arc;
use wasmtime::{Engine, Func, Instance, Module, Store};

/// The trap flag of EFLAGS.
const TRAP_FLAG: i64 = 0x100;

struct Stepper {
    code: CodeMap,
    store: StoreContext,
    /// Return addresses into wasm functions and where on the stack they are, outermost first.
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
        let stack =
            Stack { code: self.code.read(), store: self.store, activations: &activations, reads: Reads::InPlace };
        // SAFETY: this thread stands still in the signal handler.
        let end = unsafe { stack.walk(registers, &mut frames) };
        let length = frames.len();
        let walked: Vec<usize> = self.words[1..length].iter().rev().map(|&word| FrameWord(word).pc()).collect();
        let called: Vec<usize> = self.shadow.iter().map(|&(_, address)| address).collect();
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
        let Some(before) = self.last else {
            // Where an exception is caught, the frames below are gone, and nothing has returned from them.
            self.shadow.retain(|&(at, _)| at >= now.sp);
            return;
        };
        // SAFETY: `before.pc` was in the module's code, which is mapped and readable.
        let instruction = unsafe { std::slice::from_raw_parts(before.pc as *const u8, 4) };
        let is_call = match instruction {
            [0xe8, ..] => true,
            [0xff, modrm, ..] | [0x40..=0x4f, 0xff, modrm, ..] => modrm >> 3 & 7 == 2,
            _ => false,
        };
        let is_return = matches!(instruction, [0xc3 | 0xc2, ..]);
        let is_wasm = |address: usize| matches!(self.code.read().code(address), Some(code) if matches!(code.kind, CodeKind::Function { .. }));
        // Trampolines and the host are not in the walk, so calls by them are not in the shadow.
        if is_call && now.sp == before.sp - 8 && is_wasm(before.pc) && self.code.contains(now.pc) {
            // SAFETY: the call has just pushed the return address.
            self.shadow.push((now.sp, unsafe { *(now.sp as *const usize) }));
        } else if is_return && self.shadow.last().is_some_and(|&(_, address)| address == now.pc) {
            self.shadow.pop();
        }
    }
}

extern "C" fn on_trap(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    STEPPER.with(|stepper| {
        // Stepping begins after the stepper has been put there and ends before it is taken, so the cell is free.
        if let Ok(mut stepper) = stepper.try_borrow_mut()
            && let Some(stepper) = &mut *stepper
        {
            // SAFETY: this is a SA_SIGINFO handler.
            stepper.step(unsafe { Registers::interrupted(context) });
        }
    });
    set_trap_flag(context, STEPPING.get());
}

thread_local! {
    static STEPPING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn set_trap_flag(context: *mut libc::c_void, on: bool) {
    // SAFETY: the context of a SA_SIGINFO handler, whose registers may be changed.
    let flags = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] };
    *flags = if on { *flags | TRAP_FLAG } else { *flags & !TRAP_FLAG };
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
    STEPPER.set(Some(Stepper {
        code: CodeMap::of(&GuestCode::of_module(module, image)),
        store: store_context,
        shadow: Vec::with_capacity(1024),
        last: None,
        words: vec![0; MAX_FRAMES],
        stepped: 0,
        wrong: Vec::new(),
    }));
    STEPPING.set(true);
    // SAFETY: the handler above takes it, and steps from here on.
    unsafe { libc::raise(libc::SIGTRAP) };
    let result = typed.call(&mut store, ());
    STEPPING.set(false);
    let stepper = STEPPER.take().unwrap();
    result.unwrap();
    assert!(stepper.wrong.is_empty(), "{:#?}", stepper.wrong);
    stepper.stepped
}

#[test]
fn every_instruction_of_calls_and_host_calls() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (memory 1)
          (table funcref (elem $fib $many))
          (type $unary (func (param i32) (result i32)))
          (func $fib (param i32) (result i32)
            (if (result i32) (i32.lt_s (local.get 0) (i32.const 2))
              (then (call $host (local.get 0)))
              (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))
                             (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
          (func $many (param i32) (result i32)
            (call $ten (local.get 0) (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 4) (i32.const 5)
                       (i32.const 6) (i32.const 7) (i32.const 8) (i32.const 9)))
          (func $ten (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
            (memory.fill (i32.const 0) (local.get 1) (i32.const 5000))
            (drop (memory.grow (i32.const 1)))
            (call_indirect (type $unary) (i32.add (local.get 0) (local.get 9)) (i32.const 0)))
          (func (export "run") (result i32)
            (call_indirect (type $unary) (i32.const 1) (i32.const 1))))"#,
        |value| value + 1,
    );
    assert!(stepped > 2000, "{stepped}");
}

#[test]
fn every_instruction_of_tail_calls() {
    let stepped = step_through(
        r#"(module
          (table funcref (elem $few $more))
          (type $nullary (func (param i32) (result i32)))
          (type $many (func (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)))
          (func $few (param i32) (result i32)
            (if (result i32) (i32.eqz (local.get 0))
              (then (i32.const 7))
              (else (return_call $more (i32.sub (local.get 0) (i32.const 1))
                (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5)
                (i64.const 6) (i64.const 7) (i64.const 8) (i64.const 9) (i64.const 10)))))
          (func $more (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)
            (if (i64.ne (local.get 10) (i64.const 10)) (then unreachable))
            (if (i32.and (local.get 0) (i32.const 1))
              (then (return_call_indirect (type $nullary) (local.get 0) (i32.const 0))))
            (return_call $even_more (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
              (local.get 6) (local.get 7) (local.get 8) (local.get 9) (local.get 10)
              (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5) (i64.const 6)))
          (func $even_more (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)
            (if (i64.ne (local.get 16) (i64.const 6)) (then unreachable))
            (return_call $few (local.get 0)))
          (func (export "run") (result i32)
            (i32.add (call $few (i32.const 21)) (call $few (i32.const 20)))))"#,
        |value| value,
    );
    assert!(stepped > 500, "{stepped}");
}

#[test]
fn every_instruction_of_exceptions() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (tag $low (param i32)) (tag $other)
          (func $thrower (param $depth i32)
            (if (i32.eqz (local.get $depth)) (then (throw $low (call $host (i32.const 20)))))
            (call $thrower (i32.sub (local.get $depth) (i32.const 1)))
            (drop (call $host (local.get $depth))))
          (func $passes_on (param $depth i32)
            (block $caught (result exnref)
              (try_table (catch_all_ref $caught)
                (block $unknown (try_table (catch $other $unknown) (call $thrower (local.get $depth)))))
              unreachable)
            (drop (call $host (local.get $depth)))
            throw_ref)
          (func $catches (param $depth i32) (result i32)
            (block $caught (result i32)
              (try_table (catch $low $caught) (call $passes_on (local.get $depth)))
              unreachable)
            (call $host))
          (func (export "run") (result i32)
            (i32.add (call $catches (i32.const 0)) (call $catches (i32.const 9)))))"#,
        |value| value + 1,
    );
    assert!(stepped > 300, "{stepped}");
}

#[test]
fn every_instruction_of_objects_large_memories_and_wide_arithmetic() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (memory $near 1) (memory $far i64 1)
          (type $numbers (array (mut i64)))
          (type $list (struct (field $numbers (ref $numbers)) (field $next (ref null $list))))
          (func $made (param $length i32) (result (ref $list))
            (struct.new $list (array.new $numbers (i64.const 5) (i32.const 3))
              (if (result (ref null $list)) (local.get $length)
                (then (call $made (i32.sub (local.get $length) (i32.const 1))))
                (else (ref.null $list)))))
          (func $sum (param $list anyref) (result i64)
            (local $own (ref $list))
            (if (ref.is_null (local.get $list)) (then (return (i64.extend_i32_u (call $host (i32.const 1))))))
            (local.set $own (ref.cast (ref $list) (local.get $list)))
            (array.set $numbers (struct.get $list $numbers (local.get $own)) (i32.const 1) (call $wide (i64.const -7)))
            (i64.add
              (array.get $numbers (struct.get $list $numbers (local.get $own)) (i32.const 1))
              (call $sum (struct.get $list $next (local.get $own)))))
          (func $wide (param i64) (result i64)
            (i64.mul_wide_s (local.get 0) (local.get 0))
            (i64.add128 (i64.const 1) (i64.const 2))
            (i64.store $far (i64.const 65520))
            (i64.store $far (i64.const 65528))
            (memory.copy $near $far (i32.const 16) (i64.const 65520) (i32.const 16))
            (drop (memory.grow $far (i64.const 1)))
            (i64x2.extract_lane 1 (i64x2.add (v128.load $near (i32.const 16)) (v128.load $far (i64.const 65520)))))
          (func (export "run") (result i32)
            (i32.wrap_i64 (call $sum (call $made (i32.const 8))))))"#,
        |value| value + 1,
    );
    assert!(stepped > 300, "{stepped}");
}
