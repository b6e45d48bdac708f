//! Messages about patches of a guest's memory.

use wlprof_plugin::MemoryPatch;

/// Says why a patch is not written, in words for the user. `found` is what is in its place.
pub fn not_expected(patch: &MemoryPatch, found: Option<&[u8]>) -> String {
    const MOST_SHOWN: usize = 16;
    let shown = |bytes: &[u8]| {
        let rest = if bytes.len() > MOST_SHOWN { " and more" } else { "" };
        format!("{:02x?}{rest}", &bytes[..bytes.len().min(MOST_SHOWN)])
    };
    let at = patch.address;
    let Some(found) = found else { return format!("its memory does not reach to {at:#x}, where a patch is for") };
    if patch.expected.is_empty() {
        return format!("the patch for {at:#x} says of nothing that it is expected there");
    }
    let expected: Vec<String> = patch.expected.iter().map(|bytes| shown(bytes)).collect();
    format!("at {at:#x} of its memory is {}, and a patch expects {}", shown(found), expected.join(" or "))
}
