//! What a thread was doing when a sample was taken, told by what is on its stacks.

use crate::functions::{Functions, Role};
use wlprof_plugin::{Label, WasmFrame};

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
}

const ALL: [(State, &str); 5] = [
    (State::Python, "python"),
    (State::C, "c code"),
    (State::Collecting, "gc"),
    (State::Importing, "importing"),
    (State::Host, "host call"),
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
        if wasm.first().is_some_and(|leaf| leaf.is_attached() && calls.is_at(leaf.code_offset)) {
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
pub(crate) struct HostCalls {
    code: Vec<u8>,
    imports: u32,
}

impl HostCalls {
    /// Of the module with this payload of the code section and so many imported functions.
    pub(crate) fn new(code: &[u8], imports: u32) -> Self {
        Self { code: code.to_vec(), imports }
    }

    /// Whether the instruction there calls an imported function.
    fn is_at(&self, code_offset: u32) -> bool {
        let Some([CALL, rest @ ..]) = self.code.get(code_offset as usize..) else { return false };
        let mut function = 0_u64;
        for (index, byte) in rest.iter().take(5).enumerate() {
            function |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return function < u64::from(self.imports);
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
        let calls = HostCalls::new(&[0x10, 0x03, 0x10, 0x85, 0x00, 0x20, 0x03, 0x10], 5);
        let at: Vec<u32> = (0..9).filter(|&at| calls.is_at(at)).collect();
        assert_eq!(at, [0]);
        assert!(HostCalls::new(&[0x10, 0x85, 0x00], 6).is_at(0));
    }

    #[test]
    fn every_state_has_a_label() {
        for (state, text) in ALL {
            assert_eq!(State::label(state.key()).unwrap().value, text);
        }
        assert_eq!(State::label(5), None);
    }
}
