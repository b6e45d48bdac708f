//! What is read of compiled images beside what Wasmtime's API says.

use super::GuestCode;
use std::sync::Arc;
use wasmtime::Module;
use wlprof_module::ModuleImage;
use wlprof_run::guest::{EngineOptions, engine};
use wlprof_walk::{AddressMap, CodeName, Row};

/// Functions of many sizes, the largest over several blocks of the address map, with code that no instruction is kept for.
fn functions() -> String {
    let sum = |terms: usize| format!("(func (param i32) (result i32) (local.get 0) {})", TERM.repeat(terms));
    let functions: String = [0, 1, 40, 700, 3, 0, 250].map(sum).concat();
    format!("(module (import \"a\" \"b\" (func)) (memory 1) {functions})")
}

const TERM: &str = "(i32.mul (local.get 0) (i32.load (local.get 0))) (i32.add) (i32.rotl (local.get 0))";

fn compiled() -> (Module, GuestCode) {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let bytes = wat::parse_str(functions()).unwrap();
    let module = Module::new(&engine, &bytes).unwrap();
    let code = GuestCode::of_module(module.clone(), Arc::new(ModuleImage::parse(bytes, "test").unwrap()));
    (module, code)
}

#[test]
fn pieces_are_the_functions_that_the_api_has() {
    let (module, code) = compiled();
    let image = code.mapped_image();
    let parsed = image.parse().unwrap();
    assert_eq!(image.address + parsed.text().start, module.text().as_ptr() as usize);
    assert_eq!(parsed.text().len(), module.text().len());
    let functions = parsed.pieces().into_iter().filter_map(|(name, range)| match name {
        CodeName::Function { module, function } => Some((module, function, range)),
        _ => None,
    });
    let mut said: Vec<_> = module
        .functions()
        .map(|function| {
            let range = function.offset..function.offset + function.len;
            (function.module.as_u32(), function.index.as_u32(), range)
        })
        .collect();
    said.sort_by_key(|(_, _, range)| range.start);
    assert!(said.len() == 7 && functions.eq(said));
}

#[test]
fn the_address_map_has_the_rows_that_the_api_has() {
    let (module, code) = compiled();
    let all: Vec<Row> = module.address_map().unwrap().map(|(at, place)| (at as u32, place)).collect();
    let image = code.mapped_image();
    let parsed = image.parse().unwrap();
    let section = parsed.section(".wasmtime.addrmap").unwrap();
    let map = AddressMap::parse(section).unwrap();
    assert!(all.len() > 3 * 128 && all.iter().any(|(_, place)| place.is_none()), "{} rows", all.len());
    let text = 0..module.text().len();
    assert_eq!(map.rows(&text).collect::<Vec<_>>(), all);
    let ranges = module.functions().map(|function| function.offset..function.offset + function.len);
    for range in ranges.chain([0..0, text.end..usize::MAX, 5..6]) {
        let of_range = all.iter().copied().filter(|(at, _)| range.contains(&(*at as usize)));
        assert_eq!(map.rows(&range).collect::<Vec<_>>(), of_range.collect::<Vec<_>>(), "{range:?}");
    }
    for end in 0..section.len() {
        if let Some(map) = AddressMap::parse(&section[..end]) {
            assert!(map.rows(&text).count() < all.len(), "cut at {end}");
        }
    }
}
