//! Notes about interpreters whose stacks no plugin walks. They are known by their functions.

use wlprof_plugin::ModuleView;

/// Interpreters, and functions that each has.
const INTERPRETERS: [(&str, &[&str]); 5] = [
    ("Ruby", &["ruby_run_node", "ruby_init"]),
    ("Perl", &["Perl_runops_standard", "perl_run"]),
    ("MicroPython", &["mp_execute_bytecode"]),
    ("Lua", &["luaV_execute"]),
    ("PHP", &["zend_execute"]),
];

/// Returns a note if the module is an interpreter whose stacks no plugin walks: the profile shows its own functions.
pub fn note_of_unwalked_interpreter(module: &dyn ModuleView) -> Option<String> {
    let has = |names: &&[&str]| names.iter().any(|name| module.function_named(name).is_some());
    let (language, _) = INTERPRETERS.iter().find(|(_, names)| has(names))?;
    Some(format!(
        "{} is an interpreter of {language}, and there is no plugin that walks {language}'s stacks: the time is shown by the \
         interpreter's own functions",
        module.name()
    ))
}
