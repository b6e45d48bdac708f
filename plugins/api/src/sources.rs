//! The source files of this crate. `wlprof plugins new` writes them beside a new plugin, so that it needs nothing but a compiler.

/// The C header of the ABI.
pub const HEADER: &str = include_str!("../include/wlprof_plugin.h");

/// The files of the crate by their paths in it, except tests and examples, with a manifest that needs no workspace.
pub const CRATE: &[(&str, &str)] = &[
    ("Cargo.toml", MANIFEST),
    ("include/wlprof_plugin.h", HEADER),
    ("src/lib.rs", include_str!("lib.rs")),
    ("src/budget.rs", include_str!("budget.rs")),
    ("src/frame.rs", include_str!("frame.rs")),
    ("src/heap.rs", include_str!("heap.rs")),
    ("src/key_table.rs", include_str!("key_table.rs")),
    ("src/language.rs", include_str!("language.rs")),
    ("src/memory.rs", include_str!("memory.rs")),
    ("src/module.rs", include_str!("module.rs")),
    ("src/sources.rs", include_str!("sources.rs")),
    ("src/symbol.rs", include_str!("symbol.rs")),
    ("src/testing/mod.rs", include_str!("testing/mod.rs")),
    ("src/testing/binary.rs", include_str!("testing/binary.rs")),
    ("src/testing/guest.rs", include_str!("testing/guest.rs")),
    ("src/testing/module.rs", include_str!("testing/module.rs")),
    ("src/testing/snapshot.rs", include_str!("testing/snapshot.rs")),
    ("src/testing/walkers.rs", include_str!("testing/walkers.rs")),
    ("src/thread.rs", include_str!("thread.rs")),
    ("src/abi/mod.rs", include_str!("abi/mod.rs")),
    ("src/abi/convert.rs", include_str!("abi/convert.rs")),
    ("src/abi/export.rs", include_str!("abi/export.rs")),
    ("src/abi/export_heap.rs", include_str!("abi/export_heap.rs")),
    ("src/abi/guest.rs", include_str!("abi/guest.rs")),
    ("src/abi/heap.rs", include_str!("abi/heap.rs")),
];

const MANIFEST: &str = concat!(
    "[package]\nname = \"",
    env!("CARGO_PKG_NAME"),
    "\"\nversion = \"",
    env!("CARGO_PKG_VERSION"),
    "\"\nedition = \"2024\"\nlicense = \"",
    env!("CARGO_PKG_LICENSE"),
    "\"\n\n[features]\nsources = []\ntesting = []\n"
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_whole_crate_is_there() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = vec!["Cargo.toml".to_owned()];
        let mut folders = vec![package.join("include"), package.join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(path.strip_prefix(package).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut embedded: Vec<_> = CRATE.iter().map(|(path, _)| *path).collect();
        found.sort();
        embedded.sort_unstable();
        assert_eq!(embedded, found);
    }
}
