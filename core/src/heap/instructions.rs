//! What is added to a module's code: the check that a call of its allocator begins with, and what tells of a call.
//!
//! A call is told of when the countdown of bytes has been used up. Whoever is told sets it anew.

use super::allocators::{Allocator, Call, number_of};
use wasm_encoder::{BlockType, Function, InstructionSink, MemArg, ValType};

/// Where what was added to a module is, by its indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Added {
    /// Bytes that may still be allocated before a call is told of: a global. More than [`INSIDE`] while a call of the allocator is
    /// going on, whose own calls of it are not told of.
    pub(super) countdown: u32,
    /// Whether there is somebody to be told: a global.
    pub(super) is_heard: u32,
    /// Of each address's hash how many blocks are there that were told of: a memory of [`FILTER_BYTES`].
    pub(super) filter: u32,
    /// Who is told: [`ALLOCATED`] and [`FREED`].
    pub(super) table: u32,
    /// The types of these.
    pub(super) allocated: u32,
    pub(super) freed: u32,
}

/// Place in the table of who is told of allocations: `(size: i64, block: i32, before: i32, call: i32)`. `before` is the block that
/// `realloc` was given, or where `posix_memalign` has put the block; `call` is its [`number_of`].
pub(super) const ALLOCATED: i32 = 0;
/// Place in the table of who is told of what is freed: `(block: i32)`.
pub(super) const FREED: i32 = 1;

/// No countdown that is drawn is as much.
pub(super) const INSIDE: i64 = i64::MAX / 2;

/// Size of the filter: one counter a hash of 16 bits.
pub(super) const FILTER_BYTES: u32 = 1 << 16;
/// Addresses are multiplied by it; the upper half of the product is the hash.
pub(super) const HASH_FACTOR: u32 = 0x9E37_79B1;

/// What is built into a module.
pub(super) struct Instructions {
    pub(super) added: Added,
}

/// A body without its end, and without its size: locals and instructions.
pub(super) type Body = Vec<u8>;

impl Instructions {
    /// What stands at the beginning of the body of an allocator function that is not `realloc`: no locals. `slow` is the function
    /// that [`Instructions::slow`] makes.
    pub(super) fn prologue(&self, allocator: Allocator, slow: u32) -> Vec<u8> {
        let mut function = Function::new([]);
        let mut code = function.instructions();
        if allocator.call == Call::Free {
            self.filtered(&mut code, allocator);
            code.if_(BlockType::Empty);
            self.tell_freed(&mut code, allocator);
            code.end();
        } else {
            code.global_get(self.added.countdown);
            size(&mut code, allocator);
            code.i64_sub().global_set(self.added.countdown);
            code.global_get(self.added.countdown).i64_const(0).i64_lt_s().if_(BlockType::Empty);
            parameters(&mut code, allocator);
            code.call(slow).return_().end();
        }
        // Without the empty declaration of locals.
        function.into_raw_body().split_off(1)
    }

    /// The function that a prologue calls when the countdown has been used up: calls the allocator function once more, now that
    /// there is room, and tells of it.
    pub(super) fn slow(&self, allocator: Allocator) -> Body {
        let result = parameter_count(allocator);
        let mut function = Function::new([(1, ValType::I32)]);
        let mut code = function.instructions();
        code.i64_const(i64::MAX).global_set(self.added.countdown);
        parameters(&mut code, allocator);
        code.call(allocator.function).local_set(result);
        // Whoever is told finds it as he would in a wrapper.
        code.i64_const(-1).global_set(self.added.countdown);
        self.tell_allocated(&mut code, allocator, result);
        code.local_get(result).end();
        function.into_raw_body()
    }

    /// What takes the place of an outer function: `realloc`, and whatever calls other allocator functions. `moved` is where its body is now.
    pub(super) fn wrapper(&self, allocator: Allocator, moved: u32) -> Body {
        let result = parameter_count(allocator);
        let (was_told, left) = (result + 1, result + 2);
        let mut function = Function::new([(2, ValType::I32), (1, ValType::I64)]);
        let mut code = function.instructions();
        code.global_get(self.added.countdown).local_tee(left).i64_const(INSIDE).i64_gt_s().if_(BlockType::Empty);
        parameters(&mut code, allocator);
        code.call(moved).return_().end();
        code.i64_const(i64::MAX).global_set(self.added.countdown);
        if allocator.call == Call::Realloc {
            // Before the block may be given to somebody else.
            self.filtered(&mut code, allocator);
            code.local_set(was_told);
        }
        parameters(&mut code, allocator);
        code.call(moved).local_set(result);
        code.local_get(left);
        size(&mut code, allocator);
        code.i64_sub().local_tee(left).global_set(self.added.countdown);
        code.local_get(left).i64_const(0).i64_lt_s().local_get(was_told).i32_or();
        code.if_(BlockType::Empty);
        self.tell_allocated(&mut code, allocator, result);
        code.end().local_get(result).end();
        function.into_raw_body()
    }

    /// Leaves whether the block that a call is given may have been told of.
    fn filtered(&self, code: &mut InstructionSink<'_>, allocator: Allocator) {
        code.local_get(allocator.leading_parameters).i32_const(HASH_FACTOR as i32).i32_mul().i32_const(16).i32_shr_u();
        code.i32_load8_u(MemArg { offset: 0, align: 0, memory_index: self.added.filter });
    }

    fn tell_allocated(&self, code: &mut InstructionSink<'_>, allocator: Allocator, result: u32) {
        code.global_get(self.added.is_heard).if_(BlockType::Empty);
        size(code, allocator);
        code.local_get(result);
        match allocator.call {
            Call::Realloc | Call::PosixMemalign => code.local_get(allocator.leading_parameters),
            _ => code.i32_const(0),
        };
        code.i32_const(number_of(allocator.call)).i32_const(ALLOCATED);
        code.call_indirect(self.added.table, self.added.allocated).end();
    }

    /// The filter is empty until there is somebody to be told.
    fn tell_freed(&self, code: &mut InstructionSink<'_>, allocator: Allocator) {
        code.local_get(allocator.leading_parameters).i32_const(FREED);
        code.call_indirect(self.added.table, self.added.freed);
    }
}

/// Number of all parameters, those before and after the call's own among them.
pub(super) fn parameter_count(allocator: Allocator) -> u32 {
    let own = allocator.call.parameters();
    allocator.leading_parameters.saturating_add(own).saturating_add(allocator.trailing_parameters)
}

fn parameters(code: &mut InstructionSink<'_>, allocator: Allocator) {
    (0..parameter_count(allocator)).for_each(|parameter| _ = code.local_get(parameter));
}

/// Leaves what a call asks for, in bytes.
fn size(code: &mut InstructionSink<'_>, allocator: Allocator) {
    let parameter = |index: u32| allocator.leading_parameters + index;
    match allocator.call {
        Call::Malloc => _ = code.local_get(parameter(0)).i64_extend_i32_u(),
        Call::Realloc | Call::AlignedAlloc => _ = code.local_get(parameter(1)).i64_extend_i32_u(),
        Call::PosixMemalign => _ = code.local_get(parameter(2)).i64_extend_i32_u(),
        // More than there can be is not given, but must not count as less than nothing.
        Call::Calloc => {
            code.local_get(parameter(0)).i64_extend_i32_u().local_get(parameter(1)).i64_extend_i32_u().i64_mul();
            code.i64_const(i64::MAX).i64_and();
        }
        Call::Free => _ = code.i64_const(0),
    }
}
