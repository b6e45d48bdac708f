//! Which requests are of one kind: those of a method and of a path, apart from what looks like a number or a key in it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Kinds that are told apart. Paths are the clients'.
const MAX_KINDS: usize = 256;
/// All others.
pub(super) const OTHERS: &str = "other requests";
/// Parts of a path that are shown, and bytes of each.
const MAX_PARTS: usize = 8;
const MAX_PART: usize = 32;
/// Stands for what differs.
const ANY: &str = "*";

/// The kinds of requests that have come.
#[derive(Default)]
pub(super) struct Kinds(Mutex<HashSet<Arc<str>>>);

impl Kinds {
    /// What a request of that method and path is called.
    pub(super) fn of(&self, method: &str, path: &str) -> Arc<str> {
        let name = format!("{} {}", shortened(method), pattern(path));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kind) = known.get(name.as_str()) {
            return kind.clone();
        }
        if known.len() >= MAX_KINDS {
            return OTHERS.into();
        }
        let kind: Arc<str> = name.into();
        known.insert(kind.clone());
        kind
    }
}

/// A path without what tells requests of one kind apart.
fn pattern(path: &str) -> String {
    let mut parts = path.split('/').skip(1);
    let mut pattern = String::new();
    for part in parts.by_ref().take(MAX_PARTS) {
        pattern.push('/');
        pattern.push_str(if is_variable(part) { ANY } else { part });
    }
    if parts.next().is_some() {
        pattern.push_str("/…");
    }
    if pattern.is_empty() { "/".to_owned() } else { pattern }
}

/// Whether a part of a path is a number, a key in hexadecimal digits, as UUIDs are, or longer than names are.
fn is_variable(part: &str) -> bool {
    let has_digits = part.bytes().any(|byte| byte.is_ascii_digit());
    let is_number = has_digits && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_key = part.len() >= 8 && has_digits && part.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_number || is_key || part.len() > MAX_PART
}

/// Methods may be any word.
fn shortened(method: &str) -> &str {
    if method.len() > MAX_PART { ANY } else { method }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_requests_of_a_kind_is_left_out() {
        for (path, expected) in [
            ("/", "/"),
            ("", "/"),
            ("*", "/"),
            ("/items/12/parts", "/items/*/parts"),
            ("/v2/items", "/v2/items"),
            ("/by/6f1ed002-ab5e-4c5a-a4d1-12f0d2c3b4a5", "/by/*"),
            ("/blob/deadbeef01", "/blob/*"),
            ("/added/facade", "/added/facade"),
            ("/a/b/c/d/e/f/g/h/i", "/a/b/c/d/e/f/g/h/…"),
            ("/x/aVeryLongWordThatNobodyWouldCallAPageOfAnything", "/x/*"),
        ] {
            assert_eq!(pattern(path), expected, "{path}");
        }
    }

    #[test]
    fn kinds_are_bounded() {
        let kinds = Kinds::default();
        assert_eq!(&*kinds.of("GET", "/a"), "GET /a");
        let letters = |number: usize| [b'a' + (number / 26) as u8, b'a' + (number % 26) as u8];
        for number in 0..600 {
            kinds.of("GET", &format!("/{}", std::str::from_utf8(&letters(number)).unwrap()));
        }
        assert_eq!(&*kinds.of("PUT", "/new"), OTHERS);
        assert_eq!(&*kinds.of("GET", "/a"), "GET /a");
        assert!(kinds.0.lock().unwrap().len() <= MAX_KINDS);
    }
}
