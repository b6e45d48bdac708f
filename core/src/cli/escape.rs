//! Makes untrusted text safe for the terminal.

/// `text` on one line: control characters, line breaks among them, become visible escapes.
pub(super) fn single_line(text: &str) -> String {
    escape_unless(text, is_harmless)
}

/// Like [`single_line`], but keeps line breaks and tabs.
pub(super) fn multi_line(text: &str) -> String {
    escape_unless(text, |c| is_harmless(c) || c == '\n' || c == '\t')
}

fn escape_unless(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) { escaped.push(c) } else { escaped.extend(c.escape_unicode()) }
    }
    escaped
}

/// Neither a control character nor one that changes the direction of text.
fn is_harmless(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(single_line("a\x1b[31mb\nc"), "a\\u{1b}[31mb\\u{a}c");
        assert_eq!(multi_line("a\nb\x07"), "a\nb\\u{7}");
        assert_eq!(single_line("größe<T>"), "größe<T>");
    }
}
