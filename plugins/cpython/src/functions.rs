//! What the wasm functions of an interpreter are, by their names: the loop that runs Python code, the garbage
//! collector, the rest of the interpreter, or C code that Python code calls.

use crate::{category, module::EVAL, version};
use wlprof_plugin::{Category, ModuleView, SourceFrame, WasmFrame};

/// The function that throws exceptions into generators. It calls itself for what these delegate to.
const THROW: &str = "_gen_throw";

/// What a wasm function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The interpreter's loop.
    Eval,
    /// Throws an exception into a generator, or into what that delegates to.
    Throw,
    /// The garbage collector.
    Collector,
    /// The interpreter's own.
    Interpreter,
    /// The allocator, copying of memory: what any other may call.
    Support,
    /// C code that Python code calls, or unknown.
    Other,
}

/// The roles of the functions of the interpreter's module and of its siblings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    /// By index, those of the interpreter's module first.
    roles: Vec<Vec<Role>>,
    has_eval: bool,
}

impl Functions {
    /// Reads the names of all functions. `eval` is where the loop's body is, should the module not name it.
    pub(crate) fn new(view: &dyn ModuleView, eval: Option<u32>) -> Self {
        let mut functions = Self { roles: vec![Vec::new()], has_eval: false };
        for (index, name) in version::function_names(view) {
            functions.set(index, role(name));
        }
        for sibling in view.siblings() {
            let mut roles = Vec::new();
            for (index, name) in version::function_names(sibling) {
                // What is called as the loop but forwards calls to it.
                let role = if is_eval(name) { Role::Interpreter } else { role(name) };
                put(&mut roles, index, role);
            }
            functions.roles.push(roles);
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
        put(&mut self.roles[0], index, role);
        self.has_eval |= role == Role::Eval;
    }

    /// The index of the interpreter's loop.
    pub(crate) fn eval(&self) -> Option<u32> {
        self.roles.first()?.iter().position(|role| *role == Role::Eval).map(|index| index as u32)
    }

    /// Whether the interpreter's loop is known. If not, Python frames cannot be put among wasm frames.
    pub(crate) fn has_eval(&self) -> bool {
        self.has_eval
    }

    pub(crate) fn role(&self, frame: WasmFrame) -> Role {
        let known = self.roles.get(frame.module as usize).and_then(|roles| roles.get(frame.function as usize));
        known.copied().unwrap_or(Role::Other)
    }
}

fn put(roles: &mut Vec<Role>, index: u32, role: Role) {
    let index = index as usize;
    if index >= roles.len() {
        roles.resize(index + 1, Role::Other);
    }
    roles[index] = role;
}

/// Whether this is the name of the loop, or of a part of it.
pub(crate) fn is_eval(name: &str) -> bool {
    is_named(name, EVAL)
}

fn is_named(name: &str, function: &str) -> bool {
    // Linkers make names unique, compilers mark parts and clones.
    name.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn role(name: &str) -> Role {
    if is_eval(name) {
        return Role::Eval;
    }
    if is_named(name, THROW) {
        return Role::Throw;
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
        assert_eq!(role("_gen_throw"), Role::Throw);
        assert_eq!(role("gen_throw"), Role::Interpreter);
        assert_eq!(role("gc_collect_main"), Role::Collector);
        assert_eq!(role("sre_ucs1_match"), Role::Other);
        assert_eq!(role("malloc"), Role::Support);
    }
}
