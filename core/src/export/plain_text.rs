//! Names as line-based formats and C strings can hold them.

use std::borrow::Cow;

/// What stands for a name that is empty.
const UNNAMED: &str = "[unnamed]";

/// `name` without control characters, which would end a line, a string or a terminal's patience. Never empty.
pub(super) fn printable_name(name: &str) -> Cow<'_, str> {
    let printable = if name.contains(char::is_control) {
        Cow::Owned(name.replace(char::is_control, " ").trim().to_owned())
    } else {
        Cow::Borrowed(name.trim())
    };
    if printable.is_empty() { Cow::Borrowed(UNNAMED) } else { printable }
}

/// As [`printable_name`], and without `;`, which parts the frames of folded stacks.
pub(super) fn plain_name(name: &str) -> Cow<'_, str> {
    let printable = printable_name(name);
    if printable.contains(';') { Cow::Owned(printable.replace(';', ":")) } else { printable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_forge_frames_lines_or_escape_sequences() {
        assert_eq!(plain_name("a;b\n99"), "a:b 99");
        assert_eq!(plain_name("a\0b\u{1b}[31m\u{9b}0m"), "a b [31m 0m");
        assert_eq!(plain_name("core::fmt::Write<T>"), "core::fmt::Write<T>");
        assert_eq!(plain_name("\0ends\0"), "ends");
        assert_eq!(plain_name(" \n"), UNNAMED);
        assert_eq!((printable_name("[T; 2]\r"), printable_name("")), ("[T; 2]".into(), UNNAMED.into()));
    }
}
