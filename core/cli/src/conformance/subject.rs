//! What is asked of a language of a plugin: the checks that need a guest.

use super::moment::{MOST_MOMENTS, Moment};
use super::trial::TrialOutcome;
use super::walking::{AttachedModule, TrialWalker, difference};
use super::{Trial, damage, heap, not_failed};
use std::path::Path;
use std::time::{Duration, Instant};
use wlprof_loader::{LoadError, LoadedPlugin};
use wlprof_module::ModuleImage;
use wlprof_plugin::{FrameKey, Language, Truncation};
use wlprof_recording::Clock;

/// Stack that a walk may take, and what wlprof itself needs around it.
const STACK: usize = (200 << 10) + (24 << 10);
/// A walk may take this long; it holds up the guest.
const SLOWEST_WALK: Duration = Duration::from_millis(1);
/// Walks of each moment that are timed, if they take no longer than that together.
const TIMED: u32 = 200;
const TIMED_FOR: Duration = Duration::from_millis(50);
/// How long damaged memory is walked, and how much longer new walkers may take to be made for it.
const DAMAGED_FOR: Duration = Duration::from_secs(5);
const ATTACHED_FOR: Duration = Duration::from_secs(5);
/// How long damaged modules are tried, if that is not one alone.
const MODULES_FOR: Duration = Duration::from_secs(20);

/// What came of running the guest.
pub(super) enum Ran {
    /// There are stacks.
    Walked(TrialOutcome),
    /// There is nothing to walk.
    OnlyNames,
}

/// One language of a plugin, with a guest to walk.
pub(super) struct Subject<'a> {
    pub(super) path: &'a Path,
    pub(super) language: usize,
    pub(super) trial: &'a Trial,
}

impl Subject<'_> {
    /// A new program of `image`. What the plugin keeps in variables of its own is not new: it is loaded once.
    pub(super) fn attach(&self, image: &ModuleImage) -> Result<AttachedModule, String> {
        self.attach_with(image, LoadedPlugin::load_to_check)
    }

    fn attach_with(
        &self,
        image: &ModuleImage,
        load: impl FnOnce(&Path) -> Result<LoadedPlugin, LoadError>,
    ) -> Result<AttachedModule, String> {
        let plugin = load(self.path).map_err(|error| error.to_string())?;
        let program = plugin.languages[self.language].attach(image).map_err(|error| error.to_string())?;
        Ok(AttachedModule { program, plugin, language: self.language })
    }

    /// A walker of a new program of the guest's module.
    fn walking(&self) -> Result<TrialWalker, String> {
        self.attach(&self.trial.image)?.walking()
    }

    pub(super) fn run(&self, clock: Clock) -> Result<Ran, String> {
        let AttachedModule { program, plugin, language } = self.attach(&self.trial.image)?;
        let only_names = program.walker().is_none();
        not_failed(&plugin.languages[language])?;
        if only_names {
            return Ok(Ran::OnlyNames);
        }
        let ran = self.trial.run(program, clock);
        plugin.end_walkers();
        not_failed(&plugin.languages[language])?;
        ran.map(Ran::Walked)
    }

    /// As `--clock=wall` has it, with samples where the guest waits. What it sees is added to the moments, if there are few.
    pub(super) fn walks_under_wall_clock(&self, moments: &mut Vec<Moment>) -> Result<String, String> {
        let Ran::Walked(walked) = self.run(Clock::Wall)? else {
            return Err("its program has no walkers any more".to_owned());
        };
        let room = MOST_MOMENTS.saturating_sub(moments.len());
        moments.extend(walked.moments.into_iter().take(room));
        Ok(format!("{}, by --clock=wall", walked.seen))
    }

    pub(super) fn says_the_same(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walkers = [self.walking()?, self.walking()?];
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
        // With all that it has seen in its caches.
        walkers[0].sink.set_may_allocate(!walkers[0].walker.walks_without_allocating());
        for (moment, before) in moments.iter().zip(&first) {
            let again = walkers[0].walk(moment, &moment.wasm)?;
            if again != *before && again.outcome != Err(Truncation::WouldAllocate) {
                return Err(format!("without allocating: {}", difference(before, &again)));
            }
        }
        walkers.into_iter().try_for_each(TrialWalker::end)?;
        Ok(format!("{} moments, two walkers, twice", moments.len()))
    }

    /// A signal handler has no more.
    pub(super) fn needs_little_stack(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walking = self.walking()?;
        let walk = || moments.iter().try_for_each(|moment| walking.walk(moment, &moment.wasm).map(|_| ()));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, walk);
            let walked = thread.map_err(|error| error.to_string())?.join();
            walked.unwrap_or_else(|_| Err("it panicked".to_owned()))
        })?;
        Ok("200 KiB will do".to_owned())
    }

    pub(super) fn names_its_frames(&self, moments: &[Moment]) -> Result<String, String> {
        let mut walking = self.walking()?;
        let keys = walking.keys(moments)?;
        let (mut without_line, mut shown) = (0, String::new());
        for &key in &keys {
            let (mut once, mut again) = (Vec::new(), Vec::new());
            walking.attached.program.symbolize(FrameKey::Own(key), &mut once);
            walking.attached.program.symbolize(FrameKey::Own(key), &mut again);
            walking.not_failed()?;
            let Some(frame) = once.first() else {
                return Err(format!("symbolize is missing, or adds nothing for the frame with key {key:#x}"));
            };
            if frame.function.is_empty() {
                return Err(format!("symbolize gives an empty function name for the frame with key {key:#x}"));
            }
            // What stands for a name that cannot be.
            if ["[a wlprof_", "[a text of "].iter().any(|start| frame.function.starts_with(start)) {
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
        walking.ask_the_rest(&moments[0])?;
        let lines = if without_line > 0 { format!(", {without_line} without a line") } else { String::new() };
        Ok(format!("{} frames, `{shown}` among them{lines}", keys.len()))
    }

    pub(super) fn survives_damaged_memory(&self, moments: &[Moment]) -> Result<String, String> {
        let (began, mut attaching, mut walks) = (Instant::now(), Duration::ZERO, 0);
        let mut walking = self.walking()?;
        for (number, moment) in moments.iter().enumerate() {
            let mut walked = Ok(());
            let addresses = damage::addresses_read(moment, |memory| {
                walked = walking.walk(memory, &moment.wasm).map(|_| ());
            });
            walked?;
            for (round, damaged) in damage::memories(moment, addresses) {
                if began.elapsed().saturating_sub(attaching) > DAMAGED_FOR {
                    return Ok(format!("{walks} walks"));
                }
                // One that knows nothing reads more; one that has seen other damage believes more.
                if (round < damage::FIRST_RANDOM || round % 2 == 0) && attaching < ATTACHED_FOR {
                    let attached = Instant::now();
                    walking = self.walking()?;
                    attaching += attached.elapsed();
                }
                let walked = walking.walk(&damaged, damaged.wasm());
                let named = walked.and_then(|walked| walking.name_all(&walked));
                named.map_err(|error| format!("damage {round} of moment {number}: {error}"))?;
                walks += 1;
            }
        }
        Ok(format!("{walks} walks"))
    }

    pub(super) fn survives_damaged_modules(&self, moments: &[Moment]) -> Result<String, String> {
        let (began, mut modules, mut attached) = (Instant::now(), 0, 0);
        for (round, image) in damage::modules(&self.trial.image) {
            if modules > 0 && began.elapsed() > MODULES_FOR {
                break;
            }
            let failed = |error| format!("damage {round}: {error}");
            let plugin = LoadedPlugin::load_to_check(self.path).map_err(|error| error.to_string())?;
            let language = &plugin.languages[self.language];
            let _ = language.detect(&image);
            not_failed(language).map_err(failed)?;
            let program = language.attach(&image);
            program.iter().for_each(|program| heap::ask(&**program, &image));
            not_failed(language).map_err(failed)?;
            modules += 1;
            if let (Ok(program), Some(moment)) = (program, moments.first()) {
                let mut walking =
                    AttachedModule { program, plugin, language: self.language }.walking().map_err(failed)?;
                walking.walk(moment, &moment.wasm).map_err(failed)?;
                attached += 1;
            }
        }
        Ok(format!("{modules} modules, {attached} of them walked"))
    }

    pub(super) fn takes_little_time(&self, moments: &[Moment]) -> Result<String, String> {
        // Looking at what it changes would take longer.
        let mut walking = self.attach_with(&self.trial.image, LoadedPlugin::load)?.walking()?;
        let mut times = Vec::new();
        for moment in moments {
            walking.walk(moment, &moment.wasm)?;
            // Others on the machine can only make a walk longer.
            let (began, mut fastest) = (Instant::now(), Duration::MAX);
            for _ in 0..TIMED {
                let walk = Instant::now();
                // It may end anyhow, but for failing.
                let _ = walking.walk_only(moment, &moment.wasm)?;
                fastest = fastest.min(walk.elapsed());
                if began.elapsed() > TIMED_FOR {
                    break;
                }
            }
            times.push(fastest);
        }
        times.sort();
        let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let said = format!("{:.2} µs a walk, {:.2} µs at the slowest moment", micros(median), micros(slowest));
        if slowest > SLOWEST_WALK { Err(format!("{said}: it holds up the guest")) } else { Ok(said) }
    }
}
