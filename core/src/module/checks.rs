//! Where Wasmtime has a function look whether its epoch is over, and what may have run since it looked before.
//!
//! It looks where a function begins, at the head of each loop, and before operations on many bytes or elements. A check at the beginning has the
//! place of what stands before the function's first instruction, the others that of their instruction.
//!
//! Between two checks of one call of a function others run only if it calls some: these have checks of their own, where they begin, and
//! what they do after their last one, up to their return, comes before the caller's next. Code that is reached from a check by jumps
//! forward stands behind it, and jumps back lead to a loop's head, a check. So what may run between a check, or a call, and the one
//! before stands between it and the head of the innermost loop around it, or the function's beginning; of a loop's head, also in the loop.

use super::ModuleImage;
use wasmtime_environ::wasmparser::{BinaryReader, FunctionBody, Operator};
use wlprof_plugin::ModuleView;

/// The checks and calls of a function.
pub(crate) struct Checks {
    /// Code offset of its first instruction.
    first: u32,
    /// Code offsets of checks and calls since the check before which only the function itself can have run, in order.
    alone: Box<[u32]>,
}

/// A loop, or the function itself, while its instructions are read.
struct Scope {
    /// Blocks that are open in it.
    blocks: usize,
    /// Of a loop: its place among those that may be added, and whether there was a call before it in the scope around it.
    head: Option<(u32, bool)>,
    calls: bool,
}

impl Checks {
    /// Those of `function`; `None` if it has no body that can be read.
    pub(crate) fn of(image: &ModuleImage, function: u32) -> Option<Self> {
        let body = image.function_body(function)?;
        let bytes = image.code_at(function, body.start)?;
        let mut operators =
            FunctionBody::new(BinaryReader::new(bytes, body.start as usize)).get_operators_reader().ok()?;
        let first = operators.original_position() as u32;
        let mut alone = Vec::new();
        let mut scopes = vec![Scope { blocks: 0, head: None, calls: false }];
        // What an allocator was rewritten to calls what stands nowhere in the code that is read here.
        let is_rewritten = image.allocates(function);
        while !operators.eof() && !is_rewritten {
            let at = operators.original_position() as u32;
            let operator = operators.read().ok()?;
            let scope = scopes.last_mut()?;
            match operator {
                Operator::Loop { .. } => {
                    let before = scope.calls;
                    scopes.push(Scope { blocks: 0, head: Some((at, before)), calls: false });
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => scope.blocks += 1,
                Operator::End if scope.blocks > 0 => scope.blocks -= 1,
                Operator::End => {
                    let Scope { head, calls, .. } = scopes.pop()?;
                    if let (Some((at, before)), Some(outer)) = (head, scopes.last_mut()) {
                        outer.calls |= calls;
                        alone.extend((!before && !calls).then_some(at));
                    }
                }
                _ if is_on_many(&operator) => alone.extend((!scope.calls).then_some(at)),
                _ if calls(&operator) => {
                    alone.extend((!scope.calls).then_some(at));
                    scope.calls = true;
                }
                _ => {}
            }
        }
        alone.sort_unstable();
        Some(Self { first, alone: alone.into() })
    }

    /// Whether the check at that code offset is the one where the function begins.
    pub(crate) fn is_at_entry(&self, code_offset: u32) -> bool {
        code_offset < self.first
    }

    /// Whether only the function itself can have run, in this call of it, between the check or call at that code offset and the check
    /// before.
    pub(crate) fn ran_alone(&self, code_offset: u32) -> bool {
        self.alone.binary_search(&code_offset).is_ok()
    }
}

/// Whether Wasmtime has the function look before the operation, which may take as long as a loop does.
fn is_on_many(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::MemoryCopy { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryInit { .. }
            | Operator::TableCopy { .. }
            | Operator::TableFill { .. }
            | Operator::TableGrow { .. }
            | Operator::TableInit { .. }
            | Operator::ArrayCopy { .. }
            | Operator::ArrayFill { .. }
            | Operator::ArrayInitData { .. }
            | Operator::ArrayInitElem { .. }
    )
}

/// Whether another function may run before the next instruction of this one does.
fn calls(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::Call { .. }
            | Operator::CallIndirect { .. }
            | Operator::CallRef { .. }
            | Operator::Resume { .. }
            | Operator::ResumeThrow { .. }
            | Operator::Suspend { .. }
            | Operator::Switch { .. }
    )
}

/// Whether any function of the module ends by having another take its place.
pub(super) fn has_tail_calls(image: &ModuleImage) -> bool {
    let bodies = (image.first_body()..).map_while(|function| Some((function, image.function_body(function)?)));
    bodies.into_iter().any(|(function, body)| {
        let code = image.code_at(function, body.start).unwrap_or_default();
        let Ok(operators) = FunctionBody::new(BinaryReader::new(code, 0)).get_operators_reader() else { return true };
        operators.into_iter().any(|operator| {
            matches!(
                operator,
                Err(_)
                    | Ok(Operator::ReturnCall { .. }
                        | Operator::ReturnCallIndirect { .. }
                        | Operator::ReturnCallRef { .. })
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module of `text`, and the checks and calls of its first function, in order, with whether that ran alone before.
    fn of(text: &str) -> (ModuleImage, Vec<(&'static str, bool)>) {
        let image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        let function = image.first_body();
        let checks = Checks::of(&image, function).unwrap();
        let body = image.function_body(function).unwrap();
        let found = (body.start..body.end).filter(|at| !checks.is_at_entry(*at));
        let found = found.filter_map(|at| {
            let name = match image.operator_at(function, at)? {
                Operator::Loop { .. } => "loop",
                Operator::Call { .. } => "call",
                Operator::MemoryFill { .. } => "fill",
                _ => return None,
            };
            Some((name, checks.ran_alone(at)))
        });
        let found = found.collect();
        (image, found)
    }

    #[test]
    fn only_what_follows_a_call_may_be_of_another_function() {
        let text = r#"(module (memory 1) (func (local i32)
            (call 1)
            (call 1)
            (loop
                (memory.fill (i32.const 0) (i32.const 0) (local.get 0))
                (block (br_if 0 (local.get 0)) (call 1))
                (br_if 0 (local.get 0)))
            (loop (br_if 0 (local.get 0))))
            (func))"#;
        let (image, found) = of(text);
        assert_eq!(
            found,
            [("call", true), ("call", false), ("loop", false), ("fill", true), ("call", true), ("loop", false)]
        );
        assert!(!image.has_tail_calls());
    }

    #[test]
    fn loops_without_calls_are_of_their_function() {
        let (_, found) =
            of("(module (func (local i32) (loop (loop (br_if 0 (local.get 0))) (br_if 0 (local.get 0)))))");
        assert_eq!(found, [("loop", true), ("loop", true)]);
        // The inner loop may be the first check after a call at the end of the outer one's body, but for that one's head.
        let (_, found) = of(
            "(module (func (local i32) (loop (loop (br_if 0 (local.get 0))) (call 1) (br_if 0 (local.get 0)))) (func))",
        );
        assert_eq!(found, [("loop", false), ("loop", true), ("call", true)]);
    }

    #[test]
    fn a_check_where_a_function_begins_stands_before_its_first_instruction() {
        let text = "(module (func (local i32 i64 f32) (drop (local.get 0))) (func (nop)))";
        let image = ModuleImage::parse(wat::parse_str(text).unwrap(), "x").unwrap();
        for (function, locals) in [(0, 7), (1, 1)] {
            let body = image.function_body(function).unwrap();
            let checks = Checks::of(&image, function).unwrap();
            assert!(checks.is_at_entry(body.start) && checks.is_at_entry(body.start + locals - 1));
            assert!(!checks.is_at_entry(body.start + locals));
        }
    }

    #[test]
    fn tail_calls_are_found_in_any_function() {
        let (image, _) = of("(module (func (loop)) (func (return_call 0)))");
        assert!(image.has_tail_calls());
    }
}
