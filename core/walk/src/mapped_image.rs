//! A compiled image as it lies in a process, with the modules that it was compiled from.

use crate::compiled_image::{CodeName, CompiledImage};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;

/// A compiled image as it lies in a process, and the modules that it was compiled from.
///
/// ```
/// use std::sync::Arc;
/// use wlprof_walk::MappedImage;
///
/// let copied = Arc::new(vec![0; 4096]);
/// let image = MappedImage { bytes: copied, address: 0x7f00_0000_0000, modules: Vec::new() };
/// // There is no compiled code in these bytes.
/// assert!(image.parse().is_none());
/// ```
#[derive(Clone)]
pub struct MappedImage {
    /// The image. It must stay the same, and where it is: the memory itself, or a copy of another process's.
    pub bytes: Arc<dyn AsRef<[u8]> + Send + Sync>,
    /// The address at which the process has it.
    pub address: usize,
    /// The modules, by Wasmtime's numbers: the module itself, or those in a component's file, in order. The numbers behind them are
    /// adapters'.
    pub modules: Vec<Arc<ModuleImage>>,
}

impl MappedImage {
    /// Parses the image. `None` if it is not the ELF file that Wasmtime makes.
    pub fn parse(&self) -> Option<CompiledImage<'_>> {
        CompiledImage::parse(self.bytes())
    }

    /// Returns the module of this number; `None` if that is an adapter.
    pub fn module(&self, number: u32) -> Option<&Arc<ModuleImage>> {
        self.modules.get(number as usize)
    }

    /// Returns whether the functions of the code are those of its modules: as many, each compiled of what lies where its module has its
    /// body. It is not known, and `false`, if the code says of too few functions where they were: without an address map, for instance.
    ///
    /// With other bytes the guest's memory and globals would be looked for where something else is.
    pub fn was_compiled_from_modules(&self) -> bool {
        let Some(image) = self.parse() else { return false };
        let Some(map) = image.address_map() else { return false };
        let mut counts = vec![0; self.modules.len()];
        // Of all functions of the modules, and of those whose places are known.
        let (mut all, mut known) = (0, 0);
        let is_of_module = |(name, range): (CodeName<'_>, Range<usize>)| {
            let CodeName::Function { module, function } = name else { return true };
            let Some(of) = self.module(module) else { return true };
            counts[module as usize] += 1;
            let body = of.function_body(function);
            let is_of_body = |file_offset| match of.compiled_code_offset(file_offset) {
                Some(offset) => body.as_ref().is_some_and(|body| body.contains(&offset)),
                None => of.is_rewritten(),
            };
            let mut rows = map.rows(&range).filter_map(|(_, file_offset)| file_offset).peekable();
            all += 1;
            known += u32::from(rows.peek().is_some());
            (body.is_some() || of.is_rewritten()) && rows.all(is_of_body)
        };
        let are_all = image.pieces().into_iter().all(is_of_module);
        let is_end = |of: &ModuleImage, count: u32| of.function_body(of.first_body() + count).is_none();
        are_all && known * 2 > all && self.modules.iter().zip(counts).all(|(of, count)| is_end(of, count))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }
}

impl fmt::Debug for MappedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, length) = (self.address, self.bytes().len());
        let modules = self.modules.len();
        f.debug_struct("MappedImage")
            .field("address", &address)
            .field("length", &length)
            .field("modules", &modules)
            .finish()
    }
}
