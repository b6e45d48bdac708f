//! What a thread was doing when a sample was taken, told by what is on its stacks.

use crate::functions::{Functions, Role};
use crate::module::Module;
use wlprof_plugin::{Label, ModuleView, WasmFrame};

/// The opcode of `call` in wasm.
const CALL: u8 = 0x10;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Runs Python code, in the interpreter.
    Python,
    /// Runs C code that Python code called.
    C,
    /// Collects garbage, or runs a finalizer of what is collected.
    Collecting,
    /// Imports a module or runs its top level.
    Importing,
    /// Is in a call of the host.
    Host,
    /// Runs nothing: all its tasks await something.
    Awaiting,
}

const ALL: [(State, &str); 6] = [
    (State::Python, "python"),
    (State::C, "c code"),
    (State::Collecting, "gc"),
    (State::Importing, "importing"),
    (State::Host, "host call"),
    (State::Awaiting, "awaiting"),
];

impl State {
    /// The state, given the wasm stack and what memory says.
    pub(crate) fn tell(
        wasm: &[WasmFrame],
        calls: &HostCalls,
        functions: &Functions,
        is_collecting: bool,
        is_importing: bool,
    ) -> Self {
        if wasm.first().is_some_and(|leaf| calls.is_at(*leaf)) {
            return Self::Host;
        }
        if is_collecting {
            return Self::Collecting;
        }
        if is_importing {
            return Self::Importing;
        }
        let above = wasm.iter().map(|frame| functions.role(*frame)).take_while(|role| *role != Role::Eval);
        let is_c = functions.has_eval() && above.into_iter().any(|role| role == Role::Other);
        if is_c { Self::C } else { Self::Python }
    }

    /// The key of its label.
    pub(crate) fn key(self) -> u64 {
        self as u64
    }

    /// The label of that key.
    pub(crate) fn label(key: u64) -> Option<Label> {
        let (_, value) = ALL.iter().find(|(state, _)| state.key() == key)?;
        Some(Label { name: "state".to_owned(), value: (*value).to_owned() })
    }
}

/// Tells calls of the host from all other instructions.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCalls(
    /// Of the interpreter's module and its siblings.
    Vec<Imports>,
);

/// What tells calls of the host in one module.
#[derive(Clone, Debug)]
struct Imports {
    /// The code section's payload.
    code: Vec<u8>,
    /// For each imported function, whether the host has it.
    is_hosts: Vec<bool>,
}

impl Imports {
    fn of(module: &Module<'_>, view: &dyn ModuleView) -> Self {
        // What one library has of another it imports from here.
        let is_siblings = |from: &str| module.memory_base.is_some() && from == "env";
        let is_hosts = view.function_imports().iter().map(|import| !is_siblings(&import.module)).collect();
        Self { code: module.code.to_vec(), is_hosts }
    }
}

impl HostCalls {
    /// Of an interpreter's module, which has been read, and its siblings.
    pub(crate) fn of_program(module: &Module<'_>, view: &dyn ModuleView) -> Self {
        let siblings = view.siblings().into_iter();
        let siblings = siblings.map(|sibling| Imports::of(&Module::read(sibling.bytes()), sibling));
        Self(std::iter::once(Imports::of(module, view)).chain(siblings).collect())
    }

    /// Whether the instruction there calls an imported function of the host's.
    fn is_at(&self, WasmFrame { module, code_offset, .. }: WasmFrame) -> bool {
        let Some(Imports { code, is_hosts }) = self.0.get(module as usize) else { return false };
        let Some([CALL, rest @ ..]) = code.get(code_offset as usize..) else { return false };
        let mut function = 0_usize;
        for (index, byte) in rest.iter().take(5).enumerate() {
            function |= usize::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return is_hosts.get(function).is_some_and(|is_hosts| *is_hosts);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_imports_are_calls_of_the_host() {
        let code = vec![0x10, 0x03, 0x10, 0x85, 0x00, 0x20, 0x03, 0x10, 0x02];
        let interpreter = Imports { code, is_hosts: vec![true, true, false, true, true] };
        let sibling = Imports { code: vec![0x10, 0x85, 0x00], is_hosts: vec![true; 6] };
        let calls = HostCalls(vec![interpreter, sibling]);
        let at: Vec<u32> = (0..10).filter(|&at| calls.is_at(WasmFrame::attached(0, at))).collect();
        assert_eq!(at, [0]);
        let in_module = |module| calls.is_at(WasmFrame { module, function: 0, code_offset: 0 });
        assert_eq!([1, 2].map(in_module), [true, false]);
    }

    #[test]
    fn every_state_has_a_label() {
        for (state, text) in ALL {
            assert_eq!(State::label(state.key()).unwrap().value, text);
        }
        assert_eq!(State::label(6), None);
    }
}
