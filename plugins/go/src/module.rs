//! What the plugin reads of the module itself: data segments, and which functions have Go's signature.

use crate::image::Image;
use wasmparser::{CompositeInnerType, DataKind, Operator, Parser, Payload, TypeRef, ValType};

/// What is kept of a module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The module in binary form, from the start of the code section's payload to its end.
    pub(crate) code: Vec<u8>,
    /// Memory as the data segments set it.
    pub(crate) image: Image,
    /// Which functions, imports first, take and return one `i32`, as all that follow Go's calling convention do.
    pub(crate) go_signature: Vec<bool>,
}

impl Module {
    /// Reads a module; what of it is broken is left out.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut module = Self::default();
        // Whatever is wrong with a module, the engine has accepted it.
        let _ = module.read_sections(bytes);
        module
    }

    fn read_sections(&mut self, bytes: &[u8]) -> wasmparser::Result<()> {
        let mut types = Vec::new();
        let mut parser = Parser::new(0);
        let mut rest = bytes;
        loop {
            let (consumed, payload) = match parser.parse(rest, true)? {
                wasmparser::Chunk::Parsed { consumed, payload } => (consumed, payload),
                wasmparser::Chunk::NeedMoreData(_) => return Ok(()),
            };
            rest = &rest[consumed..];
            match payload {
                Payload::TypeSection(section) => {
                    for group in section {
                        types.extend(group?.types().map(|ty| {
                            matches!(&ty.composite_type.inner, CompositeInnerType::Func(function)
                                if function.params() == [ValType::I32] && function.results() == [ValType::I32])
                        }));
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if let TypeRef::Func(_) = import?.ty {
                            // Hosts know nothing of Go's stack.
                            self.go_signature.push(false);
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        self.go_signature.push(types.get(ty? as usize).copied().unwrap_or(false));
                    }
                }
                Payload::CodeSectionStart { range, size, .. } => {
                    self.code = bytes.get(range).unwrap_or_default().to_vec();
                    // Bodies are read when they are needed.
                    rest = rest.get(size as usize..).unwrap_or_default();
                    parser.skip_section();
                }
                Payload::DataSection(section) => {
                    let mut segments = Vec::new();
                    for data in section {
                        let data = data?;
                        if let DataKind::Active { memory_index: 0, offset_expr } = data.kind
                            && let Operator::I32Const { value } = offset_expr.get_operators_reader().read()?
                        {
                            segments.push((value.cast_unsigned(), data.data));
                        }
                    }
                    self.image = Image::new(segments);
                }
                Payload::End(_) => return Ok(()),
                _ => {}
            }
        }
    }
}
