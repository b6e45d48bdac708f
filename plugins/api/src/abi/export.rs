//! Languages written in Rust, as the C ABI has them: what [`export_plugin!`](crate::export_plugin) puts together.

use super::convert::{category_number, walk_end_number};
use super::export_heap::{allocators, heap_profile, switch_heap_profiler_on};
use super::guest::{ForeignGuest, ForeignModule};
use super::*;
use crate::{Detection, FrameSink, SinkEntry};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A language with what the ABI says of it in front.
#[repr(C)]
pub struct ExportedLanguage {
    abi: Language,
    language: &'static dyn crate::Language,
}

impl ExportedLanguage {
    /// The language `language`, whose name is `name`.
    pub const fn new(name: &'static str, language: &'static dyn crate::Language) -> Self {
        let abi = Language {
            size: size_of::<Language>(),
            name: Bytes::of(name.as_bytes()),
            detect: Some(detect),
            attach: Some(attach),
            library_folder: Some(library_folder),
        };
        Self { abi, language }
    }

    /// # Safety
    /// `language` must have come from [`ExportedLanguage::new`].
    unsafe fn from_abi(language: *const Language) -> &'static dyn crate::Language {
        // SAFETY: it is the first field of one, which is constant.
        unsafe { (*language.cast::<Self>()).language }
    }
}

/// Points to a language.
#[repr(transparent)]
pub struct LanguagePointer(*const Language);

// SAFETY: the language that it points to is a constant, which nobody changes.
unsafe impl Sync for LanguagePointer {}

/// Pointers to all of `languages`.
pub const fn pointers<const N: usize>(languages: &'static [ExportedLanguage; N]) -> [LanguagePointer; N] {
    let mut pointers = [const { LanguagePointer(std::ptr::null()) }; N];
    let mut index = 0;
    while index < N {
        // The whole of it, not only what the ABI says: that is where the rest is found again.
        pointers[index] = LanguagePointer(std::ptr::from_ref(&languages[index]).cast());
        index += 1;
    }
    pointers
}

/// The plugin with these languages.
pub const fn plugin(name: &'static str, version: &'static str, languages: &'static [LanguagePointer]) -> Plugin {
    Plugin {
        magic: PLUGIN_MAGIC,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
        size: size_of::<Plugin>(),
        name: Bytes::of(name.as_bytes()),
        version: Bytes::of(version.as_bytes()),
        languages: languages.as_ptr().cast(),
        language_count: languages.len(),
    }
}

/// Exports languages from a dynamic library, each with the name that its [`Language::name`](crate::Language::name) gives:
/// `export_plugin!("go" => Go);`.
#[macro_export]
macro_rules! export_plugin {
    ($($name:literal => $language:expr),+ $(,)?) => {
        #[doc(hidden)]
        #[allow(unsafe_code, non_upper_case_globals)]
        mod wlprof_plugin_export {
            use super::*;
            const COUNT: usize = [$($name),+].len();
            static LANGUAGES: [$crate::abi::ExportedLanguage; COUNT] =
                [$($crate::abi::ExportedLanguage::new($name, &$language)),+];
            static POINTERS: [$crate::abi::LanguagePointer; COUNT] = $crate::abi::pointers(&LANGUAGES);
            #[unsafe(no_mangle)]
            pub static wlprof_plugin: $crate::abi::Plugin =
                $crate::abi::plugin(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), &POINTERS);
        }
    };
}

/// A program with what the ABI says of it in front.
#[repr(C)]
pub(super) struct ExportedProgram {
    abi: Program,
    pub(super) program: Arc<dyn crate::Program>,
    wanted_globals: Vec<u32>,
    pub(super) panics: Panics,
}

/// A walker with what the ABI says of it in front.
#[repr(C)]
pub(super) struct ExportedWalker {
    abi: Walker,
    pub(super) walker: Box<dyn crate::Walker>,
    sink: FrameSink,
    pub(super) panics: Panics,
}

/// Counts the panics of a program and its walkers in all that they were asked but walks, whose failures wlprof counts.
#[derive(Clone, Default)]
pub(super) struct Panics(Arc<AtomicU32>);

/// After as many only walks are asked for: each panic prints a line, and there may be thousands of frames to name.
const MOST_PANICS: u32 = 3;

impl Panics {
    /// What `call` gives; `otherwise` if it panics, or others have too often.
    pub(super) fn guard<T>(&self, otherwise: T, call: impl FnOnce() -> T) -> T {
        if self.0.load(Ordering::Relaxed) >= MOST_PANICS {
            return otherwise;
        }
        let Some(answer) = guarded(None, || Some(call())) else {
            self.0.fetch_add(1, Ordering::Relaxed);
            return otherwise;
        };
        answer
    }
}

/// What `call` gives, or `otherwise` if it panics: nothing may unwind into wlprof.
fn guarded<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// # Safety
/// `texts` is as the ABI says.
pub(super) unsafe fn say(texts: *const Texts, text: &str) {
    // SAFETY: `texts` is a receiver of wlprof's for this call, as the ABI has it (see # Safety). The text is borrowed until that returns.
    unsafe { ((*texts).add)(texts, Bytes::of(text.as_bytes())) }
}

unsafe extern "C" fn detect(language: *const Language, module: *const Module, answer: *const Texts) -> u32 {
    guarded(DETECTION_FAILED, || {
        // SAFETY: by the ABI `language` is one that this library exports, and `module` stays for this call.
        let (language, module) = unsafe { (ExportedLanguage::from_abi(language), ForeignModule::new(module)) };
        match language.detect(&module) {
            Detection::No => DETECTION_NO,
            Detection::Yes(found) => {
                // SAFETY: by the ABI `answer` is a receiver of wlprof's, which stays for this call.
                unsafe { say(answer, &found) };
                DETECTION_YES
            }
            Detection::Unsupported { found, supported } => {
                // SAFETY: by the ABI `answer` is a receiver of wlprof's, which stays for this call.
                unsafe { say(answer, &found) };
                // SAFETY: by the ABI `answer` is a receiver of wlprof's, which stays for this call.
                unsafe { say(answer, &supported) };
                DETECTION_UNSUPPORTED
            }
        }
    })
}

unsafe extern "C" fn library_folder(language: *const Language, library: *const Texts) {
    guarded((), || {
        // SAFETY: by the ABI `language` is one that this library exports.
        let language = unsafe { ExportedLanguage::from_abi(language) };
        if let Some(folder) = language.library_folder() {
            for text in std::iter::once(folder).chain(language.library_files()) {
                // SAFETY: by the ABI `library` is a receiver of wlprof's, which stays for this call.
                unsafe { say(library, text) };
            }
        }
    });
}

unsafe extern "C" fn attach(language: *const Language, module: *const Module, error: *const Texts) -> *mut Program {
    let attached = guarded(None, || {
        // SAFETY: by the ABI `language` is one that this library exports, and `module` stays for this call.
        let (language, module) = unsafe { (ExportedLanguage::from_abi(language), ForeignModule::new(module)) };
        // Asks the program, too, what it is.
        Some(language.attach(&module).map(ExportedProgram::leak))
    });
    match attached {
        Some(Ok(program)) => program,
        Some(Err(reason)) => {
            // SAFETY: by the ABI `error` is a receiver of wlprof's, which stays for this call.
            unsafe { say(error, &reason.0) };
            std::ptr::null_mut()
        }
        None => {
            // SAFETY: by the ABI `error` is a receiver of wlprof's, which stays for this call.
            unsafe { say(error, "the plugin panicked") };
            std::ptr::null_mut()
        }
    }
}

impl ExportedProgram {
    fn leak(program: Arc<dyn crate::Program>) -> *mut Program {
        let wanted_globals = program.wanted_globals().to_vec();
        let abi = Program {
            size: size_of::<Program>(),
            wanted_globals: wanted_globals.as_ptr(),
            wanted_global_count: wanted_globals.len(),
            destroy: Some(destroy_program),
            walker: Some(walker),
            symbolize: Some(symbolize),
            categorize: Some(categorize),
            labels: Some(labels),
            warnings: Some(warnings),
            allocators: Some(allocators),
            switch_heap_profiler_on: Some(switch_heap_profiler_on),
        };
        let exported = Self { abi, program, wanted_globals, panics: Panics::default() };
        debug_assert_eq!(exported.abi.wanted_globals, exported.wanted_globals.as_ptr());
        Box::into_raw(Box::new(exported)).cast()
    }

    /// # Safety
    /// `program` must have come from [`ExportedProgram::leak`] and not be destroyed.
    pub(super) unsafe fn from_abi<'a>(program: *mut Program) -> &'a Self {
        // SAFETY: `program` is the first field of an `ExportedProgram` that `leak` has made, which lives and is never changed
        // (see # Safety).
        unsafe { &*program.cast::<Self>() }
    }
}

impl ExportedWalker {
    fn leak(walker: Box<dyn crate::Walker>, panics: Panics) -> *mut Walker {
        let flags = if walker.walks_without_allocating() { WALKER_WALKS_WITHOUT_ALLOCATING } else { 0 };
        let abi = Walker {
            size: size_of::<Walker>(),
            flags,
            destroy: Some(destroy_walker),
            walk: Some(walk),
            threads: Some(threads),
            heap_profile: Some(heap_profile),
        };
        Box::into_raw(Box::new(Self { abi, walker, sink: FrameSink::new(), panics })).cast()
    }

    /// # Safety
    /// `walker` must have come from [`ExportedWalker::leak`] and not be destroyed, and no other call use it.
    pub(super) unsafe fn from_abi<'a>(walker: *mut Walker) -> &'a mut Self {
        // SAFETY: `walker` is the first field of an `ExportedWalker` that `leak` has made, which lives and which no other call uses
        // (see # Safety).
        unsafe { &mut *walker.cast::<Self>() }
    }
}

/// # Safety
/// `wasm` has `count` frames, for as long as `'a`.
unsafe fn stack_of<'a>(wasm: *const WasmFrame, count: usize) -> &'a [WasmFrame] {
    // SAFETY: `wasm` has `count` frames for as long as `'a` (see # Safety). Where there are none the pointer may be null, and is not used.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(wasm, count) } }
}

unsafe extern "C" fn walker(program: *mut Program) -> *mut Walker {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    let leak = |walker| ExportedWalker::leak(walker, panics.clone());
    panics.guard(std::ptr::null_mut(), || program.walker().map_or(std::ptr::null_mut(), leak))
}

unsafe extern "C" fn destroy_program(program: *mut Program) {
    guarded((), || {
        // SAFETY: the program came from `leak`, and by the ABI this is the last call with it.
        drop(unsafe { Box::from_raw(program.cast::<ExportedProgram>()) });
    });
}

unsafe extern "C" fn destroy_walker(walker: *mut Walker) {
    guarded((), || {
        // SAFETY: the walker came from `leak`, and by the ABI this is the last call with it.
        drop(unsafe { Box::from_raw(walker.cast::<ExportedWalker>()) });
    });
}

unsafe extern "C" fn walk(
    walker: *mut Walker,
    guest: *const Guest,
    wasm: *const WasmFrame,
    wasm_count: usize,
    stack: *mut Stack,
) -> u32 {
    guarded(WALK_END_FAILED, || {
        // SAFETY: by the ABI `walker` is one of `leak`'s that no other call uses, and `guest` stays for this call.
        let (exported, guest) = unsafe { (ExportedWalker::from_abi(walker), &*guest) };
        // SAFETY: by the ABI `wasm` has `wasm_count` frames, which stay for this call.
        let wasm = unsafe { stack_of(wasm, wasm_count) };
        // SAFETY: by the ABI `stack` is a whole `Stack` of wlprof's, which stays for this call.
        let may_allocate = unsafe { (*stack).may_allocate };
        let ExportedWalker { walker, sink, .. } = exported;
        sink.clear();
        sink.set_may_allocate(may_allocate);
        let walked = walker.walk(&ForeignGuest(guest), wasm, sink);
        // SAFETY: by the ABI `stack` is a whole `Stack` of wlprof's, which stays for this call.
        unsafe { write_stack(sink, stack) };
        walk_end_number(walked)
    })
}

/// Writes what a walk found, as far as there is room.
///
/// # Safety
/// `stack` is as the ABI says.
unsafe fn write_stack(sink: &FrameSink, stack: *mut Stack) {
    // SAFETY: `stack` is a whole `Stack` of wlprof's for this call, as the ABI has it (see # Safety).
    let (frames, capacity) = unsafe { ((*stack).frames, (*stack).capacity) };
    for (at, entry) in sink.entries().take(capacity).enumerate() {
        let (kind, value) = match entry {
            SinkEntry::Own(key) => (FRAME_KIND_OWN, key),
            SinkEntry::Wasm(index) => (FRAME_KIND_WASM, index as u64),
            SinkEntry::Elided => (FRAME_KIND_ELIDED, 0),
        };
        // SAFETY: by the ABI `frames` has room for `capacity` frames, and `take` ends before that.
        unsafe { frames.add(at).write(StackFrame { kind, reserved: 0, value }) };
    }
    // SAFETY: `stack` is a whole `Stack` of wlprof's for this call, as the ABI has it (see # Safety).
    unsafe { (*stack).length = sink.len().min(capacity) };
    let Some((&first, more)) = sink.labels().split_first() else { return };
    // SAFETY: `stack` is a whole `Stack` of wlprof's for this call, as the ABI has it (see # Safety).
    unsafe { ((*stack).labels, (*stack).has_labels) = (first, 1) };
    // SAFETY: `stack` is a whole `Stack` of wlprof's for this call, as the ABI has it (see # Safety).
    let (keys, capacity) = unsafe { ((*stack).label_keys, (*stack).label_capacity) };
    let count = more.len().min(capacity);
    for (at, &key) in more[..count].iter().enumerate() {
        // SAFETY: by the ABI `label_keys` has room for `label_capacity` keys, and `count` is no more.
        unsafe { keys.add(at).write(key) };
    }
    // SAFETY: `stack` is a whole `Stack` of wlprof's for this call, as the ABI has it (see # Safety).
    unsafe { (*stack).label_count = count };
}

unsafe extern "C" fn threads(
    walker: *mut Walker,
    guest: *const Guest,
    wasm: *const WasmFrame,
    wasm_count: usize,
    threads: *const Threads,
) {
    // SAFETY: by the ABI `walker` is one of `leak`'s that no other call uses.
    let ExportedWalker { walker, panics, .. } = unsafe { ExportedWalker::from_abi(walker) };
    panics.guard((), || {
        // SAFETY: by the ABI `guest` stays for this call, as do the `wasm_count` frames at `wasm`.
        let (guest, wasm) = unsafe { (&*guest, stack_of(wasm, wasm_count)) };
        let mut found = Vec::new();
        walker.threads(&ForeignGuest(guest), wasm, &mut found);
        for stack in &found {
            let frames: Vec<FrameKey> = stack.frames.iter().map(|&key| key.into()).collect();
            let label = |label: &crate::Label| Label {
                name: Bytes::of(label.name.as_bytes()),
                value: Bytes::of(label.value.as_bytes()),
            };
            let labels: Vec<Label> = stack.labels.iter().map(label).collect();
            let creator = stack.creator.as_ref();
            let thread = Thread {
                size: size_of::<Thread>(),
                name: Bytes::of(stack.name.as_bytes()),
                state: Bytes::of(stack.state.as_bytes()),
                frames: frames.as_ptr(),
                frame_count: frames.len(),
                end: walk_end_number(stack.walked),
                is_running: stack.is_running.into(),
                has_creator: creator.is_some().into(),
                creator: creator.map_or(Bytes::EMPTY, |creator| Bytes::of(creator.name.as_bytes())),
                creator_frame: creator.map_or(crate::FrameKey::Own(0), |creator| creator.frame).into(),
                labels: labels.as_ptr(),
                label_count: labels.len(),
            };
            // SAFETY: by the ABI `threads` is a receiver of wlprof's, which stays for this call. The thread and all that it has live until
            // `add` returns.
            unsafe { ((*threads).add)(threads, &thread) };
        }
    });
}

unsafe extern "C" fn symbolize(program: *mut Program, frame: FrameKey, frames: *const SourceFrames) {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard((), || {
        let mut found = Vec::new();
        program.symbolize(frame.into(), &mut found);
        for frame in &found {
            // SAFETY: by the ABI `frames` is a receiver of wlprof's, which stays for this call. The frame lives until `add` returns.
            unsafe { ((*frames).add)(frames, &SourceFrame::of(frame)) };
        }
    });
}

unsafe extern "C" fn categorize(program: *mut Program, frame: *const SourceFrame) -> u32 {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard(CATEGORY_UNKNOWN, || {
        // SAFETY: by the ABI the frame and its texts stay for this call.
        let frame = unsafe { (*frame).get(usize::MAX) };
        program.categorize(&frame).map_or(CATEGORY_UNKNOWN, category_number)
    })
}

unsafe extern "C" fn labels(program: *mut Program, key: u64, labels: *const Labels) {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard((), || {
        let mut found = Vec::new();
        program.labels(key, &mut found);
        for label in &found {
            // SAFETY: by the ABI `labels` is a receiver of wlprof's, which stays for this call. Both texts live until `add` returns.
            unsafe { ((*labels).add)(labels, Bytes::of(label.name.as_bytes()), Bytes::of(label.value.as_bytes())) };
        }
    });
}

unsafe extern "C" fn warnings(program: *mut Program, warnings: *const Texts) {
    // SAFETY: by the ABI `program` is one of `leak`'s and not destroyed before this call ends.
    let ExportedProgram { program, panics, .. } = unsafe { ExportedProgram::from_abi(program) };
    panics.guard((), || {
        for warning in program.warnings() {
            // SAFETY: by the ABI `warnings` is a receiver of wlprof's, which stays for this call.
            unsafe { say(warnings, &warning) };
        }
    });
    let panics = panics.0.load(Ordering::Relaxed);
    if panics > 0 {
        let warning = format!(
            "the plugin panicked when it was asked for walkers, names, categories, labels, threads, heaps or warnings ({panics} \
             times); what it did not say is missing, and after {MOST_PANICS} it is only asked to walk"
        );
        // SAFETY: by the ABI `warnings` is a receiver of wlprof's, which stays for this call.
        unsafe { say(warnings, &warning) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_written_as_far_as_there_is_room() {
        let mut sink = FrameSink::new();
        assert!(
            sink.push(5).and(sink.push_elided()).is_ok()
                && sink.add_labels(1)
                && sink.add_labels(2)
                && sink.add_labels(3)
        );
        for (room, expected) in [(0, &[][..]), (1, &[2]), (4, &[2, 3])] {
            let mut frames = [StackFrame { kind: 9, reserved: 9, value: 9 }; 4];
            let mut keys = [0; 4];
            let mut stack = Stack {
                size: size_of::<Stack>(),
                frames: frames.as_mut_ptr(),
                capacity: frames.len(),
                length: 0,
                labels: 0,
                has_labels: 0,
                may_allocate: true,
                label_keys: keys.as_mut_ptr(),
                label_capacity: room,
                label_count: 0,
            };
            // SAFETY: `stack` is whole, and what it points to are arrays of this test with that room.
            unsafe { write_stack(&sink, &raw mut stack) };
            assert_eq!((stack.length, stack.labels, stack.has_labels), (2, 1, 1));
            assert_eq!((frames[0].kind, frames[0].value, frames[1].kind), (FRAME_KIND_OWN, 5, FRAME_KIND_ELIDED));
            assert_eq!(&keys[..stack.label_count], expected);
        }
    }
}
