//! Tail calls of functions that something is put around, where they become calls.

use super::allocators::NotRewritten;
use super::calls::Calls;
use super::parsed::{ModuleParts, malformed};
use wasmparser::{BinaryReader, FunctionBody, Operator};

/// Looks whether each tail call of `function`, which the module defines, can be a call that is followed by a return. It cannot where the
/// function would still be there to catch what is thrown, or where it comes to itself that way: what was a loop would have a stack.
pub(super) fn check(parsed: &ModuleParts, bytes: &[u8], calls: &Calls, function: u32) -> Result<(), NotRewritten> {
    let (range, _) = &parsed.bodies[parsed.defined(function)?];
    let body = FunctionBody::new(BinaryReader::new(&bytes[range.clone()], 0));
    // Of each block that is open, whether it is one that catches, and how many are.
    let (mut open, mut catching) = (Vec::new(), 0_usize);
    for operator in body.get_operators_reader().map_err(malformed)? {
        match operator.map_err(malformed)? {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => open.push(false),
            Operator::TryTable { .. } | Operator::Try { .. } => {
                open.push(true);
                catching += 1;
            }
            Operator::End | Operator::Delegate { .. } => catching -= usize::from(open.pop() == Some(true)),
            Operator::ReturnCall { function_index } if catching == 0 && !calls.comes_back(function, function_index) => {
            }
            Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } | Operator::ReturnCallRef { .. } => {
                return Err(NotRewritten::TailCall(function));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_calls_that_catch_or_come_back_are_none_to_be_replaced() {
        let text = r#"(module (tag $t) (table 1 funcref) (type $f (func (result i32)))
            (func $leaf (result i32) (i32.const 1))
            (func $plain (result i32) (block (return_call $leaf)) (unreachable))
            (func $catching (result i32)
                (block $h (try_table (result i32) (catch_all $h) (return_call $leaf)) (return)) (i32.const 0))
            (func $behind (result i32) (block $h (try_table (catch_all $h))) (return_call $leaf))
            (func $itself (result i32) (return_call $itself))
            (func $around (result i32) (return_call $back))
            (func $back (result i32) (call $around))
            (func $indirect (result i32) (return_call_indirect (type $f) (i32.const 0))))"#;
        let bytes = wat::parse_str(text).unwrap();
        let parsed = ModuleParts::read(&bytes).unwrap();
        let calls = Calls::of(&parsed, &bytes, 0..8).unwrap();
        let refused: Vec<u32> = (0..8).filter(|function| check(&parsed, &bytes, &calls, *function).is_err()).collect();
        assert_eq!(refused, [2, 4, 5, 7]);
    }
}
