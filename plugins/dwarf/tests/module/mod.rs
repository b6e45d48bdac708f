//! What the tests ask of a fixture: where its instructions are, and what is said of one of them.
#![allow(dead_code, reason = "each test uses a part")]

use wasmparser::{BinaryReader, FunctionBody, Parser, Payload};
use wlprof_dwarf::Symbolizer;
use wlprof_plugin::{SourceFrame, WasmFrame, testing::TestModule};

/// Where every instruction of every body starts, in code section offsets.
pub(crate) fn instructions(module: &TestModule) -> Vec<Vec<u32>> {
    let code = Parser::new(0).parse_all(&module.bytes).find_map(|payload| match payload.unwrap() {
        Payload::CodeSectionStart { range, .. } => Some(&module.bytes[range]),
        _ => None,
    });
    let code = code.expect("a code section");
    let starts = |body: &std::ops::Range<u32>| {
        let bytes = &code[body.start as usize..body.end as usize];
        let body = FunctionBody::new(BinaryReader::new(bytes, body.start as usize));
        let mut operators = body.get_operators_reader().unwrap();
        let mut starts = Vec::new();
        while !operators.eof() {
            starts.push(u32::try_from(operators.original_position()).unwrap());
            operators.read().unwrap();
        }
        starts
    };
    module.bodies.iter().map(starts).collect()
}

/// The source frames of one wasm frame.
pub(crate) fn symbolize(symbolizer: &mut Symbolizer, frame: WasmFrame) -> Vec<SourceFrame> {
    let mut out = Vec::new();
    symbolizer.symbolize(frame, &mut out);
    out
}

/// `function file:line:column`, missing parts as `?` and 0.
pub(crate) fn show(frame: &SourceFrame) -> String {
    let file = frame.file.as_deref().unwrap_or("?");
    format!("{} {file}:{}:{}", frame.function, frame.line.unwrap_or(0), frame.column.unwrap_or(0))
}

/// Whether `ours` is `plain` with the module, type or namespace it belongs to: `<core::fmt::Formatter>::pad`, `pad`.
pub(crate) fn qualifies(ours: &str, plain: &str) -> bool {
    let identifier: String = plain.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    // `#[panic_handler]` renames.
    let identifier = if identifier == "panic_handler" { "rust_begin_unwind" } else { &identifier };
    let mangled = ["_Z", "_R"].iter().any(|start| plain.starts_with(start));
    !mangled && (ours.contains("::") || ours.starts_with("_R") || ours.starts_with("_Z")) && ours.contains(identifier)
}
