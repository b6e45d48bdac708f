//! Names as line-based formats, pictures and C strings can hold them.

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

/// As [`printable_name`], for pictures: without what XML cannot hold, and what turns the direction of the text around it can
/// be seen.
pub(super) fn drawn_name(name: &str) -> Cow<'_, str> {
    const IN_ITS_PLACE: &str = "\u{fffd}";
    let is_odd = |c: char| {
        matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let printable = printable_name(name);
    if printable.contains(is_odd) { Cow::Owned(printable.replace(is_odd, IN_ITS_PLACE)) } else { printable }
}

/// The last two parts of a path.
pub fn short_path(path: &str) -> &str {
    let mut separators = path.rmatch_indices(['/', '\\']);
    match (separators.next(), separators.next()) {
        (Some(_), Some((at, _))) => &path[at + 1..],
        _ => path,
    }
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
        assert_eq!(drawn_name("a\u{202e}b\u{ffff}\u{1}c"), "a\u{fffd}b\u{fffd} c");
        assert_eq!((printable_name("[T; 2]\r"), printable_name("")), ("[T; 2]".into(), UNNAMED.into()));
    }

    #[test]
    fn paths_keep_two_parts() {
        assert_eq!(short_path("/home/me/src/main.c"), "src/main.c");
        assert_eq!(
            ["/main.c", "main.c", "src\\main.c", "é"].map(short_path),
            ["/main.c", "main.c", "src\\main.c", "é"]
        );
    }
}
