//! Where the module's function bodies lie: what every address in the DWARF is checked against.

use std::ops::Range;
use wlprof_plugin::ModuleView;

/// The code ranges of the module's own functions, in code section offsets, ascending.
#[derive(Debug)]
pub(crate) struct Bodies {
    imports: u32,
    ranges: Vec<Range<u32>>,
}

impl Bodies {
    pub(crate) fn new(view: &dyn ModuleView) -> Self {
        let imports = u32::try_from(view.function_imports().len()).unwrap_or(u32::MAX);
        let ranges = (imports..u32::MAX).map_while(|function| view.function_body(function)).collect();
        Self { imports, ranges }
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn range(&self, body: usize) -> Range<u32> {
        self.ranges.get(body).cloned().unwrap_or_default()
    }

    /// The body of `function` in the function index space, if `offset` lies in it.
    pub(crate) fn of_function(&self, function: u32, offset: u32) -> Option<usize> {
        let body = function.checked_sub(self.imports)? as usize;
        self.ranges.get(body)?.contains(&offset).then_some(body)
    }

    /// The body that `[begin, end)` lies inside of, and the range in 32 bits.
    ///
    /// Dead functions are kept in the DWARF with addresses that mean nothing: −1, or with older linkers 0. Between the
    /// start of the code section and the first body stand counts and sizes, so no range from 0 lies inside a body.
    pub(crate) fn enclosing(&self, begin: u64, end: u64) -> Option<(usize, Range<u32>)> {
        let range = u32::try_from(begin).ok()?..u32::try_from(end).ok()?;
        let body = self.ranges.partition_point(|body| body.end <= range.start);
        let found = self.ranges.get(body)?;
        (!range.is_empty() && found.start <= range.start && range.end <= found.end).then_some((body, range))
    }

    /// Returns whether a body begins at `address`.
    pub(crate) fn begins_at(&self, address: u64) -> bool {
        u32::try_from(address)
            .is_ok_and(|address| self.ranges.binary_search_by_key(&address, |body| body.start).is_ok())
    }

    /// Returns whether a body ends at `address`.
    pub(crate) fn ends_at(&self, address: u64) -> bool {
        u32::try_from(address).is_ok_and(|address| self.ranges.binary_search_by_key(&address, |body| body.end).is_ok())
    }

    /// The bodies that `[begin, end)` touches.
    pub(crate) fn touching(&self, begin: u64, end: u64) -> Range<usize> {
        let first = self.ranges.partition_point(|body| u64::from(body.end) <= begin);
        let last = self.ranges.partition_point(|body| u64::from(body.start) < end);
        first..last.max(first)
    }

    /// The bodies that `[begin, end)` covers from the first byte to the last.
    pub(crate) fn exactly_covered(&self, begin: u64, end: u64) -> Option<Range<usize>> {
        let bodies = self.touching(begin, end);
        let first = self.ranges.get(bodies.start)?;
        let last = self.ranges.get(bodies.end.checked_sub(1)?)?;
        (u64::from(first.start) == begin && u64::from(last.end) == end).then_some(bodies)
    }
}
