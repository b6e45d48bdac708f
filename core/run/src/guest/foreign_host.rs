//! Which other host a module was built for, told by what it imports: who runs it here by mistake is told how to build it.

use super::interface::Import;
use std::fmt;
use wasmtime_environ::wasmparser::ValType;

/// A host that is not WASI preview 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignHost {
    /// WASI with threads, which Wasmtime gave up.
    WasiThreads,
    /// Wasmer's extension of WASI.
    Wasix,
    /// The component model: this is a core module that was to be put into a component.
    Component,
    /// A dynamic linker: this is a library.
    DynamicLinker,
    /// JavaScript, through the glue of Go.
    JsOfGo,
    /// JavaScript, through the glue of Rust's wasm-bindgen.
    JsOfWasmBindgen,
    /// JavaScript, through the glue of Emscripten.
    JsOfEmscripten,
    /// JavaScript, through the glue of AssemblyScript.
    JsOfAssemblyScript,
    /// JavaScript, through Ruby's gem `js`.
    JsOfRuby,
}

/// Whether an import is the mark of a host.
type IsMark = fn(&Import) -> bool;

/// Each host and its marks. Emscripten comes before AssemblyScript: both import `env.abort`.
const MARKS: [(ForeignHost, IsMark); 9] = [
    (ForeignHost::WasiThreads, |import| import.module == "wasi" && import.name == "thread-spawn"),
    (ForeignHost::Wasix, |import| import.module.starts_with("wasix_")),
    (ForeignHost::Component, |import| {
        import.module.starts_with("cm32p2") || import.module.contains(':') && import.module.contains('/')
    }),
    (ForeignHost::JsOfGo, |import| matches!(&*import.module, "go" | "gojs")),
    (ForeignHost::JsOfWasmBindgen, |import| {
        let glue = import.module == "wbg" || import.module.ends_with("_bg.js");
        glue || import.module.starts_with("__wbindgen_") || import.name.starts_with("__wbindgen_")
    }),
    (ForeignHost::JsOfEmscripten, |import| {
        let prefixes = ["emscripten_", "_emscripten_", "_embind_", "__syscall_", "__asyncjs__", "invoke_"];
        // Optimized glue calls everything in it by one or two letters.
        let is_minified = import.module == "a" && import.name.len() <= 2;
        is_minified || import.module == "env" && prefixes.iter().any(|prefix| import.name.starts_with(prefix))
    }),
    (ForeignHost::DynamicLinker, |import| {
        import.module.starts_with("GOT.") || matches!(&*import.name, "__memory_base" | "__table_base")
    }),
    (ForeignHost::JsOfAssemblyScript, |import| {
        // Message, file, line and column.
        let parameters = import.function.as_ref().map(|ty| ty.params());
        import.module == "env" && import.name == "abort" && parameters == Some(&[ValType::I32; 4])
    }),
    (ForeignHost::JsOfRuby, |import| import.module == "rb-js-abi-host"),
];

impl ForeignHost {
    /// The host that has `imports`, which are not to be had here.
    pub(super) fn of(imports: &[&Import]) -> Option<Self> {
        let is_marked = |is_mark: &fn(&Import) -> bool| imports.iter().any(|import| is_mark(import));
        MARKS.iter().find(|(_, is_mark)| is_marked(is_mark)).map(|(host, _)| *host)
    }
}

impl fmt::Display for ForeignHost {
    /// What the module is and how to build one that runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WasiThreads => {
                "it starts threads of its own (wasi-threads), which Wasmtime no longer has; build it for one thread \
                 (wasm32-wasip1)"
            }
            Self::Wasix => "it is built for WASIX, which is Wasmer's own; build it for wasm32-wasip1",
            Self::Component => {
                "it was to become a part of a component; make one of it, which can be run (`wasm-tools component new`), or \
                 build it for wasm32-wasip1"
            }
            Self::DynamicLinker => {
                "it is a library for a dynamic linker, and no program; link it into one, or build it without -fPIC and \
                 -shared"
            }
            Self::JsOfGo => "it is Go for a JavaScript host (GOOS=js); build it with GOOS=wasip1",
            Self::JsOfWasmBindgen => {
                "it is Rust for a JavaScript host (wasm-bindgen); build a program without it for wasm32-wasip1"
            }
            Self::JsOfEmscripten => {
                "it is built by Emscripten for a JavaScript host; build it with -sSTANDALONE_WASM and without what needs \
                 JavaScript, or with wasi-sdk"
            }
            Self::JsOfAssemblyScript => {
                "it is AssemblyScript for a JavaScript host; build it with the configuration of @assemblyscript/wasi-shim"
            }
            Self::JsOfRuby => {
                "it is Ruby for a JavaScript host (the gem `js`); take the program of ruby.wasm's releases, \
                 usr/local/bin/ruby of ruby-*-wasm32-unknown-wasip1-full.tar.gz"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::interface::Interface;
    use super::*;

    fn host_of(imports: &str) -> Option<ForeignHost> {
        let interface = Interface::read(&wat::parse_str(format!("(module {imports})")).unwrap()).unwrap();
        ForeignHost::of(&interface.imports.iter().collect::<Vec<_>>())
    }

    #[test]
    fn hosts_are_known_by_their_imports() {
        let abort = r#"(import "env" "abort" (func (param i32 i32 i32 i32)))"#;
        for (imports, host) in [
            (r#"(import "wasi" "thread-spawn" (func (param i32) (result i32)))"#, Some(ForeignHost::WasiThreads)),
            (r#"(import "wasix_32v1" "futex_wake" (func))"#, Some(ForeignHost::Wasix)),
            (r#"(import "wasi:cli/exit@0.2.0" "exit" (func (param i32)))"#, Some(ForeignHost::Component)),
            (r#"(import "GOT.mem" "environ" (global (mut i32)))"#, Some(ForeignHost::DynamicLinker)),
            (r#"(import "env" "__memory_base" (global i32))"#, Some(ForeignHost::DynamicLinker)),
            (r#"(import "gojs" "runtime.wasmWrite" (func (param i32)))"#, Some(ForeignHost::JsOfGo)),
            (r#"(import "./app_bg.js" "alert" (func))"#, Some(ForeignHost::JsOfWasmBindgen)),
            (r#"(import "env" "emscripten_resize_heap" (func (param i32)))"#, Some(ForeignHost::JsOfEmscripten)),
            (r#"(import "a" "b" (func))"#, Some(ForeignHost::JsOfEmscripten)),
            (abort, Some(ForeignHost::JsOfAssemblyScript)),
            (
                r#"(import "rb-js-abi-host" "global-this: func() -> handle" (func (result i32)))"#,
                Some(ForeignHost::JsOfRuby),
            ),
            (&format!(r#"{abort} (import "env" "invoke_vi" (func))"#), Some(ForeignHost::JsOfEmscripten)),
            (r#"(import "env" "abort" (func))"#, None),
            (r#"(import "env" "log" (func))"#, None),
        ] {
            assert_eq!(host_of(imports), host, "{imports}");
        }
    }
}
