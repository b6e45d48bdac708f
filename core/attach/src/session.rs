//! Sampling a process from outside: which thread is stopped when, and what a sample stands for.

use crate::failure::AttachError;
use crate::images::{FoundImage, FoundImages};
use crate::process::Process;
use crate::stack::{self, Walked};
use crate::thread::{Stop, Thread};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wlprof_module::ModuleImage;
use wlprof_plugin::ModuleView;
use wlprof_recording::{
    Clock, FrameId, Journal, Meta, Module, ModuleId, Origin, Recorder, Sample, StackId, State, StoreId, TickCounts,
    TrackId, Truncation,
};
use wlprof_walk::{CodeMap, FrameWord, Frames, MAX_FRAMES, MappedCode, MappedImage, Truncated};

/// How often threads that have come and images that have come or gone are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

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

/// What came of a [`Session`].
#[derive(Debug)]
pub struct Finished {
    /// Frames, stacks and samples.
    pub recorder: Recorder,
    /// How they came about.
    pub meta: Meta,
    /// What became of every instant at which a thread was to be sampled.
    pub ticks: TickCounts,
    /// The modules that frames are of, by their ids.
    pub modules: Vec<Arc<ModuleImage>>,
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
    /// Programs whose files are there, each with its modules.
    programs: Vec<Vec<Arc<ModuleImage>>>,
    /// The ids of the modules of each image, by its address.
    images: BTreeMap<usize, Vec<ModuleId>>,
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

impl Session {
    /// Finds the images in `process` and prepares to sample its threads. What is sampled is written into `journal` as it comes.
    ///
    /// `programs` are the modules of files that its images may have been compiled from. An image whose functions are those of a file has lines
    /// and inlined functions. Others have the names of their symbols.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be looked at.
    pub fn new(
        process: Process,
        programs: Vec<Vec<Arc<ModuleImage>>>,
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
            programs,
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
        Finished { recorder: self.recorder, meta: self.meta, ticks: self.ticks, modules: self.modules }
    }

    /// Sleeps until then, and has threads that stop late run on meanwhile. `false` if it is over before.
    fn sleep_until(&mut self, instant: Instant, ends: impl Fn() -> bool) -> bool {
        /// While some thread stops late, this process looks after it as often.
        const MOMENT: Duration = Duration::from_micros(200);
        /// How soon an end is seen.
        const A_WHILE: Duration = Duration::from_millis(100);
        loop {
            let left = instant.saturating_duration_since(Instant::now());
            if left.is_zero() || ends() {
                return left.is_zero();
            }
            let mut late = false;
            self.threads.values_mut().for_each(|sampled| late |= sampled.thread.release_late());
            std::thread::sleep(left.min(if late { MOMENT } else { A_WHILE }));
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
        let found = FoundImages::find(&self.process, &mappings, |address| self.images.contains_key(&address));
        let gone: Vec<usize> = self.images.keys().copied().filter(|address| !is_mapped(&mappings, *address)).collect();
        for address in gone {
            if let Some(ids) = self.images.remove(&address) {
                self.code.remove(&ids);
            }
        }
        self.code.free_removed();
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
        let of_file = |program: &Vec<Arc<ModuleImage>>| MappedImage { modules: program.clone(), ..found.image.clone() };
        let known = self.programs.iter().map(of_file).find(MappedImage::was_compiled_from_modules);
        let image = known.as_ref().unwrap_or(&found.image);
        let ids: Vec<ModuleId> = image.modules.iter().map(|module| self.add_module(module)).collect();
        self.code.add(ids.clone(), MappedCode::new(image, false));
        self.images.insert(found.image.address, ids);
    }

    fn add_module(&mut self, module: &Arc<ModuleImage>) -> ModuleId {
        let id = self.recorder.module(Module { name: module.name().to_owned(), build_id: module.build_id() });
        self.modules.push(module.clone());
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
        let mut frames = Frames::new(&mut words);
        let begun = Instant::now();
        let (process, code, mappings) = (&self.process, &self.code, &self.mappings);
        let stopped = sampled.thread.stopped(process.pid(), |registers| {
            let stack = mappings.iter().find(|range| range.contains(&registers.sp));
            let top = stack.map_or(registers.sp.saturating_add(LARGEST_STACK), |range| range.end);
            stack::walk(process, code, registers, top, &mut frames)
        })?;
        let walked = match stopped {
            Stop::Stopped(walked) => walked,
            Stop::Late => {
                self.ticks.fired += 1;
                self.ticks.coalesced += 1;
                return Ok(true);
            }
            Stop::Ended => return Ok(false),
        };
        let stopped_ns = begun.elapsed().as_nanos() as u64;
        let length = frames.len();
        let Some(cpu_ns) = sampled.thread.cpu_ns() else { return Ok(false) };
        let used_ns = cpu_ns.saturating_sub(std::mem::replace(&mut sampled.cpu_ns, cpu_ns));
        if length == 0 {
            // The host's own work.
            return Ok(true);
        }
        self.stop_ns.push(stopped_ns);
        self.record(sampled, &words[..length], walked, cpu_ns, used_ns);
        Ok(true)
    }

    fn record(&mut self, sampled: &mut Sampled, words: &[u64], walked: Walked, cpu_ns: u64, used_ns: u64) {
        self.ticks.fired += 1;
        self.ticks.sampled += 1;
        self.cpu_ns += used_ns;
        let Some((stack, root)) = self.intern(words, walked) else { return };
        let store = self.store(root);
        let tid = sampled.thread.tid;
        let track = *sampled.tracks.entry(store).or_insert_with(|| self.recorder.track(store, "", tid as u64));
        let time_ns = self.begun.elapsed().as_nanos() as u64;
        let state = if walked.is_in_wasm { State::Guest } else { State::Host };
        let sample = Sample { time_ns, period_ns: used_ns, cpu_delta_ns: used_ns, stack, state, labels: None };
        self.recorder.sample(track, cpu_ns, sample);
    }

    /// Interns a stack of these words, leaf first. Also gives the module of its root.
    fn intern(&mut self, words: &[u64], walked: Walked) -> Option<(StackId, Option<ModuleId>)> {
        let mut frames: Vec<FrameId> = Vec::with_capacity(words.len() + 1);
        let mut root = None;
        if let Err(truncated) = walked.end {
            let reason = match truncated {
                Truncated::Elided | Truncated::TooManyEntries => Truncation::TooDeep,
                Truncated::BrokenChain => Truncation::BrokenChain,
            };
            self.recorder.truncated(reason);
            if truncated != Truncated::Elided {
                frames.push(self.recorder.frame(Origin::Truncated));
            }
        }
        for word in words.iter().rev().map(|word| FrameWord(*word)) {
            if word == FrameWord::ELIDED {
                frames.push(self.recorder.frame(Origin::Elided));
                continue;
            }
            let Some(origin) = self.code.origin(word.native_pc()) else { continue };
            frames.push(self.recorder.frame(origin));
            if let Origin::Wasm { module, function, code_offset } = origin {
                root.get_or_insert(module);
                if word.is_host_call() {
                    frames.push(self.recorder.frame(Origin::HostCall { module, function, code_offset }));
                }
            }
        }
        Some((self.recorder.stack(frames)?, root))
    }

    /// The store of samples whose root is in that module: there is one for each.
    fn store(&mut self, root: Option<ModuleId>) -> StoreId {
        let module = root.unwrap_or(0);
        let name = self.modules.get(module as usize).map_or("", |module| module.name());
        *self.stores.entry(module).or_insert_with(|| self.recorder.store(name))
    }
}

fn is_mapped(mappings: &[crate::maps::Mapping], address: usize) -> bool {
    mappings.iter().any(|mapping| mapping.range.start == address)
}
