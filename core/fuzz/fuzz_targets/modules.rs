//! Whole modules on the built binary (`cargo build --release`): a guest that is sampled as often as can be does what it does
//! unsampled, its ticks add up, its recording is read, and nothing panics or takes long.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;
use wasm_smith::{Config, Module};
use wlprof::recording::file;

const WLPROF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/release/wlprof");

/// Loop heads and functions that a guest may enter: some milliseconds of work.
const FUEL: u32 = 2_000_000;

/// What modules export and may import: results tell how they computed.
static EXPORTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let exports = r#"(module
        (func (export "run") (result i64 f64) unreachable)
        (memory (export "memory") 1))"#;
    wat::parse_str(exports).expect("a module")
});
static IMPORTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let imports = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_read" (func (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "args_sizes_get" (func (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "sched_yield" (func (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))))"#;
    wat::parse_str(imports).expect("a module")
});

/// Modules of what the pinned Wasmtime runs without further options.
fn config() -> Config {
    Config {
        available_imports: Some(IMPORTS.clone()),
        exports: Some(EXPORTS.clone()),
        canonicalize_nans: true,
        compact_imports_enabled: false,
        exceptions_enabled: false,
        gc_enabled: false,
        generate_custom_sections: true,
        max_memory32_bytes: 1 << 24,
        max_instructions: 300,
        memory64_enabled: false,
        relaxed_simd_enabled: false,
        shared_everything_threads_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        ..Config::default()
    }
}

fn module(input: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut module = Module::new(config(), &mut Unstructured::new(input))?;
    Ok(module.ensure_termination(FUEL).is_ok().then(|| module.to_bytes()))
}

/// Runs the guest in `folder`, in at most 60 s and 4 GB of memory beside what Wasmtime sets aside for guests.
fn run(folder: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", WLPROF, "--quiet"]).args(options).args(["--invoke", "run", "guest.wasm"]);
    let ran = command.current_dir(folder).stdin(Stdio::null()).output().expect("`timeout` is there");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(!told.contains("panicked") && ran.status.code().is_some_and(|code| code != 137), "{options:?}: {ran:?}");
    ran
}

fuzz_target!(|input: &[u8]| {
    let Ok(Some(module)) = module(input) else { return };
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("guest.wasm"), &module).expect("a file");
    let plain = run(folder.path(), &["--sampler=off"]);
    // Both ways of sampling, and both clocks.
    let way = ["--sampler=signal", "--sampler=epoch"][usize::from(input.len() % 4 == 0)];
    let clock = ["--clock=cpu", "--clock=wall"][usize::from(input.len() % 2 == 0)];
    let options = [way, clock, "--rate=50000", "--max-overhead=100", "-o", "p.wlprof"];
    let sampled = run(folder.path(), &options);
    assert_eq!((plain.status, plain.stdout), (sampled.status, sampled.stdout), "{options:?}");
    if plain.status.code() == Some(125) || plain.status.code() == Some(126) {
        return;
    }
    let bytes = std::fs::read(folder.path().join("p.wlprof")).expect("the recording");
    let recording = file::read(&bytes).expect("a recording");
    assert!(recording.ticks.balanced(), "{:?}", recording.ticks);
});
