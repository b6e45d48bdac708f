//! Makes untrusted text safe for the terminal.

use std::ops::RangeInclusive;

/// Characters that nobody sees: names that differ in them alone look alike, and some turn the direction of the text around
/// them or break its line. Unicode's `Default_Ignorable_Code_Point`, with the separators of lines and paragraphs and the
/// marks of interlinear annotations.
const UNSEEN: [RangeInclusive<char>; 17] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    // The mark of Arabic letters, of direction as those below.
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    // Spaces and joiners without width, marks of direction.
    '\u{200b}'..='\u{200f}',
    // Separators of lines and paragraphs, embeddings and overrides of direction.
    '\u{2028}'..='\u{202e}',
    // Invisible operators, isolates of direction.
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    // Selectors of variants.
    '\u{fe00}'..='\u{fe0f}',
    // The byte order mark.
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    // Tags, which can spell whole texts, and more selectors.
    '\u{e0000}'..='\u{e0fff}',
];

/// `text` on one line: control characters, line breaks among them, and what nobody sees become visible escapes.
#[must_use]
pub fn single_line(text: &str) -> String {
    escape_unless(text, is_harmless)
}

/// Like [`single_line`], but keeps line breaks and tabs.
#[must_use]
pub fn multi_line(text: &str) -> String {
    escape_unless(text, |c| is_harmless(c) || c == '\n' || c == '\t')
}

fn escape_unless(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) { escaped.push(c) } else { escaped.extend(c.escape_unicode()) }
    }
    escaped
}

fn is_harmless(c: char) -> bool {
    !c.is_control() && !UNSEEN.iter().any(|unseen| unseen.contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(single_line("a\x1b[31mb\nc"), "a\\u{1b}[31mb\\u{a}c");
        assert_eq!(multi_line("a\nb\x07"), "a\nb\\u{7}");
    }

    #[test]
    fn what_nobody_sees_becomes_visible() {
        for c in
            ['\u{ad}', '\u{61c}', '\u{200b}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{feff}']
                .into_iter()
                .chain(['\u{3164}', '\u{fe0f}', '\u{fffa}', '\u{e0001}', '\u{e0041}', '\u{e007f}', '\u{e01ef}'])
        {
            let escape = c.escape_unicode().to_string();
            assert_eq!(single_line(&format!("a{c}b")), format!("a{escape}b"));
            assert_eq!(multi_line(&c.to_string()), escape);
        }
    }

    #[test]
    fn what_people_write_stays() {
        // Marks on letters among it, which take no room of their own and are seen.
        for text in ["größe<T>", "変数", "имя", "اسم", "नमस्ते", "cafe\u{301}", "a b\u{a0}c", "\u{1f980}", "\"'\\"]
        {
            assert_eq!(single_line(text), text);
        }
    }
}
