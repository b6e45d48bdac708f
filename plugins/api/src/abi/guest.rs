//! wlprof's modules and guests, as plugins in Rust see them.

use super::{Bytes, Guest, Member, Module};
use crate::{FunctionImport, GuestMemory, ModuleView, OutOfBounds};
use std::marker::PhantomData;
use std::ops::Range;

/// A module behind the C ABI.
pub(super) struct ForeignModule<'a> {
    /// Not a reference: of a later wlprof's there is more than this, and its functions may look at that.
    module: *const Module,
    lives: PhantomData<&'a Module>,
    name: String,
    imports: Vec<FunctionImport>,
    siblings: Vec<ForeignModule<'a>>,
}

impl<'a> ForeignModule<'a> {
    /// What `module` is.
    ///
    /// # Safety
    /// `module` is as the ABI says, for as long as `'a`.
    pub(super) unsafe fn new(module: *const Module) -> Self {
        // SAFETY: `module` is as the ABI says for as long as `'a` (see # Safety).
        let mut whole = unsafe { Self::without_siblings(module) };
        // SAFETY: `sibling_count` is the module's own function, called with it, and the module is there (see # Safety).
        let count = unsafe { ((*module).sibling_count)(module) };
        let sibling = |index| {
            // SAFETY: the module's own function, called with it; what it gives is a module as the ABI says, or null.
            let sibling = unsafe { ((*module).sibling)(module, index) };
            // SAFETY: what is not null is a module as the ABI says, which is there for as long as the one that gave it.
            (!sibling.is_null()).then(|| unsafe { Self::without_siblings(sibling) })
        };
        whole.siblings = (0..count).map_while(sibling).collect();
        whole
    }

    /// # Safety
    /// As for [`Self::new`].
    unsafe fn without_siblings(module: *const Module) -> Self {
        // SAFETY: the module's own function, called with it; the name is there for as long as the module, and copied.
        let name = unsafe { ((*module).name)(module).text(usize::MAX) };
        // SAFETY: `function_import_count` is the module's own function, called with it, and the module is there (see # Safety).
        let count = unsafe { ((*module).function_import_count)(module) };
        let import = |index| {
            let (mut from, mut name) = (Bytes::EMPTY, Bytes::EMPTY);
            // SAFETY: the module's own function, called with it and with places for the results.
            let found = unsafe { ((*module).function_import)(module, index, &mut from, &mut name) };
            // SAFETY: the texts are there for as long as the module, and copied.
            found.then(|| unsafe { FunctionImport { module: from.text(usize::MAX), name: name.text(usize::MAX) } })
        };
        let imports = (0..count).map_while(import).collect();
        Self { module, lives: PhantomData, name, imports, siblings: Vec::new() }
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
        // SAFETY: the name is there for as long as the module, which stays for longer than `self`.
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
        // SAFETY: the module's own function, called with it and with a text and a place that are there for the call.
        let found = unsafe { ((*self.module).function_named)(self.module, Bytes::of(name.as_bytes()), &mut index) };
        found.then_some(index)
    }

    fn table_function(&self, table: u32, element: u64) -> Option<u32> {
        let mut function = 0;
        // SAFETY: the module's own function, called with it and with a place for the result.
        let found = unsafe { ((*self.module).table_function)(self.module, table, element, &mut function) };
        found.then_some(function)
    }

    fn initial_data(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        let (place, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the module's own function, called with it; it writes within the buffer.
        let found = unsafe { ((*self.module).initial_data)(self.module, address, place, length) };
        if found { Ok(()) } else { Err(OutOfBounds) }
    }

    fn code_hash(&self) -> Option<&[u8; 32]> {
        // SAFETY: the module's own function, called with it; the hash is there for as long as the module.
        unsafe { ((*self.module).code_hash)(self.module).get() }.try_into().ok()
    }

    fn siblings(&self) -> Vec<&dyn ModuleView> {
        self.siblings.iter().map(|sibling| sibling as &dyn ModuleView).collect()
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

    #[inline]
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), OutOfBounds> {
        if let Some(memory) = self.in_place() {
            let start = usize::try_from(address).map_err(|_| OutOfBounds)?;
            let end = start.checked_add(buffer.len()).ok_or(OutOfBounds)?;
            buffer.copy_from_slice(memory.get(start..end).ok_or(OutOfBounds)?);
            return Ok(());
        }
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

    #[inline]
    fn in_place(&self) -> Option<&[u8]> {
        let Guest { memory, memory_size, .. } = *self.0;
        // SAFETY: by the ABI, if `memory` is not null, `memory_size` bytes are there and stay as they are for this call.
        (!memory.is_null()).then(|| unsafe { std::slice::from_raw_parts(memory, memory_size as usize) })
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
        // SAFETY: `number` leads to a local variable of the method that asks.
        unsafe { number.write(7.into()) };
        true
    }

    unsafe extern "C" fn element(_: *const Module, _: u32, _: u64, function: *mut u32) -> bool {
        // SAFETY: `function` leads to a local variable of the method that asks.
        unsafe { function.write(7) };
        true
    }

    unsafe extern "C" fn data(_: *const Module, _: u64, buffer: *mut c_void, length: usize) -> bool {
        // SAFETY: `buffer` and `length` are those of the slice that is to be filled.
        unsafe { buffer.cast::<u8>().write_bytes(7, length) };
        true
    }

    unsafe extern "C" fn no_sibling(_: *const Module, _: u32) -> *const Module {
        std::ptr::null()
    }

    /// A module with others behind it on the same memory, of which there is one.
    #[repr(C)]
    struct Program {
        module: Module,
        library: Module,
    }

    unsafe extern "C" fn two(_: *const Module) -> u32 {
        2
    }

    unsafe extern "C" fn library(module: *const Module, index: u32) -> *const Module {
        // SAFETY: only the module of a `Program`, its first field, has this function, and is what it is called with.
        let library = unsafe { &raw const (*module.cast::<Program>()).library };
        if index == 0 { library } else { std::ptr::null() }
    }

    fn module() -> Module {
        Module {
            size: size_of::<Module>(),
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
            sibling_count: none,
            sibling: no_sibling,
        }
    }

    #[test]
    fn modules_answer_and_have_the_siblings_that_there_are() {
        let program =
            Program { module: Module { sibling_count: two, sibling: library, ..module() }, library: module() };
        // SAFETY: `program` lives until the end of the test, and its functions do what the ABI says.
        let program = unsafe { ForeignModule::new((&raw const program).cast()) };
        let mut buffer = [0; 2];
        assert_eq!(program.initial_data(0, &mut buffer), Ok(()));
        assert_eq!((buffer, program.code_hash()), ([7; 2], Some(&[b'h'; 32])));
        let siblings = program.siblings();
        let [library] = &siblings[..] else { panic!("{} siblings", siblings.len()) };
        assert_eq!((library.global_named(""), library.siblings().len()), (Some(7), 0));
    }

    unsafe extern "C" fn refused(_: *const Guest, _: u64, _: *mut c_void, _: usize) -> bool {
        false
    }

    unsafe extern "C" fn no_global(_: *const Guest, _: u32, _: *mut u64) -> bool {
        false
    }

    #[test]
    fn memory_is_read_in_place_where_it_can_be() {
        let memory = [1, 2, 3, 4, 5];
        let mut guest = Guest {
            size: size_of::<Guest>(),
            memory_size: 5,
            read: refused,
            global: no_global,
            memory: memory.as_ptr(),
        };
        let guest_in_place = ForeignGuest(&guest);
        assert_eq!((guest_in_place.read_u32(1), guest_in_place.in_place()), (Ok(0x0504_0302), Some(&memory[..])));
        assert_eq!(guest_in_place.read(5, &mut []), Ok(()));
        for address in [2, 5, u64::MAX - 3, u64::MAX] {
            assert_eq!(guest_in_place.read_u32(address), Err(OutOfBounds), "{address:#x}");
        }
        guest.memory = std::ptr::null();
        assert_eq!((ForeignGuest(&guest).read_u8(0), ForeignGuest(&guest).in_place()), (Err(OutOfBounds), None));
    }
}
