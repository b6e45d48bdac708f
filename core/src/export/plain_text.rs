//! Names as line-based formats and C strings can hold them.

use std::borrow::Cow;

/// What stands for a name that is empty.
const UNNAMED: &str = "[unnamed]";

/// `name` without control characters, which would end a line, a string or a terminal's patience, and without `;`, which
/// parts the frames of folded stacks. Never empty.
pub(super) fn plain_name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c != ';' && !c.is_control();
    let plain = if name.chars().all(is_plain) {
        Cow::Borrowed(name.trim())
    } else {
        let replaced = name.chars().map(|c| match c {
            ';' => ':',
            c if c.is_control() => ' ',
            c => c,
        });
        Cow::Owned(replaced.collect::<String>().trim().to_owned())
    };
    if plain.is_empty() { Cow::Borrowed(UNNAMED) } else { plain }
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
    }
}
