//! Runs `wlprof` in a folder of its own and reads back what it wrote.

use crate::running::Watchdog;
use crate::tested::wlprof;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use wlprof::recording::{Recording, file};

/// The path of a guest that `cargo xtask test-fixtures` built.
pub(crate) fn fixture(file_name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures").join(file_name);
    assert!(path.exists(), "{file_name} is missing: run `cargo xtask test-fixtures`");
    path
}

/// A program that is compared with, as `cargo xtask test-tools` provides it.
pub(crate) fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools").join(name);
    assert!(path.exists(), "target/tools/{name} is missing: run `cargo xtask test-tools`");
    path
}

/// The bytes of such a guest.
pub(crate) fn fixture_bytes(file_name: &str) -> Vec<u8> {
    std::fs::read(fixture(file_name)).unwrap()
}

/// A folder to run in, gone when dropped.
pub(crate) struct Place(TempDir);

/// What a run of `wlprof` left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Copies a folder into the folder.
    pub(crate) fn folder(&self, name: &str, from: &Path) {
        std::fs::create_dir(self.path(name)).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                self.folder(&name, &entry.path());
            } else {
                std::fs::copy(entry.path(), self.path(&name)).unwrap();
            }
        }
    }

    /// Names of the folder's files that are not hidden, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    /// `wlprof` with these arguments, in the folder, with empty standard input.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = wlprof();
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        // As users have it; with it Wasmtime's errors carry backtraces of this program.
        command.env_remove("RUST_BACKTRACE");
        command
    }

    /// Runs `wlprof` with these arguments.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        let mut command = self.command(arguments);
        run(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Reads a recording, and checks what is true of every one.
    pub(crate) fn recording(&self, name: &str) -> Recording {
        let bytes = std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let recording = file::read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
        assert_eq!(recording.samples().count() as u64, recording.ticks.sampled);
        recording
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let shown = format!("{command:?}");
    let ran = finish(command.spawn().unwrap(), &shown);
    assert!(!ran.stderr.contains("panicked"), "{shown}: {}", ran.stderr);
    ran
}

/// Runs `command` to its end with nothing to read, whatever it says.
pub(crate) fn output(command: &mut Command) -> Ran {
    let shown = format!("{command:?}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child, &shown)
}

/// Waits for `child`, whose outputs are pipes or closed.
pub(crate) fn finish(child: Child, shown: &str) -> Ran {
    let watchdog = Watchdog::of(&child);
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert!(!watchdog.has_bitten(), "{shown} hung");
    let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|error| panic!("{shown}: {error}"));
    Ran { code: status.code(), signal: status.signal(), stdout: text(stdout), stderr: text(stderr) }
}

/// Sends a signal, named as `kill` names it.
pub(crate) fn send_signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
    assert!(sent.success(), "cannot send SIG{signal} to {pid}");
}

/// Names of the functions on `recording`'s stacks, leaf first, one list a sample.
pub(crate) fn sampled_stacks(recording: &Recording) -> impl Iterator<Item = Vec<&str>> {
    recording.samples().map(|sample| {
        recording.lines_of(sample.stack).map(|line| recording.functions[line.function as usize].name.as_str()).collect()
    })
}

/// Whether any sample has `function` on its stack.
pub(crate) fn was_seen(recording: &Recording, function: &str) -> bool {
    sampled_stacks(recording).any(|stack| stack.contains(&function))
}
