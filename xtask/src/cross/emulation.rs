//! `cargo xtask test --target aarch64-unknown-linux-gnu`: tests of wlprof on another processor, which is emulated.
//!
//! The emulator is Debian's qemu-user. Programs start others, wlprof itself among them, so the kernel has to know what runs
//! the other processor's: it is told in a user namespace, which needs no root and ends with the tests.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::compilers::{AARCH64_LINUX, WINDOWS_GNU};
use super::toolchain::Toolchain;
use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::progress::Step;
use crate::{checkout, chosen_tests, fixtures, process};

/// In the cache. Its number is raised with whatever is made otherwise.
const FOLDER: &str = "qemu-aarch64-debian-1";
const NO_DEBIAN: &str = "the emulator is Debian's: run this on Debian";
const PACKAGES: [&str; 3] = ["qemu-user-static", "libc6:arm64", "libgcc-s1:arm64"];
const EMULATOR: &str = "usr/bin/qemu-aarch64-static";
/// By which the emulator is told where the other processor's libraries are.
const LIBRARIES: &str = "QEMU_LD_PREFIX";

/// What the kernel knows the other processor's programs by: the head of their files, and which bits of it count.
const MAGIC: &str = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";

/// The unit tests that say something of a processor: those of what walks, interrupts and names machine code. Not those
/// of clocks, which are the emulator's. Of others some have many stores at a time, each of which costs the emulator 40 MB. To compile all
/// fixtures takes it a quarter of an hour, and those of all releases of Go and Python ten minutes at least: that is for whoever has them, with
/// `every_fixture_the_stacks` and `of_every_other_release_stacks` as arguments.
const LIBRARY_TESTS: &[&str] = &[
    "sampler::",
    "arch::",
    "code_map::",
    "code_offsets::",
    "machine_code::",
    "perf_data::",
    "perf_map::",
    "--skip=sampler::timing",
    "--skip=at_every_host_call",
    "--skip=every_other_release",
];

/// The end-to-end tests that say something of a processor, and not of shares, perf or time that is kept: traps and other ends, and plugins
/// that are left by what a processor's signals allow. Those that sample as hard as can be take the emulator minutes, and interrupt at
/// blocks' beginnings alone: unit tests step through every instruction, and `stress::guests` runs all guests.
const COMMAND_TESTS: &[&str] = &[
    "behaviour::a_",
    "behaviour::every_end",
    "contained::a_walk_leaves_the_guest_its_rounding",
    "contained::signals_are_wlprofs_own",
    "layout::",
    "misbehaving::one_that_crashes",
    "misbehaving::one_that_does_not_come_back",
    "misbehaving::one_that_fails",
    "misbehaving::one_that_works",
];

/// Runs the tests that say something of another processor, or, with `arguments`, the unit tests and the end-to-end tests that these
/// choose.
pub(crate) fn test(target: &str, arguments: &[&str]) -> Result<()> {
    refuse_others(target)?;
    let cache = Cache::open()?;
    let toolchain = Toolchain::get(&cache)?.without_optimization();
    let emulator = Emulator::get(&cache)?;
    fixtures::build_for(arguments)?;
    let step = Step::announced(format!("tests of wlprof for {}", AARCH64_LINUX.triple));
    let of_the_library = |options: &[&str]| {
        // With the command among them: what it asks of dependencies has Wasmtime built once for both.
        let packages = [
            "--package",
            "wlprof",
            "--package",
            "wlprof-export",
            "--package",
            "wlprof-walk",
            "--package",
            "wlprof-cli",
        ];
        let test = [&["test", "--release"][..], &packages, &["--lib"]].concat();
        emulator.around(toolchain.cargo(&test, &[AARCH64_LINUX]).args(options))
    };
    // This machine's own, which start the other's.
    let of_the_command = |command: &Path, options: &[&str]| {
        let mut tests = checkout::cargo();
        tests.args(["test", "--release", "--package", "wlprof-cli", "--test", "e2e"]).args(options);
        toolchain.for_zig(&mut tests).env("WLPROF_TESTED_CC", toolchain.c_compiler(AARCH64_LINUX));
        tests.env("WLPROF_TESTED", command).env("WLPROF_TESTED_TARGET", AARCH64_LINUX.triple);
        emulator.around(&mut tests)
    };
    if arguments.is_empty() {
        chosen_tests::run(LIBRARY_TESTS, of_the_library)?;
        let command = toolchain.build_wlprof(AARCH64_LINUX)?;
        chosen_tests::run(COMMAND_TESTS, |options| of_the_command(&command, options))?;
    } else {
        let mut unmatched = chosen_tests::run_named(arguments, of_the_library)?;
        let command = toolchain.build_wlprof(AARCH64_LINUX)?;
        let also = chosen_tests::run_named(arguments, |options| of_the_command(&command, options))?;
        unmatched.retain(|name| also.contains(name));
        chosen_tests::refuse(&unmatched)?;
    }
    step.done();
    Ok(())
}

fn refuse_others(target: &str) -> Result<()> {
    if ![AARCH64_LINUX.triple, "aarch64"].contains(&target) {
        bail!(
            "wlprof cannot be run for {target} here; --target is to be {} or {}",
            AARCH64_LINUX.triple,
            WINDOWS_GNU.triple
        );
    }
    Ok(())
}

/// An emulator, and the libraries that programs need in it.
struct Emulator {
    folder: PathBuf,
}

impl Emulator {
    /// Finds it, or downloads it.
    fn get(cache: &Cache) -> Result<Self> {
        let folder = cache.toolchain(FOLDER);
        cache.once(&folder, || unpack(cache, &folder))?;
        let emulator = Self { folder };
        emulator.refuse_other_kernels()?;
        Ok(emulator)
    }

    /// What is to stand before a command, so that whatever it starts may be the other processor's.
    fn starter(&self) -> Vec<OsString> {
        let unshare = ["unshare", "--user", "--map-root-user", "--mount"].map(OsString::from);
        unshare.into_iter().chain([self.folder.join("run").into_os_string()]).collect()
    }

    fn sysroot(&self) -> PathBuf {
        self.folder.join("sysroot")
    }

    fn refuse_other_kernels(&self) -> Result<()> {
        let starter = self.starter();
        process::output(Command::new(&starter[0]).args(&starter[1..]).arg("true"), "install util-linux").context(
            "the kernel cannot be told of the emulator in a user namespace: that needs Linux 6.7 or later, with unprivileged \
             user namespaces allowed (sysctl kernel.unprivileged_userns_clone=1)",
        )?;
        Ok(())
    }

    /// `command` with the other processor's programs run by the emulator, whoever starts them.
    fn around(&self, command: &mut Command) -> Command {
        let mut around = process::started_by(&self.starter(), command);
        around.env(LIBRARIES, self.sysroot());
        around
    }
}

fn unpack(cache: &Cache, folder: &Path) -> Result<()> {
    let step = Step::announced("downloading Debian's qemu-user");
    let workplace = cache.workplace("qemu")?;
    let packages = Packages::open_for(&workplace.path, &["arm64"], NO_DEBIAN)?;
    let files = packages.download(&PACKAGES.map(str::to_owned))?;
    let made = workplace.path.join("made");
    let all = workplace.path.join("all");
    packages.unpack(&files, &all)?;
    fs::create_dir_all(made.join("sysroot"))?;
    // Of the emulators, each of which is large, one.
    for (from, to) in [("lib", "sysroot/lib"), (EMULATOR, "qemu-aarch64")] {
        fs::rename(all.join(from), made.join(to))
            .with_context(|| format!("Debian's {} have no {from}, which they had in Debian 12", PACKAGES.join(", ")))?;
    }
    fs::create_dir(made.join("formats"))?;
    process::write_program(
        &made.join("run"),
        &format!(
            "#!/bin/sh\n\
             set -e\n\
             top=$(dirname \"$(readlink -f \"$0\")\")\n\
             mount -t binfmt_misc none \"$top/formats\"\n\
             printf '%s' ':qemu-aarch64:M::{MAGIC}:{MASK}:'\"$top/qemu-aarch64:F\" > \"$top/formats/register\"\n\
             exec \"$@\"\n"
        ),
    )?;
    cache::publish(&made, folder)?;
    step.done();
    Ok(())
}
