//! Names that a guest gives what it imports and exports, as messages show them.

/// What to read of a guest in its own host, for a pair of brackets.
pub const OWN_HOST: &str = if cfg!(target_os = "linux") {
    "docs/embedding.md, or `wlprof attach PID` while it runs: docs/attach.md"
} else {
    "docs/embedding.md"
};

/// As many names are shown: a module for another host misses hundreds.
const NAMES_SHOWN: usize = 8;
/// As much of each name, in characters.
const LONGEST_SHOWN: usize = 120;

/// The names, as far as they are few and short, on one line.
pub fn shown(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let shorten = |name: &String| {
        let short = match name.char_indices().nth(LONGEST_SHOWN) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.clone(),
        };
        // A line of the guest's making must not look like one of wlprof's.
        short.replace('\n', "\\n")
    };
    let first: Vec<String> = names.iter().take(NAMES_SHOWN).map(shorten).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
