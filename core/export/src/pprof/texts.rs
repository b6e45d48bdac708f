//! The texts of a profile, each once, and labels, which are made of them.

use super::proto;
use crate::plain_text::printable_name;
use std::collections::HashMap;

/// Texts are named by their places in one table, whose first is empty.
pub(super) struct Texts {
    pub(super) all: Vec<String>,
    places: HashMap<String, i64>,
}

impl Texts {
    pub(super) fn new() -> Self {
        Self { all: vec![String::new()], places: HashMap::from([(String::new(), 0)]) }
    }

    pub(super) fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }

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
        match value.parse::<i64>() {
            // Without a unit a label of 0 is none, and pprof takes one called `request` for bytes.
            Ok(num) if num.to_string() == value => proto::Label { key, str: 0, num, num_unit: self.place("count") },
            _ => proto::Label { key, str: self.of_label(value), num: 0, num_unit: 0 },
        }
    }
}
