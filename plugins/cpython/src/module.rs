//! What the plugin reads of the module itself: data segments, exported addresses, and code; and the function that it knows by name.

use std::ops::Range;
use wasmparser::{Chunk, DataKind, ExternalKind, Operator, Parser, Payload, TypeRef};
use wlprof_plugin::ModuleView;

/// The function in which Python code runs.
pub(crate) const EVAL: &str = "_PyEval_EvalFrameDefault";

/// By what name a library imports where its data begins, if that is decided when it is instantiated.
const MEMORY_BASE: &str = "__memory_base";

/// What is kept of a module while attaching.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    /// The code section's payload.
    pub(crate) code: &'a [u8],
    /// Active segments of memory 0 at constant addresses.
    pub(crate) segments: Vec<(u32, &'a [u8])>,
    /// The contents of all segments.
    pub(crate) data: Vec<&'a [u8]>,
    /// Exported immutable globals with a constant value: how linkers export addresses of variables.
    pub(crate) addresses: Vec<(&'a str, u32)>,
    /// The global that such addresses, and those of its debug information, begin at, if it is a library: what it imports as `__memory_base`.
    pub(crate) memory_base: Option<u32>,
}

impl<'a> Module<'a> {
    /// Reads a module; what of it is broken is left out.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let mut module = Self::default();
        // Whatever is wrong with a module, the engine has accepted it.
        let _ = module.read_sections(bytes);
        module
    }

    fn read_sections(&mut self, bytes: &'a [u8]) -> wasmparser::Result<()> {
        // The value of each constant global.
        let mut globals: Vec<Option<u32>> = Vec::new();
        let mut parser = Parser::new(0);
        let mut rest = bytes;
        loop {
            let (consumed, payload) = match parser.parse(rest, true)? {
                Chunk::Parsed { consumed, payload } => (consumed, payload),
                Chunk::NeedMoreData(_) => return Ok(()),
            };
            rest = rest.get(consumed..).unwrap_or_default();
            match payload {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        if let TypeRef::Global(_) = import.ty {
                            if import.name == MEMORY_BASE {
                                self.memory_base = Some(globals.len() as u32);
                            }
                            globals.push(None);
                        }
                    }
                }
                Payload::GlobalSection(section) => {
                    for global in section {
                        let global = global?;
                        let value = match global.init_expr.get_operators_reader().read()? {
                            Operator::I32Const { value } if !global.ty.mutable => Some(value.cast_unsigned()),
                            _ => None,
                        };
                        globals.push(value);
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.kind == ExternalKind::Global
                            && let Some(&Some(address)) = globals.get(export.index as usize)
                        {
                            self.addresses.push((export.name, address));
                        }
                    }
                }
                Payload::CodeSectionStart { range, size, .. } => {
                    self.code = bytes.get(range).unwrap_or_default();
                    rest = rest.get(size as usize..).unwrap_or_default();
                    parser.skip_section();
                }
                Payload::DataSection(section) => {
                    for data in section {
                        let data = data?;
                        self.data.push(data.data);
                        if let DataKind::Active { memory_index: 0, offset_expr } = data.kind
                            && let Operator::I32Const { value } = offset_expr.get_operators_reader().read()?
                        {
                            self.segments.push((value.cast_unsigned(), data.data));
                        }
                    }
                }
                Payload::End(_) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Reads a module of a program, with the data of all modules that work on its memory.
    pub(crate) fn read_with_siblings(view: &'a dyn ModuleView) -> Self {
        let mut module = Self::read(view.bytes());
        for sibling in view.siblings() {
            let Self { segments, data, .. } = Self::read(sibling.bytes());
            module.segments.extend(segments);
            module.data.extend(data);
        }
        module
    }

    /// The exported address of that name.
    pub(crate) fn address(&self, name: &str) -> Option<u32> {
        self.addresses.iter().find(|(exported, _)| *exported == name).map(|&(_, address)| address)
    }

    /// The 32-bit word that memory has at `address` when the module is instantiated.
    pub(crate) fn word(&self, address: u32) -> Option<u32> {
        self.segments.iter().find_map(|&(start, data)| {
            let at = address.checked_sub(start)? as usize;
            Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
        })
    }

    /// From the first to the last byte that segments at constant addresses set.
    pub(crate) fn static_data(&self) -> Option<Range<u64>> {
        let start = self.segments.iter().map(|&(start, _)| u64::from(start)).min()?;
        let end = self.segments.iter().map(|&(start, data)| u64::from(start) + data.len() as u64).max()?;
        Some(start..end)
    }
}
