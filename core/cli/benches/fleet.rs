//! What it costs to push profiles of fifty tenants in five languages: CPU time of sampling, and of naming and pushing, as shares of the guests'.
//!
//! One process has a store for each run of a tenant's guest, and sleeps between them, so that guests use 60 % of two processors. Windows of 15 s
//! are pushed to a server in this process that takes all. `--seconds N` says how long (600), `--rate HZ` how often samples are taken (19).

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("CPU times of threads are read as Linux has them");
}

#[cfg(target_os = "linux")]
fn main() {
    linux::measure();
}

#[cfg(target_os = "linux")]
mod linux {
    use nix::time::{ClockId, clock_gettime};
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    use wasmtime::{Cache, Config, Engine, InstancePre, Linker, Store};
    use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_sync};
    use wasmtime_wasi::{FsPerms, WasiCtxBuilder};
    use wlprof::{Attach, Profiler, Push};

    const TENANTS: usize = 50;
    /// Processors that are used, in all.
    const USED: f64 = 1.2;

    const PYTHON: &str = "
def digits(n):
    return sum(int(c) for c in str(n))
def pages(n):
    return [digits(i * 7919) for i in range(n)]
pages(60000)
";
    const JAVASCRIPT: &str = "
function digits(n) { return String(n).split('').reduce((sum, c) => sum + Number(c), 0); }
function pages(n) { let all = []; for (let i = 0; i < n; i++) all.push(digits(i * 7919)); return all; }
pages(60000);
";
    /// The guests, and what they are called with.
    const GUESTS: [(&str, &[&str]); 5] = [
        ("c-frames.wasm", &[]),
        ("rust-mix.wasm", &[]),
        ("go-goroutines-1.27.wasm", &[]),
        ("python-3.11.wasm", &["-I", "-c", PYTHON]),
        ("quickjs-0.16.wasm", &["-e", JAVASCRIPT]),
    ];

    fn fixtures() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/fixtures"))
    }

    /// The number behind an option, if it is given.
    fn option(name: &str) -> Option<f64> {
        std::env::args().skip_while(|argument| argument != name).nth(1)?.parse().ok()
    }

    /// What a server has been sent.
    #[derive(Default)]
    struct Taken {
        requests: AtomicU64,
        bytes: AtomicU64,
    }

    /// Takes whatever comes. Returns its address.
    fn server(taken: Arc<Taken>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has one");
        let serve = move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &taken);
            }
        };
        std::thread::Builder::new().name("server".into()).spawn(serve).expect("there is a thread");
        format!("pyroscope://{address}")
    }

    fn answer(mut stream: TcpStream, taken: &Taken) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            let field = line.to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        reader.read_exact(&mut vec![0; length])?;
        taken.requests.fetch_add(1, Ordering::Relaxed);
        taken.bytes.fetch_add(length as u64, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    }

    fn world(file: &str, arguments: &[&str]) -> WasiP1Ctx {
        let mut world = WasiCtxBuilder::new();
        if file.starts_with("python") {
            let library = fixtures().join("python-3.11-lib");
            world.preopened_dir(library, "/usr/local/lib", FsPerms::ReadOnly).expect("it is there");
        }
        world.arg(file).args(arguments);
        world.build_p1()
    }

    /// Runs a tenant's guest again and again, so that it uses its share of the processors.
    fn tenant(profiler: Profiler, pre: InstancePre<WasiP1Ctx>, number: usize, (file, arguments): (&str, &[&str])) {
        let name = format!("tenant-{number}");
        loop {
            let begun = thread_cpu();
            let mut store = Store::new(pre.module().engine(), world(file, arguments));
            let attach = Attach::named(&name).label("tenant", &name);
            let attached = profiler.attach(&mut store, attach).expect("it can be sampled");
            let instance = pre.instantiate(&mut store).expect("it has what it imports");
            attached.instantiated(&mut store, &instance).expect("it is the store's");
            let start = instance.get_typed_func::<(), ()>(&mut store, "_start").expect("it is a command");
            // Leaving is a trap.
            let _ = start.call(&mut store, ());
            drop(store);
            let ran = thread_cpu() - begun;
            std::thread::sleep(ran.mul_f64(TENANTS as f64 / USED - 1.0));
        }
    }

    fn thread_cpu() -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("it is there").into()
    }

    /// CPU time of this process's threads by their names, in seconds.
    fn by_thread() -> BTreeMap<String, f64> {
        let mut times = BTreeMap::new();
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let ran = read("schedstat").split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
            *times.entry(read("comm").trim().to_owned()).or_default() += ran / 1e9;
        }
        times
    }

    pub(super) fn measure() {
        let seconds = option("--seconds").unwrap_or(600.0);
        let rate = option("--rate").unwrap_or(19.0);
        let mut config = Config::new();
        config.cache(Some(Cache::from_file(None).expect("there is a cache")));
        wlprof::configure(&mut config);
        let engine = Engine::new(&config).expect("the settings are right");
        let profiler = Profiler::builder().rate_hz(rate).start(&engine).expect("it can sample");
        let mut linker: Linker<WasiP1Ctx> = Linker::new(&engine);
        add_to_linker_sync(&mut linker, |wasi| wasi).expect("it is new");
        // Each tenant has compiled its own.
        let modules: Vec<_> = (0..TENANTS)
            .map(|number| {
                let (file, _) = GUESTS[number % GUESTS.len()];
                let bytes = std::fs::read(fixtures().join(file));
                let bytes = bytes.expect("`cargo xtask test-fixtures` builds the guests");
                let module = profiler.load(file, &bytes).expect("it is a module");
                linker.instantiate_pre(&module).expect("it has what it imports")
            })
            .collect();
        let taken = Arc::new(Taken::default());
        let address = server(taken.clone());
        let push = Push::to(&address).expect("it is an address").service("fleet").labels(["tenant"]);
        let pushing = profiler.push(push.saying(|what| println!("{what}"))).expect("it can push");
        for (number, pre) in modules.into_iter().enumerate() {
            let profiler = profiler.clone();
            let run = move || tenant(profiler, pre, number, GUESTS[number % GUESTS.len()]);
            std::thread::Builder::new().name("tenant".into()).spawn(run).expect("there is a thread");
        }
        let begun = Instant::now();
        let mut looked = by_thread();
        println!("{TENANTS} tenants, {rate} samples a second; CPU time in percent of what guests had");
        println!(" seconds  guests  sampling  naming and pushing  windows  kB a window  MB resident");
        let mut last = (0, 0, 0);
        while begun.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(Duration::from_secs(60).min(Duration::from_secs_f64(seconds)));
            let now = by_thread();
            let of = |names: &[&str]| {
                let sum = |times: &BTreeMap<String, f64>| names.iter().filter_map(|name| times.get(*name)).sum::<f64>();
                sum(&now) - sum(&looked)
            };
            let activity = profiler.activity().unwrap_or_default();
            let guests = of(&["tenant"]);
            let (requests, bytes) = (taken.requests.load(Ordering::Relaxed), taken.bytes.load(Ordering::Relaxed));
            let handlers = (activity.sampling_ns + activity.recording_ns) as f64 / 1e9;
            let sampling = (handlers - last.2 as f64 / 1e9).max(0.0);
            let pushing = of(&["wlprof windows", "wlprof push"]);
            println!(
                "{:8.0} {guests:7.1} {:8.3} % {:18.3} % {:8} {:12.1} {:12}",
                begun.elapsed().as_secs_f64(),
                100.0 * sampling / guests,
                100.0 * pushing / guests,
                requests - last.0,
                (bytes - last.1) as f64 / 1e3 / (requests - last.0).max(1) as f64,
                resident_mb()
            );
            last = (requests, bytes, (handlers * 1e9) as u64);
            looked = now;
        }
        let counts = pushing.end();
        println!("{} windows delivered, {} lost", counts.delivered, counts.dropped_in_all());
    }

    fn resident_mb() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim().to_owned();
        line.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
    }
}
