//! Which requests are of one kind: those of a method and of a path, apart from what looks like a number or a key in it.

use std::collections::HashMap;
use std::sync::Arc;
use wlprof_recording::OTHER_REQUESTS;

/// Kinds that are told apart. Paths are the clients'.
const MAX_KINDS: usize = 256;
/// Parts of a path that are shown, and bytes of each.
const MAX_PARTS: usize = 8;
const MAX_PART: usize = 32;
/// Stands for what differs.
const ANY: &str = "*";

/// The kinds of requests that have come, and whether each is kept: those that the guest knows nothing of make room for others.
#[derive(Default)]
pub(super) struct Kinds(HashMap<Arc<str>, bool>);

impl Kinds {
    /// What a request of that method and path is called, and which other kind is not told apart any more, if one had to make room.
    pub(super) fn of(&mut self, method: &str, path: &str) -> (Arc<str>, Option<Arc<str>>) {
        let name = format!("{} {}", shortened(method), pattern(path));
        if let Some((kind, _)) = self.0.get_key_value(name.as_str()) {
            return (kind.clone(), None);
        }
        let mut given_up = None;
        if self.0.len() >= MAX_KINDS {
            given_up = self.0.iter().find(|(_, is_kept)| !**is_kept).map(|(kind, _)| kind.clone());
            let Some(given_up) = &given_up else { return (OTHER_REQUESTS.into(), None) };
            self.0.remove(given_up);
        }
        let kind: Arc<str> = name.into();
        self.0.insert(kind.clone(), false);
        (kind, given_up)
    }

    /// Whether that kind is told apart from others for good.
    pub(super) fn tells_apart(&self, kind: &str) -> bool {
        self.0.get(kind).is_some_and(|is_kept| *is_kept || self.0.len() < MAX_KINDS)
    }

    /// The guest knows requests of that kind.
    pub(super) fn keep(&mut self, kind: &str) {
        self.0.get_mut(kind).into_iter().for_each(|is_kept| *is_kept = true);
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
        let mut kinds = Kinds::default();
        assert_eq!(&*kinds.of("GET", "/a").0, "GET /a");
        let letters = |number: usize| [b'a' + (number / 26) as u8, b'a' + (number % 26) as u8];
        for number in 0..600 {
            let (kind, _) = kinds.of("GET", &format!("/{}", std::str::from_utf8(&letters(number)).unwrap()));
            kinds.keep(&kind);
        }
        assert_eq!(&*kinds.of("PUT", "/new").0, OTHER_REQUESTS);
        assert!(kinds.0.len() <= MAX_KINDS);
    }

    #[test]
    fn what_the_guest_does_not_know_makes_room() {
        let mut kinds = Kinds::default();
        let (known, _) = kinds.of("GET", "/known");
        kinds.keep(&known);
        let path = |number: u32| format!("/{}", char::from_u32(0x4e00 + number).unwrap());
        let given_up = (0..600).filter(|number| kinds.of("GET", &path(*number)).1.is_some()).count();
        assert_eq!(given_up, 600 + 1 - MAX_KINDS);
        assert_eq!(kinds.of("GET", "/known"), (known, None));
    }
}
