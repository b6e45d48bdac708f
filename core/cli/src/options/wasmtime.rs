//! The options of `wasmtime run` that Wasmtime's own crate for them defines: `-O`, `-C`, `-D`, `-W` and `-S`.

use crate::failure::{FAILED, Failure};
use clap::Args;
use std::time::Duration;
use wasmtime::{Config, Engine, Inlining, Strategy};
use wasmtime_cli_flags::CommonOptions;
use wlprof_run::guest::{Entry, LoadOptions};
use wlprof_wasi::Flags;

/// Options of Wasmtime, under the names that they have there.
#[derive(Args)]
#[command(
    mut_arg("opts_raw", |arg| arg.help_heading("Wasmtime").hide_short_help(true)),
    mut_arg("codegen_raw", |arg| arg.help_heading("Wasmtime").hide_short_help(true)),
    mut_arg("debug_raw", |arg| arg.help_heading("Wasmtime").hide_short_help(true)),
    mut_arg("wasm_raw", |arg| arg.help_heading("Wasmtime").hide_short_help(true)),
    mut_arg("wasi_raw", |arg| arg.help_heading("Wasmtime").hide_short_help(true)),
    // Of a recording of Wasmtime's, and of another machine's code, there is nothing to sample.
    mut_arg("record_raw", |arg| arg.hide(true)),
    mut_arg("target", |arg| arg.hide(true)),
    mut_arg("config", |arg| arg.hide(true)),
)]
pub(crate) struct WasmtimeOptions {
    #[command(flatten)]
    common: CommonOptions,
}

impl WasmtimeOptions {
    /// How a guest is to be loaded with them, whose entry is this one.
    ///
    /// # Errors
    /// If one of them makes no sense here, or is not as Wasmtime wants it.
    pub(crate) fn load_options(&self, entry: Entry<'_>) -> Result<LoadOptions, Failure> {
        let failure = |error: wasmtime::Error| Failure::new(FAILED, format!("{error:#}"));
        let mut common = self.read().map_err(failure)?;
        let refused = refused(&common).or_else(|| refused_for(entry, &common));
        if let Some((option, reason)) = refused {
            return Err(Failure::new(FAILED, format!("{option}: {reason}")));
        }
        let pooled = (entry == Entry::Handler).then(|| pooled(&common)).flatten();
        let config = match pooled {
            Some(config) => config,
            None => common.config(None).map_err(failure)?,
        };
        let CommonOptions { wasi, wasm, .. } = common;
        Ok(LoadOptions { config: Some(config), flags: Flags { wasi, wasm }, ..LoadOptions::default() })
    }

    /// Whether guests count the instructions that they may run, which those that tell of their memory would count, too.
    pub(crate) fn limit_fuel(&self) -> bool {
        self.read().is_ok_and(|common| common.wasm.fuel.is_some())
    }

    /// How long the guest may run, if there is an end to that.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.read().ok()?.wasm.timeout
    }

    /// The options in their fields, where `common` has the words of the command line.
    fn read(&self) -> wasmtime::Result<CommonOptions> {
        let mut read = self.common.clone();
        // Of what puts them there this alone does nothing else, as long as there is no log.
        read.init_logging()?;
        Ok(read)
    }
}

/// The configuration for many stores that come and go, as `wasmtime serve` has it: instances from a pool, where this machine has the address
/// space for one.
fn pooled(common: &CommonOptions) -> Option<Config> {
    /// Twice as many as Wasmtime has unless told, and more: each store has some of the profiler's.
    const CORE_INSTANCES: u32 = 3000;
    let mut common = common.clone();
    common.opts.pooling_total_core_instances.get_or_insert(CORE_INSTANCES);
    // A module that tells of what it allocates has one of each beside its own.
    common.opts.pooling_max_memories_per_module.get_or_insert(2);
    common.opts.pooling_max_tables_per_module.get_or_insert(2);
    let config = common.config(Some(true)).ok()?;
    Engine::new(&config).is_ok().then_some(config)
}

/// The first of the options that make no sense in a profiler, and why.
fn refused(options: &CommonOptions) -> Option<(&'static str, &'static str)> {
    const CODE: &str = "the sampler reads stacks of the code that Cranelift compiles for this machine";
    const MAP: &str = "the sampler finds functions and lines by it";
    const DEBUGGER: &str = "a guest is not debugged and profiled at once";
    const WASI: &str = "wlprof gives guests WASI for programs and HTTP; run those that need more with `wasmtime run`";
    let CommonOptions { codegen, debug, wasm, wasi, record, target, .. } = options;
    let is = |option: Option<bool>, value: bool| option == Some(value);
    let refusals = [
        (!matches!(codegen.compiler, None | Some(Strategy::Auto | Strategy::Cranelift)), "-C compiler", CODE),
        (target.is_some(), "--target", CODE),
        (
            !matches!(codegen.inlining, None | Some(Inlining::No)),
            "-C inlining",
            "functions that are compiled into others have no frames of their own to be seen",
        ),
        (is(debug.address_map, false), "-D address-map=n", MAP),
        (is(debug.symbols, false), "-D symbols=n", MAP),
        (is(debug.guest_debug, true), "-D guest-debug", DEBUGGER),
        (debug.debugger.is_some() || !debug.arg.is_empty(), "-D debugger", DEBUGGER),
        (debug.coredump.is_some(), "-D coredump", "run the guest with `wasmtime run` for its core dump"),
        (record.path.is_some(), "-R path", "wlprof records what it samples, with -o"),
        (is(wasm.stack_switching, true), "-W stack-switching", "stacks of continuations cannot be walked"),
        (is(wasm.wmemcheck, true), "-W wmemcheck", "check a guest's memory with a `wasmtime` that is built for it"),
        (wasi.cli.is_some() && wasi.common.is_some(), "-S common", "it is an older name of -S cli: give one of them"),
        (is(wasi.nn, true), "-S nn", WASI),
        (is(wasi.config, true), "-S config", WASI),
        (is(wasi.keyvalue, true), "-S keyvalue", WASI),
        (is(wasi.tls, true), "-S tls", WASI),
        (is(wasi.listenfd, true), "-S listenfd", "Wasmtime has it no more"),
        (!wasi.tcplisten.is_empty(), "-S tcplisten", "Wasmtime has it no more"),
        (is(wasi.threads, true), "-S threads", "Wasmtime has no wasi-threads any more"),
        (is(wasi.preview2, false), "-S preview2=n", "Wasmtime has no other preview 1 any more"),
    ];
    refusals.into_iter().find(|(is_refused, ..)| *is_refused).map(|(_, option, reason)| (option, reason))
}

/// The same of those that make no sense for what is to be called.
fn refused_for(entry: Entry<'_>, options: &CommonOptions) -> Option<(&'static str, &'static str)> {
    let without_http = entry == Entry::Handler && options.wasi.http == Some(false);
    without_http.then_some(("-S http=n", "a server's guest answers HTTP"))
}
