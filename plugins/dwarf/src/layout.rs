//! Where a program keeps its data, asked for by name: addresses of variables, offsets of members, sizes, enumerators.

use crate::{
    budget::{self, Fault},
    sections::{self, Reader},
    unit::Units,
};
use gimli::{AttributeValue, UnitOffset};
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
};
use wlprof_plugin::{Budget, Member, ModuleView};

/// The most types of one name that are kept: as a rule they are all the same, from one header.
const MOST_NAMESAKES: usize = 8;
/// The most `typedef`s, qualifiers and nested structures that are followed.
const DEEPEST: usize = 32;
/// What keeping a name takes in memory, besides the name.
const NAME_COST: usize = 64;
/// Addresses from here up are those that linkers give to what they dropped; lower ones give 0.
const DROPPED: u64 = 0xffff_fff0;

/// An entry: the unit and where in it.
type Place = (usize, UnitOffset);

/// The named data of a module.
///
/// # Accuracy
/// Names are plain ones, without namespaces. Where several variables, or types with the member asked for, have one name,
/// the first in the DWARF is taken.
pub struct Layout {
    units: Units,
    named: LayoutNames,
    /// What is left for all questions together: types may contain themselves.
    budget: Mutex<Budget>,
}

/// All that can be asked for.
#[derive(Default)]
struct LayoutNames {
    types: HashMap<String, Vec<Place>>,
    variables: HashMap<String, u64>,
    enumerators: HashMap<String, i64>,
    /// Where functions begin, in code section offsets.
    functions: HashMap<String, u64>,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("types", &self.named.types.len()).finish_non_exhaustive()
    }
}

/// What an entry says that matters here.
struct Entry {
    tag: gimli::DwTag,
    name: Option<String>,
    type_: Option<Place>,
    specification: Option<Place>,
    byte_size: Option<u64>,
    /// Of a member that has one; `None` in it if it has to be computed.
    offset: Option<Option<u64>>,
    bit_offset: Option<u64>,
    bit_size: Option<u64>,
    count: Option<u64>,
    value: Option<i64>,
    address: Option<u64>,
    /// Where code begins.
    start: Option<u64>,
    is_declaration: bool,
}

impl Layout {
    /// Reads the names of all data once. `None` without DWARF. What is broken is left out.
    pub fn new(module: &dyn ModuleView) -> Option<Self> {
        Self::of_units(module, &|_| true)
    }

    /// Reads the names in the compilation units of these files alone, which are given without their folders.
    pub fn of_files(module: &dyn ModuleView, files: &[&str]) -> Option<Self> {
        let file = |path: &[u8]| path.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or_default().to_owned();
        Self::of_units(module, &|path| files.iter().any(|wanted| wanted.as_bytes() == file(path)))
    }

    fn of_units(module: &dyn ModuleView, is_wanted: &dyn Fn(&[u8]) -> bool) -> Option<Self> {
        let (dwarf, size) = sections::load(module)?;
        let mut budget = budget::for_sections(size);
        let units = Units::parse(dwarf, &mut budget);
        let mut layout = Self { units, named: LayoutNames::default(), budget: Mutex::new(budget::for_sections(size)) };
        let mut named = LayoutNames::default();
        for (unit, dies) in layout.units.all.iter().map(|unit| &unit.dies).enumerate() {
            if is_wanted(dies.name.as_ref().map_or(&[], |name| name.bytes())) {
                // What stands before a broken entry is kept.
                let _ = layout.index(unit, &mut named, &mut budget);
            }
        }
        layout.named = named;
        Some(layout)
    }

    /// The address of the variable `name` in the guest's memory. `None` if there is none, or it has no fixed address.
    pub fn variable_address(&self, name: &str) -> Option<u64> {
        self.named.variables.get(name).copied()
    }

    /// Where the code of the function `name` begins, as an offset in the code section, with the size that stands before its
    /// body.
    pub fn function_start(&self, name: &str) -> Option<u64> {
        self.named.functions.get(name).copied()
    }

    /// The value of the enumerator `name`.
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        self.named.enumerators.get(name).copied()
    }

    /// The size of the type `name` in bytes: the tag of a structure, union, class or enumeration, or a `typedef`.
    pub fn type_size(&self, name: &str) -> Option<u64> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        self.named.types.get(name)?.iter().find_map(|&place| self.size(place, &mut budget).ok())
    }

    /// Where `member` lies in the structure, union or class `structure`. Members of members are asked for with dots.
    pub fn member(&self, structure: &str, member: &str) -> Option<Member> {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        self.named.types.get(structure)?.iter().find_map(|&place| self.member_at(place, member, &mut budget).ok())
    }

    fn index(&self, unit: usize, named: &mut LayoutNames, budget: &mut Budget) -> Result<(), Fault> {
        let mut entries = self.units.all[unit].dies.entries_raw(None)?;
        while !entries.is_empty() {
            let Some((name, place, entry)) = self.named_entry(unit, &mut entries, budget)? else { continue };
            budget.spend(NAME_COST)?;
            match entry.tag {
                gimli::DW_TAG_variable => {
                    if let Some(address) = entry.address.filter(|&address| address != 0 && address < DROPPED) {
                        named.variables.entry(name).or_insert(address);
                    }
                }
                gimli::DW_TAG_subprogram => {
                    if let Some(start) = entry.start.filter(|&start| start != 0 && start < DROPPED) {
                        named.functions.entry(name).or_insert(start);
                    }
                }
                gimli::DW_TAG_enumerator => {
                    if let Some(value) = entry.value {
                        named.enumerators.entry(name).or_insert(value);
                    }
                }
                _ => {
                    let places = named.types.entry(name).or_default();
                    if !entry.is_declaration && places.len() < MOST_NAMESAKES {
                        places.push(place);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the next entry, if it is one that can be asked for.
    fn named_entry(
        &self,
        unit: usize,
        entries: &mut gimli::EntriesRaw<'_, Reader>,
        budget: &mut Budget,
    ) -> Result<Option<(String, Place, Entry)>, Fault> {
        let place = (unit, entries.next_offset());
        budget.spend(1)?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
        budget.spend(abbreviation.attributes().len())?;
        let is_wanted = matches!(
            abbreviation.tag(),
            gimli::DW_TAG_variable
                | gimli::DW_TAG_subprogram
                | gimli::DW_TAG_enumerator
                | gimli::DW_TAG_enumeration_type
                | gimli::DW_TAG_structure_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_typedef
                | gimli::DW_TAG_base_type
        );
        if !is_wanted {
            entries.skip_attributes(abbreviation.attributes())?;
            return Ok(None);
        }
        let mut entry = self.attributes(unit, entries, abbreviation, budget)?;
        // The definition of a static member has its name where it is declared.
        if let (None, Some(declaration)) = (&entry.name, entry.specification) {
            entry.name = self.entry(declaration, budget)?.name;
        }
        Ok(entry.name.take().map(|name| (name, place, entry)))
    }

    /// The entry at `place`.
    fn entry(&self, place: Place, budget: &mut Budget) -> Result<Entry, Fault> {
        let dies = &self.units.all.get(place.0).ok_or(Fault::Broken)?.dies;
        let mut entries = dies.entries_raw(Some(place.1))?;
        let abbreviation = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
        self.attributes(place.0, &mut entries, abbreviation, budget)
    }

    fn attributes(
        &self,
        unit: usize,
        entries: &mut gimli::EntriesRaw<'_, Reader>,
        abbreviation: &gimli::Abbreviation,
        budget: &mut Budget,
    ) -> Result<Entry, Fault> {
        budget.spend(abbreviation.attributes().len())?;
        let dies = &self.units.all[unit].dies;
        let mut entry = Entry {
            tag: abbreviation.tag(),
            name: None,
            type_: None,
            specification: None,
            byte_size: None,
            offset: None,
            bit_offset: None,
            bit_size: None,
            count: None,
            value: None,
            address: None,
            start: None,
            is_declaration: false,
        };
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            let number = attribute.udata_value();
            match attribute.name() {
                gimli::DW_AT_name => entry.name = self.units.string(dies, attribute.value(), budget)?,
                gimli::DW_AT_type => entry.type_ = self.place(unit, attribute.value()),
                gimli::DW_AT_specification => entry.specification = self.place(unit, attribute.value()),
                gimli::DW_AT_byte_size => entry.byte_size = number,
                gimli::DW_AT_data_member_location => entry.offset = Some(number),
                gimli::DW_AT_data_bit_offset => entry.bit_offset = number,
                gimli::DW_AT_bit_size => entry.bit_size = number,
                gimli::DW_AT_count => entry.count = number,
                gimli::DW_AT_upper_bound => entry.count = number.and_then(|last| last.checked_add(1)),
                gimli::DW_AT_const_value => entry.value = attribute.sdata_value(),
                gimli::DW_AT_low_pc => {
                    entry.start = self.units.dwarf.attr_address(dies, attribute.value()).ok().flatten();
                }
                gimli::DW_AT_declaration => entry.is_declaration = true,
                gimli::DW_AT_location => {
                    if let AttributeValue::Exprloc(expression) = attribute.value() {
                        entry.address = self.fixed_address(unit, expression);
                    }
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    /// Where a reference leads.
    fn place(&self, unit: usize, reference: AttributeValue<Reader>) -> Option<Place> {
        match reference {
            AttributeValue::UnitRef(offset) => Some((unit, offset)),
            AttributeValue::DebugInfoRef(offset) => self.units.containing(offset.0),
            _ => None,
        }
    }

    /// The address that an expression is, if it is nothing else.
    fn fixed_address(&self, unit: usize, expression: gimli::Expression<Reader>) -> Option<u64> {
        let dies = &self.units.all[unit].dies;
        let mut operations = expression.operations(dies.encoding());
        let address = match operations.next().ok()?? {
            gimli::Operation::Address { address } => address,
            gimli::Operation::AddressIndex { index } => self.units.dwarf.address(dies, index).ok()?,
            _ => return None,
        };
        operations.next().ok()?.is_none().then_some(address)
    }

    /// Follows names and qualifiers to a type that has a shape.
    fn shape(&self, mut place: Place, budget: &mut Budget) -> Result<(Place, Entry), Fault> {
        for _ in 0..DEEPEST {
            let entry = self.entry(place, budget)?;
            match entry.tag {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => place = entry.type_.ok_or(Fault::Broken)?,
                _ => return Ok((place, entry)),
            }
        }
        Err(Fault::Broken)
    }

    fn size(&self, place: Place, budget: &mut Budget) -> Result<u64, Fault> {
        let mut count = 1_u64;
        let mut place = place;
        for _ in 0..DEEPEST {
            let (shape_place, shape) = self.shape(place, budget)?;
            let own = match shape.tag {
                gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                    let pointer = self.units.all[shape_place.0].dies.encoding().address_size;
                    shape.byte_size.or(Some(pointer.into()))
                }
                _ => shape.byte_size,
            };
            if let Some(size) = own {
                return count.checked_mul(size).ok_or(Fault::Broken);
            }
            if shape.tag != gimli::DW_TAG_array_type {
                return Err(Fault::Broken);
            }
            let mut length = Some(count);
            self.children(shape_place, budget, |dimension| {
                length = length.and_then(|length| length.checked_mul(dimension.count?));
                length.is_some()
            })?;
            count = length.ok_or(Fault::Broken)?;
            place = shape.type_.ok_or(Fault::Broken)?;
        }
        Err(Fault::Broken)
    }

    fn member_at(&self, structure: Place, path: &str, budget: &mut Budget) -> Result<Member, Fault> {
        let (mut place, mut base, mut found) = (structure, 0_u64, None);
        if path.split('.').count() > DEEPEST {
            return Err(Fault::Broken);
        }
        for name in path.split('.') {
            let (offset, entry) = self.find_member(place, name, budget)?;
            base = base.checked_add(offset).ok_or(Fault::Broken)?;
            place = entry.type_.ok_or(Fault::Broken)?;
            found = Some(entry);
        }
        let member = found.ok_or(Fault::Broken)?;
        let size = match member.byte_size {
            Some(size) => size,
            // A flexible array has none.
            None => self.size(place, budget).unwrap_or(0),
        };
        let Some(bits) = member.bit_size else { return Ok(Member { offset: base, size, bits: None }) };
        // Counted from the start of the structure; asked for are the bits of the unit that it is stored in.
        let first = member.bit_offset.ok_or(Fault::Broken)?;
        let unit = size.checked_mul(8).filter(|&unit| unit > 0).ok_or(Fault::Broken)?;
        let (start, first) = (first / unit * size, first % unit);
        // Packed ones may lie in two units.
        let last = first.checked_add(bits).filter(|&last| last <= unit).ok_or(Fault::Broken)?;
        let bits = first as u32..last as u32;
        let offset = base.checked_add(start).ok_or(Fault::Broken)?;
        Ok(Member { offset, size, bits: Some(bits) })
    }

    /// A member of the structure at `place` and its offset, in nameless structures and unions and in base classes, too.
    fn find_member(&self, place: Place, name: &str, budget: &mut Budget) -> Result<(u64, Entry), Fault> {
        let mut open = vec![(place, 0_u64)];
        while let Some((place, base)) = open.pop() {
            let (place, _) = self.shape(place, budget)?;
            let mut found = None;
            self.children(place, budget, |child| {
                let is_base = child.tag == gimli::DW_TAG_inheritance;
                if child.tag != gimli::DW_TAG_member && !is_base {
                    return true;
                }
                // Members of unions and bit-fields have no offset of their own.
                let Some(offset) = base.checked_add(child.offset.unwrap_or(Some(0)).unwrap_or(u64::MAX)) else {
                    return true;
                };
                if !is_base && child.name.as_deref() == Some(name) {
                    found = Some((offset, child));
                    return false;
                }
                if let (true, Some(inner)) = (is_base || child.name.is_none(), child.type_) {
                    open.push((inner, offset));
                }
                true
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Err(Fault::Broken)
    }

    /// Calls `each` with the entries directly below the one at `place`, until it returns that this is enough.
    fn children(&self, place: Place, budget: &mut Budget, mut each: impl FnMut(Entry) -> bool) -> Result<(), Fault> {
        let dies = &self.units.all.get(place.0).ok_or(Fault::Broken)?.dies;
        let mut entries = dies.entries_raw(Some(place.1))?;
        let parent = entries.read_abbreviation()?.ok_or(Fault::Broken)?;
        entries.skip_attributes(parent.attributes())?;
        let mut depth = usize::from(parent.has_children());
        while depth > 0 && !entries.is_empty() {
            budget.spend(1)?;
            match entries.read_abbreviation()? {
                None => depth -= 1,
                Some(abbreviation) => {
                    if depth == 1 {
                        if !each(self.attributes(place.0, &mut entries, abbreviation, budget)?) {
                            return Ok(());
                        }
                    } else {
                        budget.spend(abbreviation.attributes().len())?;
                        entries.skip_attributes(abbreviation.attributes())?;
                    }
                    depth += usize::from(abbreviation.has_children());
                }
            }
        }
        Ok(())
    }
}
