//! The sampler's code map beside the list of machine code that perf is given.

use super::code_map::{CodeMap, NativePc};
use crate::guest::{EngineOptions, engine};
use crate::machine_code::{CodeName, native_code};
use crate::module::{GuestCode, ModuleImage};
use crate::recording::Origin;
use wasmtime::Module;

const TEXT: &str = r#"(module (memory 1)
    (func (export "grow") (result i32) (memory.grow (i32.const 1)))
    (func (export "store") (i32.store (i32.const 0) (i32.const 1))))"#;

#[test]
fn samples_of_each_address_are_of_the_instruction_that_it_is_listed_for() {
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
    let bytes = wat::parse_str(TEXT).unwrap();
    let module = Module::new(&engine, &bytes).unwrap();
    let image = std::sync::Arc::new(ModuleImage::parse(bytes, "test").unwrap());
    let guest = GuestCode::of_module(module, image);
    let map = CodeMap::of(&guest);
    let mut looked_at = 0;
    for code in native_code(&guest) {
        let CodeName::Function { function, .. } = code.name else { continue };
        for at in 0..code.bytes.len() as u32 {
            let next = code.code_offsets.partition_point(|(start, _)| *start <= at);
            let code_offset = code.code_offsets[next - 1].1;
            let origin = map.origin(NativePc::Exact((code.address + u64::from(at)) as usize));
            assert_eq!(origin, Some(Origin::Wasm { module: 0, function, code_offset }));
            looked_at += 1;
        }
    }
    assert!(looked_at > 0);
}
