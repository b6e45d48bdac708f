//! Whether a module has QuickJS in it, and which release.
//!
//! Names and debug information may be gone, but not the strings that it was compiled with. All releases make their atoms
//! from one string that begins with the keywords of JavaScript. It also tells the numbers of atoms, which change between
//! releases.

use crate::module::{data_section, position};

/// How that string begins.
const ATOMS: &[u8] =
    b"null\0false\0true\0if\0else\0return\0var\0this\0delete\0void\0typeof\0new\0in\0instanceof\0do\0while\0for\0";
/// Most atoms that are looked at; releases have about 250.
const MOST_ATOMS: usize = 1024;
/// How many QuickJS-ng 0.16 has before those of symbols.
const NG_0_16_ATOMS: usize = 226;

/// What says that a module is QuickJS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// As in `QuickJS-ng 0.16.2`, or less of it.
    pub(crate) found: String,
    /// Whether it is of the release whose layout is in the table.
    pub(crate) is_ng_0_16: bool,
    /// The number of the atom `name`.
    pub(crate) name_atom: u32,
}

/// Looks for QuickJS in a module.
pub(crate) fn detect(module: &[u8]) -> Option<Evidence> {
    let data = data_section(module);
    let atoms = data.get(position(data, ATOMS)?..)?;
    let mut texts = atoms.split(|&byte| byte == 0).take(MOST_ATOMS);
    let name_atom = texts.position(|text| text == b"name")? as u32 + 1;
    let count = atoms.split(|&byte| byte == 0).take(MOST_ATOMS).position(|text| text.starts_with(b"Symbol."));
    let is_0_16 = |version: &&str| version.starts_with("0.16.");
    let versions = || data.split(|&byte| byte == 0).filter_map(ng_version);
    let (found, is_ng_0_16) = match versions().find(is_0_16).or_else(|| versions().next()) {
        Some(version) => (format!("QuickJS-ng {version}"), is_0_16(&version)),
        // The version is left out of programs that do not ask for it.
        None if count == Some(NG_0_16_ATOMS) => ("QuickJS-ng 0.16".to_owned(), true),
        None => match data.split(|byte| !byte.is_ascii_digit() && *byte != b'-').find_map(date) {
            Some(date) => (format!("QuickJS {date}"), false),
            None => ("QuickJS of an unknown version".to_owned(), false),
        },
    };
    Some(Evidence { found, is_ng_0_16, name_atom })
}

/// The version of a QuickJS-ng, `0.16.2` or `0.16.2-dev`, with which `text` ends.
fn ng_version(text: &[u8]) -> Option<&str> {
    // Constants of other sizes, without a 0 at the end, may lie before the string.
    let start = text.iter().rposition(|byte| !byte.is_ascii_alphanumeric() && !b".-+".contains(byte));
    let text = str::from_utf8(text.get(start.map_or(0, |start| start + 1)..)?).ok()?;
    let numbers = text.split('-').next().unwrap_or_default();
    let is_version = numbers.starts_with("0.") && numbers.split('.').count() == 3 && numbers.split('.').all(is_number);
    (is_version && text.len() < 32).then_some(text)
}

/// The version of a QuickJS, `2024-01-13`.
fn date(text: &[u8]) -> Option<&str> {
    let text = str::from_utf8(text).ok()?;
    let is_date = text.len() == 10 && text.starts_with("20") && text.split('-').map(str::len).eq([4, 2, 2]);
    is_date.then_some(text)
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(before_name: usize, symbols_at: usize, rest: &[u8]) -> Vec<u8> {
        let mut data = b"some\0".to_vec();
        data.extend(ATOMS);
        let keywords = ATOMS.split(|&byte| byte == 0).count() - 1;
        for number in keywords..before_name {
            data.extend(format!("atom{number}\0").bytes());
        }
        data.extend(b"name\0");
        for number in before_name + 1..symbols_at {
            data.extend(format!("atom{number}\0").bytes());
        }
        data.extend(b"Symbol.iterator\0");
        data.extend(rest);
        let mut module = b"\0asm\x01\0\0\0\x0b".to_vec();
        module.extend([0x80 | data.len() as u8 & 0x7f, (data.len() >> 7) as u8]);
        module.extend(data);
        module
    }

    #[test]
    fn releases_are_told() {
        for (symbols, rest, found, is_known) in [
            (100, b"0.16.2\0".as_slice(), "QuickJS-ng 0.16.2", true),
            (100, b"0.1.0\0x 0.16.0-dev\0", "QuickJS-ng 0.16.0-dev", true),
            (100, b"0.12.1\0", "QuickJS-ng 0.12.1", false),
            (100, b"memory usage -- 2024-01-13 version, %d bits\0", "QuickJS 2024-01-13", false),
            (100, b"2024-01-13-1\0 1.2.3\0", "QuickJS of an unknown version", false),
            (NG_0_16_ATOMS, b"", "QuickJS-ng 0.16", true),
        ] {
            let evidence = detect(&module(57, symbols, rest)).unwrap();
            assert_eq!((evidence.found.as_str(), evidence.is_ng_0_16, evidence.name_atom), (found, is_known, 58));
        }
        assert_eq!(detect(b"\0asm\x01\0\0\0\x0b\x05null\0"), None);
    }
}
