//! Says what the native functions of SpiderMonkey are for, Firefox's JavaScript engine, as StarlingMonkey has it in the components that
//! componentize-js makes: interpreting, collecting garbage, doing the work of a built-in function.
//!
//! The stacks that are shown are wasm's own. Which JavaScript functions the interpreter runs is not read: where a stack has several
//! `js::Interpret`, each is one run of JavaScript functions that called each other.
#![forbid(unsafe_code)]

mod category;

pub use category::categorize;

use memchr::memmem;
use std::sync::Arc;
use wlprof_plugin::{AttachError, Category, Detection, FrameKey, Language, ModuleView, Program, SourceFrame};

/// What runs a script, in all of SpiderMonkey's releases for WASI; as linkers write it into the name section, and as compilers name it.
const RUN_SCRIPT: [&str; 2] =
    ["js::RunScript(JSContext*, js::RunState&)", "_ZN2js9RunScriptEP9JSContextRNS_8RunStateE"];
/// A message of its parser, which is there without names.
const MESSAGE: &[u8] = b"self-hosted code may not contain a class";

/// SpiderMonkey, if its functions have names.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpiderMonkey;

impl Language for SpiderMonkey {
    // Not `javascript`: that is for those that show JavaScript's own frames.
    fn name(&self) -> &str {
        "spidermonkey"
    }

    fn detect(&self, module: &dyn ModuleView) -> Detection {
        if RUN_SCRIPT.iter().any(|name| module.function_named(name).is_some()) {
            Detection::Yes("SpiderMonkey".to_owned())
        } else if memmem::find(module.bytes(), MESSAGE).is_some() {
            Detection::Unsupported {
                found: "SpiderMonkey without names of its functions".to_owned(),
                supported: "with names, as by componentize-js --use-debug-build".to_owned(),
            }
        } else {
            Detection::No
        }
    }

    fn attach(&self, _module: &dyn ModuleView) -> Result<Arc<dyn Program>, AttachError> {
        Ok(Arc::new(NativeFrames))
    }
}

/// Walks nothing: the wasm stack stands.
struct NativeFrames;

impl Program for NativeFrames {
    fn symbolize(&self, _frame: FrameKey, _out: &mut Vec<SourceFrame>) {}

    fn categorize(&self, frame: &SourceFrame) -> Option<Category> {
        categorize(frame)
    }

    fn warnings(&self) -> Vec<String> {
        vec!["the native functions of SpiderMonkey are shown, not those of JavaScript that it ran".to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wlprof_plugin::testing::TestModule;

    #[test]
    fn it_is_known_by_names_and_without_them_by_what_it_says() {
        let detect = |name: &str, bytes: &[u8]| {
            let names = [(0, name.to_owned())].into();
            SpiderMonkey.detect(&TestModule { names, bytes: bytes.to_vec(), ..TestModule::default() })
        };
        for name in RUN_SCRIPT {
            assert_eq!(detect(name, b""), Detection::Yes("SpiderMonkey".to_owned()));
        }
        assert!(matches!(detect("main", MESSAGE), Detection::Unsupported { .. }));
        assert_eq!(detect("main", b"self-hosted"), Detection::No);
    }
}
