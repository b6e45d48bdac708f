//! What the wasm functions of an interpreter are, by their names: the loop that runs Python code, the garbage
//! collector, the rest of the interpreter, or C code that Python code calls.

use crate::{category, module::EVAL, version};
use wlprof_plugin::{Category, ModuleView, SourceFrame, WasmFrame};

/// What a wasm function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The interpreter's loop.
    Eval,
    /// The garbage collector.
    Collector,
    /// The interpreter's own.
    Interpreter,
    /// The allocator, copying of memory: what any other may call.
    Support,
    /// C code that Python code calls, or unknown.
    Other,
}

/// The roles of a module's functions, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    roles: Vec<Role>,
    has_eval: bool,
}

impl Functions {
    /// Reads the names of all functions. `eval` is where the loop's body is, should the module not name it.
    pub(crate) fn new(view: &dyn ModuleView, eval: Option<u32>) -> Self {
        let mut functions = Self::default();
        for (index, name) in version::function_names(view) {
            functions.set(index, role(name));
        }
        if !functions.has_eval
            && let Some(offset) = eval
        {
            let imports = view.function_imports().len() as u32;
            let bodies = (imports..).map_while(|index| Some((index, view.function_body(index)?)));
            // Compilers count the size of the body as part of it, wasm does not.
            let mut containing = bodies.filter(|(_, body)| (body.start.saturating_sub(5)..body.end).contains(&offset));
            if let Some((index, _)) = containing.next() {
                functions.set(index, Role::Eval);
            }
        }
        functions
    }

    fn set(&mut self, index: u32, role: Role) {
        let index = index as usize;
        if index >= self.roles.len() {
            self.roles.resize(index + 1, Role::Other);
        }
        self.roles[index] = role;
        self.has_eval |= role == Role::Eval;
    }

    /// The index of the interpreter's loop.
    pub(crate) fn eval(&self) -> Option<u32> {
        self.roles.iter().position(|role| *role == Role::Eval).map(|index| index as u32)
    }

    /// Whether the interpreter's loop is known. If not, Python frames cannot be put among wasm frames.
    pub(crate) fn has_eval(&self) -> bool {
        self.has_eval
    }

    pub(crate) fn role(&self, frame: WasmFrame) -> Role {
        let known = frame.is_attached().then(|| self.roles.get(frame.function as usize)).flatten();
        known.copied().unwrap_or(Role::Other)
    }
}

fn role(name: &str) -> Role {
    if name == EVAL {
        return Role::Eval;
    }
    // Linkers make names unique, compilers mark parts and clones.
    if name.strip_prefix(EVAL).is_some_and(|rest| rest.starts_with('.')) {
        return Role::Eval;
    }
    let frame = SourceFrame { function: name.to_owned(), ..SourceFrame::default() };
    match category::categorize(&frame) {
        Some(Category::Interpreter) => Role::Interpreter,
        Some(Category::GarbageCollector) => Role::Collector,
        _ if category::is_support(name) => Role::Support,
        _ => Role::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_roles() {
        assert_eq!(role("_PyEval_EvalFrameDefault"), Role::Eval);
        assert_eq!(role("_PyEval_EvalFrameDefault.cold"), Role::Eval);
        assert_eq!(role("_PyEval_EvalFrameDefaultX"), Role::Interpreter);
        assert_eq!(role("_PyEval_Vector"), Role::Interpreter);
        assert_eq!(role("gc_collect_main"), Role::Collector);
        assert_eq!(role("sre_ucs1_match"), Role::Other);
        assert_eq!(role("malloc"), Role::Support);
    }
}
