//! Finds processes that have begun to run Wasmtime.

use super::filter::{Pattern, ProcessFacts, is_wanted};
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};
use wlprof_attach::Process;
use wlprof_show::escape;

/// How often new processes are looked for.
const EVERY: Duration = Duration::from_secs(2);

/// How long it takes until a process is looked at again, at first and at last: most never run Wasmtime, and those that do mostly begin soon.
const FIRST: Duration = Duration::from_secs(2);
const LAST: Duration = Duration::from_secs(60);

/// A process that runs Wasmtime.
pub(super) struct FoundProcess {
    pub(super) pid: i32,
    command: Vec<String>,
}

impl FoundProcess {
    /// Returns its program's name. Its arguments may be secrets.
    pub(super) fn program(&self) -> String {
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        escape::single_line(program.rsplit('/').next().unwrap_or_default())
    }
}

/// The processes that were looked at: when they are again, and after how long after that.
#[derive(Default)]
pub(super) struct Scan {
    looked: Option<Instant>,
    /// Processes that may not be looked into, at the last look at each.
    pub(super) forbidden: usize,
    others: HashMap<i32, (Instant, Duration)>,
}

impl Scan {
    /// Looks, if it is time, for processes that are wanted and not `attached` to.
    pub(super) fn next(&mut self, attached: &[i32], include: &[Pattern], exclude: &[Pattern]) -> Vec<FoundProcess> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now - looked < EVERY) {
            return Vec::new();
        }
        self.looked = Some(now);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        self.others.retain(|pid, _| pids.contains(pid));
        let own = std::process::id() as i32;
        let mut found = Vec::new();
        for pid in pids.into_iter().filter(|pid| *pid != own && !attached.contains(pid)) {
            let (next, wait) = self.others.get(&pid).copied().unwrap_or((now, FIRST));
            if next > now {
                continue;
            }
            self.others.insert(pid, (now + wait, (2 * wait).min(LAST)));
            let opened = Process::open(pid);
            let command = opened.as_ref().map(Process::command).unwrap_or_default();
            // Of what is left out nothing is read.
            if opened.is_ok() && !is_wanted(&ProcessFacts::of(pid, &command), include, exclude) {
                continue;
            }
            let Ok(process) = opened else {
                // The kernel's own threads have no memory.
                let line = fs::read(format!("/proc/{pid}/cmdline"));
                self.forbidden += usize::from(line.is_ok_and(|line| !line.is_empty()));
                continue;
            };
            if process.runs_wasmtime().unwrap_or(false) {
                found.push(FoundProcess { pid, command });
            }
        }
        found
    }
}
