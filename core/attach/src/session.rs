//! Sampling a process from outside: what is in it, and at which instants its threads are looked at.

use crate::failure::AttachError;
use crate::images::{FoundImage, FoundImages, Room};
use crate::language::LanguageModule;
use crate::layout::{Layout, RELEASES};
use crate::process::Process;
use crate::processors::Processors;
use crate::reading::StackReader;
use crate::sampled::{Looking, SampledThread};
use crate::samples::Samples;
use crate::stand_in;
use crate::stops::Stops;
use crate::thread::Thread;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{Clock, Journal, Meta, ModuleId, Recorder, TickCounts};
use wlprof_walk::{CodeMap, Dump, MappedCode, MappedImage};

/// How often threads that have come and images that have come or gone are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// While some thread has yet to stop, this process looks after it as often.
const MOMENT: Duration = Duration::from_micros(200);

/// How long threads that have yet to stop are waited for at the end. One that waits for a disk may take as long as that.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// Bytes at the end of an image by which it is known again: its table of sections says how long each part of it is.
const TAIL: usize = 4096;

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
    /// What time samples stand for.
    pub clock: Clock,
    /// The part of its time for which a thread may stand still: the rate is lowered to keep it.
    pub max_overhead: f64,
}

impl Default for Options {
    /// 100 samples a second of CPU time, of which stops may take 2 %.
    fn default() -> Self {
        Self { rate_hz: 100.0, clock: Clock::Cpu, max_overhead: 0.02 }
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
    reader: StackReader,
    samples: Samples,
    options: Options,
    meta: Meta,
    /// For each module, what its language knows of it.
    programs: Vec<Option<Arc<dyn Program>>>,
    files: Vec<ProgramFile>,
    /// Each image, and the ids of its modules, by its address.
    images: BTreeMap<usize, (MappedImage, Vec<ModuleId>)>,
    /// What may still be read of images, and functions that may still be made in place of those that no file has.
    room: (Room, u32),
    /// Where the code of images begins that are not sampled.
    left_out: HashSet<usize>,
    threads: HashMap<i32, SampledThread>,
    begun: Instant,
    looked: Instant,
    random: u64,
    stops: Stops,
    processors: Processors,
    instants: u64,
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
        let meta = Meta {
            wlprof_version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            guest: format!("process {}", process.pid()),
            arguments: process.command(),
            start_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            sampler: "attach".to_owned(),
            clock: options.clock,
            requested_hz: options.rate_hz,
            allowed_hz: options.rate_hz,
            ..Meta::default()
        };
        let mut session = Self {
            samples: Samples::new(Recorder::new(Vec::new(), meta.clone(), journal), options.clock),
            reader: StackReader { process, code: CodeMap::default(), mappings: Vec::new(), languages: Vec::new() },
            options,
            meta,
            programs: Vec::new(),
            files,
            images: BTreeMap::new(),
            room: (Room::default(), stand_in::MAX_ALL_FUNCTIONS),
            left_out: HashSet::new(),
            threads: HashMap::new(),
            begun: Instant::now(),
            looked: Instant::now(),
            random: RandomState::new().hash_one(std::process::id()) | 1,
            stops: Stops::default(),
            processors: Processors::of_this_thread(),
            instants: 0,
        };
        session.look()?;
        Ok(session)
    }

    /// Returns the modules that have been found.
    pub fn modules(&self) -> &[Arc<ModuleImage>] {
        &self.samples.modules
    }

    /// Reads what all threads have on their stacks now, one after the other.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn dump(&mut self) -> Result<Dump, AttachError> {
        let Self { reader, threads, .. } = self;
        let dumps = threads.values_mut().map(|thread| thread.dump(reader, LONGEST_RELEASE));
        dumps.reduce(|one, other| Ok(one?.and(other?))).unwrap_or_else(|| Ok(Dump::default()))
    }

    /// Samples until `ends`, or until the process has ended.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn run(&mut self, ends: impl Fn() -> bool) -> Result<(), AttachError> {
        let sampled = self.sample_until(ends);
        // What comes behind sampling takes seconds, and threads that have yet to stop would stand still for as long.
        let begun = Instant::now();
        while self.look_after_stops() && begun.elapsed() < LONGEST_RELEASE {
            std::thread::sleep(MOMENT);
        }
        sampled
    }

    fn sample_until(&mut self, ends: impl Fn() -> bool) -> Result<(), AttachError> {
        let wanted = Duration::from_secs_f64(1.0 / self.options.rate_hz);
        let mut period = wanted;
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
            let now = Instant::now();
            self.of_threads(|thread, looking| thread.look(looking))?;
            if self.threads.values().any(SampledThread::was_blocked) {
                while now.elapsed() < self.stops.lateness() {
                    std::hint::spin_loop();
                }
                self.of_threads(|thread, looking| thread.look_again(looking))?;
            }
            self.processors.move_on();
            self.instants += 1;
            period = self.stops.next_period(wanted, self.options.max_overhead);
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
        // Nothing is asked of the threads.
        let _ = self.of_threads(|thread, looking| {
            thread.end(looking);
            Ok(true)
        });
        (self.meta.pause.handler_p50_ns, self.meta.pause.handler_p99_ns) = self.stops.percentiles();
        self.meta.notes.extend(self.stops.note());
        let duration = self.begun.elapsed();
        self.meta.duration_ns = duration.as_nanos() as u64;
        self.meta.allowed_hz = self.options.rate_hz.min(self.instants as f64 / duration.as_secs_f64());
        self.meta.cpu_ns = self.samples.cpu_ns;
        let Samples { recorder, ticks, modules, .. } = self.samples;
        Finished { recorder, meta: self.meta, ticks, modules, programs: self.programs }
    }

    /// Sleeps until then, and looks after threads that have yet to stop meanwhile. `false` if it is over before.
    fn sleep_until(&mut self, instant: Instant, ends: impl Fn() -> bool) -> bool {
        /// How soon an end is seen.
        const A_WHILE: Duration = Duration::from_millis(100);
        loop {
            let left = instant.saturating_duration_since(Instant::now());
            if left.is_zero() || ends() {
                return left.is_zero();
            }
            let pause = if self.look_after_stops() { MOMENT } else { A_WHILE };
            std::thread::sleep(left.min(pause));
        }
    }

    /// Takes the samples of threads that have stopped since they were asked to. `true` while some have yet to.
    fn look_after_stops(&mut self) -> bool {
        if !self.threads.values().any(SampledThread::is_asked) {
            return false;
        }
        // Nothing is asked of the threads.
        let _ = self.of_threads(|thread, looking| Ok(!thread.is_asked() || thread.stopped(looking, Duration::ZERO)));
        self.threads.values().any(SampledThread::is_asked)
    }

    /// Does `what` with each thread. Those of which it gives `false` have ended.
    fn of_threads(
        &mut self,
        what: impl Fn(&mut SampledThread, &mut Looking<'_>) -> Result<bool, AttachError>,
    ) -> Result<(), AttachError> {
        let Self { reader, samples, threads, begun, stops, processors, options, .. } = self;
        let mut looking = Looking { reader, samples, clock: options.clock, begun: *begun, stops, processors };
        let mut failure = None;
        threads.retain(|_, thread| match what(thread, &mut looking) {
            Ok(is_there) => {
                if !is_there {
                    thread.end(&mut looking);
                }
                is_there
            }
            Err(error) => {
                failure = Some(error);
                true
            }
        });
        failure.map_or(Ok(()), Err)
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
        let process = &self.reader.process;
        let Ok(mappings) = process.mappings() else { return Ok(()) };
        let images = self.images.values().map(|(image, _)| image);
        let gone: Vec<usize> = images.filter(|image| !is_there(process, image)).map(|image| image.address).collect();
        let is_known = |address: usize| {
            let before = self.images.range(..=address).next_back();
            self.left_out.contains(&address)
                || before.is_some_and(|(start, (image, _))| !gone.contains(start) && address < start + length(image))
        };
        let found = FoundImages::find(process, &mappings, &mut self.room.0, is_known);
        for address in gone {
            if let Some((_, ids)) = self.images.remove(&address) {
                self.reader.code.remove(&ids);
                self.reader.languages.retain(|language| !ids.contains(&language.id));
            }
        }
        self.reader.code.free_removed();
        self.reader.languages.iter_mut().for_each(LanguageModule::look_again);
        self.left_out.extend(found.left_out);
        found.images.iter().for_each(|found| self.add(found));
        let stacks = mappings.into_iter().filter(|mapping| !mapping.is_executable);
        self.reader.mappings = stacks.map(|mapping| mapping.range).collect();
        self.look_for_threads();
        Ok(())
    }

    fn look_for_threads(&mut self) {
        let process = &self.reader.process;
        let threads = process.threads().unwrap_or_default();
        // Those that have ended give their last samples when they are looked at.
        for tid in threads {
            if !self.threads.contains_key(&tid)
                && let Ok(thread) = Thread::open(process.pid(), tid)
                && let Some(thread) = SampledThread::new(thread, self.options.clock, self.begun)
            {
                self.threads.insert(tid, thread);
            }
        }
    }

    fn add(&mut self, found: &FoundImage) {
        let of_file = |file: &ProgramFile| MappedImage { modules: file.modules.clone(), ..found.image.clone() };
        let known = self.files.iter().map(|file| (of_file(file), file.languages.clone()));
        let known = known.into_iter().find(|(image, _)| image.was_compiled_from_modules());
        let stand_in = || {
            let modules = stand_in::modules(&found.image.parse()?, &found.name, &mut self.room.1)?;
            Some((MappedImage { modules, ..found.image.clone() }, Vec::new()))
        };
        let Some((image, programs)) = known.or_else(stand_in) else {
            self.left_out.extend(found.image.parse().map(|image| found.image.address + image.text().start));
            return;
        };
        let ids: Vec<ModuleId> = (0..)
            .zip(&image.modules)
            .map(|(number, module)| {
                let program = programs.get(number as usize).cloned().flatten();
                self.add_module(module, program)
            })
            .collect();
        let languages_before = self.reader.languages.len();
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
            self.reader.languages.push(LanguageModule::new(ids[number], siblings, module.clone(), program, layout));
        }
        // Where instructions are from is asked for while threads stand still.
        let with_origins = self.reader.languages.len() > languages_before;
        self.reader.code.add(ids.clone(), MappedCode::new(&image, with_origins));
        self.images.insert(image.address, (image, ids));
    }

    fn add_module(&mut self, module: &Arc<ModuleImage>, program: Option<Arc<dyn Program>>) -> ModuleId {
        self.programs.push(program);
        self.samples.module(module)
    }
}

/// Whether an image is still what the process has at its address.
fn is_there(process: &Process, image: &MappedImage) -> bool {
    let bytes = (*image.bytes).as_ref();
    let at = bytes.len().saturating_sub(TAIL);
    let mut found = vec![0; bytes.len() - at];
    process.read(image.address + at, &mut found) && found == bytes[at..]
}

fn length(image: &MappedImage) -> usize {
    (*image.bytes).as_ref().len()
}
