//! Whether a plugin does what wlprof counts on: what `wlprof plugins check` runs.
//!
//! A guest is run under the plugin and some moments of it are kept: memory, globals and wasm stack. Everything after that is
//! asked of those, again and again, without the guest.

mod damage;
mod heap;
mod moment;
mod subject;
mod trial;
mod walkers;
mod walking;

use moment::Moment;
use std::collections::BTreeSet;
use std::path::Path;
use subject::{Ran, Subject};
pub(crate) use trial::Trial;
use wlprof::languages::BUILT_IN;
use wlprof_loader::{ForeignLanguage, LoadedPlugin};
use wlprof_module::ModuleImage;
use wlprof_plugin::{Detection, Language, ModuleView};
use wlprof_recording::Clock;

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As it should; with what was seen.
    Passed(String),
    /// As it should, as far as can be said after so little.
    Warned {
        /// What was seen.
        seen: String,
        /// What is little about it, and how to see more.
        warning: String,
    },
    /// Otherwise; with what was seen instead.
    Failed(String),
    /// There was nothing to check; with the reason.
    Skipped(String),
}

/// Who is told how it goes.
pub(crate) trait Observer {
    /// A check begins. If the plugin ends the process, it was in this one.
    fn begins(&mut self, what: &'static str);
    /// It has ended.
    fn ended(&mut self, outcome: Outcome);
}

/// Checks the plugin at `path`, with a guest of its language if there is one.
pub(crate) fn check(path: &Path, trial: Option<&Trial>, observer: &mut dyn Observer) {
    let mut loaded = None;
    ask(observer, "is a plugin", || {
        let plugin = LoadedPlugin::load_to_check(path).map_err(|error| error.to_string())?;
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
        let hash = code_hash(&trial.image);
        let (index, found) = choose(&plugin, &trial.image).map_err(|reason| format!("{reason}; {hash}"))?;
        language = Some(index);
        Ok(format!("{found}; {hash}"))
    });
    let Some(language) = language else { return };
    let subject = Subject { path, language, trial };
    observer.begins("walks its stacks while it runs");
    let mut moments = match subject.run(Clock::Cpu) {
        Ok(Ran::Walked(walked)) => {
            observer.ended(walked.outcome());
            walked.moments
        }
        Ok(Ran::OnlyNames) => {
            let reason = "its program has no walkers: it only names wasm frames";
            observer.ended(Outcome::Skipped(reason.to_owned()));
            tells_of_its_heap(observer, &subject, &[]);
            return ask(observer, "survives damaged modules", || subject.survives_damaged_modules(&[]));
        }
        Err(reason) => return observer.ended(Outcome::Failed(reason)),
    };
    ask(observer, "walks its stacks while it waits", || subject.walks_under_wall_clock(&mut moments));
    ask(observer, "says the same of the same moment", || subject.says_the_same(&moments));
    ask(observer, "has walkers for other instances", || walkers::check(&subject, &moments));
    ask(observer, "names its frames", || subject.names_its_frames(&moments));
    tells_of_its_heap(observer, &subject, &moments);
    ask(observer, "needs little stack", || subject.needs_little_stack(&moments));
    ask(observer, "survives damaged memory", || subject.survives_damaged_memory(&moments));
    ask(observer, "survives damaged modules", || subject.survives_damaged_modules(&moments));
    ask(observer, "takes little time", || subject.takes_little_time(&moments));
}

fn tells_of_its_heap(observer: &mut dyn Observer, subject: &Subject<'_>, moments: &[Moment]) {
    observer.begins("tells of its heap");
    observer.ended(heap::check(subject, moments));
}

fn ask(observer: &mut dyn Observer, what: &'static str, check: impl FnOnce() -> Result<String, String>) {
    observer.begins(what);
    observer.ended(check().map_or_else(Outcome::Failed, Outcome::Passed));
}

fn describes_itself(plugin: &LoadedPlugin) -> Result<String, String> {
    let mut names = BTreeSet::new();
    for language in &plugin.languages {
        let name = language.name();
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
    plugin.languages.iter().try_for_each(not_failed)?;
    Ok(format!("--lang {}", names.into_iter().collect::<Vec<_>>().join(", ")))
}

/// What tells builds of a guest apart, for plugins that bring tables of offsets.
fn code_hash(image: &ModuleImage) -> String {
    let hash = image.code_hash().into_iter().flatten();
    let digits: String = hash.map(|byte| format!("{byte:02x}")).collect();
    format!("the SHA-256 of its code is {digits}")
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
    let plugin = LoadedPlugin::load_to_check(path).map_err(|error| error.to_string())?;
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

/// Whether the plugin of a language has failed, or changed what it must not.
fn not_failed(language: &ForeignLanguage) -> Result<(), String> {
    let changed = || (!language.changes().is_empty()).then(|| language.changes().join("; "));
    language.failure().or_else(changed).map_or(Ok(()), Err)
}
