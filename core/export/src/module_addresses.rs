//! The addresses that formats without code offsets show: each module has a range of its own.

use wlprof_recording::{ModuleId, Origin};

/// Addresses of a module: more than its code can have.
pub(crate) const MODULE_RANGE: u64 = 1 << 32;

/// Where the addresses of a module begin, or those of the host. The host's are always the same, and a module's those of its number,
/// whatever else there is: readers compare profiles by them.
pub(crate) fn first_address(module: Option<ModuleId>) -> u64 {
    MODULE_RANGE * module.map_or(1, |module| u64::from(module) + 2)
}

/// The module whose range a frame is in, or none for the host's, and its address. That is 0 for frames without a code offset: their lines
/// distinguish them.
pub(crate) fn address_of(origin: Origin) -> (Option<ModuleId>, u64) {
    match origin {
        Origin::Wasm { module, code_offset, .. } => {
            (Some(module), first_address(Some(module)) + u64::from(code_offset))
        }
        Origin::Language { module, .. } => (Some(module), 0),
        Origin::HostCall { .. }
        | Origin::Native { .. }
        | Origin::Host
        | Origin::Truncated
        | Origin::Elided
        | Origin::Adapter => (None, 0),
    }
}
