//! The list of test guests: what each is built from and how.

use std::path::{Path, PathBuf};

use crate::{assemblyscript, cpython, python_component, quickjs};

/// Change this when the way of building changes in a manner that no flag or source shows.
pub(crate) const RECIPE_VERSION: &str = "1";

/// How a guest is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// `zig cc`.
    C,
    /// `zig c++`.
    Cpp,
    /// `go build` for `GOOS=wasip1`, of this release, in the source's folder.
    Go(&'static str),
    /// The same for `GOOS=js`, which the Go plugin has to tell apart.
    GoForJs(&'static str),
    /// `rustc`.
    Rust,
    /// The same, of a library that has to have this function.
    RustLibrary(&'static str),
    /// The interpreter itself, of this minor release; what it runs are scripts.
    Python(&'static str),
    /// A component that runs scripts, made by this release of componentize-py.
    PythonComponent(&'static str),
    /// `asc`. The module is in a folder with its source map.
    AssemblyScript,
    /// A component that runs one program, made by componentize-js.
    JavaScriptComponent,
    /// The `qjs` command itself; what it runs are scripts.
    QuickJs,
    /// WebAssembly text, used as it is.
    Wat,
}

/// One guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// Its name; tests find it as `target/fixtures/NAME.wasm` (`.wat` for text), an interpreter's library as
    /// `NAME-lib` and the interpreter without its custom sections as `NAME-stripped.wasm`.
    pub(crate) name: &'static str,
    /// How to build it.
    pub(crate) language: Language,
    /// Its source, in `testdata`.
    pub(crate) source: &'static str,
    /// All that goes on the compiler's command line besides paths.
    pub(crate) flags: &'static [&'static str],
    /// What the compiler's module becomes.
    pub(crate) made_into: MadeInto,
}

/// What a module that a compiler made becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeInto {
    /// It stays one.
    Module,
    /// A component of it and of an adapter from WASI preview 1: a command.
    Command,
    /// The same, which answers requests: what it imports and exports is in the folder `wit` beside its source.
    Handler,
    /// A component that a Python program calls, made like a handler, and within that program's.
    CalledByPython {
        /// The release of componentize-py that makes the program's.
        release: &'static str,
        /// Its source, in `testdata`.
        program: &'static str,
    },
}

/// A group of guests that the same tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestSet {
    /// One of each language, of the oldest and the newest release that is supported.
    Main,
    /// Other releases that componentize-py has of CPython.
    Components,
    /// The other releases of Go, and CPython as a command.
    Releases,
    /// AssemblyScript and JavaScript components, which npm's packages make.
    JavaScript,
    /// Third-party programs, which `cargo xtask real-guests` provides: no recipe makes one.
    ThirdParty,
}

/// The releases of [`GuestSet::Main`]. Each of the others is one more toolchain to install or interpreter to build.
const MAIN_RELEASES: [Language; 6] = [
    GO_1_21,
    GO_1_27,
    GO_FOR_JS,
    Language::Python("3.11"),
    Language::PythonComponent("0.21.0"),
    Language::PythonComponent("0.25.1"),
];

impl Language {
    /// Whether `rustc` builds it.
    pub(crate) fn is_rust(self) -> bool {
        matches!(self, Self::Rust | Self::RustLibrary(_))
    }

    /// The Go release and the system it builds for, if it is Go.
    pub(crate) fn go(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Go(release) => Some((release, "wasip1")),
            Self::GoForJs(release) => Some((release, "js")),
            Self::AssemblyScript
            | Self::C
            | Self::Cpp
            | Self::JavaScriptComponent
            | Self::Python(_)
            | Self::PythonComponent(_)
            | Self::QuickJs
            | Self::Rust
            | Self::RustLibrary(_)
            | Self::Wat => None,
        }
    }
}

impl Recipe {
    /// The group that the guest belongs to.
    pub(crate) fn set(&self) -> GuestSet {
        match self.language {
            Language::AssemblyScript | Language::JavaScriptComponent => GuestSet::JavaScript,
            language if MAIN_RELEASES.contains(&language) => GuestSet::Main,
            Language::PythonComponent(_) => GuestSet::Components,
            Language::Go(_) | Language::GoForJs(_) | Language::Python(_) => GuestSet::Releases,
            _ => GuestSet::Main,
        }
    }

    /// The name of the built file; a folder for interpreters, which need their library beside them.
    pub(crate) fn file_name(&self) -> String {
        match self.language {
            Language::AssemblyScript | Language::Python(_) | Language::QuickJs => self.name.to_owned(),
            Language::Wat => format!("{}.wat", self.name),
            _ => format!("{}.wasm", self.name),
        }
    }

    /// What tests find in `target/fixtures`, and where it is, given what was built.
    pub(crate) fn shown(&self, built: &Path) -> Vec<(String, PathBuf)> {
        match self.language {
            Language::AssemblyScript => assemblyscript::PARTS
                .map(|(part, suffix)| (format!("{}{suffix}", self.name), built.join(part)))
                .to_vec(),
            Language::Python(_) => {
                cpython::PARTS.map(|(part, suffix)| (format!("{}{suffix}", self.name), built.join(part))).to_vec()
            }
            Language::QuickJs => {
                quickjs::PARTS.map(|(part, suffix)| (format!("{}{suffix}", self.name), built.join(part))).to_vec()
            }
            _ => vec![(self.file_name(), built.to_owned())],
        }
    }

    /// A release of componentize-py that it is made with, and the program that it makes a component of.
    pub(crate) fn python_component(&self) -> Option<(&'static str, &'static str)> {
        match (self.language, self.made_into) {
            (Language::PythonComponent(release), _) => Some((release, self.source)),
            (_, MadeInto::CalledByPython { release, program }) => Some((release, program)),
            _ => None,
        }
    }
}

const C: &[&str] = &["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-infinite-recursion"];
const C_DWARF_5: &[&str] = &["-g", "-O2", "-gdwarf-5"];
// Zig adds its sanitizer to unoptimised code unless told not to.
const C_UNOPTIMISED: &[&str] = &["-g", "-O0", "-fno-sanitize=undefined"];
// `frame_top` is what the tests' own language walker looks for.
const C_FRAMES: &[&str] = &["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-Wl,--export=frame_top"];
const C_REACTOR: &[&str] = &["-g", "-O2", "-Wall", "-Wextra", "-Werror", "-mexec-model=reactor"];
const CPP: &[&str] = &["-g", "-O2", "-std=c++17", "-fno-exceptions", "-Wall", "-Wextra", "-Werror"];
const GO: &[&str] = &["-trimpath", "-buildvcs=false"];
const GO_STRIPPED: &[&str] = &["-trimpath", "-buildvcs=false", "-ldflags=-s -w"];
const GO_REACTOR: &[&str] = &["-trimpath", "-buildvcs=false", "-buildmode=c-shared"];
// With names of functions, and without a runtime, which would import functions.
const ASSEMBLYSCRIPT: &[&str] = &["--sourceMap", "--debug", "--runtime", "stub", "--use", "abort="];
// With names of the engine's functions. The web's `fetch` event would be one more way to be called.
const JAVASCRIPT: &[&str] = &["--use-debug-build", "--disable", "http", "fetch-event"];
const JAVASCRIPT_HANDLER: &[&str] = &["--use-debug-build", "--disable", "fetch-event"];
// With room on the stack for deep recursion.
const QUICKJS: &[&str] = &[
    "-g",
    "-O2",
    "-D_GNU_SOURCE",
    "-D_WASI_EMULATED_PROCESS_CLOCKS",
    "-D_WASI_EMULATED_SIGNAL",
    "-DQUICKJS_NG_BUILD",
    "-fno-sanitize=undefined",
    "-Wl,-z,stack-size=4194304",
];
const RUST_LEGACY: &[&str] = &["-O", "-g", "-Csymbol-mangling-version=legacy"];
const RUST_LIBRARY: &[&str] = &["-O", "-g", "-Cpanic=abort"];
const RUST_V0: &[&str] = &["-O", "-g", "-Csymbol-mangling-version=v0", "-Cdwarf-version=5"];

const fn recipe(
    name: &'static str,
    language: Language,
    source: &'static str,
    flags: &'static [&'static str],
) -> Recipe {
    Recipe { name, language, source, flags, made_into: MadeInto::Module }
}

const fn component(
    name: &'static str,
    language: Language,
    source: &'static str,
    flags: &'static [&'static str],
) -> Recipe {
    Recipe { made_into: MadeInto::Command, ..recipe(name, language, source, flags) }
}

const fn handler(
    name: &'static str,
    language: Language,
    source: &'static str,
    flags: &'static [&'static str],
) -> Recipe {
    Recipe { made_into: MadeInto::Handler, ..recipe(name, language, source, flags) }
}

// Every release that the Go plugin knows; each lays out its runtime in its own way.
const GO_1_21: Language = Language::Go("1.21.13");
const GO_1_22: Language = Language::Go("1.22.10");
const GO_1_23: Language = Language::Go("1.23.9");
const GO_1_24: Language = Language::Go("1.24.11");
const GO_1_25: Language = Language::Go("1.25.5");
const GO_1_26: Language = Language::Go("1.26.6");
const GO_1_27: Language = Language::Go("1.27.3");
const GO_FOR_JS: Language = Language::GoForJs("1.27.3");

/// Every guest.
pub(crate) const RECIPES: &[Recipe] = &[
    recipe("c-calls", Language::C, "c/calls.c", C),
    recipe("c-deep", Language::C, "c/deep.c", C),
    recipe("c-frames", Language::C, "c/frames.c", C_FRAMES),
    recipe("c-hosty", Language::C, "c/hosty.c", C),
    recipe("c-inlined", Language::C, "c/inlined.c", C),
    recipe("c-inlined-O0", Language::C, "c/inlined.c", C_UNOPTIMISED),
    recipe("c-inlined-dwarf5", Language::C, "c/inlined.c", C_DWARF_5),
    recipe("c-interp", Language::C, "c/interp.c", C),
    recipe("c-in-step", Language::C, "c/in_step.c", C),
    recipe("c-layout", Language::C, "c/layout.c", C),
    recipe("c-layout-O0", Language::C, "c/layout.c", C_UNOPTIMISED),
    recipe("c-layout-dwarf5", Language::C, "c/layout.c", C_DWARF_5),
    recipe("c-heap", Language::C, "c/heap.c", C),
    recipe("c-phases", Language::C, "c/phases.c", C),
    recipe("c-random", Language::C, "c/random.c", C),
    recipe("c-shares", Language::C, "c/shares.c", C),
    recipe("c-spin", Language::C, "c/spin.c", C),
    recipe("c-straight", Language::C, "c/straight.c", C),
    recipe("c-traps", Language::C, "c/traps.c", C),
    recipe("c-waits", Language::C, "c/waits.c", C),
    recipe("component-async", Language::Wat, "wat/async.wat", &[]),
    component("component-c-calls", Language::C, "c/calls.c", C),
    component("component-c-heap", Language::C, "c/heap.c", C),
    component("component-c-hosty", Language::C, "c/hosty.c", C),
    component("component-c-shares", Language::C, "c/shares.c", C),
    component("component-c-traps", Language::C, "c/traps.c", C),
    component("component-cpp-shapes", Language::Cpp, "cpp/shapes.cpp", CPP),
    recipe("component-fused", Language::Wat, "wat/fused.wat", &[]),
    handler("handler-c", Language::C, "http/handler.c", C_REACTOR),
    recipe("handler-js", Language::JavaScriptComponent, "http/app.js", JAVASCRIPT_HANDLER),
    recipe("handler-python-3.12", Language::PythonComponent("0.17.2"), "http/app.py", &[]),
    recipe("handler-python-3.14", Language::PythonComponent("0.21.0"), "http/app.py", &[]),
    recipe("assemblyscript", Language::AssemblyScript, "assemblyscript/shares.ts", ASSEMBLYSCRIPT),
    recipe("component-js", Language::JavaScriptComponent, "js/app.js", JAVASCRIPT),
    recipe("component-python-3.12", Language::PythonComponent("0.17.2"), python_component::PROGRAM, &[]),
    recipe("component-python-3.12-by-0.14", Language::PythonComponent("0.14.0"), python_component::PROGRAM, &[]),
    recipe("component-python-3.14", Language::PythonComponent("0.21.0"), python_component::PROGRAM, &[]),
    recipe("component-python-3.14-by-0.25", Language::PythonComponent("0.25.1"), python_component::PROGRAM, &[]),
    Recipe {
        made_into: MadeInto::CalledByPython { release: "0.25.1", program: "python/calls_rust/app.py" },
        ..recipe(
            "component-python-calls-rust",
            Language::RustLibrary("wlprof:library/sums#sum"),
            "rust/library/library.rs",
            RUST_LIBRARY,
        )
    },
    recipe("component-python-async", Language::PythonComponent("0.25.1"), "python/async/app.py", &[]),
    component("component-rust-heap", Language::Rust, "rust/heap.rs", RUST_LEGACY),
    component("component-rust-mix", Language::Rust, "rust/mix.rs", RUST_V0),
    recipe("cpp-heap", Language::Cpp, "cpp/heap.cpp", CPP),
    recipe("cpp-inlined", Language::Cpp, "cpp/inlined.cpp", CPP),
    recipe("cpp-layout", Language::Cpp, "cpp/layout.cpp", CPP),
    recipe("cpp-shapes", Language::Cpp, "cpp/shapes.cpp", CPP),
    recipe("go-bench", GO_1_27, "go/bench.go", GO),
    recipe("go-export", GO_1_27, "go/export/export.go", GO_REACTOR),
    recipe("go-goroutines-1.21", GO_1_21, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.22", GO_1_22, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.23", GO_1_23, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.24", GO_1_24, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.25", GO_1_25, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.26", GO_1_26, "go/goroutines/goroutines.go", GO),
    recipe("go-goroutines-1.27", GO_1_27, "go/goroutines/goroutines.go", GO),
    recipe("go-js", GO_FOR_JS, "go/js/js.go", GO),
    recipe("go-heap-1.21", GO_1_21, "go/heap/heap.go", GO),
    recipe("go-heap-1.22", GO_1_22, "go/heap/heap.go", GO),
    recipe("go-heap-1.23", GO_1_23, "go/heap/heap.go", GO),
    recipe("go-heap-1.24", GO_1_24, "go/heap/heap.go", GO),
    recipe("go-heap-1.25", GO_1_25, "go/heap/heap.go", GO),
    recipe("go-heap-1.26", GO_1_26, "go/heap/heap.go", GO),
    recipe("go-heap-1.27", GO_1_27, "go/heap/heap.go", GO),
    recipe("go-naps-1.21", GO_1_21, "go/naps/naps.go", GO),
    recipe("go-naps-1.22", GO_1_22, "go/naps/naps.go", GO),
    recipe("go-naps-1.23", GO_1_23, "go/naps/naps.go", GO),
    recipe("go-naps-1.24", GO_1_24, "go/naps/naps.go", GO),
    recipe("go-naps-1.25", GO_1_25, "go/naps/naps.go", GO),
    recipe("go-naps-1.26", GO_1_26, "go/naps/naps.go", GO),
    recipe("go-naps-1.27", GO_1_27, "go/naps/naps.go", GO),
    recipe("go-stacks-1.21", GO_1_21, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.21-stripped", GO_1_21, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.22", GO_1_22, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.22-stripped", GO_1_22, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.23", GO_1_23, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.23-stripped", GO_1_23, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.24", GO_1_24, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.24-stripped", GO_1_24, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.25", GO_1_25, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.25-stripped", GO_1_25, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.26", GO_1_26, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.26-stripped", GO_1_26, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("go-stacks-1.27", GO_1_27, "go/stacks/stacks.go", GO),
    recipe("go-stacks-1.27-stripped", GO_1_27, "go/stacks/stacks.go", GO_STRIPPED),
    recipe("python-3.11", Language::Python("3.11"), cpython::PACKER, &[]),
    recipe("python-3.13", Language::Python("3.13"), cpython::PACKER, &[]),
    recipe("go-waits", GO_1_27, "go/waits/waits.go", GO),
    recipe("go-work-1.21", GO_1_21, "go/work/work.go", GO),
    recipe("go-work-1.24", GO_1_24, "go/work/work.go", GO),
    recipe("go-work-1.27", GO_1_27, "go/work/work.go", GO),
    recipe("quickjs-0.16", Language::QuickJs, quickjs::SOURCES, QUICKJS),
    recipe("rust-heap", Language::Rust, "rust/heap.rs", RUST_LEGACY),
    recipe("rust-inlined", Language::Rust, "rust/inlined.rs", RUST_LEGACY),
    recipe("rust-mix", Language::Rust, "rust/mix.rs", RUST_LEGACY),
    recipe("rust-mix-v0", Language::Rust, "rust/mix.rs", RUST_V0),
    recipe("tiny", Language::C, "tiny/interpreter.c", C),
    recipe("wat-call-ref", Language::Wat, "wat/call-ref.wat", &[]),
    recipe("wat-gc", Language::Wat, "wat/gc.wat", &[]),
    recipe("wat-no-names", Language::Wat, "wat/no-names.wat", &[]),
    recipe("wat-proposals", Language::Wat, "wat/proposals.wat", &[]),
    recipe("wat-start-function", Language::Wat, "wat/start-function.wat", &[]),
    recipe("wat-tail-calls", Language::Wat, "wat/tail-calls.wat", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout;

    #[test]
    fn names_are_unique_and_sources_exist() {
        let mut names: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RECIPES.len());
        for recipe in RECIPES {
            assert!(checkout::testdata().join(recipe.source).is_file(), "{}", recipe.source);
        }
    }
}
