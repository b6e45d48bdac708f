//! The processes of this machine that run Wasmtime.

use crate::images::{FoundImage, FoundImages, Room};
use crate::process::Process;
use std::collections::BTreeSet;
use std::fs;

/// A process that has code of Wasmtime's in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its number.
    pub pid: i32,
    /// Its program and arguments.
    pub command: Vec<String>,
    /// The releases of Wasmtime that compiled its images.
    pub releases: BTreeSet<String>,
    /// The names of its modules that have one, in the order in which they lie in memory. Untrusted text.
    pub modules: Vec<String>,
    /// The number of its images: modules and components.
    pub images: usize,
}

/// What there is to attach to, and what could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Processes that run Wasmtime, by their numbers.
    pub hosts: Vec<Host>,
    /// How many processes may not be looked at.
    pub forbidden: usize,
}

impl Hosts {
    /// Looks for them.
    pub fn find() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let mut found = Self::default();
        for pid in pids {
            // The kernel's own threads have no memory.
            let Ok(process) = Process::open(pid) else {
                found.forbidden +=
                    usize::from(fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()));
                continue;
            };
            found.hosts.extend(host(&process));
        }
        found
    }
}

fn host(process: &Process) -> Option<Host> {
    let found = FoundImages::find(process, &process.mappings().ok()?, &mut Room::default(), |_| false);
    if found.images.is_empty() {
        return None;
    }
    Some(Host {
        pid: process.pid(),
        command: process.command(),
        releases: found.images.iter().map(|found| found.release.clone()).collect(),
        modules: found.images.iter().flat_map(FoundImage::module_names).collect(),
        images: found.images.len() + found.left_out.len(),
    })
}
