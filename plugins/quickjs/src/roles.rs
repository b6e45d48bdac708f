//! What wasm functions are, by their names.

use std::ops::Range;
use wlprof_plugin::{ModuleView, WasmFrame};

/// The function in which bytecode runs.
const LOOP: &str = "JS_CallInternal";
/// Those that call native functions, and make frames for them.
const NATIVE: &[&str] = &["js_call_c_function", "js_call_c_function_data", "js_call_c_closure"];
/// Those to which the loop passes the other kinds of callable objects.
const PASSED: &[&str] = &[
    "js_async_function_call",
    "js_async_function_resolve_call",
    "js_async_generator_function_call",
    "js_call_bound_function",
    "js_call_generator_function",
    "js_generator_function_call",
    "js_promise_resolve_function_call",
    "js_proxy_call",
];

/// What a wasm function is to stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The interpreter's loop.
    Loop,
    /// Calls a native function.
    Native,
    /// Calls what is a function in another way.
    Passed,
    /// Anything else.
    Other,
}

/// The functions that have a role, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    roles: Vec<(u32, Role)>,
    range: Range<u32>,
    has_loop: bool,
}

impl Roles {
    /// Reads the names of all functions.
    pub(crate) fn new(view: &dyn ModuleView) -> Self {
        let mut roles = Vec::new();
        let first = view.function_imports().len() as u32;
        for index in (first..).take_while(|&index| view.function_body(index).is_some()) {
            let role = view.function_name(index).map_or(Role::Other, role);
            if role != Role::Other {
                roles.push((index, role));
            }
        }
        let has_loop = roles.iter().any(|(_, role)| *role == Role::Loop);
        let range = roles.first().map_or(0, |(first, _)| *first)..roles.last().map_or(0, |(last, _)| last + 1);
        Self { roles, range, has_loop }
    }

    /// Whether the interpreter's loop is known. If not, JavaScript frames cannot be put among wasm frames.
    pub(crate) fn has_loop(&self) -> bool {
        self.has_loop
    }

    pub(crate) fn of(&self, frame: WasmFrame) -> Role {
        if !frame.is_attached() || !self.range.contains(&frame.function) {
            return Role::Other;
        }
        let found = self.roles.iter().find(|(index, _)| *index == frame.function);
        found.map_or(Role::Other, |(_, role)| *role)
    }
}

fn role(name: &str) -> Role {
    // Linkers make names unique, compilers mark parts and clones.
    match name.split('.').next().unwrap_or_default() {
        LOOP => Role::Loop,
        name if NATIVE.contains(&name) => Role::Native,
        name if PASSED.contains(&name) => Role::Passed,
        _ => Role::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_roles() {
        assert_eq!(role("JS_CallInternal"), Role::Loop);
        assert_eq!(role("JS_CallInternal.llvm.123"), Role::Loop);
        assert_eq!(role("js_call_c_function"), Role::Native);
        assert_eq!(role("js_proxy_call"), Role::Passed);
        assert_eq!(role("JS_CallInternalX"), Role::Other);
    }
}
