//! Guests whose allocators are rewritten do what they did, and what they are found to allocate is what they say themselves.

use crate::guest::fixture_bytes;
use std::collections::BTreeMap;
use wasmtime::{
    Caller, Engine, Extern, Func, Global, Instance, Linker, Memory, Module, Ref, Store, StoreLimits,
    StoreLimitsBuilder, Val, WasmBacktrace,
};
use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_sync};
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};
use wlprof::heap::{Allocator, Blocks, Call, EXPORTS, Rate, Told, c_library, call_of_number, rewrite};
use wlprof::module::ModuleImage;

struct Host {
    wasi: WasiP1Ctx,
    blocks: Blocks<String>,
    allocators: Vec<Allocator>,
    heard: Option<(Global, Memory)>,
    limits: StoreLimits,
}

/// The function that called the allocator, as Wasmtime says: what is added has no name.
fn site(caller: &Caller<'_, Host>) -> String {
    let backtrace = WasmBacktrace::force_capture(caller);
    let mut frames = backtrace.frames().iter().skip_while(|frame| {
        let is_allocator = |function: &Allocator| function.function == frame.func_index();
        frame.func_name().is_none() || caller.data().allocators.iter().any(is_allocator)
    });
    frames.next().and_then(|frame| frame.func_name()).unwrap_or_default().to_owned()
}

fn allocated(mut caller: Caller<'_, Host>, size: i64, block: i32, before: i32, call: i32) {
    let call = call_of_number(call).unwrap();
    let (countdown, filter) = caller.data().heard.unwrap();
    let is_sample = countdown.get(&mut caller).unwrap_i64() < 0;
    let (mut block, mut before) = (block as u32, before as u32);
    if call == Call::PosixMemalign {
        // What it returned says whether there is one, and what it was given says where.
        let memory = caller.get_export("memory").and_then(Extern::into_memory).unwrap();
        let at = before as usize;
        let written = memory.data(&caller)[at..at + 4].try_into().unwrap();
        (block, before) = (if block == 0 { u32::from_le_bytes(written) } else { 0 }, 0);
    }
    let told = Told { call, size: size as u64, block, before, is_sample, time_ns: 0 };
    let site = if is_sample { site(&caller) } else { String::new() };
    let (filter, host) = filter.data_and_store_mut(&mut caller);
    host.blocks.allocated(&told, filter, || site);
    if is_sample {
        let next = host.blocks.draw();
        countdown.set(&mut caller, Val::I64(next)).unwrap();
    }
}

fn freed(mut caller: Caller<'_, Host>, block: i32) {
    let (_, filter) = caller.data().heard.unwrap();
    let (filter, host) = filter.data_and_store_mut(&mut caller);
    host.blocks.freed(block as u32, filter);
}

/// Has `instance` tell of what it allocates from here on.
fn listen(store: &mut Store<Host>, instance: &Instance) {
    let table = instance.get_table(&mut *store, EXPORTS.table).unwrap();
    let functions = [Func::wrap(&mut *store, allocated), Func::wrap(&mut *store, freed)];
    for (place, function) in (0..).zip(functions) {
        table.set(&mut *store, place, Ref::Func(Some(function))).unwrap();
    }
    let global = |store: &mut Store<Host>, name| instance.get_global(&mut *store, name).unwrap();
    let (countdown, is_heard) = (global(store, EXPORTS.countdown), global(store, EXPORTS.is_heard));
    store.data_mut().heard = instance.get_memory(&mut *store, EXPORTS.filter).map(|filter| (countdown, filter));
    let first = store.data_mut().blocks.draw();
    countdown.set(&mut *store, Val::I64(first)).unwrap();
    is_heard.set(&mut *store, Val::I32(1)).unwrap();
}

/// Runs a guest, rewritten if somebody wants to hear of what it allocates at that rate; gives what it printed, and what was heard.
fn run(engine: &Engine, guest: &str, arguments: &[&str], rate: Option<Rate>) -> (String, Blocks<String>) {
    let bytes = fixture_bytes(guest);
    let image = ModuleImage::parse(bytes.clone(), guest).unwrap();
    let allocators = c_library(&image);
    let bytes = rate.map_or(bytes.clone(), |_| rewrite(&bytes, &allocators).unwrap().bytes);
    let module = Module::new(engine, bytes).unwrap();
    // Of more there is none, for those who want it.
    let limits = StoreLimitsBuilder::new().memory_size(256 << 20).build();
    let stdout = MemoryOutputPipe::new(1 << 20);
    let mut wasi = WasiCtxBuilder::new();
    wasi.stdout(stdout.clone()).arg(guest).args(arguments);
    let blocks = Blocks::new(rate.unwrap_or(Rate::bytes(1)));
    let mut store = Store::new(engine, Host { wasi: wasi.build_p1(), blocks, allocators, heard: None, limits });
    store.limiter(|host| &mut host.limits);
    let mut linker: Linker<Host> = Linker::new(engine);
    add_to_linker_sync(&mut linker, |host: &mut Host| &mut host.wasi).unwrap();
    let instance = linker.instantiate(&mut store, &module).unwrap();
    if rate.is_some() {
        listen(&mut store, &instance);
    }
    let start = instance.get_typed_func::<(), ()>(&mut store, "_start").unwrap();
    if let Err(error) = start.call(&mut store, ()) {
        assert_eq!(error.downcast_ref().map(|exit: &I32Exit| exit.0), Some(0), "{guest}: {error:?}");
    }
    let printed = String::from_utf8(stdout.contents().to_vec()).unwrap();
    (printed, store.into_data().blocks)
}

/// What the guest itself has counted, by the function that did it: allocations and bytes, and what is held of both.
pub(crate) fn counted(printed: &str) -> BTreeMap<String, [u64; 4]> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap().to_owned();
        (name, [(); 4].map(|()| words.next().unwrap().parse().unwrap()))
    };
    let mut counted: BTreeMap<String, [u64; 4]> = printed.lines().map(line).collect();
    counted.retain(|_, [allocations, ..]| *allocations > 0);
    counted
}

#[test]
fn every_allocation_is_found_and_nothing_else() {
    let engine = Engine::default();
    for rounds in ["1", "50", "20000"] {
        let (alone, _) = run(&engine, "c-heap.wasm", &[rounds, "in-vain"], None);
        let (printed, blocks) = run(&engine, "c-heap.wasm", &[rounds, "in-vain"], Some(Rate::bytes(1)));
        assert_eq!(printed, alone, "it does what it did");
        let expected = counted(&printed);
        let found = blocks.sites().map(|(site, totals)| {
            let amounts = [totals.allocated, totals.held].map(|amount| [amount.blocks, amount.bytes]);
            (site.clone(), amounts.concat().into_iter().map(|amount| amount as u64).collect::<Vec<u64>>())
        });
        let mut found: BTreeMap<String, Vec<u64>> = found.collect();
        // Of the C library's own, for the arguments.
        found.retain(|site, _| site.starts_with("by_"));
        let found: BTreeMap<String, [u64; 4]> =
            found.into_iter().map(|(site, amounts)| (site, amounts.try_into().unwrap())).collect();
        assert_eq!(found, expected, "{rounds} rounds");
    }
}

#[test]
fn of_a_sample_the_whole_is_known_about() {
    let engine = Engine::default();
    let (printed, blocks) = run(&engine, "c-heap.wasm", &["300000", "in-vain"], Some(Rate::bytes(16 << 10)));
    let expected = counted(&printed);
    for (site, totals) in blocks.sites().filter(|(site, _)| site.starts_with("by_")) {
        let [_, bytes, ..] = expected[site];
        // It is within five standard deviations but once in two million times.
        let bound = 5.0 / 1.96 * totals.allocated.bound() / bytes as f64;
        let off = totals.allocated.bytes / bytes as f64 - 1.0;
        println!("{site}: {} samples, {:.2} % off, {bytes} bytes", totals.samples, 100.0 * off);
        assert!(off.abs() < bound && bound < 0.5 && totals.samples > 100, "{site}: {totals:?} of {bytes} bytes");
    }
    let held: f64 = expected.values().map(|[.., bytes]| *bytes as f64).sum();
    assert!(blocks.peak().bytes >= blocks.held().bytes && blocks.held().bytes < 20.0 * held, "{:?}", blocks.held());
}

#[test]
fn guests_do_what_they_did() {
    let engine = Engine::default();
    // At rate 1, a backtrace each time, those that allocate much take long.
    for (guest, arguments, rates) in [
        ("c-shares.wasm", &["1"][..], [1, 512 << 10]),
        ("cpp-shapes.wasm", &[], [1, 512 << 10]),
        ("rust-mix.wasm", &[], [16 << 10, 512 << 10]),
        ("rust-mix-v0.wasm", &[], [16 << 10, 512 << 10]),
        ("rust-inlined.wasm", &[], [1, 512 << 10]),
    ] {
        let (alone, _) = run(&engine, guest, arguments, None);
        for rate in rates {
            let (printed, blocks) = run(&engine, guest, arguments, Some(Rate::bytes(rate)));
            assert_eq!(printed, alone, "{guest} at {rate}");
            assert!(rate > 16 << 10 || blocks.sites().count() > 0, "{guest} at {rate}");
        }
    }
}
