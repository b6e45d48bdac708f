//! Rust source with comments and literals blanked out, so that line-wise checks see only code.

/// Replaces every character of comments, strings and character literals by a space, keeping lines.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = literal_or_comment(rest, &code);
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (blank, after) = rest.split_at(length);
            code.extend(blank.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        }
    }
    code
}

/// The length of the comment or literal `text` starts with, 0 if it starts with neither.
fn literal_or_comment(text: &str, before: &str) -> usize {
    let within_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        block_comment(text)
    } else if text.starts_with('"') {
        quoted(text, '"')
    } else if text.starts_with('\'') {
        character(text)
    } else if text.starts_with('r') && (!within_word || follows_prefix(before)) {
        raw_string(text)
    } else {
        0
    }
}

/// Whether `r` goes on with a `b` or `c` that starts a literal (`br"…"`).
fn follows_prefix(before: &str) -> bool {
    let mut last = before.chars().rev();
    matches!(last.next(), Some('b' | 'c')) && !last.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character literal; a lifetime is none.
fn character(text: &str) -> usize {
    let mut after = text.chars().skip(1);
    match (after.next(), after.next()) {
        (Some('\\'), _) => quoted(text, '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

fn raw_string(text: &str) -> usize {
    let hashes = text[1..].bytes().take_while(|&byte| byte == b'#').count();
    let body = &text[1 + hashes..];
    if !body.starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    body[1..].find(&end).map_or(text.len(), |at| 1 + hashes + 1 + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_become_blank() {
        let cases = [
            ("a // b\nc", "a ____\nc"),
            ("a /* b /* c */ d */ e", "a _________________ e"),
            (r#"f("a\"b // c") + g"#, "f(___________) + g"),
            ("f('\"') + '\\'' + x", "f(___) + ____ + x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("r#\"a\"b\"# + br\"c\" + r#type", "________ + b____ + r#type"),
            ("for x in \"é\" {}", "for x in ___ {}"),
            ("var\"text\"", "var______"),
        ];
        for (text, code) in cases {
            assert_eq!(code_only(text), code.replace('_', " "), "{text}");
        }
    }

    #[test]
    fn lines_are_kept() {
        let text = "a\n/* b\nc */\n\"d\ne\"\nf";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
    }
}
