//! What compiles and links C for other platforms, by target.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::debian::Packages;
use crate::process;
use crate::progress::Step;

/// A platform that Rust compiles for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Its name in Rust.
    pub(crate) triple: &'static str,
    compiler: CCompiler,
    /// Debian's architecture whose standard library is packaged; where there is none it is built.
    pub(crate) packaged: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum CCompiler {
    /// Zig, which calls the platform so.
    Zig(&'static str),
    /// Mingw-w64.
    Mingw,
    /// None: what is compiled is never linked, so that it need not be there.
    Nothing,
}

pub(crate) const AARCH64_LINUX: Target = Target {
    triple: "aarch64-unknown-linux-gnu",
    compiler: CCompiler::Zig("aarch64-linux-gnu.2.36"),
    packaged: Some("arm64"),
};
pub(crate) const WINDOWS_GNU: Target =
    Target { triple: "x86_64-pc-windows-gnu", compiler: CCompiler::Mingw, packaged: None };
const WINDOWS_MSVC: Target = Target { triple: "x86_64-pc-windows-msvc", compiler: CCompiler::Nothing, packaged: None };
const AARCH64_MACOS: Target =
    Target { triple: "aarch64-apple-darwin", compiler: CCompiler::Zig("aarch64-macos"), packaged: None };
const X86_64_MACOS: Target =
    Target { triple: "x86_64-apple-darwin", compiler: CCompiler::Zig("x86_64-macos"), packaged: None };

/// All of them.
pub(crate) const TARGETS: [Target; 5] = [AARCH64_LINUX, AARCH64_MACOS, X86_64_MACOS, WINDOWS_GNU, WINDOWS_MSVC];

/// Mingw-w64 as Debian has it, and what its compiler is linked with.
const MINGW_PACKAGES: [&str; 10] = [
    "binutils-mingw-w64-x86-64",
    "gcc-mingw-w64-base",
    "gcc-mingw-w64-x86-64-win32",
    "gcc-mingw-w64-x86-64-win32-runtime",
    "libgmp10",
    "libisl23",
    "libmpc3",
    "libmpfr6",
    "mingw-w64-common",
    "mingw-w64-x86-64-dev",
];

impl Target {
    /// The triple as it stands in the names of cargo's variables.
    pub(crate) fn variable(&self) -> String {
        self.triple.to_uppercase().replace('-', "_")
    }
}

/// Unpacks Mingw-w64 into `folder`, as `mingw`.
pub(super) fn unpack_mingw(packages: &Packages, folder: &Path) -> Result<()> {
    let step = Step::announced("downloading Debian's Mingw-w64");
    let files = packages.download(&MINGW_PACKAGES.map(str::to_owned))?;
    packages.unpack(&files, &folder.join("mingw"))?;
    step.done();
    Ok(())
}

/// Writes the programs `cc-TARGET` and `ar-TARGET` into `folder`. Those that run Zig look for it in `WLPROF_ZIG`.
pub(super) fn write_programs(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for Target { triple, compiler, .. } in TARGETS {
        let (cc, ar) = match compiler {
            CCompiler::Zig(name) => (zig_cc(name), "#!/bin/sh\nexec \"$WLPROF_ZIG\" ar \"$@\"\n".to_owned()),
            CCompiler::Mingw => (mingw("gcc-win32"), mingw("ar")),
            CCompiler::Nothing => (empty_output("-Fo"), empty_output("-out:")),
        };
        process::write_program(&folder.join(format!("cc-{triple}")), &cc)?;
        process::write_program(&folder.join(format!("ar-{triple}")), &ar)?;
    }
    // What rustc makes import libraries with, by this name.
    process::write_program(&folder.join("x86_64-w64-mingw32-dlltool"), &mingw("dlltool"))
}

/// Zig does not know the names that Rust's crates have for targets; it is told by its own.
fn zig_cc(name: &str) -> String {
    format!(
        "#!/bin/sh\n\
         for argument do\n\
         \x20   shift\n\
         \x20   case \"$argument\" in\n\
         \x20       --target=*) ;;\n\
         \x20       *) set -- \"$@\" \"$argument\" ;;\n\
         \x20   esac\n\
         done\n\
         exec \"$WLPROF_ZIG\" cc -target {name} \"$@\"\n"
    )
}

fn mingw(program: &str) -> String {
    format!(
        "#!/bin/sh\n\
         top=$(dirname \"$(dirname \"$(readlink -f \"$0\")\")\")/mingw/usr\n\
         LD_LIBRARY_PATH=$(echo \"$top\"/lib/*-linux-gnu) exec \"$top/bin/x86_64-w64-mingw32-{program}\" \"$@\"\n"
    )
}

/// A program that makes its output, and nothing in it.
fn empty_output(option: &str) -> String {
    format!(
        "#!/bin/sh\n\
         for argument do\n\
         \x20   case \"$argument\" in\n\
         \x20       {option}*) : > \"${{argument#{option}}}\" ;;\n\
         \x20   esac\n\
         done\n"
    )
}
