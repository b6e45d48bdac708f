//! Where `_PyRuntime` is and how what it leads to is laid out.

use crate::{
    debug_offsets,
    layout::{self, Layout},
    scan::Scan,
    threads,
};
use std::ops::Range;
use wlprof_plugin::{GuestMemory, Truncation};

/// The runtime of a guest, found or being looked for.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    minor: u8,
    /// Where debug information, exports or the data segments say that it is.
    candidates: Vec<u32>,
    in_library: Option<InLibrary>,
    /// The library's places are among the candidates.
    has_seen_library: bool,
    scan: Scan,
    found: Option<(u32, Layout)>,
    searches: u32,
}

/// Where a library says that it is, which depends on where the library's data is.
#[derive(Clone, Debug)]
pub(crate) struct InLibrary {
    /// The global that says that.
    pub(crate) base: u32,
    /// From there.
    pub(crate) offsets: Vec<u32>,
}

/// Places that are tried at every walk until something is found.
pub(crate) const MOST_CANDIDATES: usize = 32;

/// As long as nothing has started at the candidates, only so many searches apart is memory scanned as well: they may be
/// wrong, as addresses in the debug information of position-independent code are.
const PATIENCE: u32 = 8;

impl Runtime {
    /// A runtime of that minor release.
    pub(crate) fn new(
        minor: u8,
        candidates: Vec<u32>,
        in_library: Option<InLibrary>,
        statics: Option<Range<u64>>,
    ) -> Self {
        Self {
            minor,
            candidates,
            in_library,
            has_seen_library: false,
            scan: Scan::new(statics),
            found: None,
            searches: 0,
        }
    }

    /// The global that [`Runtime::find`] needs, if it needs one.
    pub(crate) fn wanted_global(&self) -> Option<&u32> {
        self.in_library.as_ref().map(|library| &library.base)
    }

    /// Looks at `address` first: that of another instance of the module is likely to be this one's, too.
    pub(crate) fn first_at(mut self, address: u32) -> Self {
        self.candidates.insert(0, address);
        self
    }

    /// Whether the release has its tasks in a list that can be found.
    pub(crate) fn lists_tasks(&self) -> bool {
        self.minor == layout::LISTS_TASKS
    }

    /// The minor release and the address, if they were found before.
    pub(crate) fn found(&self) -> Option<(u8, u32)> {
        self.found.map(|(address, layout)| (layout.minor, address))
    }

    /// The address and the layout.
    ///
    /// # Errors
    /// [`Truncation::NoStack`] as long as none is found. If `may_allocate` is not set neither libraries nor memory are searched:
    /// [`Truncation::WouldAllocate`] where nothing says yet that one may start at a place that is known.
    pub(crate) fn find(&mut self, guest: &dyn GuestMemory, may_allocate: bool) -> Result<(u32, Layout), Truncation> {
        if let Some(found) = self.found {
            return Ok(found);
        }
        let row = layout::of_release(self.minor);
        if may_allocate {
            self.see_library(guest);
        }
        let known = self.candidates.iter().find_map(|&address| {
            let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor))?;
            threads::is_runtime(guest, &layout, address).then_some((address, layout))
        });
        self.found = match known {
            Some(found) => Some(found),
            None if may_allocate => self.search(guest, row),
            None if (self.in_library.is_none() || self.has_seen_library) && self.may_start(guest) => None,
            None => return Err(Truncation::WouldAllocate),
        };
        self.found.ok_or(Truncation::NoStack)
    }

    /// Looks where no candidate is.
    #[cold]
    fn search(&mut self, guest: &dyn GuestMemory, row: Option<Layout>) -> Option<(u32, Layout)> {
        self.searches = self.searches.wrapping_add(1);
        if self.may_start(guest) && !self.searches.is_multiple_of(PATIENCE) {
            return None;
        }
        let address = self.scan.step(guest, row.as_ref())?;
        let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor))?;
        if threads::is_runtime(guest, &layout, address) {
            return Some((address, layout));
        }
        // A description, of an interpreter that has not yet started: no need to look further.
        if !self.candidates.contains(&address) && self.candidates.len() < MOST_CANDIDATES {
            self.candidates.push(address);
        }
        None
    }

    /// Has places in a library be candidates.
    fn see_library(&mut self, guest: &dyn GuestMemory) {
        let Some(library) = &self.in_library else { return };
        let Some(base) = guest.global(library.base).and_then(|base| u32::try_from(base).ok()) else { return };
        self.has_seen_library = true;
        for candidate in library.offsets.iter().filter_map(|offset| base.checked_add(*offset)) {
            if self.candidates.len() < MOST_CANDIDATES && !self.candidates.contains(&candidate) {
                self.candidates.insert(0, candidate);
            }
        }
    }

    /// Whether an interpreter may start at a candidate yet: not if all of them have something else where one would be.
    fn may_start(&self, guest: &dyn GuestMemory) -> bool {
        let row = layout::of_release(self.minor);
        self.candidates.iter().any(|&address| {
            let layout = row.or_else(|| debug_offsets::read(guest, address.into(), self.minor));
            layout.is_some_and(|layout| {
                let head = u64::from(address) + u64::from(layout.runtime.interpreters_head);
                !guest.read_u32(head).is_ok_and(|head| head != 0)
            })
        })
    }
}
