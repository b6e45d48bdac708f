//! A recording: what was sampled. The [`Recorder`] writes it into a [`Journal`] while the guest runs, as a [`RawRecording`]
//! it is read from there, and with every frame symbolized, as a [`Recording`], exporters get it.
//!
//! All tables refer to each other by index. Frames are shared by stacks, stacks by samples, and a stack names only its
//! leaf frame and its parent, so a recording grows with the number of *distinct* stacks plus one [`Sample`] a sample.

#![forbid(unsafe_code)]

mod bounds;
mod build;
mod call_tree;
mod difference;
mod doubt;
mod draws;
mod example;
pub mod file;
mod halves;
mod heap;
mod heap_growth;
mod instruction_totals;
mod journal;
mod keyed;
mod line_totals;
mod long_names;
mod markers;
mod memory;
mod merge;
mod named_frame;
mod naming;
mod neighbors;
mod numbers;
mod own_names;
mod owner;
mod recent;
mod renamed;
mod requests;
mod restack;
mod samples;
mod selection;
mod share;
pub mod sources;
pub mod testing;
mod totals;
mod track;
mod unit;
mod unused;
mod user_lines;
mod view;
mod waits;

pub use build::{Names, Recorder};
pub use call_tree::{Call, CallTree};
pub use difference::Difference;
pub use doubt::Doubt;
pub use example::example;
pub use file::RawRecording;
pub use heap::{Amount, Heap, HeapPart, HeapSite, SiteTotals};
pub use heap_growth::HeapGrowth;
pub use instruction_totals::{InstructionTotal, InstructionTotals};
pub use journal::{Journal, MAGIC, VERSION};
pub use keyed::{Keyed, keyed};
pub use line_totals::{LineTotal, LineTotals};
pub use long_names::shorten_names;
pub use markers::HostCallSpan;
pub use memory::MemorySize;
use named_frame::NamedFrame;
pub use naming::Naming;
pub use neighbors::Neighbors;
pub use numbers::Numbers;
pub use own_names::{LanguageNames, NameSource};
pub use recent::WindowOf;
pub use requests::{OTHER_REQUESTS, REQUEST, RequestTotal, SEVERAL, STATUS, status_text};
pub use samples::Samples;
pub use selection::{Selection, SelectionShare};
pub use share::{Share, Weight};
pub use totals::{FunctionTotal, Totals};
pub use track::TrackId;
pub use unit::{Unit, bytes, count_of, scaled};
pub use unused::{HeldNumbers, NewNumbers};
pub use user_lines::{Native, NativeTotal, UserFunction, UserLines};
pub use view::View;
pub use waits::WaitTotal;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Index into [`Recording::frames`].
pub type FrameId = u32;
/// Index into [`Recording::functions`].
pub type FunctionId = u32;
/// Index into [`Recording::stacks`].
pub type StackId = u32;
/// Index into [`Recording::modules`].
pub type ModuleId = u32;
/// The label of samples that says in which instance of a component they were, where it has several.
pub const INSTANCE: &str = "instance";

/// Index into [`Recording::label_sets`].
pub type LabelSetId = u32;
/// Index into [`Recording::stores`].
pub type StoreId = u32;

/// Everything that one run left behind.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// How and when it was made.
    pub meta: Meta,
    /// The wasm modules that frames refer to.
    pub modules: Vec<Module>,
    /// Distinct functions.
    pub functions: Vec<Function>,
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Distinct stacks. A parent always stands before its children.
    pub stacks: Vec<Stack>,
    /// Distinct sets of labels that samples carry, each a list of names and values.
    pub label_sets: Vec<Vec<(String, String)>>,
    /// The stores that guests ran in.
    pub stores: Vec<Store>,
    /// The guests' threads: one for each store and each of the operating system's threads that ran it.
    pub threads: Vec<Thread>,
    /// What became of every tick.
    pub ticks: TickCounts,
    /// Samples whose stack is incomplete, by reason.
    pub truncated: Vec<(Truncation, u64)>,
    /// Texts of files that functions are in, by the names that [`Function::file`] has: for formats that show them, which are
    /// given those that could be had. A recording's file has none.
    pub sources: BTreeMap<String, String>,
    /// What samples stand for, if not for time: bytes of that part of what was allocated, and [`Recording::of_memory`] has made it. A
    /// recording's file has time.
    pub part: Option<HeapPart>,
}

/// How and when a recording was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of the wlprof that sampled.
    pub wlprof_version: String,
    /// The guest, as the user named it.
    pub guest: String,
    /// The guest's arguments, without its name.
    pub arguments: Vec<String>,
    /// When sampling began, in milliseconds since the Unix epoch.
    pub start_unix_ms: u64,
    /// How long the guest ran, in nanoseconds of wall time.
    pub duration_ns: u64,
    /// CPU time of the guest's threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Of that, what sampling itself took, in signal handlers and call hooks. Samples stand for none of it.
    pub sampling_ns: u64,
    /// Time of [`Meta::clock`] that no sample stands for, in nanoseconds; 0 if that is not known.
    pub unsampled_ns: u64,
    /// Which sampler took the samples (`signal` or `epoch`).
    pub sampler: String,
    /// What time the samples stand for.
    pub clock: Clock,
    /// Samples a second that were asked for.
    pub requested_hz: f64,
    /// Samples a second that the governor allowed, averaged over the run.
    pub allowed_hz: f64,
    /// How long the guest stood still for a sample.
    pub pause: PauseStats,
    /// What the user should know when reading the profile: degraded symbols, a fallback sampler, a lowered rate.
    pub notes: Vec<String>,
    /// What processor the guest ran on, as Rust calls it (`x86_64`, `aarch64`). A part of its own in files: older ones lack it, and
    /// are of the first.
    #[serde(skip)]
    pub architecture: String,
    /// The requests that the guest answered, if it was served. A part of its own in files: older ones lack it.
    #[serde(skip)]
    pub requests: Vec<RequestTotal>,
}

/// What time samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clock {
    /// Time in which the guest's thread runs, in wasm or in host code.
    #[default]
    Cpu,
    /// All time: waiting counts, in host calls or for a processor.
    Wall,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU time",
            Self::Wall => "wall time",
        })
    }
}

/// Time for which a sample stops the guest's thread, in nanoseconds; all zero if it was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseStats {
    /// Median of the time inside wlprof's signal handler.
    pub handler_p50_ns: u64,
    /// 99th percentile of the time inside wlprof's signal handler.
    pub handler_p99_ns: u64,
    /// What one tick costs the guest altogether, interrupt and signal delivery included, measured before the run.
    pub tick_ns: u64,
}

/// A wasm module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// File name, or the name the module carries.
    pub name: String,
    /// The `build_id` custom section in hex, else a hash of the module.
    pub build_id: String,
}

/// A function as the profile shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Demangled name. Untrusted text.
    pub name: String,
    /// The linker's name where it differs.
    pub linkage_name: Option<String>,
    /// Source file as the compiler recorded it.
    pub file: Option<String>,
    /// Line at which it is declared, from 1.
    pub line: Option<u32>,
    /// What kind of code it is.
    pub category: Category,
    /// The module that holds it; `None` for the host's functions.
    pub module: Option<ModuleId>,
}

/// What kind of code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Category {
    /// The user's own code.
    User,
    /// Standard library and packages.
    Library,
    /// The language's runtime.
    Runtime,
    /// Garbage collection.
    GarbageCollector,
    /// An interpreter's own code.
    Interpreter,
    /// Outside the guest: a call to the embedder or to a Wasmtime builtin.
    Host,
}

impl From<wlprof_plugin::Category> for Category {
    fn from(category: wlprof_plugin::Category) -> Self {
        match category {
            wlprof_plugin::Category::User => Self::User,
            wlprof_plugin::Category::Library => Self::Library,
            wlprof_plugin::Category::Runtime => Self::Runtime,
            wlprof_plugin::Category::GarbageCollector => Self::GarbageCollector,
            wlprof_plugin::Category::Interpreter => Self::Interpreter,
        }
    }
}

/// What a frame was before it was symbolized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// A wasm frame. `code_offset` is the interrupted instruction (leaf) or the call instruction (callers), counted
    /// from the start of the code section's payload.
    Wasm {
        /// The module.
        module: ModuleId,
        /// Function index, imports first.
        function: u32,
        /// Offset from the start of the code section's payload.
        code_offset: u32,
    },
    /// A frame that a language plugin emitted under a key of its own.
    Language {
        /// The module whose plugin it was.
        module: ModuleId,
        /// The plugin's key.
        key: u64,
    },
    /// Host code, called by the wasm instruction at that place.
    HostCall {
        /// The module that called.
        module: ModuleId,
        /// The function that called.
        function: u32,
        /// Offset of the calling instruction from the start of the code section's payload.
        code_offset: u32,
    },
    /// Host code with no wasm below it: instantiation, start-up, tear-down.
    Host,
    /// Stands at the root of a stack whose root end is missing.
    Truncated,
    /// Stands where a language's plugin left frames out.
    Elided,
    /// Code that Wasmtime makes between two components, which takes arguments and results from one's memory to the other's.
    Adapter,
    /// Host code, as it was found by unwinding the host's own stack.
    Native {
        /// The file that it is of, by the order in which the profiler found them.
        object: u32,
        /// The address that the file states for the instruction that runs or calls.
        address: u64,
    },
}

/// What such code is called.
pub const ADAPTER: &str = "[component adapter]";

impl Origin {
    /// The module that it is of.
    pub fn module(self) -> Option<ModuleId> {
        match self {
            Self::Wasm { module, .. } | Self::Language { module, .. } | Self::HostCall { module, .. } => Some(module),
            Self::Native { .. } | Self::Host | Self::Truncated | Self::Elided | Self::Adapter => None,
        }
    }

    /// The same place in the module that `to` says for its own.
    pub(crate) fn in_module(self, to: impl Fn(ModuleId) -> ModuleId) -> Self {
        match self {
            Self::Wasm { module, function, code_offset } => Self::Wasm { module: to(module), function, code_offset },
            Self::Language { module, key } => Self::Language { module: to(module), key },
            Self::HostCall { module, function, code_offset } => {
                Self::HostCall { module: to(module), function, code_offset }
            }
            Self::Native { .. } | Self::Host | Self::Truncated | Self::Elided | Self::Adapter => self,
        }
    }
}

/// One place that a stack can go through, with what was inlined there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it was before symbolization.
    pub origin: Origin,
    /// Innermost inlined function first, the physical function last. Never empty.
    pub lines: Vec<Line>,
}

/// A function and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line in the function's file, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
}

/// A stack: a leaf frame on top of another stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stack {
    /// The callers; `None` at the root.
    pub parent: Option<StackId>,
    /// The leaf frame.
    pub frame: FrameId,
}

/// A store that a guest ran in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    /// What the embedder calls it.
    pub name: String,
    /// Names and values of what the embedder says of it. Its samples have them among their labels.
    pub labels: Vec<(String, String)>,
    /// Sizes of its linear memory, the first that it has, from each time on at which it was seen to have changed; in order of time.
    /// Empty if it has none, or the sampler was not told of it.
    pub memory: Vec<MemorySize>,
    /// What its guest has allocated, if that was asked for.
    pub heap: Option<Heap>,
}

/// A thread of a guest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Name shown in profiles.
    pub name: String,
    /// The operating system's id of the thread that ran it.
    pub tid: u64,
    /// The store whose guest it ran.
    pub store: StoreId,
    /// In order of time.
    pub samples: Samples,
    /// Host calls long enough to be seen by two ticks, in order of their start.
    pub host_calls: Vec<HostCallSpan>,
}

/// One sample. A tick that stands for a long time is several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since sampling began.
    pub time_ns: u64,
    /// The sample's weight: the time that it stands for, in nanoseconds, or bytes in a recording of memory
    /// ([`Recording::unit`]). Weights differ, so shares are sums of them, not counts.
    pub period_ns: u64,
    /// CPU time of the thread that its tick stands for, in nanoseconds. The first sample of a tick has it all, the others
    /// have none.
    pub cpu_delta_ns: u64,
    /// What was on the stack.
    pub stack: StackId,
    /// Where the thread was.
    pub state: State,
    /// What the sample belongs to, as the language's plugin says.
    pub labels: Option<LabelSetId>,
}

/// Where a thread was at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// In wasm code.
    Guest,
    /// In host code, running.
    Host,
    /// In host code, waiting. Sampled with [`Clock::Wall`] alone.
    Blocked,
    /// In wasm code, of the leaf's function or of functions that it had called and that had returned: the guest was read at a check
    /// behind such calls.
    Returned,
    /// In wasm code before the leaf's function began: in its caller, or in what that had called. The guest was read as the function was
    /// entered.
    Entering,
}

impl State {
    /// Whether it was in wasm code.
    pub fn is_guest(self) -> bool {
        matches!(self, Self::Guest | Self::Returned | Self::Entering)
    }
}

/// Why a stack is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Truncation {
    /// More frames than a sample holds.
    TooDeep,
    /// The frame pointers do not lead to the entry frame.
    BrokenChain,
    /// The recording has no room for more distinct stacks.
    TooMany,
    /// The language's own stack could not be read whole; what is missing is shown as wasm frames, or not at all.
    Language(LanguageTruncation),
}

/// Why a language's stack could not be read whole. Mirrors [`wlprof_plugin::Truncation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LanguageTruncation {
    /// More frames than a sample holds.
    TooDeep,
    /// A pointer led outside the guest's memory.
    BadPointer,
    /// The stack led back into itself.
    Cycle,
    /// The memory did not look as the runtime's layout promises.
    Inconsistent,
    /// The runtime had no stack.
    NoStack,
    /// The plugin failed: it panicked, crashed, did not come back, or said so.
    Panicked,
    /// The thread was in host code, and the guest's own stack could not be read before it went on.
    InHostCode,
    /// Another thread held what the plugin's walkers share.
    Busy,
}

impl fmt::Display for LanguageTruncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "deeper than a sample holds",
            Self::BadPointer => "bad pointer",
            Self::Cycle => "cycle",
            Self::Inconsistent => "inconsistent",
            Self::NoStack => "no stack",
            Self::Panicked => "plugin failed",
            Self::InHostCode => "in host code",
            Self::Busy => "plugin busy",
        })
    }
}

/// What became of every tick. The fields other than `fired` and `late` add up to `fired`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TickCounts {
    /// Ticks in all.
    pub fired: u64,
    /// Became a sample.
    pub sampled: u64,
    /// The thread was waiting in a system call or for memory, and the sampler or the clock does not sample that.
    pub idle: u64,
    /// The thread was waiting for a processor, so that less time had gone by than a sample stands for.
    pub preempted: u64,
    /// The signal of an earlier tick had not been handled yet.
    pub coalesced: u64,
    /// The ring between the thread and the recorder was full.
    pub ring_full: u64,
    /// The recorder failed, or the disk that it writes to was full.
    pub unrecorded: u64,
    /// The thread was blocked and woke while its stack was being read from outside (wall clock only).
    pub woke: u64,
    /// Sampling ended before the signal was handled.
    pub at_end: u64,
    /// Ticks that never fired, because the thread that looks was kept from running. Not among those fired.
    pub late: u64,
}

impl TickCounts {
    /// Ticks that should have been samples and are not.
    pub fn lost(&self) -> u64 {
        self.coalesced + self.ring_full + self.unrecorded + self.woke
    }

    /// Adds those of another recording.
    pub fn add(&mut self, other: &Self) {
        self.fired += other.fired;
        self.sampled += other.sampled;
        self.idle += other.idle;
        self.preempted += other.preempted;
        self.coalesced += other.coalesced;
        self.ring_full += other.ring_full;
        self.unrecorded += other.unrecorded;
        self.woke += other.woke;
        self.at_end += other.at_end;
        self.late += other.late;
    }

    /// Returns what has come since they were `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            fired: self.fired - before.fired,
            sampled: self.sampled - before.sampled,
            idle: self.idle - before.idle,
            preempted: self.preempted - before.preempted,
            coalesced: self.coalesced - before.coalesced,
            ring_full: self.ring_full - before.ring_full,
            unrecorded: self.unrecorded - before.unrecorded,
            woke: self.woke - before.woke,
            at_end: self.at_end - before.at_end,
            late: self.late - before.late,
        }
    }

    /// Whether every tick is accounted for.
    pub fn balanced(&self) -> bool {
        self.fired == self.accounted()
    }

    /// Ticks whose end is known.
    pub fn accounted(&self) -> u64 {
        self.sampled + self.idle + self.preempted + self.at_end + self.lost()
    }
}

impl Recording {
    /// The frames of `stack`, leaf first.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        std::iter::successors(Some(stack), |&id| self.stacks[id as usize].parent)
            .map(|id| &self.frames[self.stacks[id as usize].frame as usize])
    }

    /// The lines of `stack` with inlined functions spread out, leaf first.
    pub fn lines_of(&self, stack: StackId) -> impl Iterator<Item = Line> {
        self.frames_of(stack).flat_map(|frame| frame.lines.iter().copied())
    }

    /// What a thread is called: by its store, too, if there are several.
    pub fn thread_name(&self, thread: &Thread) -> String {
        match &self.stores[..] {
            [_, _, ..] => format!("{} on {}", self.stores[thread.store as usize].name, thread.name),
            _ => thread.name.clone(),
        }
    }

    /// All samples of all threads.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        self.threads.iter().flat_map(|thread| thread.samples.iter())
    }
}
