//! What wlprof adds to the start of a guest, beside the time that Wasmtime takes to compile it.

use super::statistics::Spread;
use super::table::Table;
use anyhow::{Result, anyhow};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::{Engine, Module, Store};
use wlprof::module::{ModuleImage, read_module};
use wlprof::sampler::SamplerOptions;
use wlprof::{Attach, Profiler};
use wlprof_run::guest::{EngineOptions, engine};
use wlprof_wasi::{Stdio, WasiOptions};

/// The times of one start.
struct Start {
    compile: Duration,
    parse: Duration,
    begin: Duration,
    map: Duration,
    attach: Duration,
}

impl Start {
    fn own(&self) -> Duration {
        self.parse + self.begin + self.map + self.attach
    }
}

/// Starts the module at `path` `rounds` times and prints the table.
pub(crate) fn bench(path: &Path, rounds: usize) -> Result<()> {
    let bytes = read_module(path)?;
    let size = bytes.len() as f64 / 1e6;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut starts = Vec::new();
    for round in 0..rounds {
        eprintln!("start-up of {name}: round {} of {rounds}", round + 1);
        starts.push(start(&bytes, &name)?);
    }
    let compile = Spread::of(starts.iter().map(|start| start.compile.as_secs_f64() * 1e3));
    println!(
        "\nstart-up of {name}, {size:.1} MB: Wasmtime compiles it in {:.0} ms ({:.0}–{:.0}) without its cache; \
         medians of {rounds} rounds",
        compile.median, compile.lowest, compile.highest
    );
    let mut table = Table::new(&["wlprof's own part", "ms", "lowest–highest", "of compiling"]);
    let mut row = |part: &str, time: fn(&Start) -> Duration| {
        let spread = Spread::of(starts.iter().map(|start| time(start).as_secs_f64() * 1e3));
        table.row(vec![
            part.to_owned(),
            format!("{:.2}", spread.median),
            format!("{:.2}–{:.2}", spread.lowest, spread.highest),
            format!("{:.2} %", 100.0 * spread.median / compile.median),
        ]);
    };
    row("parse the module", |start| start.parse);
    row("map its code", |start| start.map);
    row("start: self-check", |start| start.begin);
    row("attach: calibration", |start| start.attach);
    row("in all", Start::own);
    table.print();
    Ok(())
}

fn start(bytes: &[u8], name: &str) -> Result<Start> {
    let copy = bytes.to_vec();
    let (image, parse) = timed(|| ModuleImage::parse(copy, name));
    let image = Arc::new(image?);
    let engine = engine(EngineOptions { epoch_interruption: false, cache: false })?;
    let (module, compile) = timed(|| Module::from_binary(&engine, bytes));
    let module = module?;
    let (profiler, begin) = timed(|| Profiler::builder().sampler_options(SamplerOptions::default()).start(&engine));
    let profiler = profiler?;
    let (added, map) = timed(|| profiler.add_read(&module, &image, None));
    added?;
    let attach = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(&profiler, &engine));
        attaching.join().map_err(|_| anyhow!("attaching panicked"))?
    })?;
    profiler.finish();
    Ok(Start { compile, parse, begin, map, attach })
}

/// Attaches on the calling thread, and leaves again.
fn attach(profiler: &Profiler, engine: &Engine) -> Result<Duration> {
    let wasi = WasiOptions { stdio: Stdio::Null, ..WasiOptions::default() };
    let mut store = Store::new(engine, wasi.build()?);
    let (held, time) = timed(|| profiler.attach(&mut store, Attach::named("store"))?.hold());
    drop(held?);
    Ok(time)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed())
}
