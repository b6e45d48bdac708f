//! Where `_PyRuntime` is and how what it leads to is laid out.

use crate::{
    debug_offsets,
    layout::{self, Layout},
    scan::Scan,
    threads,
};
use std::ops::Range;
use wlprof_plugin::GuestMemory;

/// The runtime of a guest, found or being looked for.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    minor: u8,
    /// Where debug information, exports or the data segments say that it is.
    candidates: Vec<u32>,
    scan: Scan,
    found: Option<(u32, Layout)>,
}

impl Runtime {
    /// A runtime of that minor release.
    pub(crate) fn new(minor: u8, candidates: Vec<u32>, statics: Option<Range<u64>>) -> Self {
        Self { minor, candidates, scan: Scan::new(statics), found: None }
    }

    /// The minor release and the address, if they were found before.
    pub(crate) fn found(&self) -> Option<(u8, u32)> {
        self.found.map(|(address, layout)| (layout.minor, address))
    }

    /// The address and the layout. `None` as long as no interpreter has started.
    pub(crate) fn find(&mut self, guest: &dyn GuestMemory) -> Option<(u32, Layout)> {
        if self.found.is_none() {
            self.found = self.search(guest);
        }
        self.found
    }

    #[cold]
    fn search(&mut self, guest: &dyn GuestMemory) -> Option<(u32, Layout)> {
        let row = layout::of_release(self.minor);
        let known = self.candidates.iter().find_map(|&address| {
            let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor))?;
            threads::is_runtime(guest, &layout, address).then_some((address, layout))
        });
        if known.is_some() || !self.candidates.is_empty() && !self.has_started(guest) {
            return known;
        }
        let address = self.scan.step(guest, row.as_ref())?;
        let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor))?;
        if threads::is_runtime(guest, &layout, address) {
            return Some((address, layout));
        }
        // A description, of an interpreter that has not yet started: no need to look further.
        self.candidates.push(address);
        None
    }

    /// Whether some candidate has an interpreter, of whatever layout: then the candidates are of no use.
    fn has_started(&self, guest: &dyn GuestMemory) -> bool {
        let row = layout::of_release(self.minor);
        self.candidates.iter().all(|&address| {
            let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor));
            layout.is_none_or(|layout| {
                let head = u64::from(address) + u64::from(layout.runtime.interpreters_head);
                guest.read_u32(head).is_ok_and(|head| head != 0)
            })
        })
    }
}
