//! JavaScript in components of componentize-js: the native functions of SpiderMonkey, by their names and by what they are for.

use crate::guest::{Place, Ran, fixture};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wlprof::languages::{self, BUILT_IN, Choice};
use wlprof::module::ModuleImage;
use wlprof::recording::{Category, State};
use wlprof_plugin::{
    AttachError, Detection, FrameKey, FrameSink, GuestMemory, Language, ModuleView, Program, SourceFrame, Truncation,
    Walker, WasmFrame,
};

/// What is said where the engine's functions are shown.
const NOTE: &str = "the native functions of SpiderMonkey are shown, not those of JavaScript that it ran";

#[test]
fn the_engines_functions_are_shown_by_what_they_are_for() {
    let place = Place::new();
    let guest = fixture("component-js.wasm");
    let options = ["--lang=spidermonkey", "--rate=5000", "--max-overhead=100", "-o", "x.wlprof"];
    let mut unseen = vec![
        ("js::Interpret(", Category::Interpreter),
        ("js::frontend::", Category::Interpreter),
        ("js::gc::TenuringTracer::", Category::GarbageCollector),
        ("js::gc::GCRuntime::collect", Category::GarbageCollector),
        ("js::JSON", Category::Library),
        ("dlmalloc", Category::Runtime),
        ("wasi:cli/run@0.2.0#run", Category::Runtime),
        ("wasi:", Category::Host),
    ];
    let mut categories = BTreeMap::new();
    let mut in_wasm = 0;
    // Where the processor is busy, samples are few.
    for _ in 0..50 {
        let ran = place.run(options.into_iter().chain([guest.to_str().unwrap(), "20"]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains(NOTE), "{}", ran.stderr);
        let recording = place.recording("x.wlprof");
        assert!(recording.truncated.is_empty(), "{:?}", recording.truncated);
        for sample in recording.samples() {
            let functions: Vec<_> =
                recording.lines_of(sample.stack).map(|line| &recording.functions[line.function as usize]).collect();
            let known = functions.iter().map(|function| (function.name.to_string(), function.category));
            categories.extend(known);
            let names: Vec<&str> = functions.iter().rev().map(|function| &*function.name).collect();
            // Before the script and between its turns the engine does other work, such as the first call of each import.
            let interprets = names.iter().any(|name| name.starts_with("js::Interpret("));
            if interprets && sample.state == State::Guest && names[0] == "wasi:cli/run@0.2.0#run" {
                assert!(names.iter().any(|name| name.starts_with("js::RunScript(")), "{names:?}");
                in_wasm += 1;
            }
        }
        unseen.retain(|(start, category)| {
            let is_it = |(name, of): (&String, &Category)| name.starts_with(*start) && of == category;
            !categories.iter().any(is_it)
        });
        if in_wasm > 500 && unseen.is_empty() {
            break;
        }
    }
    assert!(in_wasm > 500 && unseen.is_empty(), "{in_wasm} samples without {unseen:?}");
    // All of the program is JavaScript.
    let of_users: Vec<_> = categories.iter().filter(|(_, category)| **category == Category::User).collect();
    assert!(of_users.is_empty(), "{of_users:?}");
    let can_be_called = |name: &str| {
        name.split_once('(').is_some_and(|(_, parameters)| parameters == "JSContext*, unsigned int, JS::Value*)")
    };
    let native: BTreeSet<Category> =
        categories.iter().filter(|(name, _)| can_be_called(name)).map(|(_, category)| *category).collect();
    assert_eq!(native, [Category::Library].into());
}

#[test]
fn an_engine_without_names_is_told_of() {
    let place = Place::new();
    place.file(
        "x.wat",
        r#"(module (memory 1) (data (i32.const 8) "self-hosted code may not contain a class")
            (func (export "_start")))"#,
    );
    let told = "unsupported SpiderMonkey without names of its functions in x.wat (supported: with names";
    let Ran { code, stderr, .. } = place.run(["-o", "x.wlprof", "x.wat"]);
    assert!(code == Some(0) && stderr.contains(told), "{code:?} {stderr}");
    let Ran { code, stderr, .. } = place.run(["-o", "x.wlprof", "--lang=spidermonkey", "x.wat"]);
    assert!(code == Some(126) && stderr.contains(told), "{code:?} {stderr}");
}

/// A language with stacks of its own, in the module `walked`.
struct Walked;

impl Language for Walked {
    fn name(&self) -> &str {
        "walked"
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        if module.function_named("walked").is_some() { Detection::Yes("it".to_owned()) } else { Detection::No }
    }

    fn attach(&self, _module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        Ok(Arc::new(Self))
    }
}

impl Program for Walked {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        Some(Box::new(Self))
    }

    fn symbolize(&self, _frame: FrameKey, _out: &mut Vec<SourceFrame>) {}
}

impl Walker for Walked {
    fn walk(&mut self, _: &dyn GuestMemory, _: &[WasmFrame], _: &mut FrameSink) -> Result<(), Truncation> {
        Ok(())
    }
}

#[test]
fn beside_it_another_languages_stacks_are_read() {
    let modules = ["js::RunScript(JSContext*, js::RunState&)", "walked"].map(|function| {
        let bytes = wat::parse_str(format!(r#"(module (func $"{function}"))"#)).unwrap();
        ModuleImage::parse(bytes, "x.wasm").unwrap()
    });
    let languages: Vec<&dyn Language> = BUILT_IN.iter().copied().chain([&Walked as &dyn Language]).collect();
    let chosen = languages::choose_each(&Choice::Auto, &languages, "both", &modules).unwrap();
    assert_eq!(chosen.language.as_deref(), Some("walked"));
    let is_walked: Vec<_> =
        chosen.programs.iter().map(|program| program.as_ref().map(|program| program.walker().is_some())).collect();
    assert_eq!(is_walked, [Some(false), Some(true)]);
    assert!(chosen.notes.is_empty(), "{:?}", chosen.notes);
}
