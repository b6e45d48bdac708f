//! What a walk costs through the plugins' ABI, as a ratio to the same walk by the same plugin built in.
//!
//! Both are asked at the same samples of one run, while the guest stands still, one after the other; which is first changes
//! with every sample. Each is asked a few times, because a walk is not much longer than reading the clock.

use super::statistics::Spread;
use super::table::Table;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wlprof::guest::{Guest, LoadOptions, Stdio, WasiOptions};
use wlprof::languages::loader::LoadedPlugin;
use wlprof::profile::{Run, RunOptions};
use wlprof::sampler::{SamplerKind, SamplerOptions};
use wlprof_plugin::{FrameKey, FrameSink, GuestMemory, Language, SourceFrame, WalkEnd, Walker, WasmFrame};

/// Walks of each at one sample.
const WALKS: u32 = 8;

/// Time spent in walks.
#[derive(Default)]
struct Times {
    samples: u32,
    frames: usize,
    built_in: Duration,
    loaded: Duration,
}

/// The plugin in both forms. The built-in one's stacks are those of the profile.
struct Both {
    built_in: Box<dyn Walker>,
    loaded: Box<dyn Walker>,
    sink: FrameSink,
    times: Arc<Mutex<Times>>,
}

impl Walker for Both {
    fn reads_guest(&self) -> bool {
        self.built_in.reads_guest()
    }

    fn wanted_globals(&self) -> &[u32] {
        self.built_in.wanted_globals()
    }

    fn walk(&mut self, guest: &dyn GuestMemory, wasm: &[WasmFrame], out: &mut FrameSink) -> WalkEnd {
        let Self { built_in, loaded, sink, times } = self;
        // Nobody else locks it while the guest runs.
        let mut times = times.try_lock().unwrap_or_else(|_| unreachable!("one thread walks"));
        let mut timed = |walker: &mut Box<dyn Walker>| {
            let began = Instant::now();
            for _ in 0..WALKS {
                sink.clear();
                walker.walk(guest, wasm, sink);
            }
            began.elapsed()
        };
        if times.samples.is_multiple_of(2) {
            times.built_in += timed(built_in);
            times.loaded += timed(loaded);
        } else {
            times.loaded += timed(loaded);
            times.built_in += timed(built_in);
        }
        times.samples += 1;
        let end = built_in.walk(guest, wasm, out);
        times.frames += out.len();
        end
    }

    fn symbolize(&mut self, frame: FrameKey, out: &mut Vec<SourceFrame>) {
        self.built_in.symbolize(frame, out);
    }
}

/// Runs the guest at `path`, in Go, `rounds` times and prints the table.
pub(crate) fn bench(path: &Path, rounds: usize) -> Result<()> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let (mut built_in, mut loaded, mut ratios, mut samples, mut frames) = (Vec::new(), Vec::new(), Vec::new(), 0, 0);
    for round in 0..rounds {
        eprintln!("plugin ABI with {name}: round {} of {rounds}", round + 1);
        let times = run(path, &name)?;
        let walks = f64::from(times.samples * WALKS);
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / walks;
        built_in.push(micros(times.built_in));
        loaded.push(micros(times.loaded));
        ratios.push(times.loaded.as_secs_f64() / times.built_in.as_secs_f64());
        samples += times.samples;
        frames += times.frames;
    }
    println!(
        "\nthe Go plugin, built in and as a dynamic library, on the same {samples} samples of {name} ({:.1} frames a stack)",
        frames as f64 / f64::from(samples)
    );
    let mut table = Table::new(&["", "µs a walk", "lowest–highest"]);
    for (form, spread) in [("built in", Spread::of(built_in)), ("through the ABI", Spread::of(loaded))] {
        table.row(vec![
            form.to_owned(),
            format!("{:.2}", spread.median),
            format!("{:.2}–{:.2}", spread.lowest, spread.highest),
        ]);
    }
    let ratio = Spread::of(ratios);
    table.row(vec![
        "ratio".to_owned(),
        format!("{:.3}", ratio.median),
        format!("{:.3}–{:.3}", ratio.lowest, ratio.highest),
    ]);
    table.print();
    Ok(())
}

fn run(path: &Path, name: &str) -> Result<Times> {
    let guest = Guest::load(path, &LoadOptions::default())?;
    let image = guest.modules[0].1.clone();
    let plugin = LoadedPlugin::load(&library()?)?;
    let language = plugin.languages.first().context("the library has no language")?;
    let times = Arc::new(Mutex::new(Times::default()));
    let both = Both {
        built_in: wlprof_go::Go.attach(&*image)?,
        loaded: language.attach(&*image)?,
        sink: FrameSink::new(),
        times: times.clone(),
    };
    let options = RunOptions {
        wasi: WasiOptions { arguments: vec![name.to_owned()], stdio: Stdio::Null, ..WasiOptions::default() },
        invoke: None,
        sampler: Some(SamplerOptions { kind: SamplerKind::Signal, max_overhead: 1.0, ..SamplerOptions::default() }),
    };
    let run = Run::start(&guest, vec![Some(Box::new(both))], options)?;
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
