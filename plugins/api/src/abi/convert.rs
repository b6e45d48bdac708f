//! Between what the ABI says and what the crate's own types do: the same for both sides.

use super::{Bytes, FrameKey, Member, SourceFrame, WasmFrame, category, frame_kind, walk_end};
use crate::{Category, WalkEnd};

impl From<crate::FrameKey> for FrameKey {
    fn from(key: crate::FrameKey) -> Self {
        match key {
            crate::FrameKey::Own(value) => Self { kind: frame_kind::OWN, function: 0, value },
            crate::FrameKey::Wasm(frame) => {
                Self { kind: frame_kind::WASM, function: frame.function, value: frame.code_offset.into() }
            }
        }
    }
}

impl From<FrameKey> for crate::FrameKey {
    fn from(key: FrameKey) -> Self {
        match key.kind {
            frame_kind::WASM => Self::Wasm(crate::WasmFrame { function: key.function, code_offset: key.value as u32 }),
            _ => Self::Own(key.value),
        }
    }
}

impl From<crate::WasmFrame> for WasmFrame {
    fn from(frame: crate::WasmFrame) -> Self {
        Self { function: frame.function, code_offset: frame.code_offset }
    }
}

impl From<WasmFrame> for crate::WasmFrame {
    fn from(frame: WasmFrame) -> Self {
        Self { function: frame.function, code_offset: frame.code_offset }
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
        // SAFETY: the caller's promise.
        let text = |text: Bytes| unsafe { text.cut(longest).text() }.into_owned();
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
        Category::User => category::USER,
        Category::Library => category::LIBRARY,
        Category::Runtime => category::RUNTIME,
        Category::GarbageCollector => category::GARBAGE_COLLECTOR,
        Category::Interpreter => category::INTERPRETER,
    }
}

/// The category of a number; `None` if this version knows none.
pub fn category_of(number: u32) -> Option<Category> {
    Some(match number {
        category::USER => Category::User,
        category::LIBRARY => Category::Library,
        category::RUNTIME => Category::Runtime,
        category::GARBAGE_COLLECTOR => Category::GarbageCollector,
        category::INTERPRETER => Category::Interpreter,
        _ => return None,
    })
}

/// The number of a walk's end.
pub fn walk_end_number(end: WalkEnd) -> u32 {
    match end {
        WalkEnd::Complete => walk_end::COMPLETE,
        WalkEnd::TooDeep => walk_end::TOO_DEEP,
        WalkEnd::BadPointer => walk_end::BAD_POINTER,
        WalkEnd::Cycle => walk_end::CYCLE,
        WalkEnd::Inconsistent => walk_end::INCONSISTENT,
        WalkEnd::NoStack => walk_end::NO_STACK,
        WalkEnd::WouldAllocate => walk_end::WOULD_ALLOCATE,
    }
}

/// The end of a number; `None` for [`walk_end::FAILED`] and what this version does not know.
pub fn walk_end_of(number: u32) -> Option<WalkEnd> {
    Some(match number {
        walk_end::COMPLETE => WalkEnd::Complete,
        walk_end::TOO_DEEP => WalkEnd::TooDeep,
        walk_end::BAD_POINTER => WalkEnd::BadPointer,
        walk_end::CYCLE => WalkEnd::Cycle,
        walk_end::INCONSISTENT => WalkEnd::Inconsistent,
        walk_end::NO_STACK => WalkEnd::NoStack,
        walk_end::WOULD_ALLOCATE => WalkEnd::WouldAllocate,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_back_as_it_was() {
        for key in [
            crate::FrameKey::Own(u64::MAX),
            crate::FrameKey::Wasm(crate::WasmFrame { function: 7, code_offset: u32::MAX }),
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
        // SAFETY: `frame` lives.
        assert_eq!(unsafe { SourceFrame::of(&frame).get(100) }, frame);
        // SAFETY: as above.
        assert_eq!(unsafe { SourceFrame::of(&frame).get(1) }.linkage_name.as_deref(), Some("_"));
        for number in 0..walk_end::FAILED {
            assert_eq!(walk_end_of(number).map(walk_end_number), Some(number));
        }
        assert_eq!((walk_end_of(walk_end::FAILED), category_of(category::UNKNOWN)), (None, None));
    }
}
