//! wlprof's modules and guests, as plugins in Rust see them.

use super::{Bytes, Guest, Member, Module};
use crate::{FunctionImport, GuestMemory, ModuleView, OutOfBounds};
use std::ops::Range;

/// A module behind the C ABI.
pub(super) struct ForeignModule<'a> {
    module: &'a Module,
    name: String,
    imports: Vec<FunctionImport>,
}

impl<'a> ForeignModule<'a> {
    /// What `module` is.
    ///
    /// # Safety
    /// `module` is as the ABI says.
    pub(super) unsafe fn new(module: &'a Module) -> Self {
        // SAFETY: a function of the module's, called with it, as in the rest of this file; what they give is copied here or
        // borrowed for as long as the module is.
        let name = unsafe { (module.name)(module).text(usize::MAX) };
        // SAFETY: as above.
        let count = unsafe { (module.function_import_count)(module) };
        let import = |index| {
            let (mut from, mut name) = (Bytes::EMPTY, Bytes::EMPTY);
            // SAFETY: as above, with places for the results.
            let found = unsafe { (module.function_import)(module, index, &mut from, &mut name) };
            // SAFETY: as above.
            found.then(|| unsafe { FunctionImport { module: from.text(usize::MAX), name: name.text(usize::MAX) } })
        };
        Self { module, name, imports: (0..count).map_while(import).collect() }
    }
}

impl ModuleView for ForeignModule<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: as in `ForeignModule::new`.
        unsafe { (self.module.bytes)(self.module).get() }
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        let mut section = Bytes::EMPTY;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.custom_section)(self.module, Bytes::of(name.as_bytes()), &mut section) };
        // SAFETY: as in `ForeignModule::new`.
        found.then(|| unsafe { section.get() })
    }

    fn function_imports(&self) -> &[FunctionImport] {
        &self.imports
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        let (mut start, mut end) = (0, 0);
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.function_body)(self.module, index, &mut start, &mut end) };
        found.then_some(start..end)
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        let mut name = Bytes::EMPTY;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.function_name)(self.module, index, &mut name) };
        // SAFETY: as in `ForeignModule::new`.
        found.then(|| unsafe { name.get() }).and_then(|name| std::str::from_utf8(name).ok())
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        let mut index = 0;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.global_named)(self.module, Bytes::of(name.as_bytes()), &mut index) };
        found.then_some(index)
    }

    fn variable_address(&self, name: &str) -> Option<u64> {
        let mut address = 0;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.variable_address)(self.module, Bytes::of(name.as_bytes()), &mut address) };
        found.then_some(address)
    }

    fn member(&self, structure: &str, member: &str) -> Option<crate::Member> {
        let names = [structure, member].map(|name| Bytes::of(name.as_bytes()));
        let mut found = Member { offset: 0, size: 0, first_bit: 0, bit_count: 0 };
        // SAFETY: as in `ForeignModule::new`.
        let is_there = unsafe { (self.module.member)(self.module, names[0], names[1], &mut found) };
        is_there.then(|| found.into())
    }

    fn type_size(&self, name: &str) -> Option<u64> {
        let mut size = 0;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.type_size)(self.module, Bytes::of(name.as_bytes()), &mut size) };
        found.then_some(size)
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        let mut value = 0;
        // SAFETY: as in `ForeignModule::new`.
        let found = unsafe { (self.module.enumerator)(self.module, Bytes::of(name.as_bytes()), &mut value) };
        found.then_some(value)
    }
}

/// A stopped guest behind the C ABI.
pub(super) struct ForeignGuest<'a>(
    /// As the ABI says.
    pub(super) &'a Guest,
);

impl GuestMemory for ForeignGuest<'_> {
    fn size(&self) -> u64 {
        self.0.memory_size
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        // SAFETY: a function of the guest's, called with it; it writes within the buffer.
        let read = unsafe { (self.0.read)(self.0, address, buffer.as_mut_ptr().cast(), buffer.len()) };
        if read { Ok(()) } else { Err(OutOfBounds) }
    }

    fn global(&self, index: u32) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        let found = unsafe { (self.0.global)(self.0, index, &mut value) };
        found.then_some(value)
    }
}
