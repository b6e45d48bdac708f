//! The three levels of a language plugin: detect, attach, walk.

use crate::{
    Allocator, Category, FrameKey, FrameSink, GuestMemory, HeapBucket, Label, MemoryPatch, ModuleView, SourceFrame,
    ThreadStack, Truncation, WasmFrame,
};
use std::fmt;

/// Whether a module is a plugin's.
///
/// ```
/// use wlprof_plugin::Detection;
///
/// fn detect(version: &str) -> Detection {
///     match version {
///         "5.4" => Detection::Yes("Lua 5.4".to_owned()),
///         found => Detection::Unsupported { found: found.to_owned(), supported: "5.4".to_owned() },
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detection {
    /// Not this language.
    No,
    /// This language; the text says what was found, as in `CPython 3.13.5`.
    Yes(String),
    /// This language, in a form the plugin cannot walk.
    Unsupported {
        /// What was found, as in `CPython 3.10`.
        found: String,
        /// What would do, as in `3.11–3.14`.
        supported: String,
    },
}

/// Why a plugin cannot walk a module that it detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError(
    /// What was found, what is supported and what the user can do.
    pub String,
);

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AttachError {}

/// A language that wlprof can show.
///
/// ```
/// use wlprof_plugin::{AttachError, Detection, FrameKey, Language, ModuleView, SourceFrame, Walker};
///
/// /// Names wasm frames as the module's name section does.
/// struct Names;
///
/// impl Language for Names {
///     fn name(&self) -> &str {
///         "names"
///     }
///
///     fn detect(&self, module: &dyn ModuleView) -> Detection {
///         match module.custom_section("name") {
///             Some(_) => Detection::Yes("names".to_owned()),
///             None => Detection::No,
///         }
///     }
///
///     fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError> {
///         let name = |index| module.function_name(index).unwrap_or_default().to_owned();
///         Ok(Box::new(Named((0..100).map(name).collect())))
///     }
/// }
///
/// struct Named(Vec<String>);
///
/// impl Walker for Named {
///     // Without a `walk` of its own the stack is wasm's.
///     fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
///         if let FrameKey::Wasm(frame) = frame
///             && let Some(name) = self.0.get(frame.function as usize)
///         {
///             out.push(SourceFrame { function: name.clone(), ..SourceFrame::default() });
///         }
///     }
/// }
/// ```
pub trait Language: Send + Sync {
    /// The name that `--lang` takes, lower case.
    fn name(&self) -> &str;

    /// Where programs of this language look for their library, if it is neither in the module nor given by the user: a
    /// folder `NAME-lib` beside `NAME.wasm` is shown to the guest as this, read-only, if it has one of
    /// [`Language::library_files`].
    fn library_folder(&self) -> Option<&str> {
        None
    }

    /// By which files that folder is known, as paths in it. Without them none is shown to a guest: the user has not named it,
    /// and it may be anything.
    fn library_files(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Looks at the module without parsing much of it.
    fn detect(&self, module: &dyn ModuleView) -> Detection;

    /// Parses the module's static tables.
    ///
    /// # Errors
    /// [`AttachError`] if the tables needed are missing or broken; the guest then runs with wasm frames alone.
    fn attach(&self, module: &dyn ModuleView) -> Result<Box<dyn Walker>, AttachError>;
}

/// Reads the stacks of the instances that work on one memory: that of the module it was attached with, and those of its
/// [siblings](ModuleView::siblings). Calls into one walker never overlap.
///
/// ```
/// use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, SourceFrame, Truncation, Walker, WasmFrame};
///
/// /// Walks a list of activation records: the function's number, and the address of the caller's record.
/// struct Records {
///     innermost: u64,
/// }
///
/// impl Walker for Records {
///     fn reads_guest(&self) -> bool {
///         true
///     }
///
///     fn walk(&mut self, guest: &dyn GuestMemory, _: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
///         let mut record = u64::from(guest.read_u32(self.innermost)?);
///         while record != 0 {
///             // The sink refuses more frames than it has room for, so that a cycle ends.
///             out.push(u64::from(guest.read_u32(record)?))?;
///             record = u64::from(guest.read_u32(record + 4)?);
///         }
///         Ok(())
///     }
///
///     fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
///         if let FrameKey::Own(function) = frame {
///             out.push(SourceFrame { function: format!("function {function}"), ..SourceFrame::default() });
///         }
///     }
/// }
/// ```
pub trait Walker: Send {
    /// Whether stacks must be read from the stopped guest. `false` for languages whose stack is the wasm stack itself:
    /// [`Walker::walk`] is then never called.
    fn reads_guest(&self) -> bool {
        false
    }

    /// Whether [`Walker::walk`] keeps to [`FrameSink::may_allocate`]: if that is false, it allocates and frees no memory,
    /// and gives up with [`Truncation::WouldAllocate`] where it would have to (to fill a cache, say).
    ///
    /// It is then called for samples in host code as well that wasm calls too often and too shortly to wait for:
    /// `memory.copy` and its like. They may have been interrupted in the allocator.
    fn walks_without_allocating(&self) -> bool {
        false
    }

    /// Whether [`Walker::walk_suspended`] may find something. Samples that are taken while none of the guest's wasm is open wait for it then.
    fn reads_suspended_tasks(&self) -> bool {
        false
    }

    /// As [`Walker::walk`], while none of the guest's wasm is open: gives the frames of one of the language's tasks that are suspended,
    /// which awaits something else than another one, if any does. Of several, another one each time.
    ///
    /// # Errors
    /// As for [`Walker::walk`].
    fn walk_suspended(&mut self, _guest: &dyn GuestMemory, _out: &mut FrameSink) -> Result<(), Truncation> {
        Ok(())
    }

    /// Whether [`Walker::symbolize`], of [`FrameKey::Own`], and [`Walker::labels`] take but microseconds. They are then asked
    /// where samples are taken as well, in the same circumstances as [`Walker::walk`]: the names are in a recording, even if
    /// wlprof is killed.
    fn names_while_running(&self) -> bool {
        false
    }

    /// A walker for other instances of the same modules, on a memory of their own, where a guest has many: it takes microseconds,
    /// since what was read of the modules is shared. Nothing of this one's guest is in it but what it looks at before it relies on
    /// it, such as the address at which something was found. `None` if there is nothing to share: the language is attached anew then.
    ///
    /// # Keys
    /// Keys of frames and of labels mean the same to all walkers that came of one another so: any of them names what another has
    /// pushed.
    ///
    /// # Threads
    /// Calls into different walkers may overlap, those of [`Walker::walk`] in signal handlers on their own threads, too. A walk
    /// must not wait for a lock on what they share: who holds it may have been interrupted. It tries, a few times at most, and
    /// ends with [`Truncation::Busy`].
    fn fresh(&self) -> Option<Box<dyn Walker>> {
        None
    }

    /// Indices of the wasm globals that [`Walker::walk`] reads, of the module that it was attached with.
    fn wanted_globals(&self) -> &[u32] {
        &[]
    }

    /// Reads the stack of a stopped guest into `out`, leaf first. `wasm` is its wasm stack, leaf first, cut at
    /// [`FrameSink::CAPACITY`] frames. It may be empty. Frames of siblings are in it as well, to be passed on by their place.
    ///
    /// If it pushes nothing, the wasm stack stands in.
    ///
    /// Runs in a signal handler on the guest's thread, interrupted in wasm code: no input or output, no lock that the
    /// embedding program may hold, bounded reads and time, at most 200 KiB of stack. It may allocate, unless
    /// [`FrameSink::may_allocate`] says otherwise. A panic is caught and costs the sample its language frames.
    ///
    /// # Errors
    /// Why it did not come to the root. What it pushed stands all the same, unless the reason says otherwise.
    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let _ = guest;
        (0..wasm.len()).try_for_each(|index| out.push_wasm(index))
    }

    /// Appends the stacks of all threads that the language has in a stopped guest, the running one with the stack that
    /// `wasm` belongs to. Nothing if it has no threads of its own: what [`Walker::walk`] gives is shown then, with its labels, of
    /// which one called `state` says what the guest does.
    ///
    /// Called when the user asks for a dump: on the guest's thread, in a signal handler or in a host call, or on another
    /// one while the guest waits in a host call. It may take milliseconds and allocate; all else is as for
    /// [`Walker::walk`]. [`Walker::symbolize`] is then called in the same circumstances, once per distinct frame.
    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let _ = (guest, wasm, out);
    }

    /// Appends what `frame` is in source terms: innermost inlined function first, the physical function last. Appends
    /// nothing if it does not know the frame. Called once per distinct frame after the samples (during them, if
    /// [`Walker::names_while_running`]), and for dumps: so it reads no files and takes no locks.
    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>);

    /// What kind of code a wasm frame is that something else has named, by DWARF or the name section, if the language
    /// knows it better: whether a function is the interpreter's own or one that the program called.
    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        let _ = frame;
        None
    }

    /// Appends what the labels of that key say, in the order to show them. Called once per distinct key, after the
    /// samples (during them, if [`Walker::names_while_running`]), and for dumps of a language without
    /// [threads](Walker::threads), in the circumstances of these: so it reads no files and takes no locks.
    fn labels(&mut self, key: u64, out: &mut Vec<Label>) {
        let _ = (key, out);
    }

    /// The functions by which the program allocates, if those that C's library has by their usual names are not there, or are not all: of an
    /// interpreter without names, or with an allocator of its own above C's. They take the place of C's. To `missed` goes what of the program's
    /// allocations will not be seen even so, in sentences for the user. Asked where they are wanted, of the module that the walker was attached
    /// with. Of functions that call each other through tables, only those called as `realloc` may be among them together with what they call.
    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        let _ = (module, missed);
        Vec::new()
    }

    /// What to write into the guest's memory before it runs for its runtime's own heap profiler to sample an allocation each `rate` bytes, 1 for
    /// every one. Nothing if it has none that can be switched on, or the guest does so itself.
    ///
    /// # Security
    /// wlprof writes it where it finds what the plugin expects there, once, before the guest's first instruction.
    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        let _ = rate;
        Vec::new()
    }

    /// Appends what the runtime's own heap profiler has counted so far, and gives how many bytes are allocated between two of its samples, on
    /// average: what the program has set, if it has; 0 if it takes none. Called on the guest's thread in a host call, or after its last
    /// instruction. It may take milliseconds and allocate; all else is as for [`Walker::walk`].
    ///
    /// # Errors
    /// Why it could not be read. What was appended is dropped then.
    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        let _ = (guest, out);
        Ok(0)
    }

    /// What could not be read so far, in sentences for the user. Asked last.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
