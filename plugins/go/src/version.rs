//! Which Go built a module, from the `producers` section, which survives `-ldflags="-s -w"`.

use std::fmt;
use wlprof_plugin::ModuleView;

/// A Go release, as in 1.24.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// The 24 of 1.24.11. There is no Go 2.
    pub(crate) minor: u32,
    patch: Option<u32>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.patch {
            Some(patch) => write!(f, "1.{}.{patch}", self.minor),
            None => write!(f, "1.{}", self.minor),
        }
    }
}

impl Version {
    /// Finds `go1.24.11` in a text, as in `devel go1.28-abcdef`.
    fn find(text: &str) -> Option<Self> {
        let numbers = &text[text.find("go1.")? + "go1.".len()..];
        let mut numbers = numbers.split('.').map(|number| {
            let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
            number[..end].parse().ok()
        });
        Some(Self { minor: numbers.next()??, patch: numbers.next().flatten() })
    }
}

/// What the `producers` section says of Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Producer {
    /// Nothing.
    Silent,
    /// Go's own compiler.
    Go(Option<Version>),
    /// TinyGo, which shares nothing with Go but the language: its stack is the wasm stack and it has DWARF.
    TinyGo,
}

/// Reads the `producers` section.
pub(crate) fn producer(module: &dyn ModuleView) -> Producer {
    let mut found = Producer::Silent;
    let mut input = Input(module.custom_section("producers").unwrap_or_default());
    for _ in 0..input.number().unwrap_or(0).min(16) {
        let (Some(field), Some(values)) = (input.text(), input.number()) else { break };
        for _ in 0..values.min(64) {
            let (Some(name), Some(version)) = (input.text(), input.text()) else { return found };
            match (field, name) {
                (_, "TinyGo") => return Producer::TinyGo,
                ("language", "Go") => found = Producer::Go(Version::find(version)),
                _ => {}
            }
        }
    }
    found
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn number(&mut self) -> Option<usize> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_all_their_forms() {
        let find = |text| Version::find(text).map(|version| version.to_string());
        assert_eq!(find("go1.24.11").as_deref(), Some("1.24.11"));
        assert_eq!(find("go1.21").as_deref(), Some("1.21"));
        assert_eq!(find("go1.27rc1").as_deref(), Some("1.27"));
        assert_eq!(find("devel go1.28-0a1b2c3 Tue").as_deref(), Some("1.28"));
        assert_eq!(find("go1.23.9 X:rangefunc").as_deref(), Some("1.23.9"));
        assert_eq!(find("go1."), None);
        assert_eq!(find("1.24"), None);
    }
}
