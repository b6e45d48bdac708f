//! What Rust source imports from the top of its crate and from wlprof's other crates, found in its text.

use std::ops::Range;

/// How the names of wlprof's other crates begin.
pub(crate) const OWN_CRATES: &str = "wlprof_";

/// A module that is written out inside a file.
struct InlineModule {
    body: Range<usize>,
    is_test: bool,
}

/// The modules at the top of the crate, and the crates of wlprof's, that `code` names outside of its test modules, each with
/// where it does. `code` has no comments and literals left. `inside` is its file's path below the crate's `src`, or none to
/// look for crates alone.
pub(crate) fn outside_tests<'c>(code: &'c str, inside: Option<&str>) -> Vec<(usize, &'c str)> {
    let modules = inline_modules(code);
    let depth_of_file = inside.map(|path| path.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count());
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let around = || modules.iter().filter(|module| module.body.contains(&at));
        let (before, after) = (&code[..at], &code[at + word.len()..]);
        let Some(after) = after.strip_prefix("::") else { continue };
        if around().any(|module| module.is_test) {
            continue;
        }
        if word.starts_with(OWN_CRATES) {
            found.push((at, word));
        }
        let Some(depth_of_file) = depth_of_file else { continue };
        let from_the_top = match word {
            // `$crate` is the crate that a macro is of.
            "crate" if !before.ends_with('$') => Some(after),
            "super" if !before.ends_with("super::") => above(after, depth_of_file + around().count()),
            _ => None,
        };
        found.extend(from_the_top.into_iter().flat_map(first_names).map(|name| (at, name)));
    }
    found
}

/// What follows a first `super::` if it and those that follow lead up `depth` modules.
fn above(after: &str, depth: usize) -> Option<&str> {
    let mut rest = after;
    let mut steps = 1;
    while let Some(next) = rest.strip_prefix("super::") {
        (steps, rest) = (steps + 1, next);
    }
    (steps == depth).then_some(rest)
}

/// The names that a path goes on with: one, or several in braces. A `*` is one, too.
fn first_names(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![if path.starts_with('*') { "*" } else { first_word(path) }];
    };
    let mut names = Vec::new();
    let (mut depth, mut is_start) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_start = true,
            c if is_start && !c.is_whitespace() => {
                names.push(first_word(&group[at..]));
                is_start = false;
            }
            _ => {}
        }
    }
    names
}

fn inline_modules(code: &str) -> Vec<InlineModule> {
    let module = |(at, _): (usize, &str)| {
        let after = code[at + "mod".len()..].trim_start();
        let body = after[first_word(after).len()..].trim_start().strip_prefix('{')?;
        let start = code.len() - body.len();
        let attributes = code[..at].rsplit([';', '{', '}']).next().unwrap_or_default();
        let is_test = attributes.contains("cfg") && words(attributes).any(|(_, word)| word == "test");
        Some(InlineModule { body: start..start + length_in_braces(body), is_test })
    };
    words(code).filter(|(_, word)| *word == "mod").filter_map(module).collect()
}

/// The length of `body` up to the brace that closes it.
fn length_in_braces(body: &str) -> usize {
    let mut depth = 0;
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return at,
            '}' => depth -= 1,
            _ => {}
        }
    }
    body.len()
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn first_word(text: &str) -> &str {
    &text[..text.find(|c| !is_in_word(c)).unwrap_or(text.len())]
}

/// The words of `code` and where they begin.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next + code[next..].find(is_in_word)?;
        let word = first_word(&code[at..]);
        next = at + word.len();
        Some((at, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'c>(code: &'c str, inside: &str) -> Vec<&'c str> {
        outside_tests(code, Some(inside)).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn modules_are_found_from_the_top_of_the_crate() {
        let code =
            "use crate::a::A;\npub(crate) use crate::{b::{B, C}, d, self as e};\nfn f() { crate::g::h($crate::i::J) }";
        assert_eq!(names(code, "x.rs"), ["a", "b", "d", "self", "g"]);
        assert_eq!(names("use crate::*;", "x.rs"), ["*"]);
    }

    #[test]
    fn modules_are_found_through_those_above() {
        let code = "use super::a;\nuse super::super::b;\nuse super::super::super::{c, d::D};\n";
        assert_eq!(names(code, "x.rs"), ["a"]);
        assert_eq!(names(code, "x/mod.rs"), ["a"]);
        assert_eq!(names(code, "x/y.rs"), ["b"]);
        assert_eq!(names(code, "x/y/mod.rs"), ["b"]);
        assert_eq!(names(code, "x/y/z.rs"), ["c", "d"]);
        assert_eq!(names("mod inner { use super::super::a; }\nuse super::b;", "x.rs"), ["a", "b"]);
        assert_eq!(names("mod inner { use super::super::a; }\nuse super::super::b;", "x/y.rs"), ["b"]);
    }

    #[test]
    fn crates_are_found_anywhere_and_words_that_look_alike_are_not() {
        let code = "use wlprof_go::GO; let wlprof_version = wlprof_dwarf::f(); wlprof_plugin_t";
        assert_eq!(names(code, "x.rs"), ["wlprof_go", "wlprof_dwarf"]);
        assert_eq!(outside_tests("use crate::a::A; use wlprof_go::GO;", None), [(21, "wlprof_go")]);
    }

    #[test]
    fn test_modules_are_left_out_and_what_follows_them_is_not() {
        for attribute in ["#[cfg(test)]", "#[cfg(all(test, unix))]\n#[allow(dead_code)]"] {
            let code = format!("{attribute}\nmod tests {{ use crate::a; mod b {{ use crate::b; }} }}\nuse crate::c;");
            assert_eq!(names(&code, "x.rs"), ["c"]);
        }
        assert_eq!(names("#[cfg(unix)]\nmod unix { use crate::a; }", "x.rs"), ["a"]);
    }
}
