//! What a walk costs through the plugins' ABI, as a ratio to the same walk by the same plugin built in.
//!
//! Both are asked at the same samples of one run, while the guest stands still, one after the other; which is first changes
//! with every sample. Each is asked once, as the sampler does, after the guest has had the processor's caches; then a few times
//! more, which shows the ABI's own cost at its worst: a walk that has all at hand.

use super::statistics::{Estimate, Spread};
use super::table::Table;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_loader::LoadedPlugin;
use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, Language, Program, SourceFrame, Truncation, Walker, WasmFrame};
use wlprof_run::guest::{Guest, LoadOptions};
use wlprof_run::profile::{Run, RunOptions};
use wlprof_wasi::{Stdio, WasiOptions};

/// Walks of each at one sample after the first.
const MORE_WALKS: u32 = 8;

/// Time spent in walks.
#[derive(Default)]
struct Times {
    samples: u32,
    frames: usize,
    /// Of the first walks: built in, loaded.
    first: [Duration; 2],
    /// Of the others.
    more: [Duration; 2],
}

/// The plugin in both forms. The built-in one's stacks are those of the profile.
struct Both {
    built_in: Arc<dyn Program>,
    loaded: Arc<dyn Program>,
    times: Arc<Mutex<Times>>,
}

impl Program for Both {
    fn walker(&self) -> Option<Box<dyn Walker>> {
        let (built_in, loaded, times) = (self.built_in.walker()?, self.loaded.walker()?, self.times.clone());
        Some(Box::new(BothWalkers { built_in, loaded, sink: FrameSink::new(), times }))
    }

    fn wanted_globals(&self) -> &[u32] {
        self.built_in.wanted_globals()
    }

    fn symbolize(&self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        self.built_in.symbolize(frame, out);
    }
}

struct BothWalkers {
    built_in: Box<dyn Walker>,
    loaded: Box<dyn Walker>,
    sink: FrameSink,
    times: Arc<Mutex<Times>>,
}

impl Walker for BothWalkers {
    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> Result<(), Truncation> {
        let Self { built_in, loaded, sink, times } = self;
        // Nobody else locks it while the guest runs.
        let mut times = times.try_lock().unwrap_or_else(|_| unreachable!("one thread walks"));
        let mut timed = |walker: &mut Box<dyn Walker>, walks: u32| {
            let began = Instant::now();
            for _ in 0..walks {
                sink.clear();
                // How it ends is the same for both.
                let _ = walker.walk(guest, wasm, sink);
            }
            began.elapsed()
        };
        let mut walkers = [(0, &mut *built_in), (1, loaded)];
        if times.samples.is_multiple_of(2) {
            walkers.reverse();
        }
        for (form, walker) in &mut walkers {
            times.first[*form] += timed(walker, 1);
        }
        for (form, walker) in &mut walkers {
            times.more[*form] += timed(walker, MORE_WALKS);
        }
        times.samples += 1;
        let walked = built_in.walk(guest, wasm, out);
        times.frames += out.len();
        walked
    }
}

/// Runs the guest at `path`, in Go, `rounds` times and prints the table.
pub(crate) fn bench(path: &Path, rounds: usize) -> Result<()> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut rounds_times = Vec::new();
    for round in 0..rounds {
        eprintln!("plugin ABI with {name}: round {} of {rounds}", round + 1);
        rounds_times.push(run(path, &name)?);
    }
    let samples: u32 = rounds_times.iter().map(|times| times.samples).sum();
    let frames: usize = rounds_times.iter().map(|times| times.frames).sum();
    println!(
        "\nthe Go plugin, built in and as a dynamic library, on the same {samples} samples of {name} ({:.1} frames a stack)",
        frames as f64 / f64::from(samples)
    );
    let mut table = Table::new(&["", "built in, µs a walk", "through the ABI", "ratio"]);
    let mut row = |what: &str, walks: u32, of: fn(&Times) -> [Duration; 2]| {
        let micros = |form: usize| {
            let time = move |times: &Times| of(times)[form].as_secs_f64() * 1e6 / f64::from(times.samples * walks);
            format!("{:.2}", Spread::of(rounds_times.iter().map(time)).median)
        };
        let ratio = |times: &Times| of(times)[1].as_secs_f64() / of(times)[0].as_secs_f64();
        table.row(vec![
            what.to_owned(),
            micros(0),
            micros(1),
            Estimate::of(rounds_times.iter().map(ratio)).to_string(),
        ]);
    };
    row("once a sample", 1, |times| times.first);
    row("again and again", MORE_WALKS, |times| times.more);
    table.print();
    Ok(())
}

fn run(path: &Path, name: &str) -> Result<Times> {
    let guest = Guest::load(path, &LoadOptions::default())?;
    let image = guest.code.images[0].clone();
    let plugin = LoadedPlugin::load(&library()?)?;
    let language = plugin.languages.first().context("the library has no language")?;
    let times = Arc::new(Mutex::new(Times::default()));
    let both =
        Both { built_in: wlprof_go::Go.attach(&*image)?, loaded: language.attach(&*image)?, times: times.clone() };
    let options = RunOptions {
        wasi: WasiOptions { arguments: vec![name.to_owned()], stdio: Stdio::Null, ..WasiOptions::default() },
        invoke: None,
        sampler: Some(SamplerOptions {
            kind: SamplerKind::Signal,
            max_overhead: 1.0,
            ..SamplerOptions::at_rate(1000.0)
        }),
    };
    let run = Run::start(&guest, vec![Some(Arc::new(both))], options)?;
    run.wait();
    run.finish();
    let times = std::mem::take(&mut *times.lock().unwrap_or_else(PoisonError::into_inner));
    if times.samples == 0 {
        bail!("{name} was not sampled");
    }
    Ok(times)
}

/// The Go plugin's library, which `cargo xtask bench` builds, beside this program.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().and_then(Path::parent).context("the bench is in no folder")?;
    let library = folder.join("examples/libgo_plugin.so");
    if !library.is_file() {
        bail!("{} is missing: run `cargo xtask bench`, which builds it", library.display());
    }
    Ok(library)
}
