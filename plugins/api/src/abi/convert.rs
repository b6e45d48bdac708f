//! Between what the ABI says and what the crate's own types do: the same for both sides.

use super::*;
use crate::{AllocatorCall, Category, Truncation};

/// In place of a wasm frame where there is none.
const NO_FRAME: WasmFrame = WasmFrame { module: 0, function: 0, code_offset: 0 };

impl From<crate::FrameKey> for FrameKey {
    fn from(key: crate::FrameKey) -> Self {
        match key {
            crate::FrameKey::Own(value) => Self { kind: FRAME_KIND_OWN, wasm: NO_FRAME, value },
            crate::FrameKey::Wasm(wasm) => Self { kind: FRAME_KIND_WASM, wasm, value: 0 },
            crate::FrameKey::Elided => Self { kind: FRAME_KIND_ELIDED, wasm: NO_FRAME, value: 0 },
        }
    }
}

impl From<FrameKey> for crate::FrameKey {
    fn from(key: FrameKey) -> Self {
        match key.kind {
            FRAME_KIND_WASM => Self::Wasm(key.wasm),
            FRAME_KIND_ELIDED => Self::Elided,
            _ => Self::Own(key.value),
        }
    }
}

impl From<crate::Member> for Member {
    fn from(member: crate::Member) -> Self {
        let bits = member.bits.unwrap_or(0..0);
        Self { offset: member.offset, size: member.size, first_bit: bits.start, bit_count: bits.len() as u32 }
    }
}

impl From<Member> for crate::Member {
    fn from(member: Member) -> Self {
        let Member { offset, size, first_bit, bit_count } = member;
        let bits = (bit_count > 0).then(|| first_bit..first_bit.saturating_add(bit_count));
        Self { offset, size, bits }
    }
}

impl SourceFrame {
    /// What `frame` says, for as long as it lives.
    pub fn of(frame: &crate::SourceFrame) -> Self {
        let text = |text: &Option<String>| text.as_ref().map_or(Bytes::EMPTY, |text| Bytes::of(text.as_bytes()));
        Self {
            size: size_of::<Self>(),
            function: Bytes::of(frame.function.as_bytes()),
            linkage_name: text(&frame.linkage_name),
            file: text(&frame.file),
            function_line: frame.function_line.unwrap_or(0),
            line: frame.line.unwrap_or(0),
            column: frame.column.unwrap_or(0),
            category: category_number(frame.category),
        }
    }

    /// The frame, with each text cut at `longest` bytes.
    ///
    /// # Safety
    /// Its texts must be there and unchanged.
    pub unsafe fn get(&self, longest: usize) -> crate::SourceFrame {
        let number = |number: u32| (number != 0).then_some(number);
        // SAFETY: the texts are there and unchanged (see # Safety).
        let text = |text: Bytes| unsafe { text.text(longest) };
        let some_text = |bytes: Bytes| (bytes.length != 0).then(|| text(bytes));
        crate::SourceFrame {
            function: text(self.function),
            linkage_name: some_text(self.linkage_name),
            file: some_text(self.file),
            function_line: number(self.function_line),
            line: number(self.line),
            column: number(self.column),
            category: category_of(self.category).unwrap_or_default(),
        }
    }
}

/// The number of a category.
pub fn category_number(category: Category) -> u32 {
    match category {
        Category::User => CATEGORY_USER,
        Category::Library => CATEGORY_LIBRARY,
        Category::Runtime => CATEGORY_RUNTIME,
        Category::GarbageCollector => CATEGORY_GARBAGE_COLLECTOR,
        Category::Interpreter => CATEGORY_INTERPRETER,
    }
}

/// The category of a number; `None` if this version knows none.
pub fn category_of(number: u32) -> Option<Category> {
    Some(match number {
        CATEGORY_USER => Category::User,
        CATEGORY_LIBRARY => Category::Library,
        CATEGORY_RUNTIME => Category::Runtime,
        CATEGORY_GARBAGE_COLLECTOR => Category::GarbageCollector,
        CATEGORY_INTERPRETER => Category::Interpreter,
        _ => return None,
    })
}

/// The number that says how a walk ended.
pub fn walk_end_number(walked: Result<(), Truncation>) -> u32 {
    let Err(reason) = walked else { return WALK_END_COMPLETE };
    match reason {
        Truncation::TooDeep => WALK_END_TOO_DEEP,
        Truncation::BadPointer => WALK_END_BAD_POINTER,
        Truncation::Cycle => WALK_END_CYCLE,
        Truncation::Inconsistent => WALK_END_INCONSISTENT,
        Truncation::NoStack => WALK_END_NO_STACK,
        Truncation::WouldAllocate => WALK_END_WOULD_ALLOCATE,
        Truncation::Failed => WALK_END_FAILED,
        Truncation::Busy => WALK_END_BUSY,
    }
}

/// How the walk ended that has this number; `None` for what this version does not know.
pub fn walk_end_of(number: u32) -> Option<Result<(), Truncation>> {
    Some(Err(match number {
        WALK_END_COMPLETE => return Some(Ok(())),
        WALK_END_TOO_DEEP => Truncation::TooDeep,
        WALK_END_BAD_POINTER => Truncation::BadPointer,
        WALK_END_CYCLE => Truncation::Cycle,
        WALK_END_INCONSISTENT => Truncation::Inconsistent,
        WALK_END_NO_STACK => Truncation::NoStack,
        WALK_END_WOULD_ALLOCATE => Truncation::WouldAllocate,
        WALK_END_FAILED => Truncation::Failed,
        WALK_END_BUSY => Truncation::Busy,
        _ => return None,
    }))
}

/// The number of a way to allocate.
pub fn allocator_call_number(call: AllocatorCall) -> u32 {
    match call {
        AllocatorCall::Malloc => ALLOCATOR_CALL_MALLOC,
        AllocatorCall::Calloc => ALLOCATOR_CALL_CALLOC,
        AllocatorCall::Realloc => ALLOCATOR_CALL_REALLOC,
        AllocatorCall::AlignedAlloc => ALLOCATOR_CALL_ALIGNED_ALLOC,
        AllocatorCall::PosixMemalign => ALLOCATOR_CALL_POSIX_MEMALIGN,
        AllocatorCall::Free => ALLOCATOR_CALL_FREE,
    }
}

/// The way to allocate that has this number; `None` for what this version does not know.
pub fn allocator_call_of(number: u32) -> Option<AllocatorCall> {
    AllocatorCall::ALL.into_iter().find(|call| allocator_call_number(*call) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back_as_it_was() {
        for key in [
            crate::FrameKey::Own(u64::MAX),
            crate::FrameKey::Wasm(crate::WasmFrame { module: u32::MAX, function: 7, code_offset: u32::MAX - 1 }),
            crate::FrameKey::Elided,
        ] {
            assert_eq!(crate::FrameKey::from(FrameKey::from(key)), key);
        }
        for bits in [None, Some(3..31)] {
            let member = crate::Member { offset: u64::MAX, size: 4, bits };
            assert_eq!(crate::Member::from(Member::from(member.clone())), member);
        }
        let frame = crate::SourceFrame {
            function: "f".into(),
            linkage_name: Some("_f".into()),
            file: None,
            function_line: Some(1),
            line: None,
            column: Some(u32::MAX),
            category: Category::GarbageCollector,
        };
        // SAFETY: `frame`, which has the texts, lives until the end of the test.
        assert_eq!(unsafe { SourceFrame::of(&frame).get(100) }, frame);
        // SAFETY: `frame`, which has the texts, lives until the end of the test.
        assert_eq!(unsafe { SourceFrame::of(&frame).get(1) }.linkage_name.as_deref(), Some("_"));
        for number in 0..=WALK_END_BUSY {
            assert_eq!(walk_end_of(number).map(walk_end_number), Some(number));
        }
        assert_eq!((walk_end_of(WALK_END_BUSY + 1), category_of(CATEGORY_UNKNOWN)), (None, None));
        for number in 0..=ALLOCATOR_CALL_FREE {
            assert_eq!(allocator_call_of(number).map(allocator_call_number), Some(number));
        }
        assert_eq!(allocator_call_of(ALLOCATOR_CALL_FREE + 1), None);
    }
}
