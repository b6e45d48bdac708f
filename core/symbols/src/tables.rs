//! What names the functions of modules, shared by all that have the same module.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wlprof_module::ModuleImage;
use wlprof_plugin::{SourceFrame, WasmFrame};

/// Places of a module whose names are kept. A Python program has some thousand.
const MAX_NAMED: usize = 1 << 16;

/// What a module's own symbols say.
pub(crate) struct ModuleTables {
    dwarf: wlprof_dwarf::Symbolizer,
    /// What was named before.
    named: HashMap<WasmFrame, Vec<SourceFrame>>,
}

impl ModuleTables {
    fn of(image: &ModuleImage) -> Self {
        Self { dwarf: wlprof_dwarf::Symbolizer::new(image), named: HashMap::new() }
    }

    /// Appends what is at `frame`, innermost inlined call first.
    pub(crate) fn symbolize(&mut self, frame: WasmFrame, out: &mut Vec<SourceFrame>) {
        if let Some(known) = self.named.get(&frame) {
            return out.extend_from_slice(known);
        }
        let from = out.len();
        self.dwarf.symbolize(frame, out);
        if self.named.len() < MAX_NAMED {
            self.named.insert(frame, out[from..].to_vec());
        }
    }

    pub(crate) fn dwarf(&self) -> &wlprof_dwarf::Symbolizer {
        &self.dwarf
    }
}

/// The tables of one module.
#[derive(Clone)]
pub(crate) struct SharedModule(Arc<Mutex<ModuleTables>>);

impl SharedModule {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ModuleTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of modules, each of which is read once however many have it: instances that were compiled one by one, or several processes. Clones are
/// the same tables.
///
/// ```
/// let tables = wlprof_symbols::SharedTables::default();
/// let [_first, _second] = [(); 2].map(|()| wlprof_symbols::Symbols::sharing(&tables));
/// ```
#[derive(Clone, Default)]
pub struct SharedTables(Arc<Mutex<Vec<KnownModule>>>);

/// A module, and its tables.
type KnownModule = (Arc<ModuleImage>, SharedModule);

impl SharedTables {
    /// Returns the tables of `image`, or of one of the same bytes.
    pub(crate) fn of(&self, image: &Arc<ModuleImage>) -> SharedModule {
        let mut all = self.all();
        let known = all.iter().find(|(known, _)| Arc::ptr_eq(known, image) || known.is_same_module(image));
        if let Some((_, tables)) = known {
            return tables.clone();
        }
        let tables = SharedModule(Arc::new(Mutex::new(ModuleTables::of(image))));
        all.push((image.clone(), tables.clone()));
        tables
    }

    /// Lets go of modules that nobody names any more.
    pub fn forget_unused(&self) {
        self.all().retain(|(_, SharedModule(tables))| Arc::strong_count(tables) > 1);
    }

    fn all(&self) -> MutexGuard<'_, Vec<KnownModule>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_the_same_bytes_have_the_same_tables() {
        let image = |name: &str, extra: &[u8]| {
            let bytes = [b"\0asm\x01\0\0\0", extra].concat();
            Arc::new(ModuleImage::parse(bytes, name).unwrap())
        };
        let tables = SharedTables::default();
        let is_same = |one: &SharedModule, other: &SharedModule| Arc::ptr_eq(&one.0, &other.0);
        let one = tables.of(&image("one", b""));
        let other = tables.of(&image("other", b"\0\x02\x01x"));
        assert!(is_same(&one, &tables.of(&image("a second one", b""))) && !is_same(&one, &other));
        drop(other);
        tables.forget_unused();
        assert_eq!(tables.all().len(), 1);
    }

    #[test]
    fn places_are_named_once() {
        let image = Arc::new(ModuleImage::parse(b"\0asm\x01\0\0\0".to_vec(), "empty").unwrap());
        let tables = SharedTables::default().of(&image);
        let name = || {
            let mut frames = Vec::new();
            tables.lock().symbolize(WasmFrame::attached(3, 7), &mut frames);
            frames
        };
        let [first, second] = [name(), name()];
        assert_eq!(first, second);
        assert_eq!(tables.lock().named.len(), 1);
    }
}
