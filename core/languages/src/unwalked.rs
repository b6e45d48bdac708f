//! Notes about interpreters whose stacks no plugin that is there walks. They are known by their functions, or by their data.

use memchr::memmem;
use wlprof_plugin::{Detection, Language, ModuleView};

/// Interpreters, and functions that each has.
const INTERPRETERS: [(&str, &[&str]); 5] = [
    ("Ruby", &["ruby_run_node", "ruby_init"]),
    ("Perl", &["Perl_runops_standard", "perl_run"]),
    ("MicroPython", &["mp_execute_bytecode"]),
    ("Lua", &["luaV_execute"]),
    ("PHP", &["zend_execute"]),
];

/// A function of QuickJS.
const QUICKJS_FUNCTION: &str = "JS_CallInternal";
/// The beginning of the string that all releases of QuickJS make their atoms of. Programs without names have it too.
const QUICKJS_ATOMS: &[u8] =
    b"null\0false\0true\0if\0else\0return\0var\0this\0delete\0void\0typeof\0new\0in\0instanceof\0do\0while\0for\0";

/// Returns a note if the module is an interpreter that none of `languages` knows: the profile shows its own functions.
pub fn note_of_unwalked_interpreter(module: &dyn ModuleView, languages: &[&dyn Language]) -> Option<String> {
    let name = module.name();
    let has = |function: &str| module.function_named(function).is_some();
    let found = INTERPRETERS.iter().find(|(_, functions)| functions.iter().any(|function| has(function)));
    let note = if let Some((language, _)) = found {
        format!(
            "{name} is an interpreter of {language}, and there is no plugin that walks {language}'s stacks: the time is shown by the \
             interpreter's own functions"
        )
    } else if has(QUICKJS_FUNCTION) || memmem::find(module.bytes(), QUICKJS_ATOMS).is_some() {
        format!(
            "{name} is QuickJS: --plugin with wlprof's plugin for it (plugins/quickjs, docs/languages.md) shows the script's functions; \
             without it the time is shown by the interpreter's own functions"
        )
    } else {
        return None;
    };
    // A plugin that knows it has said why it does not walk it.
    let is_known = languages.iter().any(|language| language.detect(module) != Detection::No);
    (!is_known).then_some(note)
}
