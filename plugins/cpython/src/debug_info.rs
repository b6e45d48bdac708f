//! What DWARF says of three places: `_PyRuntime`, `Py_Version` and the interpreter's loop.

use crate::functions::EVAL;
use gimli::{AttributeValue, EndianSlice, LittleEndian, Operation};
use wlprof_plugin::ModuleView;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;

/// The compilation units in which the three are defined.
const FILES: [&str; 3] = ["pylifecycle.c", "getversion.c", "ceval.c"];

/// What is read.
const SECTIONS: [gimli::SectionId; 7] = [
    gimli::SectionId::DebugAbbrev,
    gimli::SectionId::DebugAddr,
    gimli::SectionId::DebugInfo,
    // Units that refer to it cannot be opened without.
    gimli::SectionId::DebugLine,
    gimli::SectionId::DebugLineStr,
    gimli::SectionId::DebugStr,
    gimli::SectionId::DebugStrOffsets,
];

/// Addresses that DWARF knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables {
    /// Where `_PyRuntime` is.
    pub(crate) runtime: Option<u32>,
    /// Where `Py_Version` is.
    pub(crate) version: Option<u32>,
    /// Where the body of `_PyEval_EvalFrameDefault` is, as an offset in the code section.
    pub(crate) eval: Option<u32>,
}

/// Reads as much of the debug information as can be read.
pub(crate) fn variables(view: &dyn ModuleView) -> Variables {
    let mut found = Variables::default();
    let load = |id: gimli::SectionId| -> Result<Slice<'_>, gimli::Error> {
        let wanted = SECTIONS.contains(&id);
        let bytes = if wanted { view.custom_section(id.name()) } else { None };
        Ok(Slice::new(bytes.unwrap_or_default(), LittleEndian))
    };
    let Ok(dwarf) = gimli::Dwarf::load(load) else { return found };
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let name = unit.name.map(|name| name.to_string_lossy()).unwrap_or_default();
        if FILES.iter().any(|file| name.rsplit(['/', '\\']).next() == Some(file)) {
            // What was found before something broke stands.
            let _ = read_unit(&dwarf, &unit, &mut found);
        }
    }
    found
}

fn read_unit(dwarf: &gimli::Dwarf<Slice<'_>>, unit: &Unit<'_>, found: &mut Variables) -> gimli::Result<()> {
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        if !matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_subprogram) {
            continue;
        }
        let Some(name) = entry.attr_value(gimli::DW_AT_name) else { continue };
        let name = dwarf.attr_string(unit, name)?;
        let slot = match name.slice() {
            b"_PyRuntime" => &mut found.runtime,
            b"Py_Version" => &mut found.version,
            name if name == EVAL.as_bytes() => &mut found.eval,
            _ => continue,
        };
        let address = match (entry.attr_value(gimli::DW_AT_location), entry.attr_value(gimli::DW_AT_low_pc)) {
            (Some(AttributeValue::Exprloc(expression)), _) => match expression.operations(unit.encoding()).next()? {
                Some(Operation::Address { address }) => Some(address),
                Some(Operation::AddressIndex { index }) => dwarf.address(unit, index).ok(),
                _ => None,
            },
            (_, Some(low)) => dwarf.attr_address(unit, low)?,
            _ => None,
        };
        // What the linker dropped has an address that nothing can have.
        let exists = |address: &u32| *address != 0 && *address < u32::MAX - 1;
        *slot = slot.or(address.and_then(|address| u32::try_from(address).ok()).filter(exists));
    }
    Ok(())
}
