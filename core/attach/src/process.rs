//! Another process, as the kernel shows it: its memory, its mappings, its threads.

use crate::failure::AttachError;
use crate::maps::{Mapping, parse_mappings};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A process that is looked at.
///
/// ```
/// use wlprof_attach::Process;
///
/// let own = Process::open(std::process::id() as i32)?;
/// let word = 0x1234_5678_u32;
/// let mut bytes = [0; 4];
/// assert!(own.read((&raw const word).addr(), &mut bytes));
/// assert_eq!(u32::from_ne_bytes(bytes), word);
/// # Ok::<(), wlprof_attach::AttachError>(())
/// ```
#[derive(Debug)]
pub struct Process {
    pid: i32,
    memory: File,
}

impl Process {
    /// Opens the memory of process `pid`.
    ///
    /// # Errors
    /// [`AttachError`] if there is no such process, or it may not be looked at.
    pub fn open(pid: i32) -> Result<Self, AttachError> {
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| AttachError::opening(pid, &error))?;
        Ok(Self { pid, memory })
    }

    /// Returns its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Fills `buffer` with its memory from `address` on. `false` if not all of it is there.
    pub fn read(&self, address: usize, buffer: &mut [u8]) -> bool {
        self.memory.read_exact_at(buffer, address as u64).is_ok()
    }

    /// Fills as much of `buffer` as there is memory from `address` on, and returns how much that is.
    pub fn read_up_to(&self, address: usize, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.memory.read_at(&mut buffer[filled..], (address + filled) as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => filled += count,
            }
        }
        filled
    }

    /// Returns its mappings in the order of their addresses.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        Ok(parse_mappings(&String::from_utf8_lossy(&fs::read(self.path("maps"))?)))
    }

    /// Returns the numbers of its threads.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn threads(&self) -> io::Result<Vec<i32>> {
        let entries = fs::read_dir(self.path("task"))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns its command line: the program and its arguments.
    pub fn command(&self) -> Vec<String> {
        let bytes = fs::read(self.path("cmdline")).unwrap_or_default();
        let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }
}
