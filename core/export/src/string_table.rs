//! A table of strings, each once, as profiles name them by their places.

use std::collections::HashMap;

/// The first string is empty.
pub(crate) struct StringTable {
    pub(crate) all: Vec<String>,
    places: HashMap<String, i64>,
}

impl StringTable {
    pub(crate) fn new() -> Self {
        Self { all: vec![String::new()], places: HashMap::from([(String::new(), 0)]) }
    }

    pub(crate) fn place(&mut self, text: &str) -> i64 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}
