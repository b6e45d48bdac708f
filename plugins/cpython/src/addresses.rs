//! The constants in the addresses of stores.
//!
//! A store has an offset of its own, but in position-independent code compilers leave that 0 and add to the address, in
//! instructions before it: `local.get 0`, `i32.const 52`, `i32.add`, `local.tee 3` … `local.get 3` … `i32.store`.

use wasmparser::Operator;

/// Locals that are kept, those that were set last: addresses are used soon after they have been computed.
const MOST_LOCALS: usize = 32;

/// A value on the stack or in a local variable.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// A constant.
    Constant(u32),
    /// This much more than something that is not known.
    Beyond(u32),
}

/// Follows instructions in straight order, as far as they compute addresses.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The top of the stack. Below is what is not known.
    stack: Vec<Value>,
    /// Locals that have been set, since paths have met last.
    locals: Vec<(u32, Value)>,
}

impl Addresses {
    /// Goes over an instruction. If it stores an integer: the constant in the address.
    pub(crate) fn step(&mut self, operator: &Operator<'_>) -> Option<u64> {
        match *operator {
            Operator::I32Const { value } => self.stack.push(Value::Constant(value.cast_unsigned())),
            Operator::LocalGet { local_index } => {
                let local = self.locals.iter().find(|(index, _)| *index == local_index);
                self.stack.push(local.map_or(Value::Beyond(0), |&(_, value)| value));
            }
            Operator::LocalSet { local_index } => {
                let value = self.pop();
                self.set(local_index, value);
            }
            Operator::LocalTee { local_index } => {
                let value = self.pop();
                self.set(local_index, value);
                self.stack.push(value);
            }
            Operator::I32Add => {
                let sum = match (self.pop(), self.pop()) {
                    (Value::Constant(one), Value::Constant(other)) => Value::Constant(one.wrapping_add(other)),
                    (Value::Constant(one), Value::Beyond(other)) | (Value::Beyond(one), Value::Constant(other)) => {
                        Value::Beyond(one.wrapping_add(other))
                    }
                    (Value::Beyond(_), Value::Beyond(_)) => Value::Beyond(0),
                };
                self.stack.push(sum);
            }
            Operator::GlobalGet { .. } | Operator::I64Const { .. } => self.stack.push(Value::Beyond(0)),
            Operator::I32Load { .. } | Operator::I64Load { .. } | Operator::I32Load8U { .. } | Operator::I32Eqz => {
                self.pop();
                self.stack.push(Value::Beyond(0));
            }
            Operator::I32Sub | Operator::I32And | Operator::I32Or | Operator::I32Mul | Operator::I32Shl => {
                self.pop();
                self.pop();
                self.stack.push(Value::Beyond(0));
            }
            Operator::Drop | Operator::GlobalSet { .. } => {
                self.pop();
            }
            Operator::I32Store { memarg }
            | Operator::I64Store { memarg }
            | Operator::I32Store8 { memarg }
            | Operator::I32Store16 { memarg } => {
                self.pop();
                let (Value::Constant(more) | Value::Beyond(more)) = self.pop();
                return Some(memarg.offset.wrapping_add(more.into()));
            }
            // Where paths meet, locals are what either has set.
            Operator::Else | Operator::End => *self = Self::default(),
            // All others leave something that is not known.
            _ => self.stack.clear(),
        }
        None
    }

    fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::Beyond(0))
    }

    fn set(&mut self, local: u32, value: Value) {
        self.locals.retain(|(index, _)| *index != local);
        if self.locals.len() >= MOST_LOCALS {
            self.locals.remove(0);
        }
        self.locals.push((local, value));
    }
}
