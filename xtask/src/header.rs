//! `cargo xtask header`: the C header of the plugins' ABI, generated from the Rust definitions.

use std::fs;

use anyhow::{Context, Result, bail};
use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};

use crate::cache::Cache;
use crate::checkout;
use crate::process;
use crate::progress::Step;
use crate::wheels::{Pins, Wheels};

const SOURCE: &str = "plugins/api/src/abi/mod.rs";
const HEAP_SOURCE: &str = "plugins/api/src/abi/heap.rs";
const HEADER: &str = "plugins/api/include/wlprof_plugin.h";

/// The structures, in Rust and in C.
const TYPES: [(&str, &str); 25] = [
    ("Allocator", "wlprof_allocator_t"),
    ("Allocators", "wlprof_allocators_t"),
    ("Bytes", "wlprof_bytes_t"),
    ("FrameKey", "wlprof_frame_key_t"),
    ("Guest", "wlprof_guest_t"),
    ("HeapBucket", "wlprof_heap_bucket_t"),
    ("HeapBuckets", "wlprof_heap_buckets_t"),
    ("Label", "wlprof_label_t"),
    ("Labels", "wlprof_labels_t"),
    ("Language", "wlprof_language_t"),
    ("Member", "wlprof_member_t"),
    ("MemoryPatch", "wlprof_memory_patch_t"),
    ("MemoryPatches", "wlprof_memory_patches_t"),
    ("Module", "wlprof_module_t"),
    ("Plugin", "wlprof_plugin_t"),
    ("Program", "wlprof_program_t"),
    ("SourceFrame", "wlprof_source_frame_t"),
    ("SourceFrames", "wlprof_source_frames_t"),
    ("Stack", "wlprof_stack_t"),
    ("StackFrame", "wlprof_stack_frame_t"),
    ("Texts", "wlprof_texts_t"),
    ("Thread", "wlprof_thread_t"),
    ("Threads", "wlprof_threads_t"),
    ("Walker", "wlprof_walker_t"),
    ("WasmFrame", "wlprof_wasm_frame_t"),
];

/// Before the names of constants.
const PREFIX: &str = "WLPROF_";

/// What constants that belong together begin with.
const FAMILIES: [&str; 6] = ["ALLOCATOR_CALL", "CATEGORY", "DETECTION", "FRAME_KIND", "WALKER", "WALK_END"];

/// Compares the committed header with one generated now, or replaces it if told `--bless`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let step = Step::quietly("header");
    let path = checkout::root().join(HEADER);
    let generated = generate()?;
    let committed = fs::read_to_string(&path).unwrap_or_default();
    if committed != generated {
        if arguments != ["--bless"] {
            bail!("{HEADER} is not what {SOURCE} says: run `cargo xtask header --bless`");
        }
        fs::write(&path, generated).with_context(|| format!("cannot write {}", path.display()))?;
    }
    is_taken_by_cpp()?;
    step.done();
    Ok(())
}

/// Has a C++ compiler read the header, with a plugin that defines what it declares. The C plugins of the tests show that C
/// compilers do.
fn is_taken_by_cpp() -> Result<()> {
    let (cache, pins) = (Cache::open()?, Pins::read()?);
    let wheels = {
        let _lock = cache.lock()?;
        Wheels::get(&cache, &pins)?
    };
    let workplace = cache.workplace("header")?;
    let mut compiler = wheels.zig(&cache)?;
    compiler.args(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-c", "-o"]);
    compiler.arg(workplace.path.join("nothing.o")).arg("-I");
    compiler.arg(checkout::root().join(HEADER).parent().context("the header is in no folder")?);
    compiler.arg(checkout::testdata().join("plugins/nothing.cpp"));
    process::output(&mut compiler, "run `cargo xtask test-fixtures`, which installs it")
        .context("the header is no C++")?;
    Ok(())
}

fn generate() -> Result<String> {
    let [source, heap] = [SOURCE, HEAP_SOURCE].map(|path| checkout::root().join(path));
    let rust = fs::read_to_string(&source)?;
    let config = Config {
        language: Language::C,
        style: Style::Both,
        documentation_style: DocumentationStyle::C99,
        include_guard: Some("WLPROF_PLUGIN_H".to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        cpp_compat: true,
        usize_is_size_t: true,
        line_length: 120,
        header: Some(opening(&rust)),
        export: ExportConfig {
            prefix: Some(PREFIX.to_owned()),
            renaming_overrides_prefixing: true,
            rename: TYPES.map(|(rust, c)| (rust.to_owned(), c.to_owned())).into_iter().collect(),
            include: TYPES.map(|(rust, _)| rust.to_owned()).to_vec(),
            exclude: vec!["PLUGIN_SYMBOL".to_owned()],
            ..ExportConfig::default()
        },
        ..Config::default()
    };
    let bindings = Builder::new().with_config(config).with_src(source).with_src(heap).generate()?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = in_terms_of_c(&String::from_utf8(header)?);
    let end = header.rfind("#endif").context("the header has no include guard")?;
    Ok([&header[..end], FOR_C, &header[end..]].concat())
}

/// How texts are written, and that the plugin's symbol is to be defined. In C++ a constant is another file's only if it is
/// said to be, and `extern "C" extern` says it once too often.
const FOR_C: &str = "\
// The bytes of a string literal, to initialize a wlprof_bytes_t with.
#define WLPROF_BYTES(literal) {(const uint8_t *)(literal), sizeof(literal) - 1}

// The symbol that a library exports.
#ifdef __cplusplus
extern \"C\"
#else
extern
#endif
#ifdef __GNUC__
__attribute__((visibility(\"default\")))
#endif
const wlprof_plugin_t wlprof_plugin;

";

/// What the module says of the ABI as a whole.
fn opening(rust: &str) -> String {
    let lines = rust.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<String> = lines.map(|line| format!(" *{line}")).collect();
    format!("/* Generated from {SOURCE} by `cargo xtask header`.\n *\n{}\n */", lines.join("\n"))
}

/// Writes the names that comments link to as C has them: `[`Walker::walk`]` as `wlprof_walker_t.walk`.
fn in_terms_of_c(header: &str) -> String {
    let mut header = header.to_owned();
    for family in FAMILIES {
        header = header.replace(&format!("`{family}_…`"), &format!("{PREFIX}{family}_*"));
    }
    let mut parts = header.split("[`");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("`]") {
            Some((name, rest)) => {
                let (item, member) = name.split_once("::").map_or((name, None), |(item, member)| (item, Some(member)));
                let c = TYPES.iter().find(|(rust, _)| *rust == item).map(|(_, c)| (*c).to_owned());
                let c = c.unwrap_or_else(|| format!("{PREFIX}{item}"));
                text.push_str(&member.map_or(c.clone(), |member| format!("{c}.{member}")));
                text.push_str(rest);
            }
            None => {
                text.push_str("[`");
                text.push_str(part);
            }
        }
    }
    text.lines().map(|line| line.trim_end().replace('`', "") + "\n").collect()
}
