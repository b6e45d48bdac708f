//! `moduledata`, the runtime's list of what the linker put where; found by the two pointers that it starts with.

use crate::{
    layout::{LAYOUTS, Layout},
    pclntab::Pclntab,
};
use std::ops::Range;

const BSS: u64 = 224;
const EBSS: u64 = 232;
/// How many functions with inlined calls have to agree before an offset of `gofunc` is believed.
const PROBES: usize = 32;

/// The parts of `moduledata` that we read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moduledata {
    /// What offsets of inline trees are counted from.
    pub(crate) gofunc: Option<u64>,
    /// Variables without an initial value, `allgs` among them.
    pub(crate) bss: Range<u64>,
}

impl Moduledata {
    /// Finds it; `layout` says where `gofunc` ought to be.
    pub(crate) fn find(table: &Pclntab, layout: &Layout) -> Option<Self> {
        let image = &table.image;
        let address = image.find_word(table.address).find(|&at| image.u64(at + 8) == Some(table.names_address()))?;
        let offsets = std::iter::once(layout.gofunc).chain(LAYOUTS.iter().rev().map(|layout| layout.gofunc));
        let gofunc = offsets.filter_map(|offset| image.u64(address + offset)).find(|&gofunc| are_trees(table, gofunc));
        Some(Self { gofunc, bss: image.u64(address + BSS)?..image.u64(address + EBSS)? })
    }
}

/// Whether inline trees counted from `gofunc` make sense: names that begin where names do, calls inside the caller.
fn are_trees(table: &Pclntab, gofunc: u64) -> bool {
    let functions = (0..table.len()).filter_map(|index| table.function(index));
    let trees = functions.filter_map(|function| Some((table.inline_tree(&function, gofunc)?, function)));
    let mut probes = trees.take(PROBES).peekable();
    gofunc != 0
        && probes.peek().is_some()
        && probes.all(|(tree, function)| {
            let image = &table.image;
            let field = |offset: u64| image.u32(tree.checked_add(offset)?);
            let name = field(4).map(|offset| table.names_address() + u64::from(offset));
            let parent = field(8);
            let byte = |address: Option<u64>| image.u8(address?);
            name.is_some_and(|name| byte(name.checked_sub(1)) == Some(0) && byte(Some(name)).is_some_and(|b| b > b' '))
                && parent.is_some_and(|parent| parent <= table.blocks(&function))
        })
}
