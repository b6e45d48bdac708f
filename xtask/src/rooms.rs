//! Which part of the crate `wlprof` may import which: its rooms, from the ground up. What a room imports stands above it in
//! the table, or is another crate of wlprof's: between those the compiler keeps the walls.

use std::path::Path;

use crate::imports::{self, OWN_CRATES};
use crate::source_text::code_only;

/// A part that others import by one name: what stands directly below `core/src`.
struct Room {
    /// What imports call it: the module behind `crate::`.
    name: &'static str,
    /// Its folder. A room that is one file has the file's name without its ending.
    place: &'static str,
    /// The rooms that it may import, which stand above it in the table, so that there are no circles; and wlprof's crates.
    may_import: &'static [&'static str],
}

const fn room(name: &'static str, place: &'static str, may_import: &'static [&'static str]) -> Room {
    Room { name, place, may_import }
}

const ROOMS: &[Room] = &[
    room("heap", "core/src/heap", &["wlprof_plugin", "wlprof_recording", "wlprof_module"]),
    room("languages", "core/src/languages", &["wlprof_plugin", "wlprof_go", "wlprof_cpython", "wlprof_spidermonkey"]),
    room(
        "machine_code",
        "core/src/machine_code",
        &["wlprof_plugin", "wlprof_recording", "wlprof_module", "wlprof_symbols", "wlprof_export"],
    ),
    room("guest", "core/src/guest", &["wlprof_plugin", "wlprof_module", "heap", "machine_code", "wlprof_wasi"]),
    room(
        "sampler",
        "core/src/sampler",
        &["wlprof_plugin", "wlprof_recording", "wlprof_module", "heap", "machine_code"],
    ),
    room(
        "profiler",
        "core/src/profiler",
        &[
            "wlprof_plugin",
            "wlprof_recording",
            "wlprof_module",
            "heap",
            "languages",
            "wlprof_symbols",
            "wlprof_export",
            "sampler",
            "machine_code",
        ],
    ),
    room(
        "profile",
        "core/src/profile",
        &[
            "wlprof_plugin",
            "wlprof_recording",
            "wlprof_module",
            "wlprof_wasi",
            "guest",
            "wlprof_symbols",
            "sampler",
            "profiler",
            "machine_code",
        ],
    ),
    room(
        "conformance",
        "core/src/conformance",
        &[
            "wlprof_plugin",
            "wlprof_recording",
            "wlprof_module",
            "heap",
            "languages",
            "wlprof_loader",
            "wlprof_wasi",
            "guest",
            "sampler",
            "profile",
        ],
    ),
    room(
        "cli",
        "core/src/cli",
        &[
            "wlprof_plugin",
            "wlprof_recording",
            "wlprof_module",
            "heap",
            "languages",
            "wlprof_loader",
            "wlprof_wasi",
            "guest",
            "wlprof_symbols",
            "machine_code",
            "wlprof_export",
            "sampler",
            "profiler",
            "profile",
            "conformance",
        ],
    ),
];

/// What a crate has besides rooms: it declares them, and is run.
const FRONT: [&str; 2] = ["core/src/lib.rs", "core/src/main.rs"];

/// The imports of a Rust file that are not its room's to make, as `path:line: what`. Tests may import what they like.
pub(crate) fn check(path: &Path, text: &str) -> Vec<String> {
    let Some(path) = path.to_str() else { return Vec::new() };
    if FRONT.contains(&path) || path.ends_with("tests.rs") {
        return Vec::new();
    }
    let Some(room) = room_of(path) else {
        let violation =
            path.starts_with("core/src/").then(|| format!("{path}:1: in a room that xtask/src/rooms.rs does not know"));
        return violation.into_iter().collect();
    };
    let code = code_only(text);
    let in_core = path.strip_prefix("core/src/");
    let mut violations = Vec::new();
    for (at, imported) in imports::outside_tests(&code, in_core) {
        if imported == room.name || room.may_import.contains(&imported) {
            continue;
        }
        let line = 1 + code[..at].matches('\n').count();
        let name = room.name;
        violations.push(match imported.starts_with(OWN_CRATES) || ROOMS.iter().any(|room| room.name == imported) {
            true => format!("{path}:{line}: room {name} must not import room {imported}"),
            false => format!("{path}:{line}: imports {imported}, a room that xtask/src/rooms.rs does not know"),
        });
    }
    violations
}

/// What is wrong with the table itself.
pub(crate) fn check_table(files: &[impl AsRef<Path>]) -> Vec<String> {
    let mut violations = Vec::new();
    for (index, room) in ROOMS.iter().enumerate() {
        let is_below = |name: &&&str| !ROOMS[..index].iter().any(|above| above.name == **name);
        for name in room.may_import.iter().filter(|name| !name.starts_with(OWN_CRATES)).filter(is_below) {
            violations
                .push(format!("xtask/src/rooms.rs:1: {name} does not stand above {}, which may import it", room.name));
        }
        if !files.iter().any(|file| file.as_ref().to_str().is_some_and(|path| is_at(path, room.place))) {
            violations.push(format!("xtask/src/rooms.rs:1: there is no {}", room.place));
        }
    }
    violations
}

fn room_of(path: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| is_at(path, room.place))
}

fn is_at(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, body: &str) -> Vec<String> {
        super::check(Path::new(path), &format!("//! Header.\n{body}"))
    }

    #[test]
    fn rooms_stand_above_those_that_they_import() {
        let files: Vec<String> = ROOMS.iter().map(|room| format!("{}/mod.rs", room.place)).collect();
        assert_eq!(check_table(&files), [] as [String; 0]);
        let missing = check_table(&files[1..]);
        assert_eq!(missing, [format!("xtask/src/rooms.rs:1: there is no {}", ROOMS[0].place)]);
    }

    #[test]
    fn an_import_that_is_not_allowed_is_reported_with_its_line() {
        let found = check("core/src/heap/draw.rs", "use wlprof_recording::Stack;\nuse crate::sampler::Session;\n");
        assert_eq!(found, ["core/src/heap/draw.rs:3: room heap must not import room sampler"]);
        let found = check("core/src/profile.rs", "use super::cli::main;\n");
        assert_eq!(found, ["core/src/profile.rs:2: room profile must not import room cli"]);
        let found = check("core/src/sampler/drain.rs", "use wlprof_export::Exporter;\n");
        assert_eq!(found, ["core/src/sampler/drain.rs:2: room sampler must not import room wlprof_export"]);
    }

    #[test]
    fn what_is_allowed_or_no_room_of_the_house_is_not_reported() {
        for (path, body) in [
            ("core/src/heap/draw.rs", "use crate::heap::Rate;\nuse super::Rate;\nuse wasmtime::Module;\n"),
            ("core/src/cli/render.rs", "use super::super::profile::Profile;\nuse wlprof_symbols::name;\n"),
            ("core/src/sampler/signal/go_tests.rs", "use wlprof_go::GO;\n"),
            ("core/src/lib.rs", "pub mod cli;\npub use crate::cli::main;\n"),
            ("core/tests/e2e/go.rs", "use crate::guest::output;\n"),
            ("xtask/src/tidy.rs", "use crate::rooms;\n"),
            ("plugins/go/src/walk.rs", "use wlprof_dwarf::Layout;\n"),
        ] {
            assert_eq!(check(path, body), [] as [String; 0], "{path}");
        }
    }

    #[test]
    fn a_room_that_the_table_lacks_is_reported() {
        for path in ["core/src/network/mod.rs", "core/src/network.rs"] {
            assert_eq!(check(path, ""), [format!("{path}:1: in a room that xtask/src/rooms.rs does not know")]);
        }
        let found = check("core/src/heap/draw.rs", "use crate::network::Socket;\n");
        assert_eq!(found, ["core/src/heap/draw.rs:2: imports network, a room that xtask/src/rooms.rs does not know"]);
    }
}
