//! Rewritten modules beside what they were.

use super::*;
use crate::machine_code::{GuestCode, was_compiled_from};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime::{Caller, Func, Instance, Module, Ref, Store, Val};
use wasmtime_environ::wasmparser::{Operator, Parser, Payload};
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_run::guest::{EngineOptions, engine};
use wlprof_walk::{CodeName, CodeOffsets};

/// One of each language.
const FEW: [&str; 7] = [
    "c-heap.wasm",
    "cpp-heap.wasm",
    "go-heap-1.27.wasm",
    "python-3.11.wasm",
    "python-3.11-stripped.wasm",
    "quickjs-0.16.wasm",
    "rust-heap.wasm",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fixtures")
}

fn fixtures() -> Vec<PathBuf> {
    let folder = folder();
    let files = std::fs::read_dir(&folder).expect("`cargo xtask test-fixtures` makes the fixtures");
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    let name = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().to_owned();
    let is_component = |file: &PathBuf| ["component-", "handler-"].iter().any(|start| name(file).starts_with(start));
    files.retain(|file| name(file).ends_with(".wasm") && !is_component(file));
    files.sort();
    files
}

/// What no rewriting changes: imports, elements, data, and custom sections, except debug information and where a source map is.
fn untouched(bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let payloads = Parser::new(0).parse_all(bytes).map(Result::unwrap);
    let sections = payloads.filter_map(|payload| match payload {
        Payload::CustomSection(section) if section.name().starts_with(".debug_") => None,
        Payload::CustomSection(section) if section.name() == "sourceMappingURL" => None,
        Payload::CustomSection(_)
        | Payload::ImportSection(_)
        | Payload::ElementSection(_)
        | Payload::DataSection(_) => payload.as_section(),
        _ => None,
    });
    sections.map(|(id, range)| (id, &bytes[range.start..range.end])).collect()
}

/// Contents of the code section, and where each body lies in it.
fn code(bytes: &[u8]) -> (&[u8], Vec<std::ops::Range<usize>>) {
    let (mut contents, mut bodies) = (&bytes[..0], Vec::new());
    let mut start = 0;
    for payload in Parser::new(0).parse_all(bytes).map(Result::unwrap) {
        match payload {
            Payload::CodeSectionStart { range, .. } => {
                start = range.start;
                contents = &bytes[start..range.end];
            }
            Payload::CodeSectionEntry(body) => {
                bodies.push(body.range().start - start..body.range().end - start);
            }
            _ => {}
        }
    }
    (contents, bodies)
}

/// What leaves a function, and what stands in its place where something comes behind it: `return`, `return_call`, `return_call_indirect` and
/// `return_call_ref`.
const LEAVES: [(u8, u8); 4] = [(0x0f, 0x0c), (0x12, 0x10), (0x13, 0x11), (0x15, 0x14)];

/// Checks that what was there is there, each instruction where the map says, and gives how much was added.
fn compare(old: &[u8], rewritten: &RewrittenModule, allocators: &[Allocator], name: &str) -> usize {
    assert_eq!(untouched(old), untouched(&rewritten.bytes), "{name}");
    let ((was, bodies), (is, new_bodies)) = (code(old), code(&rewritten.bytes));
    let mut found = vec![false; was.len()];
    let mut added = 0;
    for new in new_bodies.iter().cloned().flatten() {
        match rewritten.offsets.old(new as u32) {
            Some(old) => {
                let is_as_it_was = is[new] == was[old as usize] || LEAVES.contains(&(was[old as usize], is[new]));
                assert!(is_as_it_was && !found[old as usize], "{name}: {new:#x} was {old:#x}");
                found[old as usize] = true;
            }
            None => added += 1,
        }
    }
    // Where something is put around a body it has more locals, and how many groups of them there are is another number.
    let is_missing = |body: &std::ops::Range<usize>| body.clone().skip(1).any(|at| !found[at]);
    assert!(!bodies.iter().any(is_missing), "{name}: code is missing");
    // Functions that were not touched have their indices.
    let image = ModuleImage::parse(old.to_vec(), name).unwrap();
    let touched = |defined: usize| {
        let function = image.first_body() + defined as u32;
        allocators.iter().any(|allocator| allocator.function == function)
    };
    for (defined, (body, new)) in bodies.iter().zip(&new_bodies).enumerate() {
        assert!(touched(defined) || was[body.clone()] == is[new.clone()], "{name}: function {defined}");
    }
    added
}

#[test]
fn guests_are_what_they_were_except_for_their_allocators() {
    let rewritten = rewrite_all(FEW.map(|name| folder().join(name)));
    assert!(rewritten >= 5, "{rewritten}");
}

#[test]
fn every_fixture_is_what_it_was_except_for_its_allocators() {
    let rewritten = rewrite_all(fixtures());
    assert!(rewritten > 20, "{rewritten}");
}

/// Rewrites and compares modules. Gives how many have allocators.
fn rewrite_all(paths: impl IntoIterator<Item = PathBuf>) -> usize {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let mut rewritten = 0;
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        let image = ModuleImage::parse(bytes.clone(), &name).unwrap();
        let allocators = c_library(&image);
        let names: Vec<_> = allocators.iter().map(|allocator| image.function_name(allocator.function)).collect();
        println!("{name}: {names:?}");
        let changed = rewrite(&bytes, &allocators).unwrap_or_else(|error| panic!("{name}: {error}"));
        let added = compare(&bytes, &changed, &allocators, &name);
        assert_eq!(added > 0, !allocators.is_empty(), "{name}");
        Module::validate(&engine, &changed.bytes).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        rewritten += usize::from(added > 0);
    }
    rewritten
}

/// For each function the code offsets that stretches of compiled code are for, in its order.
fn places(code: &GuestCode) -> BTreeMap<u32, Vec<u32>> {
    let mapped = code.mapped_image();
    let parsed = mapped.parse().unwrap();
    let offsets = CodeOffsets::new(&mapped, Some(&parsed));
    let image = &code.images[0];
    let mut places: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (name, range) in parsed.pieces() {
        let CodeName::Function { function, .. } = name else { continue };
        for (_, code_offset) in offsets.of_function(0, function, &range).iter() {
            let (of, code_offset) = image.compiled_from(function, Some(code_offset)).unwrap();
            places.entry(of).or_default().push(code_offset);
        }
    }
    places
}

#[test]
fn compiled_code_is_of_the_same_functions_and_instructions() {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    for name in ["c-heap.wasm", "cpp-shapes.wasm", "rust-mix.wasm", "rust-inlined.wasm"] {
        let path = fixtures().into_iter().find(|path| path.ends_with(name)).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let plain = ModuleImage::parse(bytes.clone(), name).unwrap();
        let allocators = c_library(&plain);
        let changed = rewrite(&bytes, &allocators).unwrap();
        let mut image = ModuleImage::parse(bytes.clone(), name).unwrap();
        image.set_rewritten(changed.offsets, &changed.added, BTreeSet::new());
        let [of_plain, of_changed] = [&bytes, &changed.bytes].map(|bytes| Module::new(&engine, bytes).unwrap());
        let (plain, image) = (Arc::new(plain), Arc::new(image));
        let code = |module: &Module, image: &Arc<ModuleImage>| GuestCode::of_module(module.clone(), image.clone());
        let (was, is) = (code(&of_plain, &plain), code(&of_changed, &image));
        assert!(was_compiled_from(&was) && was_compiled_from(&is), "{name}");
        assert!(![code(&of_plain, &image), code(&of_changed, &plain)].iter().any(was_compiled_from), "{name}");
        let (was, is) = (places(&was), places(&is));
        assert!(!allocators.is_empty() && was.len() > 20, "{name}");
        assert_eq!(was.keys().collect::<Vec<_>>(), is.keys().collect::<Vec<_>>(), "{name}");
        for (function, offsets) in &was {
            let is_allocator = allocators.iter().any(|allocator| allocator.function == *function);
            // What is behind a check is compiled together with it.
            assert!(is_allocator || *offsets == is[function], "{name}: {:?}", plain.function_name(*function));
        }
    }
}

/// A bump allocator, called by table and by other names, too; `calloc` calls `malloc`, through another function. Bodies are left in all ways that
/// there are, and write their parameters.
const GUEST: &str = r#"(module
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 16))
    (global $early (mut i32) (i32.const 0))
    (type $allocates (func (param i32) (result i32)))
    (table (export "functions") 1 funcref)
    (elem (i32.const 0) $malloc)
    (func $malloc (export "other_name") (type $allocates)
        (global.get $next)
        (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 0) (i32.const 15)) (i32.const -16)))))
    (func $zeroed (param i32) (result i32) (call $malloc (local.get 0)))
    (func $calloc (export "calloc") (param i32 i32) (result i32)
        (loop (if (i32.eqz (local.get 0)) (then (block (br_if 3 (i32.const 0) (local.get 1)) (drop) (return (i32.const 0))))))
        (local.set 0 (i32.mul (local.get 0) (local.get 1)))
        (return_call $zeroed (local.get 0)))
    (func $realloc (export "realloc") (param i32 i32) (result i32) (local $new i32) (local $none i64)
        (local.set $new (call $malloc (local.get 1)))
        (call $free (local.get 0))
        (local.set 0 (i32.const 1))
        (local.set 1 (i32.const 2))
        (br 0 (local.get $new)))
    (func $free (export "free") (param i32))
    (func $start (global.set $early (call $malloc (i32.const 1000))) (drop (call $calloc (i32.const -1) (i32.const -1))))
    (start $start)
    (func (export "by_table") (param i32) (result i32) (call_indirect (type $allocates) (local.get 0) (i32.const 0)))
    (func (export "free_early") (call $free (global.get $early))))"#;

/// A call that was told of: what it was and what it said.
type Heard = (&'static str, Vec<i64>);

#[test]
fn calls_are_told_of_once_however_they_are_made() {
    let bytes = wat::parse_str(GUEST).unwrap();
    let image = ModuleImage::parse(bytes.clone(), "guest").unwrap();
    let allocators = c_library(&image);
    assert_eq!(allocators.len(), 4, "{allocators:?}");
    let changed = rewrite(&bytes, &allocators).unwrap();
    compare(&bytes, &changed, &allocators, "guest");
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let mut store: Store<Vec<Heard>> = Store::new(&engine, Vec::new());
    let module = Module::new(&engine, &changed.bytes).unwrap();
    let instance = Instance::new(&mut store, &module, &[]).unwrap();
    let table = instance.get_table(&mut store, EXPORTS.table).unwrap();
    let allocated = move |mut caller: Caller<'_, Vec<Heard>>, size: i64, block: i32, before: i32, call: i32| {
        let call = call_of_number(call).unwrap();
        caller.data_mut().push((call.name(), vec![size, block.into(), before.into()]));
    };
    let freed = move |mut caller: Caller<'_, Vec<Heard>>, block: i32| {
        caller.data_mut().push(("free", vec![block.into()]));
    };
    let functions = [Func::wrap(&mut store, allocated), Func::wrap(&mut store, freed)];
    for (place, function) in (0..).zip(functions) {
        table.set(&mut store, place, Ref::Func(Some(function))).unwrap();
    }
    let call = |store: &mut Store<Vec<Heard>>, name: &str, parameters: &[i32]| {
        let function = instance.get_func(&mut *store, name).unwrap();
        let mut results = vec![Val::I32(0); function.ty(&*store).results().len()];
        let parameters: Vec<Val> = parameters.iter().map(|parameter| Val::I32(*parameter)).collect();
        function.call(&mut *store, &parameters, &mut results).unwrap();
        (results.first().and_then(Val::i32), std::mem::take(store.data_mut()))
    };
    // Until somebody listens all is as it was.
    let (Some(first), heard) = call(&mut store, "other_name", &[100]) else { panic!("it gives a block") };
    assert_eq!((first, heard.len()), (16 + 1008 + 16, 0), "of the start function nothing was told, and it ran");
    let global = |store: &mut Store<Vec<Heard>>, name| instance.get_global(&mut *store, name).unwrap();
    let countdown = global(&mut store, EXPORTS.countdown);
    global(&mut store, EXPORTS.is_heard).set(&mut store, Val::I32(1)).unwrap();
    countdown.set(&mut store, Val::I64(-1)).unwrap();
    for (name, parameters, function, size, before) in [
        ("other_name", &[5][..], "malloc", 5, 0),
        ("by_table", &[0], "malloc", 0, 0),
        ("calloc", &[3, 4], "calloc", 12, 0),
        ("calloc", &[0, 4], "calloc", 0, 0),
        ("calloc", &[0, 0], "calloc", 0, 0),
        ("realloc", &[first, 7], "realloc", 7, first),
    ] {
        let (block, heard) = call(&mut store, name, parameters);
        assert_eq!(heard, [(function, vec![size, block.unwrap().into(), before.into()])], "{name}");
        assert!(countdown.get(&mut store).unwrap_i64() < 0, "whoever is told finds it used up");
    }
    // With room left nothing is told, and the room becomes less by what the outer function is asked for.
    countdown.set(&mut store, Val::I64(100)).unwrap();
    assert_eq!(call(&mut store, "calloc", &[3, 20]).1, []);
    assert_eq!(countdown.get(&mut store).unwrap_i64(), 40);
    // Of what is freed only that whose hash is marked.
    assert_eq!(call(&mut store, "free", &[first]).1, []);
    instance.get_memory(&mut store, EXPORTS.filter).unwrap().data_mut(&mut store).fill(1);
    assert_eq!(call(&mut store, "free", &[first]).1, [("free", vec![first.into()])]);
    assert_eq!(call(&mut store, "free_early", &[]).1.len(), 1);
    let (block, heard) = call(&mut store, "realloc", &[first, 1]);
    let expected = [("free", vec![first.into()]), ("realloc", vec![1, block.unwrap().into(), first.into()])];
    assert_eq!(heard, expected, "a block that moves is told of though there is room");
}

/// A module whose functions are chained: each of `first` is called by `realloc` by a tail call, and calls the next one so.
fn chained(first: usize, all: usize) -> Vec<u8> {
    let tails: String = (0..first)
        .map(|number| format!("(if (local.get 0) (then (return_call $c{number} (local.get 0) (local.get 1))))"))
        .collect();
    let chain: String = (0..all)
        .map(|number| {
            let next = number + 1;
            let body = match next < all {
                true => format!("(return_call $c{next} (local.get 0) (local.get 1))"),
                false => "(i32.const 8)".to_owned(),
            };
            format!("(func $c{number} (param i32 i32) (result i32) {body})")
        })
        .collect();
    let text = format!(
        r#"(module (memory 1) (func $realloc (export "realloc") (param i32 i32) (result i32) {tails} (i32.const 8)) {chain}
            (func $malloc (export "malloc") (param i32) (result i32) (i32.const 8)))"#
    );
    wat::parse_str(text).unwrap()
}

fn allocators_of(bytes: &[u8]) -> Vec<Allocator> {
    c_library(&ModuleImage::parse(bytes.to_vec(), "guest").unwrap())
}

#[test]
fn work_grows_as_the_module_does() {
    let began = std::time::Instant::now();
    let bytes = chained(9_000, 100_000);
    let changed = rewrite(&bytes, &allocators_of(&bytes)).unwrap();
    compare_tails(&bytes, &changed, 9_000);
    // A thousand allocators, each of which calls the first of a long chain.
    let allocators: String = (0..1000).map(|_| "(func (param i32) (result i32) (call 1000 (local.get 0)))").collect();
    let chain: String =
        (1001..60_000).map(|next| format!("(func (param i32) (result i32) (call {next} (local.get 0)))")).collect();
    let text = format!("(module (memory 1) {allocators} {chain} (func (param i32) (result i32) (i32.const 8)))");
    let bytes = wat::parse_str(text).unwrap();
    let named = |function| Allocator { function, call: Call::Malloc, leading_parameters: 0, trailing_parameters: 0 };
    rewrite(&bytes, &(0..1000).map(named).collect::<Vec<_>>()).unwrap();
    // Deep in blocks, and out of them many times.
    let deep = format!("{}{}", "(block ".repeat(900), "(if (local.get 0) (then (return (i32.const 8))))".repeat(9_000));
    let text = format!(
        r#"(module (memory 1) (func $realloc (export "realloc") (param i32 i32) (result i32) {deep}{} (i32.const 8)))"#,
        ")".repeat(900)
    );
    let bytes = wat::parse_str(text).unwrap();
    rewrite(&bytes, &allocators_of(&bytes)).unwrap();
    // It was minutes, and is far less than a second.
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

/// Checks that a module is valid, and that so many tail calls have become calls.
fn compare_tails(bytes: &[u8], changed: &RewrittenModule, count: usize) {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    Module::validate(&engine, &changed.bytes).unwrap();
    let tails = |bytes: &[u8]| {
        let first = Parser::new(0).parse_all(bytes).find_map(|payload| match payload.unwrap() {
            Payload::CodeSectionEntry(body) => Some(body),
            _ => None,
        });
        let operators = first.unwrap().get_operators_reader().unwrap().into_iter().map(Result::unwrap);
        operators.filter(|operator| matches!(operator, Operator::ReturnCall { .. })).count()
    };
    assert_eq!((tails(bytes), tails(&changed.bytes)), (count, 0));
}

#[test]
fn a_function_with_too_many_ways_out_is_left_out() {
    let bytes = chained(10_001, 10_001);
    let error = rewrite(&bytes, &allocators_of(&bytes)).unwrap_err();
    assert_eq!(error, NotRewritten::Exits(0));
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let mut image = ModuleImage::parse(bytes, "guest").unwrap();
    let (_, notes) = compile(&engine, &mut image, &[], None).unwrap();
    assert!(notes[0].starts_with("realloc is left out: function 0 returns in more places"), "{notes:?}");
}

#[test]
fn what_is_better_left_alone_is_left_alone() {
    let refused = |text: &str, call| {
        let bytes = wat::parse_str(text).unwrap();
        rewrite(&bytes, &[Allocator { function: 0, call, leading_parameters: 0, trailing_parameters: 0 }])
            .unwrap_err()
            .to_string()
    };
    for (text, call, expected) in [
        (r#"(module (import "env" "malloc" (func (param i32) (result i32))) (memory 1))"#, Call::Malloc, "is imported"),
        ("(module (memory 1) (func (param i32)))", Call::Malloc, "another signature"),
        ("(module (memory 1) (func (param i64) (result i32) (i32.const 0)))", Call::Malloc, "another signature"),
        ("(module (memory 1) (func (param i32) (result i32) (i32.const 0)))", Call::Realloc, "another signature"),
        ("(module (memory 1))", Call::Malloc, "there is no function 0"),
        (
            "(module (memory 1) (func (param i32 i32) (result i32) (return_call 0 (local.get 0) (i32.const 1))))",
            Call::Realloc,
            "tail call",
        ),
        ("(module (func (param i32)))", Call::Free, "it has no memory"),
        ("(module (memory i64 1) (func (param i32)))", Call::Free, "64-bit"),
        ("(module (memory 1 1 shared) (func (param i32)))", Call::Free, "shared"),
        ("(module (memory 1) (memory 1) (func (param i32)))", Call::Free, "several memories"),
        (
            r#"(module (memory (export "wlprof:heap/filter") 1) (func (param i32)))"#,
            Call::Free,
            "a name of wlprof's own",
        ),
    ] {
        let told = refused(text, call);
        assert!(told.contains(expected), "{text}: {told}");
    }
    let bytes = wat::parse_str(GUEST).unwrap();
    for end in 0..bytes.len() {
        // A cut between two sections leaves a smaller module.
        let _ = rewrite(
            &bytes[..end],
            &[Allocator { function: 0, call: Call::Malloc, leading_parameters: 0, trailing_parameters: 0 }],
        );
    }
}
