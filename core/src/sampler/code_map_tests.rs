//! The sampler's code map beside the list of machine code that perf is given.

use crate::machine_code::GuestCode;
use crate::machine_code::native_code;
use wasmtime::Module;
use wasmtime_environ::wasmparser::Operator;
use wlprof_module::{Checks, ModuleImage};
use wlprof_recording::Origin;
use wlprof_run::guest::{EngineOptions, engine};
use wlprof_walk::{CodeMap, CodeName, DIRECT_CALL, NativePc, directly_called};

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
    let map = CodeMap::of(&guest.mapped_image());
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

/// Where Wasmtime has functions look whether their epoch is over is what samples are judged by (`drain/checks.rs`).
#[test]
fn each_function_has_one_check_where_it_begins_and_the_others_are_at_loops_and_operations_on_many_bytes() {
    /// Where instructions may begin.
    const INSTRUCTIONS: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };
    let engine = engine(EngineOptions { epoch_interruption: true, cache: true }).unwrap();
    for name in ["c-calls", "c-hosty", "rust-mix", "quickjs-0.16", "go-work-1.27"] {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fixtures/");
        let bytes = std::fs::read(format!("{path}{name}.wasm")).unwrap();
        let module = Module::new(&engine, &bytes).unwrap();
        let image = std::sync::Arc::new(ModuleImage::parse(bytes, name).unwrap());
        let guest = GuestCode::of_module(module, image.clone());
        let map = CodeMap::of(&guest.mapped_image());
        let code = native_code(&guest);
        let is_callee = |name: CodeName<'_>| matches!(name, CodeName::Stub(name) if name.contains("new_epoch"));
        let callee = code.iter().find(|code| is_callee(code.name)).expect("checks call it").address;
        let mut others = 0;
        for code in &code {
            let CodeName::Function { function, .. } = code.name else { continue };
            let checks = Checks::of(&image, function).unwrap();
            let mut at_entry = 0;
            for (at, call) in code.bytes.windows(DIRECT_CALL).enumerate().step_by(INSTRUCTIONS) {
                let returns_to = code.address as usize + at + DIRECT_CALL;
                if directly_called(call.try_into().unwrap(), returns_to) != Some(callee as usize) {
                    continue;
                }
                let origin = map.origin(NativePc::Return(returns_to));
                let Some(Origin::Wasm { code_offset, .. }) = origin else { panic!("{name}: {origin:?}") };
                if checks.is_at_entry(code_offset) {
                    at_entry += 1;
                    continue;
                }
                let operator = image.operator_at(function, code_offset);
                assert!(
                    matches!(
                        operator,
                        Some(
                            Operator::Loop { .. }
                                | Operator::MemoryCopy { .. }
                                | Operator::MemoryFill { .. }
                                | Operator::MemoryGrow { .. }
                                | Operator::MemoryInit { .. }
                        )
                    ),
                    "{name}: {function} at {code_offset:#x}: {operator:?}"
                );
                others += 1;
            }
            assert_eq!(at_entry, 1, "{name}: {function}");
        }
        println!("{name}: {others} checks beside those where functions begin");
        assert!(others > 0, "{name}");
    }
}
