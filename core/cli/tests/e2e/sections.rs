//! Takes a module in binary form apart into its sections and puts it together again, damaged.

/// One section: its id and its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) id: u8,
    pub(crate) payload: Vec<u8>,
}

impl Section {
    /// A custom section.
    pub(crate) fn custom(name: &str, content: &[u8]) -> Self {
        let mut payload = unsigned(name.len());
        payload.extend_from_slice(name.as_bytes());
        payload.extend_from_slice(content);
        Self { id: 0, payload }
    }

    /// Name and content, if it is a custom section.
    pub(crate) fn as_custom(&self) -> Option<(&str, &[u8])> {
        if self.id != 0 {
            return None;
        }
        let (length, at) = read_unsigned(&self.payload);
        let (name, content) = self.payload[at..].split_at(length);
        Some((std::str::from_utf8(name).unwrap(), content))
    }
}

const PREAMBLE: &[u8] = b"\0asm\x01\0\0\0";

/// The sections of a well-formed module, in order.
pub(crate) fn split(module: &[u8]) -> Vec<Section> {
    let mut rest = module.strip_prefix(PREAMBLE).expect("a module");
    let mut sections = Vec::new();
    while let [id, after_id @ ..] = rest {
        let (length, at) = read_unsigned(after_id);
        sections.push(Section { id: *id, payload: after_id[at..at + length].to_vec() });
        rest = &after_id[at + length..];
    }
    sections
}

/// A module of these sections.
pub(crate) fn join(sections: &[Section]) -> Vec<u8> {
    let mut module = PREAMBLE.to_vec();
    for section in sections {
        module.push(section.id);
        module.extend(unsigned(section.payload.len()));
        module.extend_from_slice(&section.payload);
    }
    module
}

/// A module as linkers strip it: without names and DWARF.
pub(crate) fn strip(module: &[u8]) -> Vec<u8> {
    let mut sections = split(module);
    let is_debug = |name: &str| name == "name" || name.starts_with(".debug_");
    sections.retain(|section| !section.as_custom().is_some_and(|(name, _)| is_debug(name)));
    join(&sections)
}

/// A module with the content of its custom section `name` changed.
pub(crate) fn with_custom(sections: &[Section], name: &str, change: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let changed: Vec<Section> = sections
        .iter()
        .map(|section| match section.as_custom() {
            Some((own, content)) if own == name => Section::custom(name, &change(content)),
            _ => section.clone(),
        })
        .collect();
    join(&changed)
}

/// LEB128.
pub(crate) fn unsigned(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A LEB128 number and where it ends.
pub(crate) fn read_unsigned(bytes: &[u8]) -> (usize, usize) {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a number ends") + 1;
    let value = bytes[..end].iter().rev().fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f));
    (value, end)
}

#[test]
fn a_module_put_together_again_has_the_same_sections() {
    let sections = split(&super::guest::fixture_bytes("c-traps.wasm"));
    assert!(sections.iter().any(|section| section.as_custom().is_some_and(|(name, _)| name == ".debug_info")));
    assert_eq!(split(&join(&sections)), sections);
}
