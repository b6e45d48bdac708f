//! `cargo xtask test --target x86_64-pc-windows-gnu`: end-to-end tests of wlprof on Windows, which is Debian's Wine.
//!
//! The tests are Linux's, and are told to run the command of Windows. To Wine a path of Linux is one of the drive that the folder
//! is on that a program is started in, so that both mean the same files by the same names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::compilers::WINDOWS_GNU;
use super::toolchain::Toolchain;
use crate::cache::{self, Cache};
use crate::debian::Packages;
use crate::links::symlink;
use crate::progress::Step;
use crate::{checkout, chosen_tests, fixtures, process};

/// In the cache. Its number is raised with whatever is made otherwise.
const FOLDER: &str = "wine-debian-1";
const REMEDY: &str = "Wine is Debian's: run this on Debian";
const PACKAGES: [&str; 4] = ["libunwind8", "libwine", "libz-mingw-w64", "wine64"];
const LIBRARIES: &str = "root/usr/lib/x86_64-linux-gnu";
const SYSTEM: &str = "prefix/drive_c/windows/system32";

/// What Rust's standard library has random numbers from, and Wine 8 lacks.
const RANDOM_NUMBERS: &str = "\
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return SystemFunction036(data, (ULONG)length); }
";

/// The end-to-end tests that need nothing that Linux alone has: ends of guests, what they are given, and Go's and Python's own accounts of
/// their calls.
const TESTS: &[&str] = &["behaviour::", "the_epoch_sampler", "shares::time_", "--skip=every_other_release"];

/// Builds wlprof for Windows and runs tests of it. `arguments` go to the tests, instead of the names of those that are known to
/// say something of Windows.
pub(super) fn test(arguments: &[&str]) -> Result<()> {
    let cache = Cache::open()?;
    let toolchain = Toolchain::get(&cache)?;
    let wine = Wine::get(&cache, &toolchain)?;
    fixtures::build_for(arguments)?;
    let step = Step::announced(format!("tests of wlprof for {}", WINDOWS_GNU.triple));
    let command = wine.command_of(&toolchain.build_wlprof(WINDOWS_GNU)?)?;
    let cargo_test = |options: &[&str]| {
        let mut tests = checkout::cargo();
        tests.args(["test", "--release", "--package", "wlprof-cli", "--test", "e2e"]).args(options);
        tests.env("WLPROF_TESTED", &command).env("WLPROF_TESTED_TARGET", WINDOWS_GNU.triple);
        tests
    };
    if arguments.is_empty() {
        chosen_tests::run(TESTS, cargo_test)?;
    } else {
        chosen_tests::refuse(&chosen_tests::run_named(arguments, cargo_test)?)?;
    }
    step.done();
    Ok(())
}

/// Wine, with a Windows of its own.
struct Wine {
    folder: PathBuf,
}

impl Wine {
    /// Finds it, or downloads it.
    fn get(cache: &Cache, toolchain: &Toolchain) -> Result<Self> {
        let folder = cache.toolchain(FOLDER);
        cache.once(&folder, || make(cache, toolchain, &folder))?;
        Ok(Self { folder })
    }

    /// A program of Linux that runs `program`, which is one of Windows, beside it.
    fn command_of(&self, program: &Path) -> Result<PathBuf> {
        let command = program.with_extension("under-wine");
        let text = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", self.folder.join("run").display(), program.display());
        process::write_program(&command, &text)?;
        Ok(command)
    }
}

fn make(cache: &Cache, toolchain: &Toolchain, folder: &Path) -> Result<()> {
    let step = Step::announced("downloading Debian's Wine");
    let workplace = cache.workplace("wine")?;
    let packages = Packages::open(&workplace.path.join("packages"), REMEDY)?;
    let files = packages.download(&PACKAGES.map(str::to_owned))?;
    let made = workplace.path.join("made");
    let root = made.join("root");
    packages.unpack(&files, &root)?;
    // It is a script that looks for the server in `/usr`.
    let server = root.join("usr/lib/wine/wineserver");
    let told = || format!("Debian's {} are not as they were in Debian 12", PACKAGES.join(", "));
    fs::remove_file(&server).with_context(told)?;
    symlink(Path::new("wineserver64"), &server)?;
    let system = made.join(SYSTEM);
    fs::create_dir_all(&system)?;
    fs::copy(root.join("usr/x86_64-w64-mingw32/lib/zlib1.dll"), system.join("zlib1.dll")).with_context(told)?;
    let source = workplace.path.join("random.c");
    fs::write(&source, RANDOM_NUMBERS)?;
    let mut compiler = Command::new(toolchain.c_compiler(WINDOWS_GNU));
    compiler.arg("-shared").arg("-o").arg(system.join("bcryptprimitives.dll")).arg(&source).arg("-ladvapi32");
    process::output(&mut compiler, REMEDY)?;
    // Nothing is shown, and what Wine says of itself is not the program's.
    process::write_program(
        &made.join("run"),
        &format!(
            "#!/bin/sh\n\
             top=$(dirname \"$(readlink -f \"$0\")\")\n\
             export LD_LIBRARY_PATH=\"$top/{LIBRARIES}\" WINEPREFIX=\"$top/prefix\" WINEDEBUG=-all\n\
             export WINEDLLOVERRIDES='mscoree,mshtml=;winemenubuilder.exe=d'\n\
             exec \"$top/root/usr/lib/wine/wine64\" \"$@\"\n"
        ),
    )?;
    process::output(Command::new(made.join("run")).args(["wineboot", "--init"]), REMEDY)?;
    // The server writes what it knows when the last program has ended.
    let mut server = Command::new(&server);
    server.env("WINEPREFIX", made.join("prefix")).arg("--wait");
    process::output(&mut server, REMEDY)?;
    cache::publish(&made, folder)?;
    step.done();
    Ok(())
}
