//! Shows how a guest is compiled: on a terminal how many of its functions are done, and everywhere how long it took in the end.
//!
//! Wasmtime has no call for this, but it logs a line for each function that it has compiled. These lines are counted while a guest is
//! compiled, and no others. If there are none, the code was in Wasmtime's cache.

use super::progress::Spinner;
use super::say;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wlprof_plugin::ModuleView;
use wlprof_recording::count_of;
use wlprof_run::guest::Program;
use wlprof_show::escape;

/// Which part of Wasmtime logs the lines.
const TARGET: &str = "wasmtime_internal_cranelift::compiler";
/// What takes so long is worth a line when it is done.
const LONG: Duration = Duration::from_secs(1);
/// So are so many functions, which take long if they are not in the cache.
const MANY: u64 = 1000;

/// Functions that have been compiled since the last guest was begun.
static COMPILED: AtomicU64 = AtomicU64::new(0);

/// Counts them.
struct Counter;

static COUNTER: Counter = Counter;

impl Log for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == TARGET && metadata.level() == Level::Debug
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && is_function(&record.args().to_string()) {
            COMPILED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// Whether this line says that a function of wasm was compiled: of a module, and not one of those by which modules are called.
fn is_function(line: &str) -> bool {
    // `wasm[0]::function[12]::name_wasm_call` compiled in 1.2ms
    line.contains("::function[") && line.contains("` compiled in ")
}

/// A guest that is being compiled.
pub(super) struct CompileProgress {
    spinner: Spinner,
    begun: Instant,
    functions: u64,
    is_quiet: bool,
    may_be_cached: bool,
}

impl CompileProgress {
    /// The guest at `path` is about to be compiled, unless it is in Wasmtime's cache, as it may be. If `is_quiet` no line is printed.
    pub(super) fn begin(path: &Path, program: &Program, may_be_cached: bool, is_quiet: bool) -> Self {
        let own: u64 = program.modules().iter().map(|module| defined_functions(module)).sum();
        let functions = own + program.preloads().map(|(_, image)| defined_functions(image)).sum::<u64>();
        let message = format!("compiling {}", escape::single_line(&path.to_string_lossy()));
        COMPILED.store(0, Ordering::Relaxed);
        // It is there already for the second guest of a command.
        let _ = log::set_logger(&COUNTER);
        log::set_max_level(LevelFilter::Debug);
        let spinner = Spinner::counting(message, functions, &COMPILED);
        let spinner = if is_quiet { spinner } else { spinner.with_line() };
        Self { spinner, begun: Instant::now(), functions, is_quiet, may_be_cached }
    }

    /// It has been compiled.
    pub(super) fn end(self) {
        let Self { spinner, begun, functions, is_quiet, may_be_cached } = self;
        log::set_max_level(LevelFilter::Off);
        drop(spinner);
        if is_quiet {
            return;
        }
        let (took, compiled) = (begun.elapsed(), COMPILED.load(Ordering::Relaxed));
        if compiled == 0 && may_be_cached {
            // In logs nobody waits to see whether it is quick this time.
            if functions >= MANY && std::io::stderr().is_terminal() {
                say::line(format_args!("{functions} functions were in Wasmtime's cache of compiled code"));
            }
        } else if took >= LONG || functions >= MANY {
            say::line(format_args!("compiled {} in {:.1} s", count_of(compiled, "function"), took.as_secs_f64()));
        }
    }
}

/// How many functions a module has that are not imported.
fn defined_functions(module: &dyn ModuleView) -> u64 {
    let first = module.function_imports().len() as u32;
    (first..).take_while(|&index| module.function_body(index).is_some()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_modules_count_and_what_calls_them_does_not() {
        for (line, counts) in [
            ("`wasm[0]::function[12]::f_wasm_call` compiled in 1.2ms", true),
            ("`wasm[1]::function[0]` compiled in 20µs", true),
            ("`wasm[0]::function[12]::f` translated to CLIF in 1.2ms", false),
            ("`wasm[0]::array_to_wasm_trampoline[12]::f_array_call` compiled in 1.2ms", false),
            ("`signatures[0]::wasm_to_array_trampoline` compiled in 1.2ms", false),
        ] {
            assert_eq!(is_function(line), counts, "{line}");
        }
    }
}
