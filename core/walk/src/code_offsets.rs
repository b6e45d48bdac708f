//! Which wasm instruction each stretch of compiled code is for.

use crate::address_map::AddressMap;
use crate::compiled_image::CompiledImage;
use crate::mapped_image::MappedImage;
use std::ops::Range;
use wasmparser::{BinaryReader, Operator, OperatorsReader};

/// Says of a function which code offset each stretch of its compiled code is for.
///
/// Cranelift keeps no source location for pure operations once it has optimized them (half of the code's bytes). Such code is taken for the
/// nearest instruction before it, in the same function, that has one. But nothing flows from a jump into what stands behind it: behind the
/// jump table of a Go function, for instance, is often the body of its hottest loop. That is taken for the nearest instruction after it, as
/// is what comes first in a function. Calls always have their location.
#[derive(Clone, Debug)]
pub struct CodeOffsets {
    image: MappedImage,
    /// Where the address map lies in the image.
    map: Option<Range<usize>>,
}

impl CodeOffsets {
    /// Finds the address map in the image, which `parsed` is.
    pub fn new(image: &MappedImage, parsed: Option<&CompiledImage<'_>>) -> Self {
        Self { image: image.clone(), map: parsed.and_then(CompiledImage::address_map_range) }
    }

    /// Returns the image.
    pub fn image(&self) -> &MappedImage {
        &self.image
    }

    /// Returns those of what was compiled as `function` of `module` and lies at `range` in the text.
    pub fn of_function(&self, module: u32, function: u32, range: &Range<usize>) -> Stretches {
        let mut stretches = Vec::new();
        let section = self.map.clone().and_then(|map| self.image.bytes().get(map));
        if let (Some(map), Some(module)) = (section.and_then(AddressMap::parse), self.image.module(module)) {
            let rows = map.rows(range);
            let rows = rows.map(|(at, place)| (at, place.and_then(|place| module.compiled_code_offset(place))));
            let never_goes_on = |code_offset| {
                let place = module.compiled_from(function, Some(code_offset));
                place.and_then(|(function, code_offset)| module.code_at(function, code_offset)).is_some_and(is_jump)
            };
            join(range.start as u32, rows, never_goes_on, &mut stretches);
        }
        Stretches(stretches.into())
    }
}

/// Compiled code of a function from the start of one stretch to that of the next: where it begins in the text, and the code offset of its
/// instruction, in order of the former. The first one begins with the function; there is none if nothing is known.
#[derive(Debug)]
pub struct Stretches(Box<[(u32, u32)]>);

impl Stretches {
    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }

    /// Returns the code offset of the instruction at `at` in the text, in the function.
    pub fn at(&self, at: usize) -> Option<u32> {
        let next = self.0.partition_point(|(start, _)| *start as usize <= at);
        Some(self.0[next.checked_sub(1)?].1)
    }
}

/// Adds the stretches of the function that begins at `start`, of which the address map says `map`.
fn join(
    start: u32,
    map: impl Iterator<Item = (u32, Option<u32>)>,
    never_goes_on: impl Fn(u32) -> bool,
    stretches: &mut Vec<(u32, u32)>,
) {
    let mut last = None;
    // Where the code begins that is for the next instruction with a location.
    let mut waiting = Some(start);
    for (at, code_offset) in map {
        match code_offset {
            Some(code_offset) => {
                stretches.push((waiting.take().unwrap_or(at), code_offset));
                last = Some(code_offset);
            }
            None if waiting.is_none() && last.is_some_and(&never_goes_on) => waiting = Some(at),
            None => {}
        }
    }
}

/// Whether the instruction at the start of `code` never goes on with the one behind it.
fn is_jump(code: &[u8]) -> bool {
    matches!(
        OperatorsReader::new(BinaryReader::new(code, 0)).read(),
        Ok(Operator::Br { .. }
            | Operator::BrTable { .. }
            | Operator::Return
            | Operator::ReturnCall { .. }
            | Operator::ReturnCallIndirect { .. }
            | Operator::ReturnCallRef { .. }
            | Operator::Throw { .. }
            | Operator::ThrowRef
            | Operator::Unreachable)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(map: &[(u32, Option<u32>)], jumps: &[u32]) -> Vec<(u32, u32)> {
        let mut stretches = Vec::new();
        join(100, map.iter().copied(), |code_offset| jumps.contains(&code_offset), &mut stretches);
        stretches
    }

    #[test]
    fn code_without_a_location_is_for_the_instruction_before_it() {
        assert_eq!(joined(&[(100, Some(7)), (104, None), (108, Some(9))], &[]), [(100, 7), (108, 9)]);
    }

    #[test]
    fn what_comes_first_is_for_the_instruction_after_it() {
        assert_eq!(joined(&[(100, None), (104, Some(7)), (108, None)], &[]), [(100, 7)]);
        assert_eq!(joined(&[(104, Some(7))], &[]), [(100, 7)]);
        assert_eq!(joined(&[(100, None)], &[]), []);
    }

    #[test]
    fn what_stands_behind_a_jump_is_for_the_instruction_after_it() {
        let map = [(100, Some(7)), (104, None), (108, Some(9)), (110, None), (112, Some(8))];
        assert_eq!(joined(&map, &[7]), [(100, 7), (104, 9), (112, 8)]);
        // Behind the last one nothing is known.
        assert_eq!(joined(&[(100, Some(7)), (104, Some(9)), (108, None)], &[9]), [(100, 7), (104, 9)]);
    }

    #[test]
    fn jumps_are_told_from_branches_that_may_not_be_taken() {
        assert!(is_jump(&[0x0c, 0]) && is_jump(&[0x0f]) && is_jump(&[0]));
        assert!(!is_jump(&[0x0d, 0]) && !is_jump(&[0x10, 0]) && !is_jump(&[0x6a]) && !is_jump(&[]));
    }
}
