//! A process, as the kernel shows it: its memory, its mappings, its threads.

use crate::failure::AttachError;
use crate::images::has_image;
use crate::maps::{Mapping, parse_mappings};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A process that is looked at.
///
/// ```
/// use wlprof_attach::Process;
///
/// let own = Process::open(std::process::id() as i32)?;
/// assert!(!own.command().is_empty());
/// # Ok::<(), wlprof_attach::AttachError>(())
/// ```
#[derive(Debug)]
pub struct Process {
    pid: i32,
    /// Its folder in `/proc`, which is not that of a later process with the same number.
    folder: File,
    memory: File,
}

impl Process {
    /// Opens the memory of process `pid`.
    ///
    /// # Errors
    /// [`AttachError`] if there is no such process, or it may not be looked at.
    pub fn open(pid: i32) -> Result<Self, AttachError> {
        let open = |path: &Path| File::open(path).map_err(|error| AttachError::opening(pid, &error));
        let folder = open(Path::new(&format!("/proc/{pid}")))?;
        let memory = open(&path_in(&folder, "mem"))?;
        Ok(Self { pid, folder, memory })
    }

    /// Opens the memory of this process.
    ///
    /// # Errors
    /// [`AttachError`] if the system does not show it.
    pub fn own() -> Result<Self, AttachError> {
        Self::open(std::process::id() as i32)
    }

    /// Returns whether it is the process that asks.
    pub(crate) fn is_own(&self) -> bool {
        self.pid == std::process::id() as i32
    }

    /// Returns its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether code of Wasmtime's is in it now. It is quicker than to find all of that.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn runs_wasmtime(&self) -> io::Result<bool> {
        Ok(has_image(self, &self.mappings()?))
    }

    /// Fills `buffer` with its memory from `address` on. `false` if not all of it is there.
    pub(crate) fn read(&self, address: usize, buffer: &mut [u8]) -> bool {
        self.memory.read_exact_at(buffer, address as u64).is_ok()
    }

    /// Returns its mappings in the order of their addresses. There are none if it has ended and its parent has not asked for it yet.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let maps = fs::read(self.path("maps"))?;
        // The main thread may have ended before others, whose memory it no longer has.
        let others = || self.threads().ok()?.into_iter().find_map(|tid| self.maps_of(tid));
        let maps = if maps.is_empty() { others().unwrap_or_default() } else { maps };
        Ok(parse_mappings(&String::from_utf8_lossy(&maps)))
    }

    fn maps_of(&self, tid: i32) -> Option<Vec<u8>> {
        fs::read(self.path(&format!("task/{tid}/maps"))).ok().filter(|maps| !maps.is_empty())
    }

    /// Returns the numbers of its threads.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn threads(&self) -> io::Result<Vec<i32>> {
        let entries = fs::read_dir(self.path("task"))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns its command line: the program and its arguments.
    pub fn command(&self) -> Vec<String> {
        let bytes = fs::read(self.path("cmdline")).unwrap_or_default();
        let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Returns where this process finds a file of its folder in `/proc`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        path_in(&self.folder, name)
    }
}

fn path_in(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_has_gone_is_not_another_one() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::open(child.id() as i32).unwrap();
        assert!(!process.mappings().unwrap().is_empty() && process.threads().unwrap() == [process.pid()]);
        child.kill().unwrap();
        child.wait().unwrap();
        // By the number this would fail as well, until another process has it.
        assert!(process.mappings().is_err() && process.threads().unwrap_or_default().is_empty());
        assert!(process.path("maps").starts_with("/proc/self/fd"));
    }
}
