//! `cargo xtask dist`: what is given to people who build nothing: an archive and a Debian package for this machine's platform.
//!
//! Equal sources are to give equal bytes, wherever the checkout is: the compilers see it in one place, times are that of the last
//! commit, which is what is packed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Workplace};
use crate::debian_package;
use crate::progress::{self, Step};
use crate::{checkout, process};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Where the compilers see the checkout and cargo's folder, wherever these are: derive macros and build scripts compile paths into what they
/// make (that of Wasmtime's macros for whoever debugs them, that of witx's own sources, those of interfaces in WIT), and rustc's mapping of
/// paths does not reach those. A user namespace does, and needs no root.
const SEEN_CHECKOUT: &str = "/mnt/wlprof";
const SEEN_CARGO: &str = "/mnt/cargo";
const SEEN_BELOW: &str = "/mnt";

/// Where cargo puts what it builds, apart from what is built where the checkout is.
const BUILT: &str = "target/dist-build";

const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Shells, and where each looks for completions below a prefix such as `/usr`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/wlprof"),
    ("fish", "share/fish/vendor_completions.d/wlprof.fish"),
    ("zsh", "share/zsh/site-functions/_wlprof"),
];

/// What `target/distribution` is to be made of.
pub(crate) struct Distribution {
    /// A folder laid out as `/usr` is.
    pub(crate) prefix: PathBuf,
    pub(crate) version: &'static str,
    /// As rustc names the platform.
    pub(crate) target: String,
    /// Seconds since 1970: the age of all files.
    pub(crate) time: String,
}

/// Builds the command and packs it.
pub(crate) fn run() -> Result<()> {
    refuse_changes()?;
    let target = host()?;
    debian_package::refuse_others(&target)?;
    let time = time()?;
    let binary = build(&target, &time)?;
    no_paths_in(&fs::read(&binary)?)?;
    let step = Step::quietly("packing");
    let workplace = Cache::open()?.workplace("dist")?;
    let name = format!("wlprof-{VERSION}-{target}");
    let prefix = workplace.path.join(&name);
    lay_out(&binary, &prefix)?;
    let distribution = Distribution { prefix, version: VERSION, target, time };
    let folder = checkout::root().join("target/distribution");
    // With archives of other versions.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let archive = folder.join(format!("{name}.tar.gz"));
    pack(&distribution, &archive)?;
    let package = debian_package::build(&distribution, &workplace, &folder)?;
    try_out(&workplace, &archive, &package, &name)?;
    let mut sum = Command::new("sha256sum");
    let names = [&archive, &package].map(|path| path.file_name().unwrap_or_default());
    let sums = process::text(sum.current_dir(&folder).args(names), "install coreutils")?;
    fs::write(folder.join("SHA256SUMS"), &sums)?;
    step.done();
    progress::say(format_args!("in target/distribution:\n{}", sums.trim_end()));
    Ok(())
}

/// Refuses a checkout that is no commit's: nobody could build the same again, and its time would be that of another.
fn refuse_changes() -> Result<()> {
    if std::env::var_os("SOURCE_DATE_EPOCH").is_some() {
        // Of an archive of the sources, perhaps, which is not in git.
        return Ok(());
    }
    let mut git = Command::new("git");
    git.current_dir(checkout::root()).args(["status", "--porcelain"]);
    let changes = process::text(&mut git, "install git").context("set SOURCE_DATE_EPOCH to the time of the release")?;
    if !changes.is_empty() {
        bail!("these files are not as in the last commit: commit them, or set SOURCE_DATE_EPOCH\n{changes}");
    }
    Ok(())
}

/// This machine's platform, which the command is built for.
fn host() -> Result<String> {
    let said = process::text(Command::new("rustc").arg("-vV").current_dir(checkout::root()), "install Rust")?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it compiles for")?.to_owned())
}

/// When all files were last changed: $SOURCE_DATE_EPOCH, as reproducible-builds.org has it, or the time of the last commit.
fn time() -> Result<String> {
    if let Ok(time) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(time);
    }
    let mut git = Command::new("git");
    git.current_dir(checkout::root()).args(["log", "-1", "--format=%ct"]);
    Ok(process::text(&mut git, "install git")?.trim().to_owned())
}

/// Builds the command by the profile `dist`.
fn build(target: &str, time: &str) -> Result<PathBuf> {
    let step = Step::announced("cargo build --profile dist, which takes a while");
    let mut cargo = checkout::cargo_alone();
    cargo.args(["build", "--locked", "--profile", "dist", "--package", "wlprof-cli", "--bin", "wlprof"]);
    // A user's own configuration may name another platform and another folder.
    cargo.args(["--target", target, "--target-dir", BUILT]);
    // The workspace's own flags, set where they outrank a user's: those of a processor, or a linker's, would be in what is given to others.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Cforce-frame-pointers=yes").env("RUSTC_WRAPPER", "");
    cargo.env("CARGO_HOME", SEEN_CARGO).env("SOURCE_DATE_EPOCH", time);
    process::visibly(&mut in_fixed_folders(&cargo)?).context(
        "if it is unshare or mount that failed: building needs unprivileged user namespaces (sysctl \
         kernel.unprivileged_userns_clone=1)",
    )?;
    step.done();
    Ok(checkout::root().join(BUILT).join(target).join("dist/wlprof"))
}

/// `command`, to which the checkout and cargo's folder are where they are to all.
fn in_fixed_folders(command: &Command) -> Result<Command> {
    let folders = [checkout::root(), cargo_home()?];
    let toolchains = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    if let Some(hidden) = folders.iter().chain(&toolchains).find(|folder| folder.starts_with(SEEN_BELOW)) {
        bail!("{} would be hidden while {SEEN_BELOW} is used for the build: move it elsewhere", hidden.display());
    }
    fs::create_dir_all(&folders[1])?;
    let script = format!(
        "set -e\n\
         mount -t tmpfs none {SEEN_BELOW}\n\
         mkdir {SEEN_CHECKOUT} {SEEN_CARGO}\n\
         mount --bind \"$1\" {SEEN_CHECKOUT}\n\
         mount --bind \"$2\" {SEEN_CARGO}\n\
         shift 2\n\
         cd {SEEN_CHECKOUT}\n\
         exec \"$@\""
    );
    let words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"].map(OsString::from);
    let starter: Vec<OsString> = words.into_iter().chain(folders.map(PathBuf::into_os_string)).collect();
    Ok(process::started_by(&starter, command))
}

fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("set CARGO_HOME or HOME")
}

/// Refuses a binary with a path of this machine in it: it would be another one elsewhere.
fn no_paths_in(binary: &[u8]) -> Result<()> {
    let home = std::env::var_os("HOME").filter(|home| home.len() > 1);
    let folders = [Some(checkout::root().into_os_string()), Some(cargo_home()?.into_os_string()), home];
    for folder in folders.into_iter().flatten() {
        if let Some(path) = path_below(&folder, binary) {
            bail!("the binary names {path}, a path of this machine, which would be another one elsewhere");
        }
    }
    Ok(())
}

/// A path in `bytes` that is `folder` or below it.
fn path_below(folder: &OsString, bytes: &[u8]) -> Option<String> {
    let mut start = folder.as_encoded_bytes().to_owned();
    start.push(b'/');
    let at = bytes.windows(start.len()).position(|window| window == start)?;
    let is_path = |byte: &&u8| byte.is_ascii_graphic();
    Some(String::from_utf8_lossy(&bytes[at..].iter().take_while(is_path).copied().collect::<Vec<u8>>()).into_owned())
}

/// Puts everything where it belongs below `/usr` or `/usr/local`.
fn lay_out(binary: &Path, prefix: &Path) -> Result<()> {
    let copy = |from: &Path, to: &str| -> Result<()> {
        let to = prefix.join(to);
        fs::create_dir_all(to.parent().context("a file outside of the folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    };
    let root = checkout::root();
    copy(binary, "bin/wlprof")?;
    copy(&root.join("plugins/api/include/wlprof_plugin.h"), "include/wlprof_plugin.h")?;
    for document in DOCUMENTS {
        copy(&root.join(document), &format!("share/doc/wlprof/{document}"))?;
    }
    copy_folder(&root.join("docs"), &prefix.join("share/doc/wlprof/docs"))?;
    let wlprof = || Command::new(binary);
    process::output(wlprof().arg("man-pages").arg(prefix.join("share/man/man1")), "")?;
    for (shell, place) in COMPLETIONS {
        let script = process::output(wlprof().args(["completions", shell]), "")?;
        let place = prefix.join(place);
        fs::create_dir_all(place.parent().context("a file outside of the folder")?)?;
        fs::write(place, script)?;
    }
    Ok(())
}

/// Copies a folder with all that is in it. There may be no git to say what that is.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

/// Packs the folder so that nothing of this machine, nor of the moment, is in the archive.
fn pack(distribution: &Distribution, archive: &Path) -> Result<()> {
    let parent = distribution.prefix.parent().context("a folder without a parent")?;
    let plain = archive.with_extension("");
    let mut tar = Command::new("tar");
    tar.args(["--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg(format!("--mtime=@{}", distribution.time)).arg("-cf").arg(&plain).arg("-C").arg(parent);
    process::output(tar.arg(distribution.prefix.file_name().context("a folder without a name")?), "install GNU tar")?;
    // -n: no name and no time.
    process::output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&plain), "install gzip")?;
    Ok(())
}

/// Unpacks both and runs what is in them.
fn try_out(workplace: &Workplace, archive: &Path, package: &Path, name: &str) -> Result<()> {
    let unpacked = workplace.path.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    process::output(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&unpacked), "install tar")?;
    process::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unpacked), "install dpkg")?;
    let demo = checkout::testdata().join("demo/demo.wasm");
    for binary in [unpacked.join(name).join("bin/wlprof"), unpacked.join("usr/bin/wlprof")] {
        let version = process::text(Command::new(&binary).arg("--version"), "")?;
        if !version.starts_with(&format!("wlprof {VERSION} ")) {
            bail!("{} says that it is {version}", binary.display());
        }
        let profile = unpacked.join("demo.folded");
        process::output(Command::new(&binary).arg("-o").arg(&profile).arg(&demo), "")?;
        let stacks = fs::read_to_string(&profile).with_context(|| format!("{} left no profile", binary.display()))?;
        if !stacks.contains("find_word") {
            bail!("{} does not see what the demo does:\n{stacks}", binary.display());
        }
        fs::remove_file(&profile)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_are_found_whole() {
        let folder = OsString::from("/home/me");
        assert_eq!(path_below(&folder, b"\0x/home/me/.cargo/a.rs\0"), Some("/home/me/.cargo/a.rs".to_owned()));
        assert_eq!(path_below(&folder, b"/home/men/a.rs /home/m"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn paths_are_the_same_wherever_the_checkout_is() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "pwd; ls Cargo.toml; cd /mnt; ls"]);
        let seen = process::text(&mut in_fixed_folders(&command)?, "install util-linux")?;
        assert_eq!(seen, "/mnt/wlprof\nCargo.toml\ncargo\nwlprof\n");
        Ok(())
    }
}
