//! The memory mappings of a process: `/proc/PID/maps`.

use std::ops::Range;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Its addresses.
    pub(crate) range: Range<usize>,
    /// It can be read.
    pub(crate) is_readable: bool,
    /// It can be executed.
    pub(crate) is_executable: bool,
    /// From where in the file on it is of that.
    pub(crate) offset: u64,
    /// The file's device and number; zeroes if it is of none.
    pub(crate) file: ((u32, u32), u64),
    /// The file that it is of, or what the kernel calls it (`[stack]`); empty if it is anonymous.
    pub(crate) name: String,
}

impl Mapping {
    /// Whether it is of no file, and none of the kernel's own.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("[anon:")
    }
}

/// Parses the lines of `/proc/PID/maps`. Lines that are otherwise are left out.
pub(crate) fn parse_mappings(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    // Permissions, offset, device and inode stand before the name, which may have spaces.
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let (device, rest) = rest.trim_start().split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let part = |text| u32::from_str_radix(text, 16).ok();
    let (number, name) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
    let file = ((part(major)?, part(minor)?), number.parse().ok()?);
    let name = name.trim_start().to_owned();
    let has = |flag| permissions.contains(flag);
    Some(Mapping { range, is_readable: has('r'), is_executable: has('x'), offset, file, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_spaces_and_need_not_be_there() {
        let text = "00400000-00452000 r--p 00001000 08:02 173521      /opt/a file (deleted)\n\
                    7f00-7f10 rw-p 00000000 00:00 0 \nnonsense\n10-zz r--p 0 0:0 0\n";
        let all = parse_mappings(text);
        let names: Vec<_> = all.iter().map(|mapping| (&*mapping.name, mapping.range.len())).collect();
        assert_eq!(names, [("/opt/a file (deleted)", 0x52000), ("", 0x10)]);
        assert_eq!((all[0].offset, all[0].file), (0x1000, ((8, 2), 173521)));
        assert!(all[0].is_readable && !all[0].is_executable);
    }
}
