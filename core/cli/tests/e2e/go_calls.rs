//! Which calls a Go program can make, read from its code: what stacks are checked against.

use std::collections::{BTreeMap, BTreeSet};
use wasmtime_environ::wasmparser::{BinaryReader, FunctionBody, Operator};
use wlprof::module::ModuleImage;
use wlprof_plugin::ModuleView;

/// What an instruction calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Callee {
    /// A function, in wasm's function indices.
    Function(u32),
    /// Through a table.
    Any,
}

/// All calls of a module.
pub(crate) struct Calls {
    /// Number of imported functions.
    imports: u32,
    /// Calls by the Go return address that they leave on the stack.
    by_return: BTreeMap<u64, Callee>,
    /// Calls of each function that leave none: tail calls, and calls of assembly that has no Go frame.
    others: BTreeMap<u32, BTreeSet<Callee>>,
}

impl Calls {
    pub(crate) fn of(image: &ModuleImage) -> Self {
        let mut calls = Self { imports: image.first_body(), by_return: BTreeMap::new(), others: BTreeMap::new() };
        for function in image.first_body().. {
            let Some(body) = image.function_body(function) else { break };
            let code = image.code_at(function, body.start).unwrap();
            let mut operators = FunctionBody::new(BinaryReader::new(code, 0)).get_operators_reader().unwrap();
            let (mut constant, mut pushed) = (None, None);
            while !operators.eof() {
                let operator = operators.read().unwrap();
                let callee = match operator {
                    Operator::Call { function_index } => Some(Callee::Function(function_index)),
                    Operator::CallIndirect { .. } => Some(Callee::Any),
                    _ => None,
                };
                match (callee, constant) {
                    (Some(callee), _) => match pushed.take() {
                        Some(pc) => {
                            calls.by_return.insert(pc, callee);
                        }
                        None => {
                            calls.others.entry(function).or_default().insert(callee);
                        }
                    },
                    // A constant in this function's range of pcs, stored: a return address.
                    (None, Some(pc)) if matches!(operator, Operator::I64Store { .. }) => {
                        pushed = (calls.function(pc) == function).then_some(pc).or(pushed);
                    }
                    _ => {}
                }
                constant = match operator {
                    Operator::I64Const { value } => Some(value.cast_unsigned()),
                    _ => None,
                };
            }
        }
        calls
    }

    /// The function that a Go pc is in, in wasm's function indices.
    pub(crate) fn function(&self, pc: u64) -> u32 {
        (pc >> 16).wrapping_sub(0x1000) as u32 + self.imports
    }

    /// Whether the frame at pc `caller` can have called what is in `callee` now.
    pub(crate) fn possible(&self, callee: u32, caller: u64) -> bool {
        // A frame's pc is that of the block that makes the call; the call returns to the next. What calls `morestack`
        // starts again instead, in block 0.
        let again = (caller & 0xffff == 0).then(|| self.by_return.get(&caller)).flatten();
        let called = self.by_return.get(&(caller + 1)).into_iter().chain(again);
        called.copied().any(|called| self.becomes(called, callee))
            || self
                .others
                .get(&self.function(caller))
                .is_some_and(|others| others.contains(&Callee::Function(callee)) || others.contains(&Callee::Any))
    }

    /// Whether `called` may have handed over to `seen` without leaving a frame.
    fn becomes(&self, called: Callee, seen: u32) -> bool {
        let (mut reached, mut open) = (BTreeSet::from([called]), vec![called]);
        while let Some(callee) = open.pop() {
            match callee {
                Callee::Any => return true,
                Callee::Function(function) if function == seen => return true,
                Callee::Function(function) => {
                    open.extend(self.others.get(&function).into_iter().flatten().filter(|next| reached.insert(**next)));
                }
            }
        }
        false
    }
}
