//! What ARCHITECTURE.md claims and can be checked: that the paths that it names exist, and that its table has every part.

use std::collections::BTreeSet;
use std::path::Path;

pub(crate) const FILE: &str = "ARCHITECTURE.md";

/// Folders whose subfolders each stand in the table, as do all crates.
const PARTS: [&str; 2] = ["core/src/", "plugins/"];

/// The claims in `text`, ARCHITECTURE.md, that `files`, all of the checkout, do not bear out, as `path:line: what`.
pub(crate) fn check(text: &str, files: &[impl AsRef<Path>]) -> Vec<String> {
    let files: Vec<&str> = files.iter().filter_map(|file| file.as_ref().to_str()).collect();
    let folders = files.iter().flat_map(|file| file.match_indices('/').map(|(at, _)| &file[..at]));
    let places: BTreeSet<&str> = files.iter().copied().chain(folders).collect();
    let mut violations = Vec::new();
    let mut is_drawing = false;
    for (index, line) in text.lines().enumerate() {
        is_drawing ^= line.starts_with("```");
        let names = line.split('`').skip(1).step_by(2).filter(|name| !is_drawing && is_path(name));
        for name in names.filter(|name| !exists(name, &places)) {
            violations.push(format!("{FILE}:{}: there is no {name}", index + 1));
        }
    }
    let rows: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| ")).flat_map(in_first_cell).collect();
    for part in places.iter().filter(|place| is_part(place, &places) && !rows.contains(*place)) {
        violations.push(format!("{FILE}:1: its table lacks {part}"));
    }
    violations
}

/// Whether it reads as a path: `cli/finish`, `walk.rs`.
fn is_path(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_plain && (name.contains('/') && !name.starts_with('/') || name.ends_with(".rs"))
}

/// Whether it is the path of something, or how it ends.
fn exists(name: &str, places: &BTreeSet<&str>) -> bool {
    let is_named = |place: &&str| place.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    places.iter().any(is_named)
}

/// Whether it is a folder that the table has to have.
fn is_part(place: &str, places: &BTreeSet<&str>) -> bool {
    let is_below = |part: &&str| place.strip_prefix(*part).is_some_and(|rest| !rest.contains('/'));
    PARTS.iter().any(is_below) && places.iter().any(|other| is_in(other, place))
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn in_first_cell(row: &str) -> impl Iterator<Item = &str> {
    row.split('|').next().unwrap_or_default().split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 5] = [
        "core/src/lib.rs",
        "core/src/export/raw.rs",
        "core/src/cli-more/x.rs",
        "core/src/cli/y.rs",
        "plugins/go/src/lib.rs",
    ];
    const TABLE: &str = "| `core/src/export`, `core/src/cli`, `core/src/cli-more` | `x` |\n| `plugins/go` | |\n";

    #[test]
    fn paths_that_are_there_are_found_by_how_they_end() {
        let text = format!(
            "{TABLE}`core/src/lib.rs` `export/raw.rs` `raw.rs` `src/export` `Type::f` `perf.data` `/dev/null` `a b/c`\n"
        );
        assert_eq!(check(&text, &FILES), [] as [String; 0]);
    }

    #[test]
    fn paths_that_are_not_there_are_reported_with_their_line() {
        for name in ["core/src/gone.rs", "aw.rs", "export/gone"] {
            assert_eq!(check(&format!("{TABLE}`{name}`\n"), &FILES), [format!("{FILE}:3: there is no {name}")]);
        }
        assert!(check(&format!("{TABLE}```text\n`gone.rs`\n```\n"), &FILES).is_empty());
    }

    #[test]
    fn the_table_has_every_part() {
        let lacking = check("| `core/src/export` | `core/src/cli` |\n", &FILES);
        assert_eq!(
            lacking,
            ["core/src/cli", "core/src/cli-more", "plugins/go"].map(|part| format!("{FILE}:1: its table lacks {part}"))
        );
    }
}
