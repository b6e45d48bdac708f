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
use wasmparser::{BinaryReader, FunctionBody, Operator};
use wlprof_plugin::ModuleView;

/// Where a function's checks find others to have run, and where not.
pub struct Checks {
    /// Code offset of its first instruction.
    first: u32,
    /// From which code offsets on, in order, whether only the function itself can have run since the check before.
    alone: Box<[(u32, bool)]>,
}

/// A loop, or the function itself, while its instructions are read.
struct Scope {
    /// Blocks that are open in it.
    blocks: usize,
    /// Of a loop: where its head is in what is gathered, and whether there was a call before it in the scope around it.
    head: Option<(usize, bool)>,
    calls: bool,
}

impl Checks {
    /// Those of `function`; `None` if it has no body that can be read.
    pub fn of(image: &ModuleImage, function: u32) -> Option<Self> {
        let body = image.function_body(function)?;
        let bytes = image.code_at(function, body.start)?;
        let mut operators =
            FunctionBody::new(BinaryReader::new(bytes, body.start as usize)).get_operators_reader().ok()?;
        let first = operators.original_position() as u32;
        let mut alone: Vec<(u32, bool)> = Vec::new();
        let mut scopes = vec![Scope { blocks: 0, head: None, calls: false }];
        // What an allocator was rewritten to calls what stands nowhere in the code that is read here.
        let is_rewritten = image.allocates(function);
        while !operators.eof() && !is_rewritten {
            let at = operators.original_position() as u32;
            let operator = operators.read().ok()?;
            let scope = scopes.last_mut()?;
            // Of a loop's head it is known at its end.
            let is_loop = matches!(operator, Operator::Loop { .. });
            let is_alone = !scope.calls && !is_loop;
            if is_loop || alone.last().is_none_or(|(_, last)| *last != is_alone) {
                alone.push((at, is_alone));
            }
            match operator {
                Operator::Loop { .. } => {
                    let head = Some((alone.len() - 1, scope.calls));
                    scopes.push(Scope { blocks: 0, head, calls: false });
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => scope.blocks += 1,
                Operator::End if scope.blocks > 0 => scope.blocks -= 1,
                Operator::End => {
                    let Scope { head, calls, .. } = scopes.pop()?;
                    if let (Some((head, before)), Some(outer)) = (head, scopes.last_mut()) {
                        outer.calls |= calls;
                        alone[head].1 = !before && !calls;
                    }
                }
                _ => scope.calls |= calls(&operator),
            }
        }
        Some(Self { first, alone: alone.into() })
    }

    /// Whether the check at that code offset is the one where the function begins.
    pub fn is_at_entry(&self, code_offset: u32) -> bool {
        code_offset < self.first
    }

    /// Whether only the function itself can have run, in this call of it, between that code offset, of a check or of whatever else calls
    /// the host, and the check before.
    pub fn ran_alone(&self, code_offset: u32) -> bool {
        let after = self.alone.partition_point(|(from, _)| *from <= code_offset);
        after.checked_sub(1).is_some_and(|last| self.alone[last].1)
    }
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
                Operator::StructNewDefault { .. } => "new",
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
    fn what_an_instruction_asks_of_the_host_is_of_its_function_up_to_a_call() {
        let new = "(drop (struct.new_default 0))";
        let (_, found) =
            of(&format!("(module (type (struct)) (func (loop {new} (loop {new} (call 1) {new}) {new}) {new}) (func))"));
        let expected = [
            ("loop", false),
            ("new", true),
            ("loop", false),
            ("new", true),
            ("call", true),
            ("new", false),
            ("new", false),
            ("new", false),
        ];
        assert_eq!(found, expected);
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
