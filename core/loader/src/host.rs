//! What plugins are given of wlprof: modules, guests and places to put what they find, behind the C ABI.
//!
//! Each is a structure of the ABI with what it stands for behind it. The functions get a pointer to the first and find the
//! second there.

use super::containment::in_host;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::Range;
use wlprof_plugin::abi::{self, Bytes};
use wlprof_plugin::{FunctionImport, GuestMemory, Label, ModuleView, SourceFrame};

/// The longest text that a plugin may give, in bytes; what is longer is cut.
const LONGEST_TEXT: usize = 1 << 16;
/// What one call of a plugin may give, in bytes of memory; what is more is left out.
const ROOM: usize = 64 << 20;
/// The most functions that a plugin may name for one frame, into which others were inlined; more are left out.
pub(super) const MOST_FRAMES: usize = 4096;

/// # Safety
/// `bytes` must be there, unchanged, until this returns.
pub(super) unsafe fn text(bytes: Bytes) -> String {
    // SAFETY: the bytes are there, unchanged, until this returns (see # Safety).
    unsafe { bytes.text(LONGEST_TEXT) }
}

/// Takes what a plugin gives in one call, as far as there is room.
pub(super) struct Receiver<'a, T> {
    items: RefCell<&'a mut Vec<T>>,
    room: Cell<usize>,
    /// Something was left out.
    is_short: Cell<bool>,
}

impl<'a, T> Receiver<'a, T> {
    pub(super) fn new(items: &'a mut Vec<T>, room: usize) -> Self {
        Self { items: items.into(), room: room.into(), is_short: false.into() }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether there was no room for something.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// Takes one more, with these texts and as many other bytes in it.
    pub(super) fn take(&self, texts: &[Bytes], others: usize, item: impl FnOnce() -> T) {
        let texts: usize = texts.iter().map(|text| text.length.min(LONGEST_TEXT)).sum();
        if let Some(rest) = self.room.get().checked_sub(size_of::<T>() + texts + others) {
            self.room.set(rest);
            self.items.borrow_mut().push(item());
        } else {
            self.is_short.set(true);
        }
    }
}

/// Receives texts.
#[repr(C)]
pub(super) struct HostTexts<'a> {
    pub(super) abi: abi::Texts,
    texts: Receiver<'a, String>,
}

impl<'a> HostTexts<'a> {
    pub(super) fn new(texts: &'a mut Vec<String>) -> Self {
        Self { abi: abi::Texts { size: size_of::<abi::Texts>(), add: add_text }, texts: Receiver::new(texts, ROOM) }
    }
}

unsafe extern "C" fn add_text(texts: *const abi::Texts, bytes: Bytes) {
    in_host(|| {
        // SAFETY: by the ABI `texts` is what the plugin was given for the call that goes on: the first field of a `HostTexts` that lives.
        let texts = unsafe { &*texts.cast::<HostTexts<'_>>() };
        // SAFETY: by the ABI the text is there for this call.
        texts.texts.take(&[bytes], 0, || unsafe { text(bytes) });
    })
}

/// A module.
#[repr(C)]
pub(super) struct HostModule<'a> {
    pub(super) abi: abi::Module,
    module: &'a dyn ModuleView,
    siblings: Vec<HostModule<'a>>,
}

impl<'a> HostModule<'a> {
    pub(super) fn new(module: &'a dyn ModuleView) -> Self {
        let siblings = module.siblings().into_iter().map(Self::without_siblings).collect();
        Self { siblings, ..Self::without_siblings(module) }
    }

    fn without_siblings(module: &'a dyn ModuleView) -> Self {
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
            sibling_count,
            sibling,
        };
        Self { abi, module, siblings: Vec::new() }
    }
}

/// Answers what a plugin asks of `module`, inside wlprof: it may take a lock.
///
/// # Safety
/// * `module` must be what the plugin was given, within the call that it was given for: the first field of a [`HostModule`] that lives.
/// * Texts that `answer` reads must be there until this returns.
/// * Places that `answer` writes to must be the plugin's own, or null.
/// * What `answer` gives must not be used for longer than the module is there.
unsafe fn ask<'a, T: Copy>(module: *const abi::Module, answer: impl FnOnce(&'a dyn ModuleView) -> T) -> T {
    // SAFETY: `module` is the first field of a `HostModule` that lives (see # Safety).
    in_host(|| answer(unsafe { (*module.cast::<HostModule<'a>>()).module }))
}

/// Puts into `place` what `answer` finds; whether it does.
///
/// # Safety
/// As for [`ask`].
unsafe fn find<'a, T>(
    module: *const abi::Module,
    place: *mut T,
    answer: impl FnOnce(&'a dyn ModuleView) -> Option<T>,
) -> bool {
    // SAFETY: `module` is the first field of a `HostModule` that lives, and `place` is the plugin's own, or null (see # Safety).
    unsafe { ask(module, |module| answer(module).is_some_and(|found| put(place, found))) }
}

/// The same with something that has a name.
///
/// # Safety
/// As for [`ask`].
unsafe fn find_named<'a, T>(
    module: *const abi::Module,
    name: Bytes,
    place: *mut T,
    answer: impl FnOnce(&'a dyn ModuleView, &str) -> Option<T>,
) -> bool {
    // SAFETY: `module` is the first field of a `HostModule` that lives, `place` is the plugin's own, or null, and `name` is there until
    // this returns (see # Safety).
    unsafe { find(module, place, |module| answer(module, &text(name))) }
}

unsafe extern "C" fn module_name(module: *const abi::Module) -> Bytes {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on. The name lives as long as the module.
    unsafe { ask(module, |module| Bytes::of(module.name().as_bytes())) }
}

unsafe extern "C" fn module_bytes(module: *const abi::Module) -> Bytes {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on. The bytes live as long as the module.
    unsafe { ask(module, |module| Bytes::of(module.bytes())) }
}

unsafe extern "C" fn custom_section(module: *const abi::Module, name: Bytes, section: *mut Bytes) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null. The section lives as long as the module.
    unsafe { find_named(module, name, section, |module, name| module.custom_section(name).map(Bytes::of)) }
}

unsafe extern "C" fn function_import_count(module: *const abi::Module) -> u32 {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on.
    unsafe { ask(module, |module| module.function_imports().len() as u32) }
}

unsafe extern "C" fn function_import(
    module: *const abi::Module,
    index: u32,
    from: *mut Bytes,
    name: *mut Bytes,
) -> bool {
    let put_both = |import: &FunctionImport| {
        // SAFETY: by the ABI both places are the plugin's own, or null.
        unsafe { put(from, Bytes::of(import.module.as_bytes())) && put(name, Bytes::of(import.name.as_bytes())) }
    };
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on. The names live as long as the module.
    unsafe { ask(module, |module| module.function_imports().get(index as usize).is_some_and(put_both)) }
}

unsafe extern "C" fn function_body(module: *const abi::Module, index: u32, start: *mut u32, end: *mut u32) -> bool {
    // SAFETY: by the ABI both places are the plugin's own, or null.
    let put_both = |body: Range<u32>| unsafe { put(start, body.start) && put(end, body.end) };
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on.
    unsafe { ask(module, |module| module.function_body(index).is_some_and(put_both)) }
}

unsafe extern "C" fn function_name(module: *const abi::Module, index: u32, name: *mut Bytes) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, and the place is the plugin's own, or null.
    // The name lives as long as the module.
    unsafe { find(module, name, |module| module.function_name(index).map(|name| Bytes::of(name.as_bytes()))) }
}

unsafe extern "C" fn global_named(module: *const abi::Module, name: Bytes, index: *mut u32) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null.
    unsafe { find_named(module, name, index, |module, name| module.global_named(name)) }
}

unsafe extern "C" fn variable_address(module: *const abi::Module, name: Bytes, address: *mut u64) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null.
    unsafe { find_named(module, name, address, |module, name| module.variable_address(name)) }
}

unsafe extern "C" fn member(
    module: *const abi::Module,
    structure: Bytes,
    name: Bytes,
    member: *mut abi::Member,
) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, both names are there, and the place is the
    // plugin's own, or null.
    unsafe {
        find_named(module, name, member, |module, name| module.member(&text(structure), name).map(abi::Member::from))
    }
}

unsafe extern "C" fn type_size(module: *const abi::Module, name: Bytes, size: *mut u64) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null.
    unsafe { find_named(module, name, size, |module, name| module.type_size(name)) }
}

unsafe extern "C" fn enumerator(module: *const abi::Module, name: Bytes, value: *mut i64) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null.
    unsafe { find_named(module, name, value, |module, name| module.enumerator(name)) }
}

unsafe extern "C" fn function_named(module: *const abi::Module, name: Bytes, index: *mut u32) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, the name is there, and the place is the
    // plugin's own, or null.
    unsafe { find_named(module, name, index, |module, name| module.function_named(name)) }
}

unsafe extern "C" fn table_function(module: *const abi::Module, table: u32, element: u64, function: *mut u32) -> bool {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on, and the place is the plugin's own, or null.
    unsafe { find(module, function, |module| module.table_function(table, element)) }
}

unsafe extern "C" fn initial_data(
    module: *const abi::Module,
    address: u64,
    buffer: *mut c_void,
    length: usize,
) -> bool {
    // What may have to be read first takes a lock. A buffer that is none is a crash, and that can be left after it.
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on. That does not end before this function, which
    // uses what `ask` gives.
    let module = unsafe {
        ask(module, |module| {
            let _ = module.initial_data(0, &mut []);
            module
        })
    };
    // No slice may be longer.
    if buffer.is_null() || isize::try_from(length).is_err() {
        return false;
    }
    // SAFETY: by the ABI there is room for `length` bytes, which is no more than a slice may have (checked). What is there is only written.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    module.initial_data(address, buffer).is_ok()
}

unsafe extern "C" fn code_hash(module: *const abi::Module) -> Bytes {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on. The hash lives as long as the module.
    unsafe { ask(module, |module| module.code_hash().map_or(Bytes::EMPTY, |hash| Bytes::of(hash))) }
}

unsafe extern "C" fn sibling_count(module: *const abi::Module) -> u32 {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on: the first field of a `HostModule` that lives.
    unsafe { (*module.cast::<HostModule<'_>>()).siblings.len() as u32 }
}

unsafe extern "C" fn sibling(module: *const abi::Module, index: u32) -> *const abi::Module {
    // SAFETY: by the ABI `module` is one that the plugin was given for the call that goes on: the first field of a `HostModule` that lives.
    let siblings = unsafe { &(*module.cast::<HostModule<'_>>()).siblings };
    // The whole of it, not only what the ABI says: that is where the module is found again.
    siblings.get(index as usize).map_or(std::ptr::null(), |sibling| std::ptr::from_ref(sibling).cast())
}

/// # Safety
/// `place` must be null, or a place where a `T` may be written.
unsafe fn put<T>(place: *mut T, value: T) -> bool {
    if !place.is_null() {
        // SAFETY: `place` is not null, so a `T` may be written there (see # Safety).
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
        let (memory_size, in_place) = (guest.size(), guest.in_place());
        let whole = in_place.filter(|memory| memory.len() as u64 == memory_size);
        let memory = whole.map_or(std::ptr::null(), <[u8]>::as_ptr);
        Self { abi: abi::Guest { size: size_of::<abi::Guest>(), memory_size, read, global, memory }, guest }
    }
}

unsafe extern "C" fn read(guest: *const abi::Guest, address: u64, buffer: *mut c_void, length: usize) -> bool {
    // SAFETY: by the ABI `guest` is what the plugin was given for the call that goes on: the first field of a `HostGuest` that lives.
    let guest = unsafe { &*guest.cast::<HostGuest<'_>>() };
    // Before the buffer is believed to be of that length. Where it lies, the guest checks.
    if length as u64 > guest.abi.memory_size || buffer.is_null() {
        return false;
    }
    // SAFETY: by the ABI there is room for `length` bytes, which is no more than the guest's memory (checked). What is there is only
    // written.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    guest.guest.read(address, buffer).is_ok()
}

unsafe extern "C" fn global(guest: *const abi::Guest, index: u32, value: *mut u64) -> bool {
    // SAFETY: by the ABI `guest` is what the plugin was given for the call that goes on: the first field of a `HostGuest` that lives.
    let guest = unsafe { &*guest.cast::<HostGuest<'_>>() };
    // SAFETY: by the ABI the place is the plugin's own, or null.
    guest.guest.global(index).is_some_and(|found| unsafe { put(value, found) })
}

/// Receives source frames.
#[repr(C)]
pub(super) struct HostFrames<'a> {
    pub(super) abi: abi::SourceFrames,
    frames: Receiver<'a, SourceFrame>,
    is_full: Cell<bool>,
}

impl<'a> HostFrames<'a> {
    pub(super) fn new(frames: &'a mut Vec<SourceFrame>) -> Self {
        let abi = abi::SourceFrames { size: size_of::<abi::SourceFrames>(), add: add_frame };
        Self { abi, frames: Receiver::new(frames, ROOM), is_full: false.into() }
    }

    /// Whether there were more than are taken.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.get()
    }
}

unsafe extern "C" fn add_frame(frames: *const abi::SourceFrames, frame: *const abi::SourceFrame) {
    // SAFETY: by the ABI `frames` is what the plugin was given for the call that goes on: the first field of a `HostFrames` that lives.
    // This comes first, since a plugin may give millions.
    if unsafe { (*frames.cast::<HostFrames<'_>>()).is_full() } {
        return;
    }
    in_host(|| {
        // SAFETY: by the ABI `frames` is what the plugin was given for the call that goes on, and `frame` is there for this call.
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
        // SAFETY: by the ABI the texts of a frame are there for this call.
        frames.frames.take(&texts, 0, || unsafe { frame.get(LONGEST_TEXT) });
    })
}

/// Receives labels.
#[repr(C)]
pub(super) struct HostLabels<'a> {
    pub(super) abi: abi::Labels,
    labels: Receiver<'a, Label>,
}

impl<'a> HostLabels<'a> {
    pub(super) fn new(labels: &'a mut Vec<Label>) -> Self {
        let abi = abi::Labels { size: size_of::<abi::Labels>(), add: add_label };
        Self { abi, labels: Receiver::new(labels, ROOM) }
    }
}

unsafe extern "C" fn add_label(labels: *const abi::Labels, name: Bytes, value: Bytes) {
    in_host(|| {
        // SAFETY: by the ABI `labels` is what the plugin was given for the call that goes on: the first field of a `HostLabels` that lives.
        let labels = unsafe { &*labels.cast::<HostLabels<'_>>() };
        // SAFETY: by the ABI both texts are there for this call.
        labels.labels.take(&[name, value], 0, || unsafe { Label { name: text(name), value: text(value) } });
    })
}
