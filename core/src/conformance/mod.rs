//! Whether a plugin does what wlprof counts on: what `wlprof plugins check` runs.
//!
//! A guest is run under the plugin and some moments of it are kept: memory, globals and wasm stack. Everything after that is
//! asked of those, again and again, without the guest.

mod damage;
mod moment;
mod trial;

use crate::guest::ModuleImage;
use crate::languages::BUILT_IN;
use crate::languages::loader::{ForeignLanguage, LoadedPlugin};
use moment::Moment;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
pub use trial::Trial;
use wlprof_plugin::{
    Detection, FrameKey, FrameSink, GuestMemory, Language, ModuleView, SinkEntry, WalkEnd, Walker, WasmFrame,
};

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should; with what was seen.
    Passed(String),
    /// Otherwise; with what was seen instead.
    Failed(String),
    /// There was nothing to check; with the reason.
    Skipped(String),
}

/// Stack that a walk may take, and what wlprof itself needs around it.
const STACK: usize = (200 << 10) + (24 << 10);
/// A walk may take this long; it holds up the guest.
const SLOWEST_WALK: Duration = Duration::from_millis(1);
/// Walks of each moment that are timed, if they take no longer than that together.
const TIMED: u32 = 200;
const TIMED_FOR: Duration = Duration::from_millis(50);
/// How long damaged memory is walked.
const DAMAGED_FOR: Duration = Duration::from_secs(5);

/// Who is told how it goes.
pub trait Observer {
    /// A check begins. If the plugin ends the process, it was in this one.
    fn begins(&mut self, what: &'static str);
    /// It has ended.
    fn ended(&mut self, outcome: Outcome);
}

/// Checks the plugin at `path`, with a guest of its language if there is one.
pub fn check(path: &Path, trial: Option<&Trial>, observer: &mut dyn Observer) {
    let mut loaded = None;
    ask(observer, "is a plugin", || {
        let plugin = LoadedPlugin::load(path).map_err(|error| error.to_string())?;
        let (major, minor) = plugin.abi;
        let said = format!("{} {}, ABI {major}.{minor}", plugin.name, plugin.version);
        loaded = Some(plugin);
        Ok(said)
    });
    let Some(plugin) = loaded else { return };
    ask(observer, "names itself and its languages", || describes_itself(&plugin));
    ask(observer, "leaves other languages alone", || leaves_others_alone(path));
    let Some(trial) = trial else {
        observer.begins("walks a guest");
        observer.ended(Outcome::Skipped("give a guest of its language: --guest FILE.wasm".to_owned()));
        return;
    };
    let mut language = None;
    ask(observer, "knows the guest", || {
        let (index, found) = choose(&plugin, &trial.image)?;
        language = Some(index);
        Ok(found)
    });
    let Some(language) = language else { return };
    let subject = Subject { path, language, trial };
    let mut moments = Vec::new();
    ask(observer, "walks its stacks while it runs", || {
        let (kept, seen) = subject.run()?;
        moments = kept;
        Ok(seen)
    });
    if moments.is_empty() {
        return;
    }
    ask(observer, "says the same of the same moment", || on_small_stack(|| subject.says_the_same(&moments)));
    ask(observer, "names its frames", || on_small_stack(|| subject.names_its_frames(&moments)));
    ask(observer, "survives damaged memory", || on_small_stack(|| subject.survives_damaged_memory(&moments)));
    ask(observer, "survives damaged modules", || subject.survives_damaged_modules(&moments));
    ask(observer, "takes little time", || on_small_stack(|| subject.takes_little_time(&moments)));
}

fn ask(observer: &mut dyn Observer, what: &'static str, check: impl FnOnce() -> Result<String, String>) {
    observer.begins(what);
    observer.ended(check().map_or_else(Outcome::Failed, Outcome::Passed));
}

/// Runs a check with as little stack as a signal handler has.
fn on_small_stack(check: impl FnOnce() -> Result<String, String> + Send) -> Result<String, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, check);
        thread.map_err(|error| error.to_string())?.join().unwrap_or_else(|_| Err("it panicked".to_owned()))
    })
}

fn describes_itself(plugin: &LoadedPlugin) -> Result<String, String> {
    let mut names = BTreeSet::new();
    for language in &plugin.languages {
        let name = language.name();
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-._#".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(format!("`{name}` is no name for --lang (lower case letters, digits and any of + - . _ #)"));
        }
        if ["auto", "native"].contains(&name) {
            return Err(format!("`{name}` means something else to --lang"));
        }
        if BUILT_IN.iter().any(|built_in| built_in.name() == name) {
            return Err(format!("`{name}` is built in: with both, one is never asked"));
        }
        if !names.insert(name) {
            return Err(format!("`{name}` is there twice"));
        }
    }
    if plugin.name.is_empty() || plugin.version.is_empty() {
        return Err("it has no name or no version".to_owned());
    }
    if names.is_empty() {
        return Err("it has no languages".to_owned());
    }
    Ok(format!("--lang {}", names.into_iter().collect::<Vec<_>>().join(", ")))
}

/// Modules of no language at all: a plugin that knows those takes every guest away from the others.
fn leaves_others_alone(path: &Path) -> Result<String, String> {
    const OTHERS: [&str; 3] = [
        "(module)",
        r#"(module (memory (export "memory") 1) (func $main (export "_start") nop))"#,
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
            (memory (export "memory") 1) (global $__stack_pointer (mut i32) (i32.const 1024))
            (func $run (export "_start") i32.const 0 call 0))"#,
    ];
    let plugin = LoadedPlugin::load(path).map_err(|error| error.to_string())?;
    for text in OTHERS {
        let bytes = wat::parse_str(text).map_err(|error| error.to_string())?;
        let image = ModuleImage::parse(bytes, "other.wasm").map_err(|error| error.to_string())?;
        for language in &plugin.languages {
            let detection = language.detect(&image);
            not_failed(language)?;
            if detection != Detection::No {
                let name = language.name();
                return Err(format!("{name} takes a module for its own that is in no language: {text}"));
            }
        }
    }
    Ok(format!("{} modules", OTHERS.len()))
}

/// The language that knows a module, and what it calls it.
fn choose(plugin: &LoadedPlugin, image: &ModuleImage) -> Result<(usize, String), String> {
    for (index, language) in plugin.languages.iter().enumerate() {
        let detection = language.detect(image);
        not_failed(language)?;
        match detection {
            Detection::No => {}
            Detection::Yes(found) => return Ok((index, format!("{}: {found}", language.name()))),
            Detection::Unsupported { found, supported } => {
                return Err(format!("{}: unsupported {found} (supported: {supported})", language.name()));
            }
        }
    }
    Err(format!("detect says no to {}", image.name()))
}

fn not_failed(language: &ForeignLanguage) -> Result<(), String> {
    language.failure().map_or(Ok(()), Err)
}

/// A stack as a walker gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Walked {
    end: WalkEnd,
    entries: Vec<SinkEntry>,
    labels: Option<u64>,
}

/// How two stacks of one moment differ.
fn difference(one: &Walked, other: &Walked) -> String {
    let advice = "what a walk gives must depend on the guest's memory alone, keys included";
    let at = one.entries.iter().zip(&other.entries).position(|(one, other)| one != other);
    let frame = |walked: &Walked, at: usize| match walked.entries.get(at) {
        Some(SinkEntry::Own(key)) => format!("the key {key:#x}"),
        Some(SinkEntry::Wasm(index)) => format!("wasm frame {index}"),
        None => "no frame".to_owned(),
    };
    let what =
        match at.or((one.entries.len() != other.entries.len()).then(|| one.entries.len().min(other.entries.len()))) {
            Some(at) => format!("frame {at} is {} and {}", frame(one, at), frame(other, at)),
            None if one.labels != other.labels => "the labels differ".to_owned(),
            None => format!("the walk ends with {:?} and {:?}", one.end, other.end),
        };
    format!("{what}; {advice}")
}

/// One language of a plugin, with a guest to walk.
struct Subject<'a> {
    path: &'a Path,
    language: usize,
    trial: &'a Trial,
}

/// A walker of the language that is being checked.
struct Walking {
    /// Dropped first.
    walker: Box<dyn Walker>,
    plugin: LoadedPlugin,
    language: usize,
    sink: FrameSink,
}

impl Subject<'_> {
    /// A new walker for `image`, of a plugin that nothing has happened to.
    fn attach(&self, image: &ModuleImage) -> Result<Walking, String> {
        let plugin = LoadedPlugin::load(self.path).map_err(|error| error.to_string())?;
        let walker = plugin.languages[self.language].attach(image).map_err(|error| error.to_string())?;
        Ok(Walking { walker, plugin, language: self.language, sink: FrameSink::new() })
    }

    fn run(&self) -> Result<(Vec<Moment>, String), String> {
        let Walking { walker, .. } = self.attach(&self.trial.image)?;
        self.trial.run(walker)
    }

    fn says_the_same(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walkers = [self.attach(&self.trial.image)?, self.attach(&self.trial.image)?];
        let mut first = Vec::new();
        for moment in moments {
            let walked = [walkers[0].walk(moment, &moment.wasm)?, walkers[1].walk(moment, &moment.wasm)?];
            let [one, other] = &walked;
            if one != other {
                return Err(format!("two walkers at one moment: {}", difference(one, other)));
            }
            first.extend(walked.into_iter().next());
        }
        for (moment, before) in moments.iter().zip(&first) {
            let again = walkers[0].walk(moment, &moment.wasm)?;
            if again != *before {
                return Err(format!("one walker at one moment, twice: {}", difference(before, &again)));
            }
        }
        walkers.into_iter().try_for_each(Walking::end)?;
        Ok(format!("{} moments, two walkers, twice", moments.len()))
    }

    fn names_its_frames(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walking = self.attach(&self.trial.image)?;
        let keys = walking.keys(moments)?;
        let (mut without_line, mut shown) = (0, String::new());
        for &key in &keys {
            let (mut once, mut again) = (Vec::new(), Vec::new());
            walking.walker.symbolize(FrameKey::Own(key), &mut once);
            walking.walker.symbolize(FrameKey::Own(key), &mut again);
            walking.not_failed()?;
            let Some(frame) = once.first() else {
                return Err(format!("symbolize is missing, or adds nothing for the frame with key {key:#x}"));
            };
            if frame.function.is_empty() {
                return Err(format!("symbolize gives an empty function name for the frame with key {key:#x}"));
            }
            if frame.function.starts_with('[') {
                return Err(format!("symbolize gives {} for the frame with key {key:#x}", frame.function));
            }
            if once != again {
                return Err(format!("symbolize names the frame with key {key:#x} differently when asked again"));
            }
            without_line += usize::from(frame.line.is_none());
            if shown.is_empty() {
                shown.clone_from(&frame.function);
            }
        }
        let lines = if without_line > 0 { format!(", {without_line} without a line") } else { String::new() };
        Ok(format!("{} frames, `{shown}` among them{lines}", keys.len()))
    }

    fn survives_damaged_memory(&self, moments: &[Moment]) -> Result<String, String> {
        let (began, mut walks) = (Instant::now(), 0);
        for (number, moment) in moments.iter().enumerate() {
            let mut walking = self.attach(&self.trial.image)?;
            let mut walked = Ok(());
            let addresses = damage::addresses_read(moment, |memory| {
                walked = walking.walk(memory, &moment.wasm).map(|_| ());
            });
            walked?;
            for (round, damaged) in damage::memories(moment, addresses) {
                if began.elapsed() > DAMAGED_FOR {
                    break;
                }
                let walked = walking.walk(&damaged, damaged.wasm());
                let named = walked.and_then(|walked| walking.name_all(&walked));
                named.map_err(|error| format!("damage {round} of moment {number}: {error}"))?;
                walks += 1;
            }
        }
        Ok(format!("{walks} walks"))
    }

    fn survives_damaged_modules(&self, moments: &[Moment]) -> Result<String, String> {
        let (mut modules, mut attached) = (0, 0);
        for (round, image) in damage::modules(&self.trial.image) {
            let failed = |error| format!("damage {round}: {error}");
            let plugin = LoadedPlugin::load(self.path).map_err(|error| error.to_string())?;
            let language = &plugin.languages[self.language];
            let _ = language.detect(&image);
            not_failed(language).map_err(failed)?;
            let walker = language.attach(&image);
            not_failed(language).map_err(failed)?;
            modules += 1;
            if let (Ok(walker), Some(moment)) = (walker, moments.first()) {
                let mut walking = Walking { walker, plugin, language: self.language, sink: FrameSink::new() };
                walking.walk(moment, &moment.wasm).map_err(failed)?;
                attached += 1;
            }
        }
        Ok(format!("{modules} modules, {attached} of them walked"))
    }

    fn takes_little_time(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walking = self.attach(&self.trial.image)?;
        let mut times = Vec::new();
        for moment in moments {
            walking.walk(moment, &moment.wasm)?;
            let (began, mut walks) = (Instant::now(), 0);
            while walks < TIMED && began.elapsed() < TIMED_FOR {
                walking.walk_only(moment, &moment.wasm)?;
                walks += 1;
            }
            times.push(began.elapsed() / walks.max(1));
        }
        times.sort();
        let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let said = format!("{:.2} µs a walk, {:.2} µs at the slowest moment", micros(median), micros(slowest));
        if slowest > SLOWEST_WALK { Err(format!("{said}: it holds up the guest")) } else { Ok(said) }
    }
}

impl Walking {
    /// Ends the walker.
    fn end(self) -> Result<(), String> {
        drop(self.walker);
        not_failed(&self.plugin.languages[self.language])
    }

    fn not_failed(&self) -> Result<(), String> {
        not_failed(&self.plugin.languages[self.language])
    }

    fn walk_only(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame]) -> Result<WalkEnd, String> {
        let (walker, sink) = (&mut self.walker, &mut self.sink);
        sink.clear();
        // A walker that fails panics here, as it does in the sampler.
        let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walker.walk(guest, wasm, sink)));
        self.not_failed()?;
        walked.map_err(|_| "walk failed (in Rust: by a panic)".to_owned())
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame]) -> Result<Walked, String> {
        let end = self.walk_only(guest, wasm)?;
        Ok(Walked { end, entries: self.sink.entries().collect(), labels: self.sink.labels() })
    }

    /// All frames of its own in these moments.
    fn keys(&mut self, moments: &[Moment]) -> Result<BTreeSet<u64>, String> {
        let mut keys = BTreeSet::new();
        for moment in moments {
            let walked = self.walk(moment, &moment.wasm)?;
            keys.extend(walked.entries.iter().filter_map(|entry| match entry {
                SinkEntry::Own(key) => Some(*key),
                SinkEntry::Wasm(_) => None,
            }));
        }
        Ok(keys)
    }

    /// Names what was walked, whatever comes of it.
    fn name_all(&mut self, walked: &Walked) -> Result<(), String> {
        const MOST: usize = 64;
        for entry in walked.entries.iter().take(MOST) {
            if let SinkEntry::Own(key) = entry {
                self.walker.symbolize(FrameKey::Own(*key), &mut Vec::new());
            }
        }
        if let Some(key) = walked.labels {
            self.walker.labels(key, &mut Vec::new());
        }
        self.not_failed()
    }
}
