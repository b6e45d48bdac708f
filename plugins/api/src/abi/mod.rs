//! The C ABI between wlprof and plugins that are dynamic libraries.
//!
//! # Versions
//! A library exports one symbol, `wlprof_plugin`, a constant [`Plugin`]. It begins with a magic number and the version of
//! the ABI, which wlprof reads from the file before it loads the library. Another [`ABI_MAJOR`] is refused. Within a major
//! version structures that say their size grow at their end, and no others: whoever is given one looks at no field beyond
//! its size, and takes what is not there as missing. Functions that may be missing are null then; it is said where.
//!
//! # Ownership
//! Whoever makes something frees it. Texts and structures given to a function are borrowed for that call, unless it says
//! otherwise; the other side copies what it keeps.
//!
//! # Threads
//! Calls into one [`Program`] never overlap, nor do those into one [`Walker`]. Calls into different ones may, and into a program
//! and its walkers. [`Walker::walk`] runs in a signal handler on the guest's thread, which stands still in the middle of an
//! instruction: no input or output, no lock that anything outside the plugin takes, bounded time, at most 200 KiB of stack. It
//! may allocate memory if [`Stack::may_allocate`] says so. It waits for no lock that it shares with other walkers or with the
//! program, but ends with [`WALK_END_BUSY`]: whoever holds the lock may have been interrupted. [`Walker::threads`], and
//! [`Program::symbolize`] and [`Program::labels`] when the user asks for the stacks of a running guest, may run there as well:
//! they may take longer and allocate, but touch no files. All else runs as ordinary code.
//!
//! # Errors
//! Functions return what went wrong. Nothing may unwind or jump through a function of the other side.

mod convert;
mod export;
mod export_heap;
mod guest;
mod heap;

pub use convert::{
    allocator_call_number, allocator_call_of, category_number, category_of, walk_end_number, walk_end_of,
};
pub use export::{ExportedLanguage, LanguagePointer, plugin, pointers};
pub use heap::*;

use std::ffi::c_void;

/// The symbol that a library exports.
pub const PLUGIN_SYMBOL: &str = "wlprof_plugin";
/// First field of what it exports: `wlprofpl` in ASCII, as a little-endian number.
pub const PLUGIN_MAGIC: u64 = 0x6c70_666f_7270_6c77;
const _: () = assert!(u64::from_le_bytes(*b"wlprofpl") == PLUGIN_MAGIC);
/// Raised when something changes that an older side would misread.
pub const ABI_MAJOR: u32 = 1;
/// Raised when something is added.
pub const ABI_MINOR: u32 = 0;

/// Bytes, UTF-8 where they are text. Not terminated by anything.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first one; may be null if there are none.
    pub data: *const u8,
    /// How many there are.
    pub length: usize,
}

impl Bytes {
    /// None.
    pub const EMPTY: Self = Self { data: std::ptr::null(), length: 0 };

    /// Those of `bytes`, for as long as that lives.
    pub const fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), length: bytes.len() }
    }

    /// The first `longest` of them at most.
    #[must_use]
    fn cut(self, longest: usize) -> Self {
        Self { length: self.length.min(longest), ..self }
    }

    /// The bytes themselves.
    ///
    /// # Safety
    /// They must be there and unchanged for as long as `'a`.
    pub unsafe fn get<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: `data` is not null, so `length` bytes are there, unchanged for as long as `'a` (see # Safety).
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }

    /// The bytes as text, without what is not UTF-8 and what is behind the first `longest` of them. Of a text that cannot be
    /// as long as it says nothing is read.
    ///
    /// # Safety
    /// As for [`Bytes::get`].
    pub unsafe fn text(self, longest: usize) -> String {
        const LONGEST_CLAIM: usize = 1 << 32;
        if self.length > LONGEST_CLAIM {
            return format!("[a text of {} bytes]", self.length);
        }
        // SAFETY: the bytes are there and unchanged (see # Safety), and of them no more than `longest` are read.
        String::from_utf8_lossy(unsafe { self.cut(longest).get() }).into_owned()
    }
}

/// What a library exports.
#[repr(C)]
#[derive(Debug)]
pub struct Plugin {
    /// [`PLUGIN_MAGIC`].
    pub magic: u64,
    /// [`ABI_MAJOR`] of the header that the library was built with.
    pub abi_major: u32,
    /// [`ABI_MINOR`] of that header.
    pub abi_minor: u32,
    /// Size of this structure in bytes.
    pub size: usize,
    /// What it is called.
    pub name: Bytes,
    /// Its own version.
    pub version: Bytes,
    /// Its languages.
    pub languages: *const *const Language,
    /// How many there are.
    pub language_count: usize,
}

// SAFETY: it is constant, and what it points to is as well.
unsafe impl Sync for Plugin {}

/// A language that a plugin knows.
#[repr(C)]
#[derive(Debug)]
pub struct Language {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The name that `--lang` takes, lower case.
    pub name: Bytes,
    /// Whether a module is in this language: one of `DETECTION_…`. `answer` gets what was found, and after that, if that
    /// is not supported, what is.
    pub detect:
        Option<unsafe extern "C" fn(language: *const Language, module: *const Module, answer: *const Texts) -> u32>,
    /// Reads what never changes of a module. Null if that fails; `error` gets the reason, in a sentence for the user.
    pub attach: Option<
        unsafe extern "C" fn(language: *const Language, module: *const Module, error: *const Texts) -> *mut Program,
    >,
    /// Tells `library` where its programs look for their library, if there is such a place, and after that by which files it
    /// is known, as paths in it: one of them has to be there. May be missing.
    pub library_folder: Option<unsafe extern "C" fn(language: *const Language, library: *const Texts)>,
}

// SAFETY: it is constant, and what it points to is as well.
unsafe impl Sync for Language {}

/// Another language.
pub const DETECTION_NO: u32 = 0;
/// This one, and the module can be attached.
pub const DETECTION_YES: u32 = 1;
/// This one, in a form that the plugin cannot walk.
pub const DETECTION_UNSUPPORTED: u32 = 2;
/// The plugin failed in a way that it did not expect.
pub const DETECTION_FAILED: u32 = 3;

/// Receives texts. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct Texts {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more text.
    pub add: unsafe extern "C" fn(texts: *const Texts, text: Bytes),
}

/// A module of the guest. It is wlprof's; what its functions give is valid for the call that it was given to.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// Size of this structure in bytes.
    pub size: usize,
    /// How it is called in profiles.
    pub name: unsafe extern "C" fn(module: *const Module) -> Bytes,
    /// All of it, in binary form.
    pub bytes: unsafe extern "C" fn(module: *const Module) -> Bytes,
    /// The payload of the first custom section of that name, debug sections in a file of their own included. `false` if
    /// there is none.
    pub custom_section: unsafe extern "C" fn(module: *const Module, name: Bytes, section: *mut Bytes) -> bool,
    /// How many functions it imports. They have the first indices.
    pub function_import_count: unsafe extern "C" fn(module: *const Module) -> u32,
    /// Module and name of an import. `false` past the end.
    pub function_import:
        unsafe extern "C" fn(module: *const Module, index: u32, from: *mut Bytes, name: *mut Bytes) -> bool,
    /// Where a function's body begins and ends, in offsets from the start of the code section's payload. `false` for
    /// imports and past the end.
    pub function_body: unsafe extern "C" fn(module: *const Module, index: u32, start: *mut u32, end: *mut u32) -> bool,
    /// A function's name from the name section or an export, undemangled. `false` if it has none.
    pub function_name: unsafe extern "C" fn(module: *const Module, index: u32, name: *mut Bytes) -> bool,
    /// Index of the global that is exported by that name, or else called so in the name section, or else imported by that
    /// name, whatever it is imported from: `__memory_base`. `false` if there is none.
    pub global_named: unsafe extern "C" fn(module: *const Module, name: Bytes, index: *mut u32) -> bool,
    /// By the module's DWARF, the address in the guest's memory of a global or static variable. `false` without DWARF and if
    /// it has none of that name.
    pub variable_address: unsafe extern "C" fn(module: *const Module, name: Bytes, address: *mut u64) -> bool,
    /// By the module's DWARF, where a member lies in a structure: `structure` is its tag or a `typedef`, `name` the member's
    /// name. Members of members have dots in their names.
    pub member: unsafe extern "C" fn(module: *const Module, structure: Bytes, name: Bytes, member: *mut Member) -> bool,
    /// By the module's DWARF, the size in bytes of a type: a tag, or a `typedef`.
    pub type_size: unsafe extern "C" fn(module: *const Module, name: Bytes, size: *mut u64) -> bool,
    /// By the module's DWARF, the value of an enumerator.
    pub enumerator: unsafe extern "C" fn(module: *const Module, name: Bytes, value: *mut i64) -> bool,
    /// Index of the function that is called so by `function_name`, or else exported so; the first of several. `false` if there
    /// is none.
    pub function_named: unsafe extern "C" fn(module: *const Module, name: Bytes, index: *mut u32) -> bool,
    /// The function that an element of a table is before the module runs, by its active element segments: what a function
    /// pointer is, in table 0 for C. `false` if nothing is there, or where it is is not a constant.
    pub table_function:
        unsafe extern "C" fn(module: *const Module, table: u32, element: u64, function: *mut u32) -> bool,
    /// Copies `length` bytes that the first memory has at `address` before the guest runs to `buffer`: those of the active data
    /// segments of all modules that work on it, and zeroes where there are none; segments whose place is not a constant, and
    /// passive ones, are not seen. `false` if any of them is outside of what that memory begins with.
    pub initial_data:
        unsafe extern "C" fn(module: *const Module, address: u64, buffer: *mut c_void, length: usize) -> bool,
    /// SHA-256 of the code section's payload, 32 bytes: which build this is, even if it is stripped.
    pub code_hash: unsafe extern "C" fn(module: *const Module) -> Bytes,
    /// How many other modules work on the same memory.
    pub sibling_count: unsafe extern "C" fn(module: *const Module) -> u32,
    /// One of them, from 0 on: frames in it have its index plus 1 as [`WasmFrame::module`]. Null past the end. A sibling has none
    /// itself.
    pub sibling: unsafe extern "C" fn(module: *const Module, index: u32) -> *const Module,
}

/// Where a member lies in its structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its offset in bytes; for a bit-field, that of the unit that it is stored in.
    pub offset: u64,
    /// Its size in bytes, or that of the unit. 0 for a flexible array.
    pub size: u64,
    /// Of a bit-field: its lowest bit in the unit.
    pub first_bit: u32,
    /// Of a bit-field: how many bits it has. 0 if it is none.
    pub bit_count: u32,
}

/// What a language knows of one module: it makes the walkers of its instances and names what they find. Made by
/// [`Language::attach`]; a plugin puts what it needs behind it. It is destroyed after all its walkers.
#[repr(C)]
#[derive(Debug)]
pub struct Program {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Indices of the globals that [`Walker::walk`] reads, of the attached module, those that it imports included; they stay while
    /// the program does.
    pub wanted_globals: *const u32,
    /// How many there are.
    pub wanted_global_count: usize,
    /// Ends the program and frees it. May be missing, as may all that follow.
    pub destroy: Option<unsafe extern "C" fn(program: *mut Program)>,
    /// Makes a walker for instances of the module, on a memory of their own. It takes microseconds: what was read of the module is
    /// shared. A key means the same to the program and all its walkers, also when these are destroyed. Null, or missing, if stacks
    /// are the wasm stack, and only named by the plugin.
    pub walker: Option<unsafe extern "C" fn(program: *mut Program) -> *mut Walker>,
    /// Tells `frames` what a frame is: innermost inlined function first, the function itself last, nothing if it is unknown.
    /// Asked once of each of its own frames that was sampled; and of wasm frames, before DWARF is.
    pub symbolize: Option<unsafe extern "C" fn(program: *mut Program, frame: FrameKey, frames: *const SourceFrames)>,
    /// A category of `CATEGORY_…` for a wasm frame that DWARF or the name section has named, or [`CATEGORY_UNKNOWN`]; frames
    /// that `symbolize` names say theirs themselves.
    pub categorize: Option<unsafe extern "C" fn(program: *mut Program, frame: *const SourceFrame) -> u32>,
    /// Tells `labels` what the labels of a key are. Asked once of each key.
    pub labels: Option<unsafe extern "C" fn(program: *mut Program, key: u64, labels: *const Labels)>,
    /// Tells `warnings` what could not be read so far, in sentences for the user.
    pub warnings: Option<unsafe extern "C" fn(program: *mut Program, warnings: *const Texts)>,
    /// Tells `allocators` by which functions the program allocates, if those that C's library has by their usual names are not
    /// there, or are not all: of an interpreter without names, or with an allocator of its own above C's. They take the place of
    /// C's. Tells `missed` what of the program's allocations will not be seen even so, in sentences for the user. Asked where they
    /// are wanted, with the module that was attached. Of functions that call each other through tables, only those called as
    /// `realloc` may be among them together with what they call.
    pub allocators: Option<
        unsafe extern "C" fn(
            program: *mut Program,
            module: *const Module,
            allocators: *const Allocators,
            missed: *const Texts,
        ),
    >,
    /// Tells `patches` what to write into the guest's memory before it runs for its runtime's own heap profiler to sample an
    /// allocation each `rate` bytes, 1 for every one. Nothing if it has none that can be switched on, or the guest does so
    /// itself.
    pub switch_heap_profiler_on:
        Option<unsafe extern "C" fn(program: *mut Program, rate: u64, patches: *const MemoryPatches)>,
}

/// Reads the stacks of the instances that work on one memory. Made by [`Program::walker`]; a plugin puts what it needs behind it.
#[repr(C)]
#[derive(Debug)]
pub struct Walker {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Of `WALKER_…`.
    pub flags: u32,
    /// Ends the walker and frees it. May be missing.
    pub destroy: Option<unsafe extern "C" fn(walker: *mut Walker)>,
    /// Reads the stack of a stopped guest into `stack`, leaf first, and gives one of `WALK_END_…`. `wasm` is the wasm stack,
    /// leaf first, of `wasm_count` frames: it may be empty, and is cut at 2048. If no frame is written, the wasm stack stands
    /// in.
    pub walk: Option<
        unsafe extern "C" fn(
            walker: *mut Walker,
            guest: *const Guest,
            wasm: *const WasmFrame,
            wasm_count: usize,
            stack: *mut Stack,
        ) -> u32,
    >,
    /// Tells `threads` of every thread of a stopped guest. May be missing: what `walk` gives is shown then, with its labels, of
    /// which one called `state` says what the guest does.
    pub threads: Option<
        unsafe extern "C" fn(
            walker: *mut Walker,
            guest: *const Guest,
            wasm: *const WasmFrame,
            wasm_count: usize,
            threads: *const Threads,
        ),
    >,
    /// Tells `buckets` what the runtime's own heap profiler has counted so far, and writes how many bytes are allocated between
    /// two of its samples, on average: what the program has set, if it has; 0 if it takes none. Gives one of `WALK_END_…`: what
    /// `buckets` was told is dropped if that is not [`WALK_END_COMPLETE`]. Called in a host call of the guest's or after its
    /// last instruction: it may take milliseconds and allocate. May be missing.
    pub heap_profile: Option<
        unsafe extern "C" fn(
            walker: *mut Walker,
            guest: *const Guest,
            buckets: *const HeapBuckets,
            rate: *mut u64,
        ) -> u32,
    >,
}

/// `walk` keeps to [`Stack::may_allocate`].
pub const WALKER_WALKS_WITHOUT_ALLOCATING: u32 = 1;

/// A stopped guest. It is wlprof's, and valid for the call that it was given to.
#[repr(C)]
#[derive(Debug)]
pub struct Guest {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Size of its memory in bytes.
    pub memory_size: u64,
    /// Copies `length` bytes at `address` to `buffer`. `false` if any of them is outside the memory; `buffer` is unspecified
    /// then.
    pub read: unsafe extern "C" fn(guest: *const Guest, address: u64, buffer: *mut c_void, length: usize) -> bool,
    /// The value of a wanted global, an i32 zero-extended. `false` if there is none.
    pub global: unsafe extern "C" fn(guest: *const Guest, index: u32, value: *mut u64) -> bool,
    /// The memory itself, `memory_size` bytes to be read in place during this call: what `read` does, without the call. Null where
    /// only `read` can. Never to be written.
    pub memory: *const u8,
}

/// A frame of the wasm stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WasmFrame {
    /// The module: 0 is the one that was attached, and any other its sibling with that number less 1.
    pub module: u32,
    /// The function's index in the module, imports first.
    pub function: u32,
    /// Where the frame stands, as an offset from the start of the code section's payload, the address space of wasm DWARF:
    /// the interrupted instruction (leaf) or the call instruction, not the one it returns to.
    pub code_offset: u32,
}

/// Room for one stack.
#[repr(C)]
#[derive(Debug)]
pub struct Stack {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Where frames go, leaf first.
    pub frames: *mut StackFrame,
    /// How many there is room for: 2048. What does not fit is left out at the root, and the walk ends with
    /// [`WALK_END_TOO_DEEP`]; or in the middle, with a frame of [`FRAME_KIND_ELIDED`] there.
    pub capacity: usize,
    /// How many there are. The plugin counts them.
    pub length: usize,
    /// A key for what else the stack belongs to, which [`Program::labels`] spells out later.
    pub labels: u64,
    /// Whether there is one: not 0 if so.
    pub has_labels: u8,
    /// Whether memory may be allocated and freed during this walk.
    pub may_allocate: bool,
    /// Where more such keys go: the stack has the labels of all of them.
    pub label_keys: *mut u64,
    /// How many of them there is room for.
    pub label_capacity: usize,
    /// How many of them there are. The plugin counts them.
    pub label_count: usize,
}

/// A frame in a [`Stack`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackFrame {
    /// One of `FRAME_KIND_…`.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// The plugin's own key, or the index in the wasm stack; zero for what is elided.
    pub value: u64,
}

/// What identifies a frame until it is named.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FrameKey {
    /// One of `FRAME_KIND_…`.
    pub kind: u32,
    /// The wasm frame, if it is one; else zeroes.
    pub wasm: WasmFrame,
    /// The plugin's own key, if it is that; else zero.
    pub value: u64,
}

/// The plugin's own, known by a key. Equal keys are equal frames.
pub const FRAME_KIND_OWN: u32 = 0;
/// A wasm frame.
pub const FRAME_KIND_WASM: u32 = 1;
/// Frames that the plugin left out, one or many: shown as `[elided]`, and not asked about.
pub const FRAME_KIND_ELIDED: u32 = 2;

/// At the root.
pub const WALK_END_COMPLETE: u32 = 0;
/// There is no room for more frames.
pub const WALK_END_TOO_DEEP: u32 = 1;
/// A pointer led outside the guest's memory.
pub const WALK_END_BAD_POINTER: u32 = 2;
/// The stack led back into itself.
pub const WALK_END_CYCLE: u32 = 3;
/// What was read is not what the runtime's layout promises.
pub const WALK_END_INCONSISTENT: u32 = 4;
/// The runtime has no stack at this moment.
pub const WALK_END_NO_STACK: u32 = 5;
/// It would have had to allocate memory and must not.
pub const WALK_END_WOULD_ALLOCATE: u32 = 6;
/// The plugin failed in a way that it did not expect.
pub const WALK_END_FAILED: u32 = 7;
/// It would have had to wait for another thread and must not. What it wrote is dropped.
pub const WALK_END_BUSY: u32 = 8;

/// Receives source frames. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct SourceFrames {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more frame.
    pub add: unsafe extern "C" fn(frames: *const SourceFrames, frame: *const SourceFrame),
}

/// A frame in the terms of the source language. Empty texts and zeroes are unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SourceFrame {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The function's name, demangled.
    pub function: Bytes,
    /// The name the linker knows, where it differs.
    pub linkage_name: Bytes,
    /// Its source file.
    pub file: Bytes,
    /// The line at which it is declared, from 1.
    pub function_line: u32,
    /// The line of the frame, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// One of `CATEGORY_…`.
    pub category: u32,
}

/// The user's own, and what nothing better is known of.
pub const CATEGORY_USER: u32 = 0;
/// The standard library and packages.
pub const CATEGORY_LIBRARY: u32 = 1;
/// The language's runtime.
pub const CATEGORY_RUNTIME: u32 = 2;
/// The garbage collector.
pub const CATEGORY_GARBAGE_COLLECTOR: u32 = 3;
/// An interpreter's own code.
pub const CATEGORY_INTERPRETER: u32 = 4;
/// Not known by this plugin.
pub const CATEGORY_UNKNOWN: u32 = 0xffff_ffff;

/// Receives labels. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct Labels {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more label.
    pub add: unsafe extern "C" fn(labels: *const Labels, name: Bytes, value: Bytes),
}

/// Receives threads. It is wlprof's.
#[repr(C)]
#[derive(Debug)]
pub struct Threads {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Takes one more thread.
    pub add: unsafe extern "C" fn(threads: *const Threads, thread: *const Thread),
}

/// A thread of the language's own.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// Size of this structure in bytes.
    pub size: usize,
    /// What the language calls it.
    pub name: Bytes,
    /// What it does or waits for.
    pub state: Bytes,
    /// Its frames, leaf first.
    pub frames: *const FrameKey,
    /// How many there are.
    pub frame_count: usize,
    /// One of `WALK_END_…`.
    pub end: u32,
    /// Whether it is what the guest runs right now: not 0 if so.
    pub is_running: u8,
    /// Whether the next two are known: not 0 if so.
    pub has_creator: u8,
    /// The name of the thread that started it.
    pub creator: Bytes,
    /// The statement that started it.
    pub creator_frame: FrameKey,
    /// What else it belongs to.
    pub labels: *const Label,
    /// How many there are.
    pub label_count: usize,
}

/// Something that a thread belongs to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// What it says.
    pub name: Bytes,
    /// Which one.
    pub value: Bytes,
}
