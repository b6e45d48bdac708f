//! `cargo xtask tidy`: the house rules that neither rustc nor clippy checks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::progress::Step;
use crate::source_text::code_only;
use crate::{architecture, checkout};

const MOST_LINES: usize = 600;
const MOST_BYTES: u64 = 1 << 20;

/// The only places for `unsafe`: the sampler, the walk and its use on other processes, how threads are stopped, the two sides of the plugins' C
/// ABI, a function that gives a compiled module's bytes, a library with functions for C, and a test guest whose imports and exports have names of
/// their own.
const UNSAFE_PLACES: [&str; 11] = [
    "core/src/sampler",
    "core/walk/src",
    "core/attach/src/signaller",
    "core/attach/src/stack",
    "core/attach/src/stopper",
    "core/attach/src/tracer",
    "core/inside/examples/from_c",
    "core/loader/src",
    "plugins/api/src/abi",
    "core/src/machine_code/mapped",
    "testdata/rust/library",
];

/// Leftovers that must not be committed. Split, so that this file does not contain them.
const LEFTOVERS: [&str; 4] =
    [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!("), concat!("#[", "ignore")];

/// Checks every file of the checkout and prints each violation.
pub(crate) fn run() -> Result<()> {
    let step = Step::quietly("tidy");
    let root = checkout::root();
    // Some are deleted but not yet committed so.
    let files: Vec<_> = checkout::files()?
        .into_iter()
        .filter(|path| root.join(path).is_symlink() || root.join(path).exists())
        .collect();
    let mut violations = Vec::new();
    let document = root.join(architecture::FILE);
    let text = fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
    violations.extend(architecture::check(&text, &files));
    for path in &files {
        let full = root.join(path);
        let metadata = fs::symlink_metadata(&full).with_context(|| format!("cannot read {}", full.display()))?;
        if metadata.len() > MOST_BYTES {
            violations.push(format!("{}:1: over 1 MB", path.display()));
        }
        if metadata.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&full).with_context(|| format!("cannot read {}", full.display()))?;
            violations.extend(check_source(path, &text));
        }
    }
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} violations", violations.len());
    }
    step.done();
    Ok(())
}

/// The violations in one Rust file, as `path:line: what`.
fn check_source(path: &Path, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let mut report = |line: usize, what: &str| violations.push(format!("{}:{line}: {what}", path.display()));
    if !text.starts_with("//!") {
        report(1, "does not start with a `//!` header that says what the file is for");
    }
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > MOST_LINES {
        report(lines.len(), &format!("{} lines, over {MOST_LINES}", lines.len()));
    }
    let may_be_unsafe = UNSAFE_PLACES.iter().any(|place| {
        // `loader.rs`, `loader/…`, `loader_unix.rs`, but not `loaders_of_something_else`.
        path.to_str().and_then(|path| path.strip_prefix(place)).is_some_and(|rest| rest.starts_with(['/', '.', '_']))
    });
    let code = code_only(text);
    let code_lines: Vec<&str> = code.lines().collect();
    for (index, code_line) in code_lines.iter().enumerate() {
        for leftover in LEFTOVERS {
            if code_line.contains(leftover) {
                report(index + 1, &format!("`{leftover}` left over"));
            }
        }
        for (at, after) in words_after(code_line, "unsafe") {
            if !may_be_unsafe {
                report(index + 1, "`unsafe` outside its places");
            }
            let next = after.trim_start();
            let next = if next.is_empty() { next_code(&code_lines[index + 1..]) } else { next };
            let needs_reason = next.starts_with('{') || next.starts_with("impl");
            if needs_reason && !has_reason(&lines, &code_lines, index, at) {
                report(index + 1, "`unsafe` without a `SAFETY:` comment before it");
            }
        }
    }
    violations
}

/// Where `word` stands in `line` as a word of its own, with what follows it.
fn words_after<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).filter_map(move |(at, _)| {
        let after = &line[at + word.len()..];
        let alone = !line[..at].ends_with(in_word) && !after.starts_with(in_word);
        alone.then_some((at, after))
    })
}

fn next_code<'a>(lines: &[&'a str]) -> &'a str {
    lines.iter().map(|line| line.trim()).find(|line| !line.is_empty()).unwrap_or("")
}

/// Whether a `SAFETY:` comment stands directly before the `unsafe` at (`index`, `column`), or
/// before the statement it is part of.
fn has_reason(lines: &[&str], code_lines: &[&str], index: usize, column: usize) -> bool {
    // `/* SAFETY: … */ unsafe { … }`. Blanking keeps characters, not bytes: count those.
    let before: String = lines[index].chars().take(code_lines[index][..column].chars().count()).collect();
    if before.contains("SAFETY:") {
        return true;
    }
    for above in (0..index).rev() {
        let code = code_lines[above].trim();
        let is_comment = code.is_empty() && !lines[above].trim().is_empty();
        if is_comment {
            if lines[above].contains("SAFETY:") {
                return true;
            }
        } else if code.is_empty() || (code.ends_with([';', '{', '}']) && !code.starts_with("#[")) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLER: &str = "core/src/sampler/walk.rs";

    fn check(path: &str, body: &str) -> Vec<String> {
        check_source(Path::new(path), &format!("//! Header.\n{body}"))
    }

    #[test]
    fn header_is_needed() {
        assert_eq!(check_source(Path::new("a.rs"), "fn f() {}\n").len(), 1);
        assert!(check("a.rs", "fn f() {}\n").is_empty());
    }

    #[test]
    fn length_is_limited() {
        assert!(check("a.rs", &"\n".repeat(MOST_LINES - 1)).is_empty());
        assert_eq!(check("a.rs", &"\n".repeat(MOST_LINES)).len(), 1);
    }

    #[test]
    fn leftovers_are_found_with_their_line() {
        for leftover in LEFTOVERS {
            let found = check("a.rs", &format!("fn f() {{\n    {leftover}1)\n}}\n"));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("a.rs:3: "), "{found:?}");
            assert!(check("a.rs", &format!("// {leftover}\n")).is_empty());
        }
    }

    #[test]
    fn unsafe_has_its_places() {
        let body = "// SAFETY: none needed.\nunsafe { f() }\n";
        assert!(check(SAMPLER, body).is_empty());
        assert!(check("core/loader/src.rs", body).is_empty());
        assert!(check("core/loader/src/abi.rs", body).is_empty());
        assert_eq!(check("core/loader/srcs.rs", body).len(), 1);
        assert_eq!(check("core/recording/src/file.rs", body).len(), 1);
        assert!(check("core/src/machine_code/mapped.rs", body).is_empty());
        assert_eq!(check("core/src/machine_code/native_code.rs", body).len(), 1);
        assert!(check("a.rs", "#![forbid(unsafe_code)] // unsafe\nlet s = \"unsafe {\";\n").is_empty());
    }

    #[test]
    fn unsafe_needs_a_reason() {
        let with_reason = [
            "// SAFETY: x\nunsafe { f() }\n",
            "// SAFETY: x\n// more\nlet a = unsafe { f() };\n",
            "// SAFETY: x\nlet a = g\n    .h(unsafe { f() });\n",
            "// SAFETY: x\n#[allow(dead_code)]\nunsafe impl Send for A {}\n",
            "f(/* SAFETY: x */ unsafe { g() });\n",
            "let a =\n    // SAFETY: x\n    unsafe { f() };\n",
            "unsafe fn f() {}\nunsafe extern \"C\" {}\n",
        ];
        for body in with_reason {
            assert!(check(SAMPLER, body).is_empty(), "{body}");
        }
        let without_reason = [
            "unsafe { f() }\n",
            "// Some comment.\nunsafe { f() }\n",
            "// SAFETY: x\nf();\nunsafe { f() }\n",
            "// SAFETY: x\n\nunsafe { f() }\n",
            "unsafe { f() } // SAFETY: x\n",
            "unsafe impl Send for A {}\n",
            "let a = unsafe\n{ f() };\n",
        ];
        for body in without_reason {
            assert_eq!(check(SAMPLER, body).len(), 1, "{body}");
        }
    }
}
