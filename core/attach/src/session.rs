//! Sampling a process from outside: which thread is stopped when, and what a sample stands for.

use crate::failure::AttachError;
use crate::images::{FoundImage, FoundImages};
use crate::language::LanguageModule;
use crate::layout::{Layout, RELEASES};
use crate::pages::Pages;
use crate::process::Process;
use crate::stack::{self, Walked};
use crate::thread::{Stop, Thread};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{
    Clock, FrameId, Journal, LabelSetId, LanguageTruncation, Meta, Module, ModuleId, Origin, Recorder, Sample, StackId,
    State, StoreId, TickCounts, TrackId, Truncation,
};
use wlprof_walk::{
    CodeMap, FrameWord, Frames, LanguageEntry, LanguageStack, MAX_FRAMES, MAX_LANGUAGE_WORDS, MappedCode, MappedImage,
    Truncated,
};

/// How often threads that have come and images that have come or gone are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// While some thread stops late, this process looks after it as often.
const MOMENT: Duration = Duration::from_micros(200);

/// How long threads that stop late are waited for at the end. One that waits for a disk may take as long as that.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// Stops whose times are kept.
const MAX_STOPS: usize = 100_000;

/// Bytes at the end of an image by which it is known again: its table of sections says how long each part of it is.
const TAIL: usize = 4096;

/// How far up a stack goes whose mapping is not known yet.
const LARGEST_STACK: usize = 64 << 20;

/// How a process is to be sampled.
///
/// ```
/// let options = wlprof_attach::Options { rate_hz: 250.0, ..Default::default() };
/// assert_eq!(options.rate_hz, 250.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples a second.
    pub rate_hz: f64,
}

impl Default for Options {
    /// 100 samples a second.
    fn default() -> Self {
        Self { rate_hz: 100.0 }
    }
}

/// A file that images may have been compiled from.
///
/// ```
/// use std::sync::Arc;
/// use wlprof_attach::ProgramFile;
/// use wlprof_module::ModuleImage;
///
/// let image = ModuleImage::parse(b"\0asm\x01\0\0\0".to_vec(), "empty.wasm")?;
/// let file = ProgramFile { modules: vec![Arc::new(image)], languages: vec![None] };
/// assert_eq!(file.modules.len(), file.languages.len());
/// # Ok::<(), wlprof_module::ImageError>(())
/// ```
#[derive(Clone)]
pub struct ProgramFile {
    /// Its modules: itself, or those in a component, in order.
    pub modules: Vec<Arc<ModuleImage>>,
    /// For each module, what its language knows of it.
    pub languages: Vec<Option<Arc<dyn Program>>>,
}

/// What came of a [`Session`].
pub struct Finished {
    /// Frames, stacks and samples.
    pub recorder: Recorder,
    /// How they came about.
    pub meta: Meta,
    /// What became of every instant at which a thread was to be sampled.
    pub ticks: TickCounts,
    /// The modules that frames are of, by their ids.
    pub modules: Vec<Arc<ModuleImage>>,
    /// For each module, what its language knows of it: it names what was found.
    pub programs: Vec<Option<Arc<dyn Program>>>,
}

/// A process that is sampled.
pub struct Session {
    process: Process,
    options: Options,
    code: CodeMap,
    recorder: Recorder,
    meta: Meta,
    ticks: TickCounts,
    modules: Vec<Arc<ModuleImage>>,
    programs: Vec<Option<Arc<dyn Program>>>,
    files: Vec<ProgramFile>,
    /// The modules whose languages have stacks of their own.
    languages: Vec<LanguageModule>,
    /// Each image, and the ids of its modules, by its address.
    images: BTreeMap<usize, (MappedImage, Vec<ModuleId>)>,
    /// Where the stacks of threads and of fibers may be.
    mappings: Vec<Range<usize>>,
    threads: HashMap<i32, Sampled>,
    /// By the first module of its image.
    stores: HashMap<ModuleId, StoreId>,
    begun: Instant,
    looked: Instant,
    random: u64,
    /// CPU time that threads had in wasm or under it, and what samples stand for of it.
    cpu_ns: u64,
    stop_ns: Vec<u64>,
}

/// A thread, and what samples of it are recorded as.
struct Sampled {
    thread: Thread,
    tracks: HashMap<StoreId, TrackId>,
    /// Its CPU time when it was last stopped.
    cpu_ns: u64,
}

/// What was found on the stack of a thread.
struct Stacks<'a> {
    /// The wasm frames, leaf first.
    words: &'a [u64],
    walked: Walked,
    /// The language's own stack, if its module is on the stack; within, `None` if it is not known which instance ran.
    language: Option<Option<LanguageStack<'a>>>,
}

/// A wasm frame, interned.
#[derive(Clone, Copy, Default)]
struct Native {
    frame: Option<FrameId>,
    host_call: Option<FrameId>,
    module: Option<ModuleId>,
}

/// A stack, interned.
struct Interned {
    stack: StackId,
    /// The module of its root.
    root: Option<ModuleId>,
    labels: Option<LabelSetId>,
}

impl Session {
    /// Finds the images in `process` and prepares to sample its threads. What is sampled is written into `journal` as it comes.
    ///
    /// `files` are those that its images may have been compiled from. An image whose functions are those of a file has lines,
    /// inlined functions and its language's own stacks. Others have the names of their symbols.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be looked at.
    pub fn new(
        process: Process,
        files: Vec<ProgramFile>,
        journal: Journal,
        options: Options,
    ) -> Result<Self, AttachError> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let command = process.command();
        let meta = Meta {
            wlprof_version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            guest: format!("process {}", process.pid()),
            arguments: command,
            start_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            sampler: "attach".to_owned(),
            clock: Clock::Cpu,
            requested_hz: options.rate_hz,
            allowed_hz: options.rate_hz,
            ..Meta::default()
        };
        let mut session = Self {
            recorder: Recorder::new(Vec::new(), meta.clone(), journal),
            process,
            options,
            code: CodeMap::default(),
            meta,
            ticks: TickCounts::default(),
            modules: Vec::new(),
            programs: Vec::new(),
            files,
            languages: Vec::new(),
            images: BTreeMap::new(),
            mappings: Vec::new(),
            threads: HashMap::new(),
            stores: HashMap::new(),
            begun: Instant::now(),
            looked: Instant::now(),
            random: RandomState::new().hash_one(std::process::id()) | 1,
            cpu_ns: 0,
            stop_ns: Vec::new(),
        };
        session.look()?;
        Ok(session)
    }

    /// Returns the modules that have been found.
    pub fn modules(&self) -> &[Arc<ModuleImage>] {
        &self.modules
    }

    /// Samples until `ends`, or until the process has ended.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn run(&mut self, ends: impl Fn() -> bool) -> Result<(), AttachError> {
        let sampled = self.sample_until(ends);
        self.release_threads();
        sampled
    }

    /// Has threads run on that had yet to stop. What comes behind sampling takes seconds, and they would stand still for as long.
    fn release_threads(&mut self) {
        let begun = Instant::now();
        while self.release_late() && begun.elapsed() < LONGEST_RELEASE {
            std::thread::sleep(MOMENT);
        }
    }

    /// Has threads run on that have stopped late. `true` while some have yet to stop.
    fn release_late(&mut self) -> bool {
        let late = self.threads.values_mut().map(|sampled| sampled.thread.release_late());
        late.fold(false, |some, is_late| some | is_late)
    }

    fn sample_until(&mut self, ends: impl Fn() -> bool) -> Result<(), AttachError> {
        let period = Duration::from_secs_f64(1.0 / self.options.rate_hz);
        let mut next = Instant::now();
        while !ends() {
            // One instant anywhere in each period: a guest in step with the periods is seen evenly.
            let instant = next + period.mul_f64(self.fraction());
            next += period;
            if !self.sleep_until(instant, &ends) {
                continue;
            }
            // After a pause of this process the instants that it slept through are gone.
            next = next.max(Instant::now() - period);
            self.sample_all()?;
            if self.threads.is_empty() {
                break;
            }
            if self.looked.elapsed() > LOOK_AGAIN {
                self.look()?;
            }
        }
        Ok(())
    }

    /// Ends sampling.
    pub fn finish(mut self) -> Finished {
        self.stop_ns.sort_unstable();
        let percentile = |part: usize| self.stop_ns.get(self.stop_ns.len() * part / 100).copied().unwrap_or(0);
        self.meta.pause.handler_p50_ns = percentile(50);
        self.meta.pause.handler_p99_ns = percentile(99);
        self.meta.duration_ns = self.begun.elapsed().as_nanos() as u64;
        self.meta.cpu_ns = self.cpu_ns;
        Finished {
            recorder: self.recorder,
            meta: self.meta,
            ticks: self.ticks,
            modules: self.modules,
            programs: self.programs,
        }
    }

    /// Sleeps until then, and has threads that stop late run on meanwhile. `false` if it is over before.
    fn sleep_until(&mut self, instant: Instant, ends: impl Fn() -> bool) -> bool {
        /// How soon an end is seen.
        const A_WHILE: Duration = Duration::from_millis(100);
        loop {
            let left = instant.saturating_duration_since(Instant::now());
            if left.is_zero() || ends() {
                return left.is_zero();
            }
            let pause = if self.release_late() { MOMENT } else { A_WHILE };
            std::thread::sleep(left.min(pause));
        }
    }

    fn fraction(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Looks for threads and images that have come or gone.
    fn look(&mut self) -> Result<(), AttachError> {
        self.looked = Instant::now();
        let Ok(mappings) = self.process.mappings() else { return Ok(()) };
        let is_gone = |image: &MappedImage| !is_mapped(&mappings, image.address) || !is_there(&self.process, image);
        let images = self.images.values().map(|(image, _)| image);
        let gone: Vec<usize> = images.filter(|image| is_gone(image)).map(|image| image.address).collect();
        for address in gone {
            if let Some((_, ids)) = self.images.remove(&address) {
                self.code.remove(&ids);
                self.languages.retain(|language| !ids.contains(&language.id));
            }
        }
        let found = FoundImages::find(&self.process, &mappings, |address| self.images.contains_key(&address));
        self.code.free_removed();
        self.languages.iter_mut().for_each(LanguageModule::look_again);
        found.images.iter().for_each(|found| self.add(found));
        self.mappings =
            mappings.into_iter().filter(|mapping| !mapping.is_executable).map(|mapping| mapping.range).collect();
        let pid = self.process.pid();
        let threads = self.process.threads().unwrap_or_default();
        self.threads.retain(|tid, _| threads.contains(tid));
        for tid in threads {
            if !self.threads.contains_key(&tid)
                && let Ok(thread) = Thread::open(pid, tid)
            {
                let cpu_ns = thread.cpu_ns().unwrap_or(0);
                self.threads.insert(tid, Sampled { thread, tracks: HashMap::new(), cpu_ns });
            }
        }
        Ok(())
    }

    fn add(&mut self, found: &FoundImage) {
        let of_file = |file: &ProgramFile| MappedImage { modules: file.modules.clone(), ..found.image.clone() };
        let known = self.files.iter().map(|file| (of_file(file), file.languages.clone()));
        let known = known.into_iter().find(|(image, _)| image.was_compiled_from_modules());
        let (image, programs) = known.unwrap_or_else(|| (found.image.clone(), Vec::new()));
        let ids: Vec<ModuleId> = (0..)
            .zip(&image.modules)
            .map(|(number, module)| {
                let program = programs.get(number as usize).cloned().flatten();
                self.add_module(module, program)
            })
            .collect();
        let languages_before = self.languages.len();
        for (number, module) in image.modules.iter().enumerate() {
            let Some(program) = programs.get(number).cloned().flatten() else { continue };
            if program.walker().is_none() {
                continue;
            }
            let release = found.release.split('.').next().and_then(|release| release.parse().ok());
            let Some(layout) = release.and_then(Layout::of) else {
                self.meta.notes.push(format!(
                    "{}: its own stacks are not read, since Wasmtime {} is not known (known: {} to {})",
                    module.name(),
                    found.release,
                    RELEASES.start(),
                    RELEASES.end()
                ));
                continue;
            };
            let siblings = module.siblings().iter().filter_map(|sibling| ids.get(*sibling as usize).copied()).collect();
            self.languages.push(LanguageModule::new(ids[number], siblings, module.clone(), program, layout));
        }
        // Where instructions are from is asked for while threads stand still.
        let with_origins = self.languages.len() > languages_before;
        self.code.add(ids.clone(), MappedCode::new(&image, with_origins));
        self.images.insert(image.address, (image, ids));
    }

    fn add_module(&mut self, module: &Arc<ModuleImage>, program: Option<Arc<dyn Program>>) -> ModuleId {
        let id = self.recorder.module(Module { name: module.name().to_owned(), build_id: module.build_id() });
        self.modules.push(module.clone());
        self.programs.push(program);
        id
    }

    /// Samples the threads that run now.
    fn sample_all(&mut self) -> Result<(), AttachError> {
        let mut threads = std::mem::take(&mut self.threads);
        let mut failure = None;
        threads.retain(|_, sampled| match sampled.thread.is_running() {
            None => false,
            Some(false) => true,
            Some(true) => self.sample(sampled).unwrap_or_else(|error| {
                failure = Some(error);
                true
            }),
        });
        self.threads = threads;
        failure.map_or(Ok(()), Err)
    }

    /// Samples a thread. `false` if it has ended.
    fn sample(&mut self, sampled: &mut Sampled) -> Result<bool, AttachError> {
        let mut words = [0; MAX_FRAMES];
        let mut language_words = [0; MAX_LANGUAGE_WORDS];
        let begun = Instant::now();
        let Self { process, code, mappings, languages, .. } = self;
        let stopped = sampled.thread.stopped(process.pid(), |registers, all| {
            let stack = mappings.iter().find(|range| range.contains(&registers.sp));
            let top = stack.map_or(registers.sp.saturating_add(LARGEST_STACK), |range| range.end);
            let memory = Pages::new(process);
            let mut frames = Frames::new(&mut words);
            let walked = stack::walk(&memory, code, registers, top, &mut frames);
            let length = frames.len();
            let code = code.read();
            let modules = words[..length].iter().filter_map(|word| code.origin(FrameWord(*word).native_pc())?.module());
            let language =
                languages.iter_mut().find(|language| modules.clone().any(|module| language.has_frames_of(module)));
            let of_language = language.map(|language| {
                let stack = walked.begins..top;
                language.collect(&memory, &code, all, stack, &words[..length], &mut language_words)
            });
            (walked, length, of_language)
        })?;
        let (walked, length, of_language) = match stopped {
            Stop::Stopped(found) => found,
            Stop::Late => {
                self.ticks.fired += 1;
                self.ticks.coalesced += 1;
                return Ok(true);
            }
            Stop::Ended => return Ok(false),
        };
        let stopped_ns = begun.elapsed().as_nanos() as u64;
        let Some(cpu_ns) = sampled.thread.cpu_ns() else { return Ok(false) };
        let used_ns = cpu_ns.saturating_sub(std::mem::replace(&mut sampled.cpu_ns, cpu_ns));
        if length == 0 {
            // The host's own work.
            return Ok(true);
        }
        if self.stop_ns.len() < MAX_STOPS {
            self.stop_ns.push(stopped_ns);
        }
        let language = of_language.map(|length| length.map(|length| LanguageStack::read(&language_words[..length])));
        self.record(sampled, &Stacks { words: &words[..length], walked, language }, cpu_ns, used_ns);
        Ok(true)
    }

    fn record(&mut self, sampled: &mut Sampled, stacks: &Stacks<'_>, cpu_ns: u64, used_ns: u64) {
        self.ticks.fired += 1;
        self.ticks.sampled += 1;
        self.cpu_ns += used_ns;
        let Some(Interned { stack, root, labels }) = self.intern(stacks) else { return };
        let store = self.store(root);
        let tid = sampled.thread.tid;
        let track = *sampled.tracks.entry(store).or_insert_with(|| self.recorder.track(store, "", tid as u64));
        let time_ns = self.begun.elapsed().as_nanos() as u64;
        let state = if stacks.walked.is_in_wasm { State::Guest } else { State::Host };
        let sample = Sample { time_ns, period_ns: used_ns, cpu_delta_ns: used_ns, stack, state, labels };
        self.recorder.sample(track, cpu_ns, sample);
    }

    /// Interns what was found on a stack; `None` if that is nothing.
    fn intern(&mut self, stacks: &Stacks<'_>) -> Option<Interned> {
        let mut frames: Vec<FrameId> = Vec::with_capacity(stacks.words.len() + 1);
        let natives: Vec<Native> = stacks.words.iter().map(|word| self.native(FrameWord(*word))).collect();
        let root = natives.iter().rev().find_map(|native| native.module);
        let mut labels = None;
        // From the leaf on.
        frames.extend(natives.first().and_then(|leaf| leaf.host_call));
        let own = match stacks.language {
            None => None,
            Some(None) => {
                let reason =
                    if stacks.walked.is_in_wasm { LanguageTruncation::NoStack } else { LanguageTruncation::InHostCode };
                self.recorder.truncated(Truncation::Language(reason));
                None
            }
            Some(Some(own)) => {
                own.truncation.into_iter().for_each(|reason| self.recorder.truncated(Truncation::Language(reason)));
                labels = (!own.labels.is_empty()).then(|| self.recorder.labels(own.module, own.labels));
                Some(own).filter(|own| !own.is_empty())
            }
        };
        match own {
            Some(own) => {
                for entry in own.entries() {
                    match entry {
                        LanguageEntry::Key(key) => {
                            frames.push(self.recorder.frame(Origin::Language { module: own.module, key }));
                        }
                        LanguageEntry::Elided => frames.push(self.recorder.frame(Origin::Elided)),
                        LanguageEntry::Native(index) => push_native(&natives, index, &mut frames),
                    }
                }
            }
            None => (0..natives.len()).for_each(|index| push_native(&natives, index, &mut frames)),
        }
        if let Err(truncated) = stacks.walked.end {
            let reason = match truncated {
                Truncated::Elided | Truncated::TooManyEntries => Truncation::TooDeep,
                Truncated::BrokenChain => Truncation::BrokenChain,
            };
            self.recorder.truncated(reason);
            frames.extend((truncated != Truncated::Elided).then(|| self.recorder.frame(Origin::Truncated)));
        }
        Some(Interned { stack: self.recorder.stack(frames.into_iter().rev())?, root, labels })
    }

    fn native(&mut self, word: FrameWord) -> Native {
        if word == FrameWord::ELIDED {
            return Native { frame: Some(self.recorder.frame(Origin::Elided)), ..Native::default() };
        }
        let Some(origin) = self.code.origin(word.native_pc()) else { return Native::default() };
        let host_call = match origin {
            Origin::Wasm { module, function, code_offset } if word.is_host_call() => {
                Some(self.recorder.frame(Origin::HostCall { module, function, code_offset }))
            }
            _ => None,
        };
        Native { frame: Some(self.recorder.frame(origin)), host_call, module: origin.module() }
    }

    /// The store of samples whose root is in that module: there is one for each.
    fn store(&mut self, root: Option<ModuleId>) -> StoreId {
        let module = root.unwrap_or(0);
        let name = self.modules.get(module as usize).map_or("", |module| module.name());
        *self.stores.entry(module).or_insert_with(|| self.recorder.store(name))
    }
}

/// Adds a wasm frame, leaf first, with the host code that it calls. The leaf's stands there already.
fn push_native(natives: &[Native], index: usize, frames: &mut Vec<FrameId>) {
    if let Some(native) = natives.get(index) {
        frames.extend(native.host_call.filter(|_| index > 0));
        frames.extend(native.frame);
    }
}

/// Whether an image is still what the process has at its address.
fn is_there(process: &Process, image: &MappedImage) -> bool {
    let bytes = (*image.bytes).as_ref();
    let at = bytes.len().saturating_sub(TAIL);
    let mut found = vec![0; bytes.len() - at];
    process.read(image.address + at, &mut found) && found == bytes[at..]
}

fn is_mapped(mappings: &[crate::maps::Mapping], address: usize) -> bool {
    mappings.iter().any(|mapping| mapping.range.start == address)
}
