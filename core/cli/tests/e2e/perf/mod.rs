//! Files for perf, read by perf itself: what it says of a guest is what wlprof says.

mod docs;
mod hostile;
mod perf_data;
mod samples;

use crate::guest::{Place, Ran, run, tool};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

/// A shell in `place`, where `wlprof` and perf are what the tests are about.
fn shell(place: &Place, command: &str) -> Ran {
    static PERMITTED: Once = Once::new();
    PERMITTED.call_once(assert_perf_may_record);
    let wlprof = Path::new(env!("CARGO_BIN_EXE_wlprof")).parent().unwrap();
    let mut paths = vec![wlprof.to_owned(), tool("perf").parent().unwrap().to_owned()];
    paths.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let mut shell = Command::new("sh");
    shell.args(["-euc", command]).current_dir(place.path("")).env("PATH", std::env::join_paths(paths).unwrap());
    // perf's pager and its own settings of whoever runs the tests are left out.
    shell.env("PERF_PAGER", "cat").env("PERF_CONFIG", "/dev/null").env("LC_ALL", "C");
    // perf keeps a copy of every file it has named something with below `~/.debug`.
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), PathBuf::from);
    shell.env("XDG_CACHE_HOME", cache).env("HOME", place.path(".home"));
    run(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// As [`shell`], for what must succeed; gives its output.
fn output(place: &Place, command: &str) -> String {
    let ran = shell(place, command);
    assert_eq!(ran.code, Some(0), "{command}: {}", ran.stderr);
    ran.stdout
}

/// Kernels may keep perf from users who are not root.
fn assert_perf_may_record() {
    let mut record = Command::new(tool("perf"));
    record.args(["record", "-q", "-e", "cpu-clock:u", "-o", "/dev/null", "true"]).stdout(Stdio::null());
    let ran = run(record.stderr(Stdio::piped()));
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    assert_eq!(
        ran.code,
        Some(0),
        "the kernel forbids perf (kernel.perf_event_paranoid is {}): run `sysctl kernel.perf_event_paranoid=2`\n{}",
        setting.trim(),
        ran.stderr
    );
}

/// Removes what a run left in `/tmp`, going by what wlprof said it wrote.
fn remove_perf_map(stderr: &str) {
    let path = stderr.split_whitespace().find(|word| word.starts_with("/tmp/perf-")).expect("no perf map was written");
    std::fs::remove_file(path.trim_end_matches(':')).unwrap();
}
