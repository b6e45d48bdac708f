//! Tells the engine's own functions from the built-in functions that JavaScript programs call, from the garbage collector and from what is
//! around the engine.
//!
//! Names decide. Where they have the types of parameters, as linkers write them, these say most: what JavaScript can call has one type,
//! what the collector calls of every class takes its tracer first, and what works for the engine takes something of the engine's first.

use wlprof_plugin::{Category, SourceFrame};

/// Parameters of a function that JavaScript can call: `JSNative`.
const NATIVE: &str = "JSContext*, unsigned int, JS::Value*)";
/// The first parameter of what marks, moves and finalizes things of one kind.
const COLLECTORS_PARAMETERS: &[&str] = &["JSTracer*", "JS::GCContext*"];
/// How the first parameter begins of what works for the engine: its context, or something else that only it has.
const ENGINES_PARAMETERS: &[&str] = &["JSContext*", "js::", "JS::"];

/// How names of the collector begin.
const COLLECTOR: &[&str] = &[
    "js::gc::",
    "js::gcstats::",
    "js::GCMarker::",
    "js::GCParallelTask::",
    "js::GenericTracerImpl",
    "js::Nursery::",
    "js::SliceBudget::",
    "sweepaction::",
];
/// How names begin of what is behind built-in functions, the web's among them.
const LIBRARY: &[&str] =
    &["builtins::", "js::irregexp::", "js::JSON", "js::RegExp", "js::Stringify", "js::intl::", "js::temporal::"];
/// How names begin of StarlingMonkey's code around the engine: what starts it, what its tasks wait in, what calls the host.
const AROUND: &[&str] = &[
    "api::",
    "cabi_",
    "componentize::",
    "content_debugger::",
    "core::EventLoop::",
    "host_api::",
    "ScriptLoader::",
    "starling::",
    "WASIHandle",
];
/// How other names of the engine begin.
const ENGINE: &[&str] = &["js::", "JS", "mozilla::"];

/// What kind of code a wasm function of a SpiderMonkey is. `None` if it is not known, so that what is said of it otherwise stands; but it is not
/// the user's: the program is JavaScript.
pub fn categorize(frame: &SourceFrame) -> Option<Category> {
    let (path, parameters) = parts(&frame.function);
    let begins = |list: &[&str]| list.iter().any(|start| path.starts_with(start));
    let takes = |list: &[&str]| list.iter().any(|first| parameters.starts_with(first));
    let category = if takes(COLLECTORS_PARAMETERS) {
        Category::GarbageCollector
    } else if begins(COLLECTOR) {
        // The collector has the allocator as well.
        let function = path.rsplit("::").next().unwrap_or_default();
        let allocates = function.contains("alloc") || function.contains("Alloc");
        if allocates { Category::Runtime } else { Category::GarbageCollector }
    } else if parameters.starts_with(NATIVE) || begins(LIBRARY) {
        Category::Library
    } else if begins(AROUND) || path == "call" || path.contains('#') {
        // What a component exports is called `INTERFACE#FUNCTION`, and calls `call`.
        Category::Runtime
    } else if begins(ENGINE) || takes(ENGINES_PARAMETERS) {
        Category::Interpreter
    } else {
        return (frame.category == Category::User).then_some(Category::Library);
    };
    Some(category)
}

/// A demangled name without what is returned and without template arguments, and what follows its first parenthesis.
fn parts(name: &str) -> (String, &str) {
    const ANONYMOUS: &str = "(anonymous namespace)::";
    let (mut path, mut depth, mut at) = (String::new(), 0_usize, 0);
    while let Some(letter) = name[at..].chars().next() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '(' if name[at..].starts_with(ANONYMOUS) => {
                at += ANONYMOUS.len();
                continue;
            }
            '(' => return (path, &name[at + 1..]),
            ' ' => path.clear(),
            _ => path.push(letter),
        }
        at += letter.len_utf8();
    }
    (path, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use Category::{GarbageCollector, Interpreter, Library, Runtime, User};

    #[test]
    fn names_and_parameters_decide() {
        for (function, expected) in [
            ("js::Interpret(JSContext*, js::RunState&)", Interpreter),
            ("JS_CallFunctionValue(JSContext*, JS::Handle<JSObject*>)", Interpreter),
            (
                "bool js::NativeSetProperty<(js::QualifiedBool)1>(JSContext*, JS::Handle<js::NativeObject*>)",
                Interpreter,
            ),
            ("SetExistingProperty(JSContext*, JS::Handle<JS::PropertyKey>)", Interpreter),
            (
                "js::frontend::GeneralParser<js::frontend::FullParseHandler, char16_t>::statement(js::Yield)",
                Interpreter,
            ),
            ("(anonymous namespace)::NameResolver::visit(js::frontend::ParseNode*) (.llvm.311)", Interpreter),
            ("js::str_charCodeAt(JSContext*, unsigned int, JS::Value*)", Library),
            ("builtins::web::console::Console::log(JSContext*, unsigned int, JS::Value*)", Library),
            ("date_getFullYear(JSContext*, unsigned int, JS::Value*)", Library),
            ("js::JSONPerHandlerParser<unsigned char, js::JSONFullParseHandler<unsigned char>>::parse()", Library),
            ("js::gc::GCRuntime::collect(bool, JS::SliceBudget const&)", GarbageCollector),
            ("js::gc::StoreBuffer::putSlot(js::NativeObject*, int, unsigned int, unsigned int)", GarbageCollector),
            ("js::PropMap::traceChildren(JSTracer*)", GarbageCollector),
            ("js::MapObject::finalize(JS::GCContext*, JSObject*)", GarbageCollector),
            ("js::gc::ArenaLists::refillFreeListAndAllocate(js::gc::AllocKind)", Runtime),
            ("void* js::gc::CellAllocator::AllocTenuredCell<(js::AllowGC)1>(JSContext*, unsigned long)", Runtime),
            ("core::EventLoop::run_event_loop(api::Engine*, double)", Runtime),
            ("wasi:cli/run@0.2.0#run", Runtime),
            ("call", Runtime),
            ("ossl_ec_key_gen", Library),
            ("<", Library),
            ("é>>((", Library),
        ] {
            let frame = SourceFrame { function: function.to_owned(), ..SourceFrame::default() };
            assert_eq!(frame.category, User);
            assert_eq!(categorize(&frame), Some(expected), "{function}");
        }
    }

    #[test]
    fn what_is_known_of_other_code_stands() {
        for category in [Runtime, Library] {
            let frame = SourceFrame { function: "dlmalloc".to_owned(), category, ..SourceFrame::default() };
            assert_eq!(categorize(&frame), None);
        }
    }
}
