//! What plugins are given of wlprof: modules, guests and places to put what they find, behind the C ABI.
//!
//! Each is a structure of the ABI with what it stands for behind it. The functions get a pointer to the first and find the
//! second there.

use super::containment::in_host;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use wlprof_plugin::abi::{self, Bytes};
use wlprof_plugin::{GuestMemory, Label, ModuleView, SourceFrame};

/// The longest text that a plugin may give, in bytes; what is longer is cut.
const LONGEST_TEXT: usize = 1 << 16;
/// What one call of a plugin may give, in bytes of memory; what is more is left out.
const ROOM: usize = 64 << 20;
/// The most functions that a plugin may name for one frame, into which others were inlined; more are left out.
pub(super) const MOST_FRAMES: usize = 4096;

/// # Safety
/// The plugin's promise: the bytes are there for this call.
pub(super) unsafe fn text(bytes: Bytes) -> String {
    // SAFETY: the caller's promise.
    unsafe { bytes.text(LONGEST_TEXT) }
}

/// Takes what a plugin gives in one call, as far as there is room.
pub(super) struct Received<'a, T> {
    items: RefCell<&'a mut Vec<T>>,
    room: Cell<usize>,
}

impl<'a, T> Received<'a, T> {
    pub(super) fn new(items: &'a mut Vec<T>, room: usize) -> Self {
        Self { items: items.into(), room: room.into() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.items.borrow().len()
    }

    /// Takes one more, with these texts and as many other bytes in it.
    pub(super) fn take(&self, texts: &[Bytes], others: usize, item: impl FnOnce() -> T) {
        let texts: usize = texts.iter().map(|text| text.length.min(LONGEST_TEXT)).sum();
        if let Some(rest) = self.room.get().checked_sub(size_of::<T>() + texts + others) {
            self.room.set(rest);
            self.items.borrow_mut().push(item());
        }
    }
}

/// Receives texts.
#[repr(C)]
pub(super) struct HostTexts<'a> {
    pub(super) abi: abi::Texts,
    texts: Received<'a, String>,
}

impl<'a> HostTexts<'a> {
    pub(super) fn new(texts: &'a mut Vec<String>) -> Self {
        Self { abi: abi::Texts { size: size_of::<abi::Texts>(), add: add_text }, texts: Received::new(texts, ROOM) }
    }
}

unsafe extern "C" fn add_text(texts: *const abi::Texts, bytes: Bytes) {
    in_host(|| {
        // SAFETY: the plugin gives back what it was given.
        let texts = unsafe { &*texts.cast::<HostTexts<'_>>() };
        // SAFETY: the plugin's promise.
        texts.texts.take(&[bytes], 0, || unsafe { text(bytes) });
    })
}

/// A module.
#[repr(C)]
pub(super) struct HostModule<'a> {
    pub(super) abi: abi::Module,
    module: &'a dyn ModuleView,
}

impl<'a> HostModule<'a> {
    pub(super) fn new(module: &'a dyn ModuleView) -> Self {
        let abi = abi::Module {
            size: size_of::<abi::Module>(),
            name: module_name,
            bytes: module_bytes,
            custom_section,
            function_import_count,
            function_import,
            function_body,
            function_name,
            global_named,
            variable_address,
            member,
            type_size,
            enumerator,
            function_named,
            table_function,
            initial_data,
            code_hash,
        };
        Self { abi, module }
    }

    /// # Safety
    /// `module` must have come from [`HostModule::new`] and live.
    unsafe fn from_abi(module: *const abi::Module) -> &'a dyn ModuleView {
        // SAFETY: it is the first field of one.
        unsafe { (*module.cast::<Self>()).module }
    }
}

unsafe extern "C" fn module_name(module: *const abi::Module) -> Bytes {
    in_host(|| {
        // SAFETY: the plugin gives back what it was given, here and below, and places for results are its own.
        Bytes::of(unsafe { HostModule::from_abi(module) }.name().as_bytes())
    })
}

unsafe extern "C" fn module_bytes(module: *const abi::Module) -> Bytes {
    in_host(|| {
        // SAFETY: as above.
        Bytes::of(unsafe { HostModule::from_abi(module) }.bytes())
    })
}

unsafe extern "C" fn custom_section(module: *const abi::Module, name: Bytes, section: *mut Bytes) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        let found = module.custom_section(&name);
        // SAFETY: as above.
        found.is_some_and(|found| unsafe { put(section, Bytes::of(found)) })
    })
}

unsafe extern "C" fn function_import_count(module: *const abi::Module) -> u32 {
    in_host(|| {
        // SAFETY: as above.
        unsafe { HostModule::from_abi(module) }.function_imports().len() as u32
    })
}

unsafe extern "C" fn function_import(
    module: *const abi::Module,
    index: u32,
    from: *mut Bytes,
    name: *mut Bytes,
) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let imports = unsafe { HostModule::from_abi(module) }.function_imports();
        imports.get(index as usize).is_some_and(|import| {
            // SAFETY: as above.
            unsafe { put(from, Bytes::of(import.module.as_bytes())) && put(name, Bytes::of(import.name.as_bytes())) }
        })
    })
}

unsafe extern "C" fn function_body(module: *const abi::Module, index: u32, start: *mut u32, end: *mut u32) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let body = unsafe { HostModule::from_abi(module) }.function_body(index);
        // SAFETY: as above.
        body.is_some_and(|body| unsafe { put(start, body.start) && put(end, body.end) })
    })
}

unsafe extern "C" fn function_name(module: *const abi::Module, index: u32, name: *mut Bytes) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let found = unsafe { HostModule::from_abi(module) }.function_name(index);
        // SAFETY: as above.
        found.is_some_and(|found| unsafe { put(name, Bytes::of(found.as_bytes())) })
    })
}

unsafe extern "C" fn global_named(module: *const abi::Module, name: Bytes, index: *mut u32) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        // SAFETY: as above.
        module.global_named(&name).is_some_and(|found| unsafe { put(index, found) })
    })
}

unsafe extern "C" fn variable_address(module: *const abi::Module, name: Bytes, address: *mut u64) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        // SAFETY: as above.
        module.variable_address(&name).is_some_and(|found| unsafe { put(address, found) })
    })
}

unsafe extern "C" fn member(
    module: *const abi::Module,
    structure: Bytes,
    name: Bytes,
    member: *mut abi::Member,
) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, structure, name) = unsafe { (HostModule::from_abi(module), text(structure), text(name)) };
        // SAFETY: as above.
        module.member(&structure, &name).is_some_and(|found| unsafe { put(member, found.into()) })
    })
}

unsafe extern "C" fn type_size(module: *const abi::Module, name: Bytes, size: *mut u64) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        // SAFETY: as above.
        module.type_size(&name).is_some_and(|found| unsafe { put(size, found) })
    })
}

unsafe extern "C" fn enumerator(module: *const abi::Module, name: Bytes, value: *mut i64) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        // SAFETY: as above.
        module.enumerator(&name).is_some_and(|found| unsafe { put(value, found) })
    })
}

unsafe extern "C" fn function_named(module: *const abi::Module, name: Bytes, index: *mut u32) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let (module, name) = unsafe { (HostModule::from_abi(module), text(name)) };
        // SAFETY: as above.
        module.function_named(&name).is_some_and(|found| unsafe { put(index, found) })
    })
}

unsafe extern "C" fn table_function(module: *const abi::Module, table: u32, element: u64, function: *mut u32) -> bool {
    in_host(|| {
        // SAFETY: as above.
        let found = unsafe { HostModule::from_abi(module) }.table_function(table, element);
        // SAFETY: as above.
        found.is_some_and(|found| unsafe { put(function, found) })
    })
}

unsafe extern "C" fn initial_data(
    module: *const abi::Module,
    address: u64,
    buffer: *mut c_void,
    length: usize,
) -> bool {
    // What may have to be read first takes a lock. A buffer that is none is a crash, and that can be left after it.
    let module = in_host(|| {
        // SAFETY: as above.
        let module = unsafe { HostModule::from_abi(module) };
        let _ = module.initial_data(0, &mut []);
        module
    });
    // No slice may be longer.
    if buffer.is_null() || isize::try_from(length).is_err() {
        return false;
    }
    // SAFETY: the plugin's promise: there is room for as much. What is there is only written.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    module.initial_data(address, buffer).is_ok()
}

unsafe extern "C" fn code_hash(module: *const abi::Module) -> Bytes {
    in_host(|| {
        // SAFETY: as above.
        let hash = unsafe { HostModule::from_abi(module) }.code_hash();
        hash.map_or(Bytes::EMPTY, |hash| Bytes::of(hash))
    })
}

/// # Safety
/// `place` is a place for it, or null.
unsafe fn put<T>(place: *mut T, value: T) -> bool {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
    true
}

/// A stopped guest.
#[repr(C)]
pub(super) struct HostGuest<'a> {
    pub(super) abi: abi::Guest,
    guest: &'a dyn GuestMemory,
}

impl<'a> HostGuest<'a> {
    pub(super) fn new(guest: &'a dyn GuestMemory) -> Self {
        let abi = abi::Guest { size: size_of::<abi::Guest>(), memory_size: guest.size(), read, global };
        Self { abi, guest }
    }
}

unsafe extern "C" fn read(guest: *const abi::Guest, address: u64, buffer: *mut c_void, length: usize) -> bool {
    // SAFETY: the plugin gives back what it was given.
    let guest = unsafe { &*guest.cast::<HostGuest<'_>>() };
    // Before the buffer is believed to be of that length. Where it lies, the guest checks.
    if length as u64 > guest.abi.memory_size || buffer.is_null() {
        return false;
    }
    // SAFETY: the plugin's promise: there is room for as much. What is there is only written.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    guest.guest.read(address, buffer).is_ok()
}

unsafe extern "C" fn global(guest: *const abi::Guest, index: u32, value: *mut u64) -> bool {
    // SAFETY: the plugin gives back what it was given.
    let guest = unsafe { &*guest.cast::<HostGuest<'_>>() };
    // SAFETY: as above, and the place is its own.
    guest.guest.global(index).is_some_and(|found| unsafe { put(value, found) })
}

/// Receives source frames.
#[repr(C)]
pub(super) struct HostFrames<'a> {
    pub(super) abi: abi::SourceFrames,
    frames: Received<'a, SourceFrame>,
    is_full: Cell<bool>,
}

impl<'a> HostFrames<'a> {
    pub(super) fn new(frames: &'a mut Vec<SourceFrame>) -> Self {
        let abi = abi::SourceFrames { size: size_of::<abi::SourceFrames>(), add: add_frame };
        Self { abi, frames: Received::new(frames, ROOM), is_full: false.into() }
    }

    /// Whether there were more than are taken.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.get()
    }
}

unsafe extern "C" fn add_frame(frames: *const abi::SourceFrames, frame: *const abi::SourceFrame) {
    // SAFETY: the plugin gives back what it was given. At once: it may give millions.
    if unsafe { (*frames.cast::<HostFrames<'_>>()).is_full() } {
        return;
    }
    in_host(|| {
        // SAFETY: the plugin gives back what it was given, and a frame that is there for this call.
        let (frames, frame) = unsafe { (&*frames.cast::<HostFrames<'_>>(), &*frame) };
        if frames.frames.count() == MOST_FRAMES {
            return frames.is_full.set(true);
        }
        let wanted = size_of::<abi::SourceFrame>();
        if frame.size < wanted {
            let function = format!("[a wlprof_source_frame_t with a size of {} instead of {wanted}]", frame.size);
            return frames.frames.take(&[], 0, || SourceFrame { function, ..SourceFrame::default() });
        }
        let texts = [frame.function, frame.linkage_name, frame.file];
        // SAFETY: as above.
        frames.frames.take(&texts, 0, || unsafe { frame.get(LONGEST_TEXT) });
    })
}

/// Receives labels.
#[repr(C)]
pub(super) struct HostLabels<'a> {
    pub(super) abi: abi::Labels,
    labels: Received<'a, Label>,
}

impl<'a> HostLabels<'a> {
    pub(super) fn new(labels: &'a mut Vec<Label>) -> Self {
        let abi = abi::Labels { size: size_of::<abi::Labels>(), add: add_label };
        Self { abi, labels: Received::new(labels, ROOM) }
    }
}

unsafe extern "C" fn add_label(labels: *const abi::Labels, name: Bytes, value: Bytes) {
    in_host(|| {
        // SAFETY: the plugin gives back what it was given, and texts that are there for this call.
        let labels = unsafe { &*labels.cast::<HostLabels<'_>>() };
        // SAFETY: as above.
        labels.labels.take(&[name, value], 0, || unsafe { Label { name: text(name), value: text(value) } });
    })
}
