//! Properties of objects: the name of a function.

use crate::{
    functions::Reading,
    layout::Properties,
    memory::{Window, word},
    values,
};
use wlprof_plugin::Truncation;

/// Properties of a function object among which its name is looked for. It is one of the first.
const MOST_PROPERTIES: u32 = 64;
/// The bits of a property's flags that say what kind of property it is; 0 is one with a value.
const PROPERTY_KIND: u32 = 3 << 4;
/// How much of a shape is read at once: a function's first properties are in it.
const AT_ONCE: u32 = 88;

/// The string that is the value of the property of that name, `name`, in an object with that shape and those values; 0 if
/// there is none. It is what QuickJS prints in stacks.
pub(crate) fn name(reading: Reading<'_>, atom: u32, shape: u32, values: u32) -> Result<u32, Truncation> {
    let Reading { guest, layout, .. } = reading;
    let members = &layout.shape;
    // A shape at the end of memory may be shorter.
    let head = members.prop_hash_mask.max(members.prop_count).saturating_add(4);
    let window = Window::read(guest, shape, AT_ONCE).or_else(|_| Window::read(guest, shape, head))?;
    let member = |offset: u32| window.word(offset).or_else(|_| word(guest, shape, offset));
    let first = match members.properties {
        Properties::At(offset) => offset,
        Properties::AfterHashTable(offset) => {
            let slots = window.word(members.prop_hash_mask)?.checked_add(1).ok_or(Truncation::Inconsistent)?;
            slots.checked_mul(4).and_then(|size| size.checked_add(offset)).ok_or(Truncation::Inconsistent)?
        }
    };
    for index in 0..window.word(members.prop_count)?.min(MOST_PROPERTIES) {
        let property = index.checked_mul(members.property_size).and_then(|offset| first.checked_add(offset));
        let property = property.ok_or(Truncation::Inconsistent)?;
        if member(property.saturating_add(members.atom))? != atom {
            continue;
        }
        let flags = members.flags.of(member(property.saturating_add(members.flags.word))?);
        let value = u64::from(values) + u64::from(index) * u64::from(members.value_size);
        let string = values::string(guest.read_u64(value)?).unwrap_or(0);
        return Ok(if flags & PROPERTY_KIND == 0 { string } else { 0 });
    }
    Ok(0)
}
