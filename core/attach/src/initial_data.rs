//! The data that modules put into their memory: by it the memory of an instance is known.

use crate::pages::Pages;
use std::sync::Arc;
use wlprof_module::ModuleImage;

/// Pieces of the data that are looked for in a memory, and how long one is.
const MAX_PIECES: usize = 64;
const PIECE: usize = 32;

/// Some pieces of the data of modules that work on one memory. They are chosen once: there may be megabytes to choose from, and the thread whose
/// memory is looked at stands still.
pub(crate) struct InitialData {
    pieces: Vec<(usize, [u8; PIECE])>,
}

impl InitialData {
    /// Chooses pieces from the beginning to the end of what `modules` have, of those that are not mostly zeros, as other memory is.
    pub(crate) fn of(modules: &[Arc<ModuleImage>]) -> Self {
        let segments = modules.iter().flat_map(|module| module.initial_segments());
        let pieces = segments.flat_map(|(address, bytes)| {
            let (pieces, _) = bytes.as_chunks::<PIECE>();
            pieces.iter().enumerate().map(move |(number, piece)| (address as usize + number * PIECE, *piece))
        });
        let is_telling = |piece: &[u8; PIECE]| piece.iter().filter(|byte| **byte != 0).count() > PIECE / 4;
        let all: Vec<_> = pieces.filter(|(_, piece)| is_telling(piece)).collect();
        let step = all.len().div_ceil(MAX_PIECES).max(1);
        Self { pieces: all.into_iter().step_by(step).collect() }
    }

    /// Returns whether most of the pieces are where the modules put them in the memory that begins at `base`.
    pub(crate) fn is_in(&self, memory: &Pages<'_>, base: usize, length: usize) -> bool {
        let is_there = |(address, piece): &&(usize, [u8; PIECE])| {
            let mut found = [0; PIECE];
            let is_within = address.checked_add(PIECE).is_some_and(|end| end <= length);
            is_within && memory.read(base + address, &mut found) && found == *piece
        };
        self.pieces.iter().filter(is_there).count() * 2 > self.pieces.len()
    }
}
