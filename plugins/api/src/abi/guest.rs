//! wlprof's modules and guests, as plugins in Rust see them.

use super::{Bytes, Guest, Member, Module};
use crate::{FunctionImport, GuestMemory, ModuleView, OutOfBounds};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;

/// A module behind the C ABI.
pub(super) struct ForeignModule<'a> {
    /// Not a reference: of an older wlprof's there is less than all of it.
    module: *const Module,
    lives: PhantomData<&'a Module>,
    name: String,
    imports: Vec<FunctionImport>,
}

/// How large a module is that has what came with 1.1.
const SIZE_1_1: usize = offset_of!(Module, code_hash) + size_of::<unsafe extern "C" fn(*const Module) -> Bytes>();

impl<'a> ForeignModule<'a> {
    /// What `module` is.
    ///
    /// # Safety
    /// `module` is as the ABI says, for as long as `'a`.
    pub(super) unsafe fn new(module: *const Module) -> Self {
        // SAFETY: the module's own function, called with it; the name is there for as long as the module, and copied.
        let name = unsafe { ((*module).name)(module).text(usize::MAX) };
        // SAFETY: the module's own function, called with it.
        let count = unsafe { ((*module).function_import_count)(module) };
        let import = |index| {
            let (mut from, mut name) = (Bytes::EMPTY, Bytes::EMPTY);
            // SAFETY: the module's own function, called with it and with places for the results.
            let found = unsafe { ((*module).function_import)(module, index, &mut from, &mut name) };
            // SAFETY: the texts are there for as long as the module, and copied.
            found.then(|| unsafe { FunctionImport { module: from.text(usize::MAX), name: name.text(usize::MAX) } })
        };
        Self { module, lives: PhantomData, name, imports: (0..count).map_while(import).collect() }
    }

    /// Whether wlprof is one with ABI 1.1 or later.
    fn has_1_1(&self) -> bool {
        // SAFETY: every version has its size in front.
        unsafe { (*self.module).size >= SIZE_1_1 }
    }
}

impl ModuleView for ForeignModule<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the module's own function, called with it; the bytes are there for as long as the module.
        unsafe { ((*self.module).bytes)(self.module).get() }
    }

    fn custom_section(&self, name: &str) -> Option<&[u8]> {
        let mut section = Bytes::EMPTY;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).custom_section)(self.module, Bytes::of(name.as_bytes()), &mut section) };
        // SAFETY: the section is there for as long as the module.
        found.then(|| unsafe { section.get() })
    }

    fn function_imports(&self) -> &[FunctionImport] {
        &self.imports
    }

    fn function_body(&self, index: u32) -> Option<Range<u32>> {
        let (mut start, mut end) = (0, 0);
        // SAFETY: the module's own function, called with it and with places for the results.
        let found = unsafe { ((*self.module).function_body)(self.module, index, &mut start, &mut end) };
        found.then_some(start..end)
    }

    fn function_name(&self, index: u32) -> Option<&str> {
        let mut name = Bytes::EMPTY;
        // SAFETY: the module's own function, called with it and with a place for the result.
        let found = unsafe { ((*self.module).function_name)(self.module, index, &mut name) };
        // SAFETY: the name is there for as long as the module.
        found.then(|| unsafe { name.get() }).and_then(|name| std::str::from_utf8(name).ok())
    }

    fn global_named(&self, name: &str) -> Option<u32> {
        let mut index = 0;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).global_named)(self.module, Bytes::of(name.as_bytes()), &mut index) };
        found.then_some(index)
    }

    fn variable_address(&self, name: &str) -> Option<u64> {
        let mut address = 0;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).variable_address)(self.module, Bytes::of(name.as_bytes()), &mut address) };
        found.then_some(address)
    }

    fn member(&self, structure: &str, member: &str) -> Option<crate::Member> {
        let names = [structure, member].map(|name| Bytes::of(name.as_bytes()));
        let mut found = Member { offset: 0, size: 0, first_bit: 0, bit_count: 0 };
        // SAFETY: the module's own function, called with it and with texts and a place that are there for the call.
        let is_there = unsafe { ((*self.module).member)(self.module, names[0], names[1], &mut found) };
        is_there.then(|| found.into())
    }

    fn type_size(&self, name: &str) -> Option<u64> {
        let mut size = 0;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).type_size)(self.module, Bytes::of(name.as_bytes()), &mut size) };
        found.then_some(size)
    }

    fn enumerator(&self, name: &str) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).enumerator)(self.module, Bytes::of(name.as_bytes()), &mut value) };
        found.then_some(value)
    }

    fn function_named(&self, name: &str) -> Option<u32> {
        let mut index = 0;
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call; it is
        // asked only if it has the function.
        let mut ask =
            || unsafe { ((*self.module).function_named)(self.module, Bytes::of(name.as_bytes()), &mut index) };
        (self.has_1_1() && ask()).then_some(index)
    }

    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        let mut function = 0;
        // SAFETY: the module's own function, called with it and with a place for the result; it is asked only if it has the
        // function.
        let mut ask = || unsafe { ((*self.module).table_function)(self.module, table, element, &mut function) };
        (self.has_1_1() && ask()).then_some(function)
    }

    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let (place, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the module's own function, called with it; it writes within the buffer, and is asked only if it has the
        // function.
        let ask = || unsafe { ((*self.module).initial_data)(self.module, address, place, length) };
        if self.has_1_1() && ask() { Ok(()) } else { Err(OutOfBounds) }
    }

    fn code_hash(&self) -> Option<&[u8; 32]> {
        // SAFETY: the module's own function, called with it; the hash is there for as long as the module, which is asked only
        // if it has the function.
        let ask = || unsafe { ((*self.module).code_hash)(self.module).get() };
        if self.has_1_1() { ask().try_into().ok() } else { None }
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
        // SAFETY: a function of the guest's, called with it and with a place for the result.
        let found = unsafe { (self.0.global)(self.0, index, &mut value) };
        found.then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    unsafe extern "C" fn bytes(_: *const Module) -> Bytes {
        Bytes::of(&[b'h'; 32])
    }

    unsafe extern "C" fn none(_: *const Module) -> u32 {
        0
    }

    unsafe extern "C" fn section(_: *const Module, _: Bytes, _: *mut Bytes) -> bool {
        false
    }

    unsafe extern "C" fn import(_: *const Module, _: u32, _: *mut Bytes, _: *mut Bytes) -> bool {
        false
    }

    unsafe extern "C" fn body(_: *const Module, _: u32, _: *mut u32, _: *mut u32) -> bool {
        false
    }

    unsafe extern "C" fn name(_: *const Module, _: u32, _: *mut Bytes) -> bool {
        false
    }

    unsafe extern "C" fn member(_: *const Module, _: Bytes, _: Bytes, _: *mut Member) -> bool {
        false
    }

    unsafe extern "C" fn seven<T: From<u8>>(_: *const Module, _: Bytes, number: *mut T) -> bool {
        // SAFETY: a place of the caller's.
        unsafe { number.write(7.into()) };
        true
    }

    unsafe extern "C" fn element(_: *const Module, _: u32, _: u64, function: *mut u32) -> bool {
        // SAFETY: a place of the caller's.
        unsafe { function.write(7) };
        true
    }

    unsafe extern "C" fn data(_: *const Module, _: u64, buffer: *mut c_void, length: usize) -> bool {
        // SAFETY: the caller has room for as much.
        unsafe { buffer.cast::<u8>().write_bytes(7, length) };
        true
    }

    fn module(size: usize) -> Module {
        Module {
            size,
            name: bytes,
            bytes,
            custom_section: section,
            function_import_count: none,
            function_import: import,
            function_body: body,
            function_name: name,
            global_named: seven,
            variable_address: seven,
            member,
            type_size: seven,
            enumerator: seven,
            function_named: seven,
            table_function: element,
            initial_data: data,
            code_hash: bytes,
        }
    }

    #[test]
    fn an_older_wlprof_is_not_asked_for_what_it_has_not() {
        let said = |size: usize| {
            let module = module(size);
            // SAFETY: it is there.
            let module = unsafe { ForeignModule::new(&raw const module) };
            let mut buffer = [0; 2];
            let data = module.initial_data(0, &mut buffer).map(|()| buffer);
            let hash = module.code_hash().copied();
            (module.global_named(""), module.function_named(""), module.table_function(0, 0), data, hash)
        };
        assert_eq!(said(size_of::<Module>()), (Some(7), Some(7), Some(7), Ok([7; 2]), Some([b'h'; 32])));
        let of_1_0 = offset_of!(Module, function_named);
        assert_eq!(said(of_1_0), (Some(7), None, None, Err(OutOfBounds), None));
    }
}
