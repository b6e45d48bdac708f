//! Sampling a process from outside: what is in it, and what comes of sampling it.

use crate::failure::AttachError;
use crate::fibers::Fibers;
#[cfg(feature = "host-frames")]
use crate::host_frames;
use crate::images::{FoundImage, FoundImages, Room};
use crate::initial_data::InitialData;
use crate::language::LanguageModule;
use crate::layout::{Layout, RELEASES};
#[cfg(feature = "host-frames")]
use crate::maps::Mapping;
use crate::options::Options;
use crate::process::Process;
use crate::program_files::{Language, ProgramFile, ProgramFiles};
use crate::reading::StackReader;
use crate::samples::{Samples, ThreadLabels};
use crate::sampling::Sampling;
use crate::signaller::Signaller;
use crate::stand_in;
use crate::stops::Stops;
use crate::window::Progress;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wlprof_module::ModuleImage;
use wlprof_plugin::{ModuleView, Program};
use wlprof_recording::{Journal, Meta, ModuleId, Naming, Recorder, TickCounts};
use wlprof_walk::{CodeMap, Dump, MappedCode, MappedImage};

/// Bytes at the end of an image by which it is known again: its table of sections says how long each part of it is.
const TAIL: usize = 4096;

/// Notes on what is sampled.
const MAX_NOTES: usize = 100;

/// What came of a [`Session`].
pub struct SessionOutcome {
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
    pub(crate) fibers: Fibers,
    pub(crate) options: Options,
    pub(crate) meta: Meta,
    /// For each module, what its language knows of it.
    pub(crate) programs: Vec<Option<Arc<dyn Program>>>,
    /// For each module, the ids of those that work on the same memory.
    pub(crate) siblings: Vec<Vec<ModuleId>>,
    pub(crate) naming: Naming,
    /// Where windows begin that are open, in nanoseconds since sampling began.
    pub(crate) windows: Vec<u64>,
    files: ProgramFiles,
    /// Each image, and the ids of its modules, by its address.
    pub(crate) images: BTreeMap<usize, (MappedImage, Vec<ModuleId>)>,
    /// The ids of modules whose images have gone, by the hash of the image: of each that was there.
    pub(crate) retired: HashMap<u64, Vec<Vec<ModuleId>>>,
    /// Ids of modules that are not to come again, as long as there are frames of them.
    pub(crate) leaving: BTreeSet<ModuleId>,
    hasher: RandomState,
    /// What may still be read of images, and functions that may still be made in place of those that no file has.
    pub(crate) room: (Room, u32),
    /// Where the code of images begins that are not sampled, and how many there have been.
    left_out: HashSet<usize>,
    left_out_in_all: usize,
    pub(crate) begun: Instant,
    /// How long after that it was sampled last.
    lasted: Duration,
    pub(crate) stops: Stops,
    /// Time between instants, as it was at the last one, and when threads and images were last looked for: sampling goes on with these.
    pub(crate) period: Option<Duration>,
    pub(crate) looked: Instant,
    pub(crate) looked_for_images: Instant,
    pub(crate) instants: u64,
    /// Threads that could not be looked at, since there were too many.
    pub(crate) unopened: usize,
    /// What it had come to a moment ago.
    pub(crate) published: Arc<Mutex<Progress>>,
    /// The thread that samples, or did last.
    pub(crate) sampler: Arc<Mutex<Option<Thread>>>,
}

impl Session {
    /// Finds the images in `process` and prepares to sample its threads. What is sampled is written into `journal` as it comes.
    ///
    /// `files` are those that its images may have been compiled from. An image whose functions are those of a file has lines,
    /// inlined functions and its language's own stacks. Others have the names of their symbols.
    ///
    /// Each thread takes three open files while it is sampled. Where this process may not have as many, a note says how many threads were not.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be looked at.
    pub fn new(
        process: Process,
        files: Vec<ProgramFile>,
        journal: Journal,
        options: Options,
    ) -> Result<Self, AttachError> {
        let options = options.within_bounds();
        if process.is_own() {
            Signaller::new().map_err(|error| AttachError::opening(process.pid(), &error))?;
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let meta = Meta {
            wlprof_version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            guest: if process.is_own() { "this process".to_owned() } else { format!("process {}", process.pid()) },
            arguments: process.command(),
            start_unix_ms: started.map_or(0, |since| since.as_millis() as u64),
            sampler: if process.is_own() { "inside" } else { "attach" }.to_owned(),
            clock: options.clock,
            requested_hz: options.rate_hz,
            allowed_hz: options.rate_hz,
            ..Meta::default()
        };
        let mut session = Self {
            samples: Samples::new(Recorder::new(Vec::new(), meta.clone(), journal), options.clock),
            reader: StackReader {
                process,
                code: CodeMap::default(),
                mappings: Vec::new(),
                languages: Vec::new(),
                #[cfg(feature = "host-frames")]
                host: options.host_frames.then(wlprof_host::HostCode::default),
            },
            fibers: Fibers::default(),
            options,
            meta,
            programs: Vec::new(),
            siblings: Vec::new(),
            naming: Naming::default(),
            windows: Vec::new(),
            files: ProgramFiles::new(files),
            images: BTreeMap::new(),
            room: (Room::default(), stand_in::MAX_ALL_FUNCTIONS),
            left_out: HashSet::new(),
            left_out_in_all: 0,
            retired: HashMap::new(),
            leaving: BTreeSet::new(),
            hasher: RandomState::new(),
            begun: Instant::now(),
            lasted: Duration::ZERO,
            stops: Stops::default(),
            period: None,
            looked: Instant::now(),
            looked_for_images: Instant::now(),
            instants: 0,
            unopened: 0,
            published: Arc::default(),
            sampler: Arc::default(),
        };
        let pid = session.reader.process.pid();
        session.look().map_err(|error| AttachError::opening(pid, &error))?;
        session.publish();
        Ok(session)
    }

    /// Returns the modules that have been found.
    pub fn modules(&self) -> &[Arc<ModuleImage>] {
        &self.samples.modules
    }

    /// Returns what languages know of them.
    pub fn programs(&self) -> &[Option<Arc<dyn Program>>] {
        &self.programs
    }

    /// Has samples of a thread carry what `labels` returns for its number, as it is while the thread stands still.
    pub fn label_threads(&mut self, labels: ThreadLabels) {
        self.samples.labels = Some(labels);
    }

    /// Returns, for each module, the ids of those that work on the same memory.
    pub fn siblings(&self) -> &[Vec<ModuleId>] {
        &self.siblings
    }

    /// Adds a file that images may have been compiled from. Frames that are found from here on have its lines, if some were.
    ///
    /// # Errors
    /// If the process does not let its images be looked at once more.
    pub fn add_file(&mut self, file: ProgramFile) -> io::Result<()> {
        let has_stand_in = |image: &MappedImage| !image.modules.iter().any(|module| self.files.have(module));
        let images = self.images.values().map(|(image, _)| image);
        let addresses: Vec<usize> =
            images.filter(|image| has_stand_in(image) && file.is_of(image)).map(|image| image.address).collect();
        self.files.add(file);
        for address in addresses {
            let stood_in = self.remove(address);
            self.leaving.extend(stood_in.into_iter().flat_map(|(_, ids)| ids));
        }
        // None gets the modules again that stood for its own.
        let Self { retired, files, samples, .. } = self;
        let have = |id: &ModuleId| files.have(&samples.modules[*id as usize]);
        let stood_in = retired.extract_if(|_, all| !all.iter().flatten().all(have));
        self.leaving.extend(stood_in.flat_map(|(_, all)| all).flatten());
        self.left_out.clear();
        self.look().map(|_| ())
    }

    /// Reads what all threads have on their stacks now, one after the other, and then the stacks of stores that wait.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn dump(&mut self) -> Result<Dump, AttachError> {
        let dumps = self.on_own_thread(|sampling| sampling.read_all(StackReader::dump))?;
        let waiting = self.fibers.dumps(&mut self.reader);
        Ok(dumps.into_iter().chain(waiting).reduce(Dump::and).unwrap_or_default())
    }

    /// Returns how many threads have wasm on their stacks now.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn threads_in_wasm(&mut self) -> Result<usize, AttachError> {
        let are_in_wasm = self
            .on_own_thread(|sampling| sampling.read_all(|reader, registers, _, _, _| reader.is_in_wasm(registers)))?;
        Ok(are_in_wasm.into_iter().filter(|is_in_wasm| *is_in_wasm).count())
    }

    /// Samples until `ends`, or until the process has ended. When it returns, all threads of the process run on. It may be called again.
    ///
    /// # Errors
    /// [`AttachError`] if it may not be traced.
    pub fn run(&mut self, ends: impl Fn() -> bool + Send + Sync) -> Result<(), AttachError> {
        if self.instants > 0 && ends() {
            // What has been done since it returned last, as a dump, is no time that was sampled.
            return Ok(());
        }
        if self.instants == 0 && self.windows.is_empty() {
            // Images have been looked for since.
            self.begun = Instant::now();
        }
        let sampled = loop {
            let sampled = self.on_own_thread(|sampling| sampling.sample_until(&ends));
            if sampled.is_err() || ends() || !self.is_overgrown() || !self.compact() {
                break sampled;
            }
        };
        self.lasted = self.begun.elapsed();
        self.publish();
        sampled
    }

    /// Does `what` on a thread that then ends, so that nothing stays traced.
    fn on_own_thread<R: Send>(
        &mut self,
        what: impl FnOnce(&mut Sampling<'_>) -> Result<R, AttachError> + Send,
    ) -> Result<R, AttachError> {
        let pid = self.reader.process.pid();
        // Signals that are for the whole process are for its own threads. The one that samples has this one's mask.
        let blocked = self.reader.process.is_own().then(|| SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK));
        let done = thread::scope(|scope| {
            let sampler = thread::Builder::new().name("wlprof sampler".into()).spawn_scoped(scope, || {
                *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
                let mut sampling = Sampling::by_this_thread(self).map_err(|error| AttachError::opening(pid, &error))?;
                let done = what(&mut sampling);
                sampling.end();
                done
            });
            let sampler = sampler.map_err(|error| AttachError::opening(pid, &error))?;
            sampler.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        if let Some(Ok(before)) = blocked {
            let _ = before.thread_set_mask();
        }
        done
    }

    /// Names some of what only languages can name, so that the recording has it if this process is killed.
    pub(crate) fn name(&mut self, patience: Duration) {
        let Self { naming, samples, programs, .. } = self;
        naming.name(&mut samples.recorder, patience, |module| programs.get(module as usize).cloned().flatten());
    }

    /// Names the host's own frames. Where a file is asked for the first time this takes as long as it takes to read its symbols.
    #[cfg(feature = "host-frames")]
    pub(crate) fn name_host_frames(&mut self) {
        if let Some(host) = &mut self.reader.host {
            host_frames::name(host, &mut self.samples.recorder);
        }
    }

    /// Ends sampling.
    pub fn finish(mut self) -> SessionOutcome {
        #[cfg(feature = "host-frames")]
        self.name_host_frames();
        (self.meta.pause.handler_p50_ns, self.meta.pause.handler_p99_ns) = self.stops.percentiles();
        self.meta.notes.extend(self.stops.notes());
        self.meta.notes.extend(self.files.notes());
        self.meta.notes.extend(self.notes_of_lost());
        self.meta.duration_ns = self.lasted.as_nanos() as u64;
        self.meta.allowed_hz = self.options.rate_hz.min(self.instants as f64 / self.lasted.as_secs_f64());
        self.meta.cpu_ns = self.samples.cpu_ns;
        let Samples { recorder, ticks, modules, .. } = self.samples;
        SessionOutcome { recorder, meta: self.meta, ticks, modules, programs: self.programs }
    }

    /// Returns what there is to say of what is not sampled.
    pub(crate) fn notes_of_lost(&self) -> Vec<String> {
        let (images, threads) = (self.left_out_in_all, self.unopened);
        let of_images = (images > 0)
            .then(|| format!("{images} images of compiled code were not sampled: too many, too large, or broken"));
        let of_threads = (threads > 0).then(|| {
            format!("{threads} threads were not sampled: each takes three open files; allow more with `ulimit -n`")
        });
        of_images.into_iter().chain(of_threads).collect()
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
                self.note("the process has begun another program, which was not sampled".to_owned());
            }
            return Ok(false);
        }
        let images = self.images.values().map(|(image, _)| image);
        let gone: Vec<usize> = images.filter(|image| !is_there(process, image)).map(|image| image.address).collect();
        let is_code = |address: usize| mappings.binary_search_by_key(&address, |mapping| mapping.range.start).is_ok();
        self.left_out.retain(|address| is_code(*address));
        let is_known = |address: usize| {
            let before = self.images.range(..=address).next_back();
            self.left_out.contains(&address)
                || before
                    .is_some_and(|(start, (image, _))| !gone.contains(start) && address < start + bytes(image).len())
        };
        let found = FoundImages::find(process, &mappings, &mut self.room.0, is_known);
        gone.into_iter().for_each(|address| self.retire(address));
        self.reader.code.free_removed();
        self.reader.languages.iter_mut().for_each(LanguageModule::look_again);
        self.left_out_in_all += found.left_out.len();
        self.left_out.extend(found.left_out);
        found.images.iter().for_each(|found| self.add(found));
        self.fibers.find(&self.reader.process, &mappings);
        #[cfg(feature = "host-frames")]
        if let Some(host) = &mut self.reader.host {
            let images = &self.images;
            let is_image = |mapping: &Mapping| {
                let before = images.range(..=mapping.range.start).next_back();
                before.is_some_and(|(start, (image, _))| mapping.range.start < start + bytes(image).len())
            };
            host_frames::look(host, &self.reader.process, &mappings, is_image);
        }
        let stacks = mappings.into_iter().filter(|mapping| !mapping.is_executable);
        self.reader.mappings = stacks.map(|mapping| mapping.range).collect();
        Ok(true)
    }

    pub(crate) fn add(&mut self, found: &FoundImage) {
        let retired = self.retired.get_mut(&self.hasher.hash_one(bytes(&found.image))).and_then(Vec::pop);
        let known = |ids: &Vec<ModuleId>| {
            let module =
                |id: &ModuleId| (self.samples.modules[*id as usize].clone(), self.programs[*id as usize].clone());
            ids.iter().map(module).collect()
        };
        let Some(modules) = retired.as_ref().map(known).or_else(|| self.modules_of(found)) else {
            self.left_out.extend(found.image.parse().map(|image| found.image.address + image.text().start));
            self.left_out_in_all += 1;
            self.room.0.give_back(bytes(&found.image).len());
            return;
        };
        let (modules, programs): (Vec<_>, Vec<_>) = modules.into_iter().unzip();
        let add_all =
            || modules.iter().zip(&programs).map(|(module, of)| self.add_module(module, of.clone())).collect();
        let ids: Vec<ModuleId> = retired.unwrap_or_else(add_all);
        let image = MappedImage { modules, ..found.image.clone() };
        self.siblings.resize(self.samples.modules.len(), Vec::new());
        for (id, module) in ids.iter().zip(&image.modules) {
            let siblings = module.siblings().iter().filter_map(|sibling| ids.get(*sibling as usize));
            self.siblings[*id as usize] = siblings.copied().collect();
        }
        let languages_before = self.reader.languages.len();
        for (number, module) in image.modules.iter().enumerate() {
            let Some(program) = programs.get(number).cloned().flatten() else { continue };
            if program.walker().is_none() {
                continue;
            }
            let release = found.release.split('.').next().and_then(|release| release.parse().ok());
            let Some(layout) = release.and_then(Layout::of) else {
                let note = format!(
                    "{}: its own stacks are not read, since Wasmtime {} is not known (known: {} to {})",
                    module.name(),
                    found.release,
                    RELEASES.start(),
                    RELEASES.end()
                );
                self.note(note);
                continue;
            };
            let siblings = || module.siblings().iter().map(|sibling| *sibling as usize).filter(|at| *at < ids.len());
            // In some components one module has the data of all that work on its memory.
            let sharing: Vec<_> =
                std::iter::once(number).chain(siblings()).map(|at| image.modules[at].clone()).collect();
            let module = (module.clone(), InitialData::of(&sharing));
            let siblings = siblings().map(|at| ids[at]).collect();
            self.reader.languages.push(LanguageModule::new((ids[number], siblings), module, program, layout));
        }
        // Where instructions are from is asked for while threads stand still.
        let with_origins = self.reader.languages.len() > languages_before;
        // Without modules there is no code of theirs.
        if !ids.is_empty() {
            self.reader.code.add(ids.clone(), MappedCode::new(&image, with_origins));
        }
        self.images.insert(image.address, (image, ids));
    }

    /// Says something of what is sampled. A program that makes modules without end would have as many notes.
    fn note(&mut self, note: String) {
        if !self.meta.notes.contains(&note) && self.meta.notes.len() < MAX_NOTES {
            self.meta.notes.push(note);
        }
    }

    /// The modules that an image was compiled from: those of a file, or others in their place. `None` if these would be too many.
    fn modules_of(&mut self, found: &FoundImage) -> Option<Vec<(Arc<ModuleImage>, Language)>> {
        if let Some(modules) = self.files.modules_of(found) {
            return Some(modules);
        }
        let modules = stand_in::modules(&found.image.parse()?, &found.name, &mut self.room.1)?;
        Some(modules.into_iter().map(|module| (module, None)).collect())
    }

    /// Removes the image at `address`. Its modules keep their ids: an equal image gets them.
    pub(crate) fn retire(&mut self, address: usize) {
        if let Some((image, ids)) = self.remove(address) {
            self.retired.entry(self.hasher.hash_one(bytes(&image))).or_default().push(ids);
        }
    }

    /// Removes the image at `address`, and returns it with the ids of its modules.
    fn remove(&mut self, address: usize) -> Option<(MappedImage, Vec<ModuleId>)> {
        let (image, ids) = self.images.remove(&address)?;
        self.reader.code.remove(&ids);
        self.reader.languages.retain(|language| !ids.contains(&language.id));
        self.room.0.give_back(bytes(&image).len());
        Some((image, ids))
    }

    fn add_module(&mut self, module: &Arc<ModuleImage>, program: Option<Arc<dyn Program>>) -> ModuleId {
        let id = self.samples.module(module);
        match self.programs.get_mut(id as usize) {
            Some(of_forgotten) => *of_forgotten = program,
            None => self.programs.push(program),
        }
        id
    }
}

/// Whether an image is still what the process has at its address.
fn is_there(process: &Process, image: &MappedImage) -> bool {
    let bytes = bytes(image);
    let at = bytes.len().saturating_sub(TAIL);
    let mut found = vec![0; bytes.len() - at];
    process.read(image.address + at, &mut found) && found == bytes[at..]
}

fn bytes(image: &MappedImage) -> &[u8] {
    (*image.bytes).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images;
    use std::process::{Command, Stdio};

    #[test]
    fn an_image_that_comes_again_has_the_modules_that_it_had() {
        let own = Process::open(std::process::id() as i32).unwrap();
        let mut session = Session::new(own, Vec::new(), Journal::default(), Options::default()).unwrap();
        let (name, release) = (String::new(), "48.0.8".to_owned());
        let bytes = Arc::new(images::tests::image(&["wasm[0]::function[0]"]));
        let image = MappedImage { bytes, address: 1 << 32, modules: Vec::new() };
        let found = FoundImage { image, release, name };
        let moved = FoundImage { image: MappedImage { address: 1 << 33, ..found.image.clone() }, ..found.clone() };
        session.add(&found);
        session.add(&moved);
        assert_eq!(session.modules().len(), 2, "both are there");
        session.retire(found.image.address);
        session.add(&FoundImage { image: MappedImage { address: 1 << 34, ..found.image.clone() }, ..found });
        assert_eq!(session.modules().len(), 2);
        assert_eq!(session.images.values().map(|(_, ids)| ids[0]).collect::<Vec<_>>(), [1, 0]);
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
