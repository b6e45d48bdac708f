//! Where compiled code links a frame into the list: between the instruction that makes it the innermost one and those
//! that say what it is, a sample would find what an earlier call has left in its place.

use crate::{layout::Layout, module::code_section};
use std::ops::Range;
use wlprof_plugin::WasmFrame;

/// `i32.store` and `i64.store`, each with the alignment that compilers give it.
const STORE_WORD: [u8; 2] = [0x36, 2];
const STORE_LONG: [u8; 2] = [0x37, 3];
/// How far behind the first instruction the others are, in bytes of code: they store values that are at hand.
const REACH: usize = 20;

/// The places in a module's code at which frames are half linked.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkPlaces {
    /// Offsets in the code section, in order.
    places: Vec<Range<u32>>,
}

impl LinkPlaces {
    /// Looks for stores to `JSRuntime.current_stack_frame` that others follow. Stores at the same offset of other structures
    /// may be among them; a sample that falls on one is lost to JavaScript without need.
    pub(crate) fn new(module: &[u8], layout: &Layout) -> Self {
        let code = code_section(module);
        let store = [STORE_WORD.as_slice(), &unsigned(layout.runtime.current_stack_frame)].concat();
        let mut places = Vec::new();
        for (at, _) in code.windows(store.len()).enumerate().filter(|(_, window)| *window == store) {
            let start = at + store.len();
            let after = code.get(start..code.len().min(start + REACH)).unwrap_or_default();
            let last = after.windows(2).rposition(|pair| pair == STORE_WORD || pair == STORE_LONG);
            if let (Ok(start), Some(Ok(last))) = (u32::try_from(start), last.map(u32::try_from)) {
                places.push(start..start + last + 1);
            }
        }
        Self { places }
    }

    /// Whether the innermost frame is half linked when the guest stands where `wasm` says.
    pub(crate) fn is_under_way(&self, wasm: &[WasmFrame]) -> bool {
        let Some(leaf) = wasm.first().filter(|leaf| leaf.is_attached()) else { return false };
        let after = self.places.partition_point(|place| place.start <= leaf.code_offset);
        let place = after.checked_sub(1).and_then(|index| self.places.get(index));
        place.is_some_and(|place| place.contains(&leaf.code_offset))
    }
}

/// A number as LEB128.
fn unsigned(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_first_store_is_found() {
        let mut code = vec![0x20, 7, 0x6a];
        code.extend([0x36, 2, 0x8c, 5, 0x20, 7, 0x20, 1, 0x37, 3, 0x18, 0x20, 7, 0x20, 0, 0x36, 2, 0x10, 0x20, 8]);
        code.resize(60, 0x0b);
        // The frame is taken off the list.
        code.extend([0x36, 2, 0x8c, 5, 0x0b, 0x20, 8]);
        let mut module = b"\0asm\x01\0\0\0\x0a".to_vec();
        module.push(code.len() as u8);
        module.extend(code);
        let linking = LinkPlaces::new(&module, &Layout::NG_0_16);
        let at = |code_offset| linking.is_under_way(&[WasmFrame::attached(0, code_offset)]);
        let under_way: Vec<u32> = (0..80).filter(|&offset| at(offset)).collect();
        assert_eq!(under_way, (7..=18).collect::<Vec<u32>>());
        assert!(!linking.is_under_way(&[]));
    }
}
