//! The cache of toolchains and built guests, outside the checkout so that checkouts share it.
//!
//! Everything in it is written to a private name first and renamed when complete, so what has
//! its final name can be trusted, whoever was interrupted while writing it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The cache folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$WLPROF_CACHE`, else `wlprof` in the user's cache folder; made if it does not exist.
    pub(crate) fn open() -> Result<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = variable("WLPROF_CACHE")
            .map(PathBuf::from)
            .or_else(|| variable("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("wlprof")))
            .or_else(|| variable("HOME").map(|dir| PathBuf::from(dir).join(".cache/wlprof")))
            .context("no place for the cache: set WLPROF_CACHE to a folder")?;
        Self::at(&root)
    }

    fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root: root.canonicalize()? })
    }

    /// Waits until no other process builds into this cache; the guard keeps others out.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.root.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    }

    /// Has `make` make `place`, which is in this cache, unless it is there. `make` runs while no other process builds into the cache.
    pub(crate) fn once(&self, place: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
        if place.exists() {
            return Ok(());
        }
        let _lock = self.lock()?;
        // Another process may have made it while this one waited for the lock.
        if place.exists() { Ok(()) } else { make() }
    }

    /// Where the built guest with this key is, or will be.
    pub(crate) fn fixture(&self, key: &Key, file_name: &str) -> PathBuf {
        self.root.join("fixtures").join(&key.0).join(file_name)
    }

    /// Where an unpacked toolchain is, or will be.
    pub(crate) fn toolchain(&self, name: &str) -> PathBuf {
        self.root.join("toolchains").join(name)
    }

    /// A folder a compiler may keep its own cache in. Its path is always the same, as Zig writes
    /// it into the debug info of its libc.
    pub(crate) fn compiler_cache(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// An empty folder to work in, removed when the guard is dropped.
    pub(crate) fn workplace(&self, name: &str) -> Result<Workplace> {
        // Several guests are built at a time.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join("work").join(format!("{name}-{}-{number}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Workplace { path })
    }
}

/// A folder to work in that goes away again.
#[derive(Debug)]
pub(crate) struct Workplace {
    /// The folder.
    pub(crate) path: PathBuf,
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // Whatever is left is in the cache, harmless, and replaced by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Gives a finished file or folder its final name. One that is there already stays: it is as good.
pub(crate) fn publish(finished: &Path, name: &Path) -> Result<()> {
    if let Some(parent) = name.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::rename(finished, name) {
        Err(_) if name.exists() => Ok(()),
        other => other.with_context(|| format!("cannot write {}", name.display())),
    }
}

/// What a built guest depends on, hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key of these parts. Order and boundaries count: `["ab"]` is not `["a", "b"]`.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The first digits, enough to name a toolchain folder.
    pub(crate) fn short(&self) -> &str {
        &self.0[..16]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[&str]) -> Key {
        Key::of(parts.iter().map(|part| part.as_bytes()))
    }

    #[test]
    fn key_is_stable() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_eq!(key(&[]).0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn key_depends_on_every_part_order_and_boundaries() {
        assert_ne!(key(&["a", "b"]), key(&["a", "c"]));
        assert_ne!(key(&["a", "b"]), key(&["b", "a"]));
        assert_ne!(key(&["ab"]), key(&["a", "b"]));
        assert_ne!(key(&["a"]), key(&["a", ""]));
    }

    #[test]
    fn what_is_there_is_not_made_again() -> Result<()> {
        let root = std::env::temp_dir().join(format!("xtask-once-{}", std::process::id()));
        let cache = Cache::at(&root)?;
        let place = cache.toolchain("x");
        for text in ["first", "second"] {
            cache.once(&place, || {
                let made = cache.workplace("x")?.path.with_extension("made");
                fs::write(&made, text)?;
                publish(&made, &place)
            })?;
        }
        assert_eq!(fs::read_to_string(&place)?, "first");
        fs::remove_dir_all(&root)?;
        Ok(())
    }

    #[test]
    fn publish_keeps_what_is_there() -> Result<()> {
        let root = std::env::temp_dir().join(format!("xtask-publish-{}", std::process::id()));
        let cache = Cache::at(&root)?;
        let name = cache.fixture(&key(&["x"]), "x.wasm");
        for text in ["first", "second"] {
            let workplace = cache.workplace("x")?;
            let folder = workplace.path.join("folder");
            fs::create_dir(&folder)?;
            fs::write(folder.join("file"), text)?;
            publish(&folder, &name)?;
        }
        assert_eq!(fs::read_to_string(name.join("file"))?, "first");
        assert_eq!(fs::read_dir(cache.root.join("work"))?.count(), 0);
        fs::remove_dir_all(&root)?;
        Ok(())
    }
}
