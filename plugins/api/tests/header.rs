//! The C header, the Rust definitions and `docs/plugin-abi.md` are about the same thing: sizes and offsets by a C compiler's
//! account, and a row in the document for everything in the header.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use wlprof_plugin::abi::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn header() -> String {
    std::fs::read_to_string(root().join("plugins/api/include/wlprof_plugin.h")).unwrap()
}

/// Size and offsets of structures as Rust has them, `structure.field` to number; that of a structure itself without a field.
/// A field left out here does not compile.
macro_rules! layouts {
    ($($rust:ident as $c:ident { $($field:ident),+ $(,)? })+) => {{
        $(let _ = |$rust { $($field: _),+ }: $rust| ();)+
        [$(
            (stringify!($c).to_owned(), size_of::<$rust>()),
            $((concat!(stringify!($c), ".", stringify!($field)).to_owned(), offset_of!($rust, $field)),)+
        )+]
    }};
}

fn layouts() -> BTreeMap<String, usize> {
    layouts! {
        Allocator as wlprof_allocator_t { size, function, call, leading_parameters, trailing_parameters }
        Allocators as wlprof_allocators_t { size, add }
        Bytes as wlprof_bytes_t { data, length }
        FrameKey as wlprof_frame_key_t { kind, wasm, value }
        Guest as wlprof_guest_t { size, memory_size, read, global, memory }
        HeapBucket as wlprof_heap_bucket_t {
            size, frames, frame_count, allocated_blocks, allocated_bytes, freed_blocks, freed_bytes,
        }
        HeapBuckets as wlprof_heap_buckets_t { size, add }
        Label as wlprof_label_t { name, value }
        Labels as wlprof_labels_t { size, add }
        Language as wlprof_language_t { size, name, detect, attach, library_folder }
        Member as wlprof_member_t { offset, size, first_bit, bit_count }
        MemoryPatch as wlprof_memory_patch_t { size, address, expected, expected_count, bytes }
        MemoryPatches as wlprof_memory_patches_t { size, add }
        Module as wlprof_module_t {
            size, name, bytes, custom_section, function_import_count, function_import, function_body, function_name,
            global_named, variable_address, member, type_size, enumerator, function_named, table_function,
            initial_data, code_hash, sibling_count, sibling,
        }
        Plugin as wlprof_plugin_t {
            magic, abi_major, abi_minor, size, name, version, languages, language_count,
        }
        Program as wlprof_program_t {
            size, wanted_globals, wanted_global_count, destroy, walker, symbolize, categorize, labels, warnings,
            allocators, switch_heap_profiler_on,
        }
        SourceFrame as wlprof_source_frame_t {
            size, function, linkage_name, file, function_line, line, column, category,
        }
        SourceFrames as wlprof_source_frames_t { size, add }
        Stack as wlprof_stack_t {
            size, frames, capacity, length, labels, has_labels, may_allocate, label_keys, label_capacity, label_count,
        }
        StackFrame as wlprof_stack_frame_t { kind, reserved, value }
        Texts as wlprof_texts_t { size, add }
        Thread as wlprof_thread_t {
            size, name, state, frames, frame_count, end, is_running, has_creator, creator, creator_frame, labels,
            label_count,
        }
        Threads as wlprof_threads_t { size, add }
        Walker as wlprof_walker_t {
            size, flags, destroy, walk, threads, heap_profile,
        }
        WasmFrame as wlprof_wasm_frame_t { module, function, code_offset }
    }
    .into()
}

/// All structures and fields of the header, as [`layouts`] names them.
fn declared(header: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut structure = "";
    for line in header.lines() {
        if let Some(name) = line.strip_prefix("typedef struct ").and_then(|rest| rest.strip_suffix(" {")) {
            structure = name;
            names.push(name.to_owned());
        } else if line.starts_with('}') {
            structure = "";
        } else if let Some(field) = line.strip_prefix("  ").filter(|line| !line.starts_with([' ', '/']))
            && !structure.is_empty()
        {
            // `type *name;` or `type (*name)(…`.
            let before = field.split_once(")(").map_or(field, |(before, _)| before);
            let name = before.trim_end_matches(';').rsplit(['*', ' ']).next().unwrap();
            names.push(format!("{structure}.{name}"));
        }
    }
    names
}

/// The constants of the header with their values.
fn constants(header: &str) -> BTreeMap<String, String> {
    let defines = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    let numbers = defines.filter(|(_, value)| value.starts_with(|first: char| first.is_ascii_digit()));
    numbers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_c_compiler_lays_everything_out_as_rust_does() {
    let folder = tempfile::tempdir().unwrap();
    let layouts = layouts();
    let print = |name: &String| match name.split_once('.') {
        Some((structure, field)) => format!("printf(\"{name} %zu\\n\", offsetof({structure}, {field}));"),
        None => format!("printf(\"{name} %zu\\n\", sizeof({name}));"),
    };
    let prints: Vec<String> = layouts.keys().map(print).collect();
    let source = folder.path().join("layout.c");
    let includes = "#include \"wlprof_plugin.h\"\n#include <stdio.h>\n";
    std::fs::write(&source, format!("{includes}int main(void) {{\n{}\nreturn 0;\n}}\n", prints.join("\n"))).unwrap();
    let program = folder.path().join("layout");
    // The linker of every Rust program is a C compiler, so there is one.
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    let compiled =
        compiler.arg(root().join("plugins/api/include")).arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let said = String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap();
    let said: BTreeMap<String, usize> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, number)| (name.to_owned(), number.parse().unwrap()))
        .collect();
    assert_eq!(said, layouts);
}

#[test]
fn the_header_declares_what_there_is_in_rust() {
    let header = header();
    let mut declared = declared(&header);
    declared.sort();
    assert_eq!(declared, layouts().into_keys().collect::<Vec<_>>());
    let constants = constants(&header);
    assert_eq!(constants["WLPROF_PLUGIN_MAGIC"], PLUGIN_MAGIC.to_string());
    assert_eq!((&*constants["WLPROF_ABI_MAJOR"], &*constants["WLPROF_ABI_MINOR"]), ("1", "0"));
    assert_eq!((ABI_MAJOR, ABI_MINOR), (1, 0));
}

/// A section for each structure, with a row for each field; a row for each constant, with its value.
#[test]
fn the_document_has_all_of_the_header_and_nothing_else() {
    let document = std::fs::read_to_string(root().join("docs/plugin-abi.md")).unwrap();
    let mut described = Vec::new();
    let mut values = BTreeMap::new();
    let mut structure = String::new();
    for line in document.lines() {
        if line.starts_with('#') {
            let name = line.split('`').nth(1).filter(|name| name.ends_with("_t"));
            structure = name.unwrap_or_default().to_owned();
            described.extend(name.map(str::to_owned));
        } else if let Some(row) = line.strip_prefix("| `") {
            let (name, rest) = row.split_once('`').unwrap();
            if name.starts_with("WLPROF_") {
                let value = rest.trim_start_matches(" | ").split(' ').next().unwrap();
                values.insert(name.to_owned(), value.to_owned());
            } else {
                described.push(format!("{structure}.{name}"));
            }
        }
    }
    described.sort();
    let header = header();
    let mut declared = declared(&header);
    declared.sort();
    assert_eq!(described, declared, "docs/plugin-abi.md (left) and wlprof_plugin.h (right)");
    let mut constants = constants(&header);
    for (value, name) in [(ABI_MAJOR, "WLPROF_ABI_MAJOR"), (ABI_MINOR, "WLPROF_ABI_MINOR")] {
        assert_eq!(constants[name], value.to_string());
    }
    // The magic number is easier to know as a text.
    assert!(constants.remove("WLPROF_PLUGIN_MAGIC").is_some());
    values.remove("WLPROF_PLUGIN_MAGIC");
    assert_eq!(values, constants);
}
