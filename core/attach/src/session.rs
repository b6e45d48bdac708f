//! Sampling a process from outside: what is in it, and what comes of sampling it.

use crate::failure::AttachError;
use crate::images::{FoundImage, FoundImages, Room};
use crate::language::LanguageModule;
use crate::layout::{Layout, RELEASES};
use crate::process::Process;
use crate::reading::StackReader;
use crate::samples::Samples;
use crate::sampling::Sampling;
use crate::stand_in;
use crate::stops::Stops;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{Clock, Journal, Meta, ModuleId, Recorder, TickCounts};
use wlprof_walk::{CodeMap, Dump, MappedCode, MappedImage};

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
    /// Samples a second, from 0.01 to 10,000. What is beyond counts as the bound.
    pub rate_hz: f64,
    /// What time samples stand for.
    pub clock: Clock,
    /// The part of its time for which a thread may stand still, from 0.0001 to 1. The rate is lowered to keep it.
    pub max_overhead: f64,
}

impl Options {
    /// The nearest options that a session can follow.
    fn within_bounds(self) -> Self {
        // `max` and `min` take the bound for what is no number.
        let [rate_hz, max_overhead] = [(self.rate_hz, 0.01, 10_000.0), (self.max_overhead, 0.0001, 1.0)]
            .map(|(value, least, most): (f64, f64, f64)| value.max(least).min(most));
        Self { rate_hz, max_overhead, ..self }
    }
}

impl Default for Options {
    /// 100 samples a second of CPU time, of which stops may take 2 %.
    fn default() -> Self {
        Self { rate_hz: 100.0, clock: Clock::Cpu, max_overhead: 0.02 }
    }
}

/// What its language knows of a module, if that has stacks of its own.
type Language = Option<Arc<dyn Program>>;

/// A file that images may have been compiled from.
///
/// ```
/// use std::sync::Arc;
/// use wlprof_attach::ProgramFile;
/// use wlprof_module::ModuleImage;
///
/// let image = ModuleImage::parse(b"\0asm\x01\0\0\0".to_vec(), "empty.wasm")?;
/// let file = ProgramFile { modules: vec![(Arc::new(image), None)] };
/// assert_eq!(file.modules.len(), 1);
/// # Ok::<(), wlprof_module::ImageError>(())
/// ```
#[derive(Clone)]
pub struct ProgramFile {
    /// Its modules, and what their languages know of them: itself, or those in a component, in order.
    pub modules: Vec<(Arc<ModuleImage>, Language)>,
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
    pub(crate) reader: StackReader,
    pub(crate) samples: Samples,
    pub(crate) options: Options,
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
    pub(crate) begun: Instant,
    pub(crate) stops: Stops,
    pub(crate) instants: u64,
    /// Threads that could not be looked at, since there were too many.
    pub(crate) unopened: usize,
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
        allow_many_files();
        let options = options.within_bounds();
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
            begun: Instant::now(),
            stops: Stops::default(),
            instants: 0,
            unopened: 0,
        };
        let pid = session.reader.process.pid();
        session.look().map_err(|error| AttachError::opening(pid, &error))?;
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
        self.on_own_thread(|sampling| sampling.dump())
    }

    /// Samples until `ends`, or until the process has ended. When it returns, all threads of the process run on. It may be called again.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn run(&mut self, ends: impl Fn() -> bool + Send) -> Result<(), AttachError> {
        self.on_own_thread(|sampling| sampling.sample_until(ends))
    }

    /// Does `what` on a thread that then ends, so that nothing stays traced.
    fn on_own_thread<R: Send>(
        &mut self,
        what: impl FnOnce(&mut Sampling<'_>) -> Result<R, AttachError> + Send,
    ) -> Result<R, AttachError> {
        let pid = self.reader.process.pid();
        std::thread::scope(|scope| {
            let tracer = std::thread::Builder::new().name("wlprof tracer".into()).spawn_scoped(scope, || {
                let mut sampling = Sampling::by_this_thread(self);
                let done = what(&mut sampling);
                sampling.end();
                done
            });
            let tracer = tracer.map_err(|error| AttachError::opening(pid, &error))?;
            tracer.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Ends sampling.
    pub fn finish(mut self) -> Finished {
        (self.meta.pause.handler_p50_ns, self.meta.pause.handler_p99_ns) = self.stops.percentiles();
        self.meta.notes.extend(self.stops.note());
        if self.unopened > 0 {
            self.meta.notes.push(format!(
                "{} threads were not sampled: each takes three open files; allow wlprof more with `ulimit -n`",
                self.unopened
            ));
        }
        let duration = self.begun.elapsed();
        self.meta.duration_ns = duration.as_nanos() as u64;
        self.meta.allowed_hz = self.options.rate_hz.min(self.instants as f64 / duration.as_secs_f64());
        self.meta.cpu_ns = self.samples.cpu_ns;
        let Samples { recorder, ticks, modules, .. } = self.samples;
        Finished { recorder, meta: self.meta, ticks, modules, programs: self.programs }
    }

    /// Looks for images that have come or gone. `false` if the program that was sampled has ended.
    ///
    /// # Errors
    /// If the process does not let it.
    pub(crate) fn look(&mut self) -> io::Result<bool> {
        let process = &self.reader.process;
        let mappings = process.mappings()?;
        if !mappings.iter().any(|mapping| mapping.is_readable && process.read(mapping.range.start, &mut [0])) {
            if !mappings.is_empty() {
                self.meta.notes.push("the process has begun another program, which was not sampled".to_owned());
            }
            return Ok(false);
        }
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
        Ok(true)
    }

    fn add(&mut self, found: &FoundImage) {
        let known = self.files.iter().map(|file| {
            let (modules, programs): (Vec<_>, Vec<_>) = file.modules.iter().cloned().unzip();
            (MappedImage { modules, ..found.image.clone() }, programs)
        });
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

/// Allows this process as many open files as it may have: each thread takes some.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer, some threads are not sampled, and a note says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn options_beyond_bounds_count_as_these() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            let options = Options { rate_hz: value, max_overhead: value, clock: Clock::Cpu }.within_bounds();
            assert!(Duration::from_secs_f64(1.0 / options.rate_hz) > Duration::ZERO, "{options:?}");
            assert!(options.max_overhead > 0.0 && options.max_overhead <= 1.0, "{options:?}");
        }
        assert_eq!(Options::default().within_bounds(), Options::default());
    }

    #[test]
    fn a_session_ends_with_its_process() {
        let exec = ["-c", "read line && exec cat"];
        for (arguments, note) in [(&["-c", "read line"][..], None), (&exec, Some("another program"))] {
            let mut child = Command::new("sh").args(arguments).stdin(Stdio::piped()).spawn().unwrap();
            let process = Process::open(child.id() as i32).unwrap();
            let mut session = Session::new(process, Vec::new(), Journal::default(), Options::default()).unwrap();
            // Nobody asks for its end until sampling ends.
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
            let begun = Instant::now();
            session.run(|| begun.elapsed().as_secs() > 600).unwrap();
            assert!(begun.elapsed().as_secs() < 600, "sampling did not end");
            let notes = session.finish().meta.notes;
            assert_eq!(
                notes.iter().any(|said| note.is_some_and(|note| said.contains(note))),
                note.is_some(),
                "{notes:?}"
            );
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
