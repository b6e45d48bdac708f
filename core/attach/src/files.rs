//! Files of WebAssembly that a process names: in its arguments, among the files that it has open, or that it has mapped.

use crate::process::Process;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What modules and components begin with.
const MAGIC: [u8; 4] = *b"\0asm";

/// Larger files are not read: Wasmtime takes a while to compile these.
const MAX_BYTES: u64 = 1 << 30;

/// Files that are looked into.
const MAX_FILES: usize = 1000;

/// Returns the files of WebAssembly that the process names, as paths at which this process finds them.
///
/// # Security
/// The process chooses the names. Only regular files are opened. What they hold is believed of an image only where its functions are those of
/// the file.
pub fn named_files(process: &Process) -> Vec<PathBuf> {
    let own = PathBuf::from(format!("/proc/{}", process.pid()));
    let of_arguments = process.command().into_iter().skip(1).flat_map(|argument| {
        // As in `--module=guest.wasm`.
        let value = argument.split_once('=').map(|(_, value)| value.to_owned());
        value.into_iter().chain([argument])
    });
    let of_arguments = of_arguments.filter_map(|argument| in_its_view(&own, Path::new(&argument)));
    let links = fs::read_dir(own.join("fd")).into_iter().flatten().flatten();
    let open = links.filter_map(|link| in_its_view(&own, &fs::read_link(link.path()).ok()?));
    let files: BTreeSet<PathBuf> = of_arguments.chain(open).take(MAX_FILES).collect();
    files.into_iter().filter(|path| is_wasm(path)).collect()
}

/// Where a path of the process leads, which may have another root and has another working folder.
fn in_its_view(own: &Path, path: &Path) -> Option<PathBuf> {
    match path.strip_prefix("/") {
        Ok(rest) => Some(own.join("root").join(rest)),
        Err(_) if path.as_os_str().is_empty() => None,
        Err(_) => Some(own.join("cwd").join(path)),
    }
}

fn is_wasm(path: &Path) -> bool {
    // Nothing else is opened: a pipe would wait, and a device might do something.
    let is_file = fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() <= MAX_BYTES);
    let mut magic = [0; MAGIC.len()];
    is_file && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}
