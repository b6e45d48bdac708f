//! The texts of a profile, each once, and labels, which are made of them.

use super::proto;
use crate::plain_text::printable_name;
pub(super) use crate::string_table::StringTable as Texts;

impl Texts {
    /// Text of the guest's, without control characters. The empty one stays so.
    pub(super) fn printable(&mut self, text: &str) -> i64 {
        if text.is_empty() { 0 } else { self.place(&printable_name(text)) }
    }

    /// The same for labels, without what would end a string in a graph. Never empty: such a label would be none.
    pub(super) fn of_label(&mut self, text: &str) -> i64 {
        let text = if text.trim().is_empty() { "[empty]".into() } else { printable_name(text) };
        self.place(&text.replace('"', "'").replace('\\', "/"))
    }

    pub(super) fn value_type(&mut self, of: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { r#type: self.place(of), unit: self.place(unit) }
    }

    /// A label. A value that is a number, written as numbers are, is a numeric label: servers that store profiles make a series of
    /// each set of texts, and goroutines have thousands of numbers.
    pub(super) fn label(&mut self, key: i64, value: &str) -> proto::Label {
        match number_of(value) {
            Some(number) => self.number_label(key, number),
            None => proto::Label { key, str: self.of_label(value), num: 0, num_unit: 0 },
        }
    }

    pub(super) fn number_label(&mut self, key: i64, num: i64) -> proto::Label {
        // Without a unit a label of 0 is none, and pprof takes one called `request` for bytes.
        proto::Label { key, str: 0, num, num_unit: self.place("count") }
    }
}

/// The number that a text is, if it is written as numbers are.
pub(crate) fn number_of(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}
