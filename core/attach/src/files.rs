//! Files of WebAssembly that a process names: in its arguments, or among the files that it has open.

use crate::process::Process;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What modules and components begin with.
const MAGIC: [u8; 4] = *b"\0asm";

/// Bytes of all files that are read: Wasmtime takes a while to compile these.
const MAX_BYTES: u64 = 1 << 30;

/// Files that are looked into.
const MAX_FILES: usize = 1000;

/// Returns the files of WebAssembly that the process names, and what they hold: the paths are those at which this process finds them.
///
/// # Security
/// The process chooses the names, and may change what is there at any time. Only regular files are opened, each once and below the root of the
/// process. What they hold is believed of an image only where its functions are those of the file.
pub fn named_files(process: &Process) -> Vec<(PathBuf, Vec<u8>)> {
    let of_arguments = process.command().into_iter().skip(1).flat_map(|argument| {
        // As in `--module=guest.wasm`.
        let value = argument.split_once('=').map(|(_, value)| PathBuf::from(value));
        value.into_iter().chain([argument.into()])
    });
    let links = fs::read_dir(process.path("fd")).into_iter().flatten().flatten();
    let of_links = links.filter_map(|link| fs::read_link(link.path()).ok());
    let (Ok(root), Ok(folder)) = (root(process), fs::read_link(process.path("cwd"))) else { return Vec::new() };
    let paths: BTreeSet<PathBuf> = of_arguments.chain(of_links).map(|path| folder.join(path)).take(MAX_FILES).collect();
    let below_root = Path::new("/proc").join(process.pid().to_string()).join("root");
    let mut room = MAX_BYTES;
    let mut files = Vec::new();
    for path in &paths {
        let Ok(path) = path.strip_prefix("/") else { continue };
        if let Some(bytes) = wasm_at(&root, path, room) {
            room -= bytes.len() as u64;
            files.push((below_root.join(path), bytes));
        }
    }
    files
}

/// The root of the process's files.
pub(crate) fn root(process: &Process) -> io::Result<OwnedFd> {
    Ok(open(process.path("root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens the regular file at `path` below `root`, if it has one of these sizes.
pub(crate) fn regular_file(root: &OwnedFd, path: &Path, sizes: RangeInclusive<u64>) -> Option<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = match openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Linux before 5.6, and containers that refuse what they do not know. Links may lead elsewhere there.
        Err(Errno::NOSYS | Errno::PERM) => openat(root, path, flags, Mode::empty()),
        place => place,
    };
    let place = File::from(place.ok()?);
    // Nothing else is opened for reading: a pipe would wait, as some files of the kernel's do, which have no size, and a device might do
    // something.
    place.metadata().ok().filter(|data| data.is_file() && sizes.contains(&data.len()))?;
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// Reads the file of WebAssembly at `path` below `root`, if it is one of at most `room` bytes.
fn wasm_at(root: &OwnedFd, path: &Path, room: u64) -> Option<Vec<u8>> {
    let mut file = regular_file(root, path, MAGIC.len() as u64..=room)?;
    let mut bytes = vec![0; MAGIC.len()];
    file.read_exact(&mut bytes).ok().filter(|()| bytes == MAGIC)?;
    // It may have grown.
    file.take(room - MAGIC.len() as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_wasm_below_the_root_are_read() {
        let folder = std::env::temp_dir().join(format!("wlprof-files-{}", std::process::id()));
        // An earlier process of this number may have left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x.wasm"), b"\0asm and more").unwrap();
        fs::write(folder.join("x.txt"), b"text").unwrap();
        symlink("/x.wasm", folder.join("link")).unwrap();
        symlink("/etc/passwd", folder.join("outside")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), Mode::RUSR).unwrap();
        let root = open(&folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let read = |name: &str| wasm_at(&root, Path::new(name), 100).map(|bytes| bytes.len());
        let names = ["x.wasm", "link", "../x.wasm", "x.txt", "outside", "pipe", "missing"];
        assert_eq!(names.map(read), [Some(13), Some(13), Some(13), None, None, None, None]);
        assert_eq!(wasm_at(&root, Path::new("x.wasm"), 12), None);
        fs::remove_dir_all(&folder).unwrap();
    }
}
