//! Reads files of a folder that the user has named, or has named a file of, and no others, whatever they are called.

use super::open::open;
use std::io::{self, Read};
use std::path::{Component, Path};

/// Reads the file at the path `below` in `folder`, which is a real path: a regular file of at most `most` bytes that is really
/// in that folder once links are followed, and no part of whose path begins with a dot.
///
/// # Errors
/// What kind of file it is instead, or what keeps it from being read.
pub fn read_below(folder: &Path, below: &Path, most: u64) -> io::Result<Vec<u8>> {
    let outside = |_| io::Error::other("it is outside of the folder");
    let path = folder.join(below).canonicalize()?;
    path.strip_prefix(folder).map_err(outside)?;
    let (file, opened) = open(&path)?;
    let real = opened.strip_prefix(folder).map_err(outside)?;
    let is_hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
    if real.components().any(is_hidden) {
        return Err(io::Error::other("it is hidden, or in a hidden folder"));
    }
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(bytes)
}
