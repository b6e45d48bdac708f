//! The machine code that a guest was compiled to, piece by piece, for tools that sample this process themselves.

use super::GuestCode;
use super::mapped::image_bytes;
use super::unwind::unwind_infos;
use std::ops::Range;
use wlprof_export::UnwindInfo;
use wlprof_recording::ADAPTER;
use wlprof_walk::{CodeName, CodeOffsets, CompiledImage, Stretches};

/// A piece of machine code in this process.
#[derive(Clone, Debug)]
pub struct NativeCode<'m> {
    /// Where it is.
    pub address: u64,
    /// The code.
    pub bytes: &'m [u8],
    /// What it is.
    pub name: CodeName<'m>,
    /// Which wasm instruction the code from an offset on is for: the offset and the instruction's code offset, in order, as
    /// the sampler has it. The first is for the code from its beginning.
    pub code_offsets: Vec<(u32, u32)>,
    /// How it is unwound, if that is known.
    pub unwind: Option<UnwindInfo<'m>>,
}

/// The machine code of a guest in order of addresses.
pub fn native_code<'m>(code: &'m GuestCode) -> Vec<NativeCode<'m>> {
    let image = code.mapped_image();
    let text = code.compiled.text();
    let parsed = CompiledImage::parse(image_bytes(&code.compiled));
    let offsets = CodeOffsets::new(&image, parsed.as_ref());
    let mut unwind = parsed.as_ref().and_then(unwind_infos).unwrap_or_default();
    let pieces = parsed.as_ref().map(CompiledImage::pieces).unwrap_or_default();
    let native = |(name, range): (CodeName<'m>, Range<usize>)| {
        let (name, stretches) = match name {
            CodeName::Function { module, function } if image.module(module).is_some() => {
                (name, Some(offsets.of_function(module, function, &range)))
            }
            CodeName::Function { .. } => (CodeName::Stub(ADAPTER), None),
            CodeName::Entry { .. } | CodeName::Stub(_) => (name, None),
        };
        let stretches = stretches.iter().flat_map(Stretches::iter);
        Some(NativeCode {
            address: text.as_ptr() as u64 + range.start as u64,
            bytes: text.get(range.clone())?,
            name,
            code_offsets: stretches.map(|(at, code_offset)| (at - range.start as u32, code_offset)).collect(),
            unwind: unwind.remove(&range.start),
        })
    };
    pieces.into_iter().filter_map(native).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wasmtime::Module;
    use wlprof_module::ModuleImage;
    use wlprof_run::guest::{EngineOptions, engine};

    const TEXT: &str = r#"(module (memory 1)
        (func (export "grow") (result i32) (memory.grow (i32.const 1)))
        (func (export "store") (i32.store (i32.const 0) (i32.const 1))))"#;

    #[test]
    fn every_byte_of_code_has_a_name_once() {
        let engine = engine(EngineOptions { epoch_interruption: false, cache: false }).unwrap();
        let bytes = wat::parse_str(TEXT).unwrap();
        let module = Module::new(&engine, &bytes).unwrap();
        let image = Arc::new(ModuleImage::parse(bytes, "test").unwrap());
        let guest = GuestCode::of_module(module, image.clone());
        let code = native_code(&guest);
        let gaps =
            code.windows(2).map(|pair| pair[1].address.checked_sub(pair[0].address + pair[0].bytes.len() as u64));
        // Pieces are aligned, to 32 bytes at most.
        gaps.for_each(|gap| assert!(gap.is_some_and(|gap| gap < 32), "{gap:?}"));
        assert_eq!(code[0].address, guest.compiled.text().as_ptr() as u64);
        let count = |wanted: fn(&CodeName<'_>) -> bool| code.iter().filter(|code| wanted(&code.name)).count();
        assert_eq!(count(|name| matches!(name, CodeName::Function { module: 0, function: 0 | 1 })), 2);
        assert_eq!(count(|name| matches!(name, CodeName::Entry { module: 0, function: 0 | 1, .. })), 2);
        assert!(count(|name| matches!(name, CodeName::Stub(stub) if stub.contains("memory_grow"))) == 1);
        let store = code.iter().find(|code| code.name == CodeName::Function { module: 0, function: 1 }).unwrap();
        let body = wlprof_plugin::ModuleView::function_body(&*image, 1).unwrap();
        assert_eq!(store.code_offsets[0].0, 0);
        assert!(
            store.code_offsets.iter().all(|(at, offset)| (*at as usize) < store.bytes.len() && body.contains(offset))
        );
        assert!(code.iter().all(|code| code.unwind.is_some()), "{code:?}");
    }
}
