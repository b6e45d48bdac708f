//! What is added to a module's code: the check that a call of its allocator begins with, and what tells of a call.
//!
//! A call is told of when the countdown of bytes has been used up. Whoever is told sets it anew.

use super::allocators::{Allocator, Call, number_of};
use super::bodies::Around;
use wasm_encoder::{BlockType, Catch, Function, InstructionSink, MemArg, ValType};

/// Where what was added to a module is, by its indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Additions {
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

/// Whether a call of the allocator is going on where the countdown is this.
pub fn is_inside(countdown: i64) -> bool {
    countdown > INSIDE
}

/// Size of the filter: one counter a hash of 16 bits.
pub(super) const FILTER_BYTES: u32 = 1 << 16;
/// Addresses are multiplied by it; the upper half of the product is the hash.
pub(super) const HASH_FACTOR: u32 = 0x9E37_79B1;

/// What is built into a module.
pub(super) struct Instructions {
    pub(super) added: Additions,
    /// Exceptions may leave the allocator: they are caught, and thrown again once nobody is inside any more.
    pub(super) catches: bool,
}

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
    pub(super) fn slow(&self, allocator: Allocator) -> Vec<u8> {
        let result = parameter_count(allocator);
        let mut function = Function::new([(1, ValType::I32)]);
        let mut code = function.instructions();
        code.i64_const(i64::MAX).global_set(self.added.countdown);
        self.begin(&mut code);
        parameters(&mut code, allocator);
        code.call(allocator.function);
        let asked_for = |code: &mut InstructionSink<'_>| size(code, allocator);
        if self.catches {
            code.end();
            self.end(&mut code, |code| {
                // As if it had given nothing, so that the countdown is set anew.
                code.i64_const(-1).global_set(self.added.countdown);
                code.i32_const(i32::from(allocator.call == Call::PosixMemalign)).local_set(result);
                self.tell_allocated(code, allocator.call, asked_for, allocator.leading_parameters, result);
            });
        }
        code.local_set(result);
        // Whoever is told finds it as he would behind a body with something around it.
        code.i64_const(-1).global_set(self.added.countdown);
        self.tell_allocated(&mut code, allocator.call, asked_for, allocator.leading_parameters, result);
        code.local_get(result).end();
        function.into_raw_body()
    }

    /// What is put around the body of an outer function: `realloc`, and whatever calls other allocator functions. Its locals begin at
    /// `first_local`. What is asked for is kept from before, since a body may write its parameters.
    pub(super) fn around(&self, allocator: Allocator, first_local: u32) -> Around {
        let [left, asked_for, result, before, was_told] = std::array::from_fn(|local| first_local + local as u32);
        let [mut entry, mut exit] = [Function::new([]), Function::new([])];
        let mut code = entry.instructions();
        code.global_get(self.added.countdown).local_set(left);
        size(&mut code, allocator);
        code.local_set(asked_for);
        code.local_get(allocator.leading_parameters).local_set(before);
        if allocator.call == Call::Realloc {
            // Before the block may be given to somebody else.
            self.filtered(&mut code, allocator);
            code.i32_const(0).local_get(left).i64_const(INSIDE).i64_le_s().select().local_set(was_told);
        }
        code.i64_const(i64::MAX).global_set(self.added.countdown);
        match self.catches {
            true => self.begin(&mut code),
            false => _ = code.block(BlockType::Result(ValType::I32)),
        }
        let mut code = exit.instructions();
        if self.catches {
            // As if it had not been called.
            self.end(&mut code, |code| _ = code.local_get(left).global_set(self.added.countdown));
        }
        code.local_set(result);
        code.local_get(left).local_get(asked_for).i64_sub().local_tee(left).global_set(self.added.countdown);
        code.local_get(left).i64_const(0).i64_lt_s().local_get(was_told).i32_or();
        code.if_(BlockType::Empty);
        self.tell_allocated(&mut code, allocator.call, |code| _ = code.local_get(asked_for), before, result);
        code.end().local_get(result).end();
        // Without the empty declarations of locals.
        let [entry, exit] = [entry, exit].map(|function| function.into_raw_body().split_off(1));
        Around { locals: vec![(2, ValType::I64), (3, ValType::I32)], before: entry, after: exit }
    }

    /// Begins what exceptions are caught in, if any may come. It ends with the beginning of a block that leaves the result of a call.
    fn begin(&self, code: &mut InstructionSink<'_>) {
        if self.catches {
            code.block(BlockType::Result(ValType::I32)).block(BlockType::Result(ValType::EXNREF));
            code.try_table(BlockType::Result(ValType::I32), [Catch::AllRef { label: 0 }]);
        }
    }

    /// Ends that behind the end of the block. Does what `leaving` does before an exception is thrown again.
    fn end(&self, code: &mut InstructionSink<'_>, leaving: impl FnOnce(&mut InstructionSink<'_>)) {
        code.br(1).end();
        leaving(code);
        code.throw_ref().end();
    }

    /// Leaves whether the block that a call is given may have been told of.
    fn filtered(&self, code: &mut InstructionSink<'_>, allocator: Allocator) {
        code.local_get(allocator.leading_parameters).i32_const(HASH_FACTOR as i32).i32_mul().i32_const(16).i32_shr_u();
        code.i32_load8_u(MemArg { offset: 0, align: 0, memory_index: self.added.filter });
    }

    /// Tells of a call that was asked for so much, and has given `result`; both are locals, as `before` is.
    fn tell_allocated(
        &self,
        code: &mut InstructionSink<'_>,
        call: Call,
        asked_for: impl FnOnce(&mut InstructionSink<'_>),
        before: u32,
        result: u32,
    ) {
        code.global_get(self.added.is_heard).if_(BlockType::Empty);
        asked_for(code);
        code.local_get(result);
        match call {
            Call::Realloc | Call::PosixMemalign => code.local_get(before),
            _ => code.i32_const(0),
        };
        code.i32_const(number_of(call)).i32_const(ALLOCATED);
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
