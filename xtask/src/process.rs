//! Writing small programs and running others: quiet when they succeed, everything they said when they fail.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs `command` and returns its standard output. `remedy` is what the user can do when the
/// program does not exist.
pub(crate) fn output(command: &mut Command, remedy: &str) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("`{program}` is missing: {remedy}")
        }
        Err(error) => return Err(error).context(format!("cannot run `{program}`")),
    };
    if !output.status.success() {
        bail!(
            "`{command:?}` failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
    }
    Ok(output.stdout)
}

/// Like [`output`], for a program that prints text.
pub(crate) fn text(command: &mut Command, remedy: &str) -> Result<String> {
    let output = output(command, remedy)?;
    String::from_utf8(output).with_context(|| format!("`{command:?}` printed something that is not UTF-8"))
}

/// Runs `command` with this program's own terminal.
pub(crate) fn visibly(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{command:?}`"))?;
    if !status.success() {
        bail!("`{command:?}` failed ({status})");
    }
    Ok(())
}

/// `command`, run by a program that is told of it by arguments: `starter`, and then those of `command`.
pub(crate) fn started_by<S: AsRef<OsStr>>(starter: &[S], command: &Command) -> Command {
    let mut started = Command::new(&starter[0]);
    started.args(&starter[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => started.env(name, value),
            None => started.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        started.current_dir(folder);
    }
    started
}

/// Writes a program that can be run.
pub(crate) fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    make_runnable(path)
}

#[cfg(unix)]
fn make_runnable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Every file is, by its ending.
#[cfg(not(unix))]
fn make_runnable(_path: &Path) -> Result<()> {
    Ok(())
}
