//! The levels of a language plugin: a language detects modules, a program names what is in one, walkers read its instances.

use crate::{
    Allocator, Category, FrameKey, FrameSink, GuestMemory, HeapBucket, Label, MemoryPatch, ModuleView, SourceFrame,
    ThreadStack, Truncation, WasmFrame,
};
use std::fmt;
use std::sync::Arc;

/// The answer of [`Language::detect`].
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
    /// The module is not in this language.
    No,
    /// The module is in this language. The text names what was found, as in `CPython 3.13.5`.
    Yes(String),
    /// The module is in this language, in a form that the plugin cannot walk.
    Unsupported {
        /// Name of what was found, as in `CPython 3.10`.
        found: String,
        /// Name of what is supported, as in `3.11–3.14`.
        supported: String,
    },
}

/// The reason why a plugin cannot walk a module that it detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError(
    /// Text for the user: what was found, what is supported and what to do.
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
/// use std::sync::Arc;
/// use wlprof_plugin::{AttachError, Detection, FrameKey, Language, ModuleView, Program, SourceFrame};
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
///     fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
///         let name = |index| module.function_name(index).unwrap_or_default().to_owned();
///         Ok(Arc::new(Named((0..100).map(name).collect())))
///     }
/// }
///
/// struct Named(Vec<String>);
///
/// impl Program for Named {
///     // Without a `walker` of its own the stack is wasm's.
///     fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
///         if let FrameKey::Wasm(frame) = frame
///             && let Some(name) = self.0.get(frame.function as usize)
///         {
///             out.push(SourceFrame { function: name.clone(), ..SourceFrame::default() });
///         }
///     }
/// }
/// ```
pub trait Language: Send + Sync {
    /// Returns the name that `--lang` takes, in lower case.
    fn name(&self) -> &str;

    /// Returns the path at which programs of this language look for their library, if the library is not in the module.
    ///
    /// If the user gives the guest nothing there, wlprof shows it a folder `NAME-lib` beside `NAME.wasm`, read-only. That folder must have
    /// one of [`Language::library_files`].
    fn library_folder(&self) -> Option<&str> {
        None
    }

    /// Returns the files by which that folder is known, as paths in it.
    ///
    /// Without them no folder is shown to a guest: the user has not named it, and it may be anything.
    fn library_files(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Detects whether the module is in this language, without parsing much of it.
    fn detect(&self, module: &dyn ModuleView) -> Detection;

    /// Parses the module's static tables.
    ///
    /// # Errors
    /// [`AttachError`] if the tables needed are missing or broken. The guest then runs with only wasm frames.
    fn attach(&self, module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError>;
}

/// What a language knows of one module: it makes the walkers of its instances, and names what they find.
///
/// A program stays where the module is, for as long as its frames may be named. Nothing in it needs the guest.
///
/// # Threads
/// Calls may overlap, those of its [walkers](Program::walker) included. [`Program::symbolize`] and [`Program::labels`] are called by a
/// thread of wlprof while the guest runs, and for dumps in the circumstances of [`Walker::threads`]. They read no files. A lock that they
/// take must not be one that [`Walker::walk`] takes as well.
///
/// ```
/// use std::sync::Arc;
/// use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, KeyTable, Program, SourceFrame, Truncation, Walker, WasmFrame};
///
/// /// A program whose functions have their names in memory. Names that were met are kept under the keys of frames.
/// struct Script {
///     names: Arc<KeyTable<String>>,
/// }
///
/// impl Program for Script {
///     fn walker(&self) -> Option<Box<dyn Walker>> {
///         Some(Box::new(Reader { names: self.names.clone() }))
///     }
///
///     fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
///         if let FrameKey::Own(key) = frame
///             && let Some(name) = self.names.get(key as u32)
///         {
///             out.push(SourceFrame { function: name.clone(), ..SourceFrame::default() });
///         }
///     }
/// }
///
/// struct Reader {
///     names: Arc<KeyTable<String>>,
/// }
///
/// impl Walker for Reader {
///     fn walk(&mut self, guest: &dyn GuestMemory, _: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
///         let mut name = [0; 8];
///         guest.read(0x1000, &mut name)?;
///         let name = String::from_utf8_lossy(&name).into_owned();
///         out.push(self.names.keep(name, 8).map_err(|_| Truncation::Busy)?.into())
///     }
/// }
///
/// let script = Script { names: Arc::new(KeyTable::new(1000, 1 << 20)) };
/// assert!(script.walker().is_some());
/// ```
pub trait Program: Send + Sync {
    /// Makes a walker for the instances of this module, and of its [siblings](ModuleView::siblings), on a memory of their own.
    ///
    /// `None` is for languages whose stack is the wasm stack itself. Whether there are walkers does not change.
    ///
    /// A guest may have many instances, so this takes microseconds: what was read of the module is shared. A walker takes nothing from
    /// the guests of others, except hints that it checks before it relies on them: for example the address at which something was found.
    ///
    /// # Keys
    /// Keys of frames and of labels mean the same to the program and all its walkers, also to those that have ended.
    ///
    /// # Threads
    /// Calls into different walkers may overlap, even those of [`Walker::walk`] in signal handlers on their own threads. A walk must not
    /// wait for a lock on what they share: the thread that holds it may have been interrupted. The walk tries a few times at most, and then
    /// ends with [`Truncation::Busy`]. [`KeyTable`](crate::KeyTable) does so.
    fn walker(&self) -> Option<Box<dyn Walker>> {
        None
    }

    /// Returns the indices of the wasm globals that [`Walker::walk`] reads, in the module that was attached.
    fn wanted_globals(&self) -> &[u32] {
        &[]
    }

    /// Appends the functions of `frame` in source terms: innermost inlined function first, physical function last.
    ///
    /// Appends nothing if the frame is unknown. Called once per distinct frame, and for dumps.
    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>);

    /// Returns the kind of code of a wasm frame that DWARF or the name section has named.
    ///
    /// `None` if the language does not know it better. An interpreter's plugin may know whether a function is the interpreter's own or one
    /// that the program called.
    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        let _ = frame;
        None
    }

    /// Appends the labels of `key`, in the order in which they are shown.
    ///
    /// Called once per distinct key. For a language without [threads](Walker::threads) it is also called for dumps.
    fn labels(&self, key: u64, out: &mut Vec<Label>) {
        let _ = (key, out);
    }

    /// Returns the functions by which the program allocates, if those of C's library by their usual names are not there or not all.
    ///
    /// That is so for an interpreter without names, or with an allocator of its own above C's. The functions take the place of C's.
    /// `missed` gets what will not be seen even so, in sentences for the user. Called only where allocations are wanted, with the module
    /// that was attached.
    ///
    /// Some functions call each other through tables. Of these, only functions called as `realloc` may be returned together with what they
    /// call.
    fn allocators(&self, module: &dyn ModuleView, missed: &mut Vec<String>) -> Vec<Allocator> {
        let _ = (module, missed);
        Vec::new()
    }

    /// Returns what to write into the guest's memory, before it runs, to switch its runtime's own heap profiler on.
    ///
    /// The profiler is to sample one allocation every `rate` bytes; 1 is every allocation. Returns nothing if the runtime has no such
    /// profiler, or if the guest switches it on itself.
    ///
    /// # Security
    /// wlprof writes the patches once, before the guest's first instruction, and only where it finds what the plugin expects.
    fn switch_heap_profiler_on(&self, rate: u64) -> Vec<MemoryPatch> {
        let _ = rate;
        Vec::new()
    }

    /// Returns sentences for the user about what could not be read so far, by any walker. Called last.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Reads the stacks of the instances that work on one memory.
///
/// These are instances of the module whose [`Program`] made it, and of its [siblings](ModuleView::siblings). Calls into one walker never
/// overlap.
///
/// ```
/// use wlprof_plugin::{FrameSink, GuestMemory, Truncation, Walker, WasmFrame};
///
/// /// Walks a list of activation records: the function's number, and the address of the caller's record.
/// struct Records {
///     innermost: u64,
/// }
///
/// impl Walker for Records {
///     fn walk(&mut self, guest: &dyn GuestMemory, _: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
///         let mut record = u64::from(guest.read_u32(self.innermost)?);
///         while record != 0 {
///             // The sink refuses more frames than it has room for, so that a cycle ends.
///             out.push(u64::from(guest.read_u32(record)?))?;
///             record = u64::from(guest.read_u32(record + 4)?);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait Walker: Send {
    /// Returns whether [`Walker::walk`] respects [`FrameSink::may_allocate`].
    ///
    /// Where that is false, such a walk neither allocates nor frees memory. If it would have to, for example to fill a cache, it ends with
    /// [`Truncation::WouldAllocate`].
    ///
    /// Such a walker is also called for samples in host code that wasm calls too often and too briefly to wait for, as in `memory.copy`.
    /// They may have interrupted the allocator.
    fn walks_without_allocating(&self) -> bool {
        false
    }

    /// Returns whether [`Walker::walk_suspended`] may find something. Samples taken while none of the guest's wasm is open then wait for
    /// it.
    fn reads_suspended_tasks(&self) -> bool {
        false
    }

    /// Reads the stack of a stopped guest into `out`, leaf first.
    ///
    /// `wasm` is the guest's wasm stack, leaf first, cut at [`FrameSink::CAPACITY`] frames. It may be empty. It also has frames of
    /// siblings, to be passed on by their index.
    ///
    /// If the walk pushes nothing, the wasm stack is used.
    ///
    /// This runs in a signal handler on the guest's thread, which was interrupted in wasm code. It does no input or output, and takes no
    /// lock that the embedding program may hold. Its reads and its time are bounded, and it uses at most 200 KiB of stack. It may allocate,
    /// unless [`FrameSink::may_allocate`] says otherwise. A panic is caught and costs the sample its language frames.
    ///
    /// # Errors
    /// The reason why the walk did not reach the root. What it pushed is kept, unless the reason says otherwise.
    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation>;

    /// Walks one of the language's suspended tasks, while none of the guest's wasm is open.
    ///
    /// Gives the frames of a task that awaits something other than another task, if there is one. Of several such tasks, each call takes
    /// another one. All else is as for [`Walker::walk`].
    ///
    /// # Errors
    /// As for [`Walker::walk`].
    fn walk_suspended(&mut self, _guest: &dyn GuestMemory, _out: &mut FrameSink) -> Result<(), Truncation> {
        Ok(())
    }

    /// Appends the stacks of all threads that the language has in a stopped guest. `wasm` belongs to the running one.
    ///
    /// Appends nothing if the language has no threads of its own. What [`Walker::walk`] gives is shown then, with its labels: the one
    /// called `state` says what the guest does.
    ///
    /// Called when the user asks for a dump. It runs on the guest's thread, in a signal handler or in a host call, or on another thread
    /// while the guest waits in a host call. It may take milliseconds and allocate; all else is as for [`Walker::walk`].
    fn threads(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut Vec<ThreadStack>) {
        let _ = (guest, wasm, out);
    }

    /// Appends what the runtime's own heap profiler has counted so far, and returns its rate.
    ///
    /// The rate is the average number of bytes allocated between two samples: what the program has set, if it has; 0 if nothing is sampled.
    /// Called on the guest's thread, in a host call or after its last instruction. It may take milliseconds and allocate; all else is as
    /// for [`Walker::walk`].
    ///
    /// # Errors
    /// The reason why it could not be read. What was appended is dropped then.
    fn heap_profile(&mut self, guest: &dyn GuestMemory, out: &mut Vec<HeapBucket>) -> Result<u64, Truncation> {
        let _ = (guest, out);
        Ok(0)
    }
}
