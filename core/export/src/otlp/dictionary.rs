//! The dictionary of a message: what all of its profiles refer to. It has nothing else, and nothing twice.

use super::proto;
use crate::module_addresses::MODULE_RANGE;
use crate::pushed::{KeptLabels, LabelValue, SampleLabels, Symbols, Table};

/// The tables while profiles are encoded. Element 0 of each is added at the end.
pub(super) struct Dictionary {
    pub(super) symbols: Symbols,
    attributes: Table<proto::KeyValueAndUnit>,
    links: Table<proto::Link>,
}

impl Dictionary {
    pub(super) fn new() -> Self {
        Self { symbols: Symbols::new(), attributes: Table::default(), links: Table::default() }
    }

    pub(super) fn value_type(&mut self, (name, unit): (&str, &str)) -> proto::ValueType {
        let mut place = |text| self.symbols.texts.place(text) as i32;
        proto::ValueType { type_strindex: place(name), unit_strindex: place(unit) }
    }

    /// The attributes and the link of a sample.
    pub(super) fn of_labels(&mut self, labels: SampleLabels, kept: &KeptLabels) -> (Vec<i32>, i32) {
        let attributes = labels.values.into_iter().map(|(name, value)| {
            let value = match value {
                LabelValue::Text(text) => proto::Value::String(text),
                LabelValue::Number(number) => proto::Value::Int(number),
            };
            self.attribute(kept.name(name), value)
        });
        let attributes = attributes.collect();
        let link = labels.span.map_or(0, |span| {
            self.links.id(proto::Link { trace_id: span.trace_id.to_vec(), span_id: span.span_id.to_vec() }) as i32
        });
        (attributes, link)
    }

    fn attribute(&mut self, key: &str, value: proto::Value) -> i32 {
        let key_strindex = self.symbols.texts.place(key) as i32;
        let value = Some(proto::AnyValue { value: Some(value) });
        self.attributes.id(proto::KeyValueAndUnit { key_strindex, value, unit_strindex: 0 }) as i32
    }

    pub(super) fn finish(mut self) -> proto::ProfilesDictionary {
        let mapping_table = self.mapping_table();
        let location_table = self.location_table();
        let Self { symbols, attributes, links } = self;
        let functions = symbols.functions.items().iter().map(|function| proto::Function {
            name_strindex: function.name as i32,
            system_name_strindex: function.system_name as i32,
            filename_strindex: function.filename as i32,
            start_line: function.start_line.into(),
        });
        let stacks =
            symbols.stacks.items().iter().map(|stack| proto::Stack {
                location_indices: stack.iter().map(|location| *location as i32).collect(),
            });
        // Some decoders take no ids of other lengths.
        let no_link = proto::Link { trace_id: vec![0; 16], span_id: vec![0; 8] };
        proto::ProfilesDictionary {
            mapping_table,
            location_table,
            function_table: after(proto::Function::default(), functions),
            link_table: after(no_link, links.into_items()),
            attribute_table: after(proto::KeyValueAndUnit::default(), attributes.into_items()),
            stack_table: after(proto::Stack::default(), stacks),
            string_table: symbols.texts.all,
        }
    }

    fn mapping_table(&mut self) -> Vec<proto::Mapping> {
        let mappings = self.symbols.mappings.items().to_vec();
        let mappings = mappings.into_iter().map(|mapping| {
            let build_id = Some(mapping.build_id).filter(|build_id| !build_id.is_empty());
            let attributes = build_id
                .map(|build_id| self.attribute("process.executable.build_id.gnu", proto::Value::String(build_id)));
            proto::Mapping {
                memory_start: mapping.start,
                memory_limit: mapping.start + MODULE_RANGE,
                filename_strindex: mapping.filename as i32,
                attribute_indices: attributes.into_iter().collect(),
            }
        });
        after(proto::Mapping::default(), mappings)
    }

    fn location_table(&mut self) -> Vec<proto::Location> {
        let locations = std::mem::take(&mut self.symbols.locations).into_items();
        let locations = locations.into_iter().map(|location| {
            let line = |line: &crate::pushed::Line| proto::Line {
                function_index: line.function as i32,
                line: line.line.into(),
                column: line.column.into(),
            };
            let attributes = location
                .frame_type
                .map(|kind| self.attribute("profile.frame.type", proto::Value::String(kind.to_owned())));
            proto::Location {
                mapping_index: location.mapping as i32,
                address: location.address,
                lines: location.lines.iter().map(line).collect(),
                attribute_indices: attributes.into_iter().collect(),
            }
        });
        after(proto::Location::default(), locations)
    }
}

/// A table with its element 0.
fn after<T>(zero: T, items: impl IntoIterator<Item = T>) -> Vec<T> {
    std::iter::once(zero).chain(items).collect()
}
